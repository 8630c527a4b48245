//! The words of each face for its users: an error of the core has a remedy as data, and each face has words for every remedy.

use std::collections::BTreeSet;

use mqstore::check::{FindingId, Fix};
use mqstore::remedy::Remedy;

use super::tree::{Finding, Tree};

/// Arguments of Python and commands, which the core must not name.
const OF_OTHER_FACES: [&str; 11] = [
    "errors=",
    "recovery=",
    "walk=",
    "on_missing=",
    "mode \\\"r\\\"",
    "mqstore copy",
    "mqstore doctor",
    "mqstore rebuild",
    "mqstore repair",
    "mqstore verify",
    "truncate -s",
];
/// The faces of other languages, and what their text has for a remedy.
const FACES: [(&str, &str); 3] = [
    ("python/mqstore/errors.py", ",\n"),
    ("python/mqstore/cli/_words.py", ": "),
    ("python/mqstore/spark/_remedies.py", ": "),
];

/// Texts of the core that name an argument of Python or a command.
pub(super) fn foreign_words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree
        .files(&["src/"], ".rs")
        .filter(|(path, _)| !path.starts_with("src/bindings/"))
    {
        let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim_start().starts_with("//"));
        for (line, number) in lines {
            let named = OF_OTHER_FACES.iter().filter(|words| line.contains(**words));
            findings.extend(named.map(|words| Finding {
                path: path.to_owned(),
                line: number,
                message: format!("`{words}` is of another face: return a `Remedy`, and word it there"),
            }));
        }
    }
    findings
}

/// The words of Python and the command line for the fixes of findings.
const FIXES: &str = "python/mqstore/_fixes.py";

/// Fixes of findings for which Python has no words.
pub(super) fn unworded_fixes(tree: &Tree) -> Vec<Finding> {
    let text = tree.text(FIXES).unwrap_or_default();
    // No kind of finding has these from the start.
    let later = [Fix::CopyWhole, Fix::After(FindingId::StoreWrongType)];
    let fixes = FindingId::ALL.iter().map(|id| id.facts().fix).chain(later);
    let names: BTreeSet<_> = fixes.map(Fix::name).collect();
    let missing = names.into_iter().filter(|name| !text.contains(&format!("    \"{name}\": ")));
    let finding = |name| Finding {
        path: FIXES.to_owned(),
        line: 1,
        message: format!("there are no words for the fix {name}"),
    };
    missing.map(finding).collect()
}

/// Remedies for which a face has no words.
pub(super) fn unworded(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, after) in FACES {
        let text = tree.text(path).unwrap_or_default();
        let missing = Remedy::ALL
            .iter()
            .map(|remedy| remedy.name())
            .filter(|name| !text.contains(&format!("    \"{name}\"{after}")));
        findings.extend(missing.map(|name| Finding {
            path: path.to_owned(),
            line: 1,
            message: format!("there are no words for the remedy {name}"),
        }));
    }
    findings
}

#[test]
fn a_text_that_names_an_argument_of_python_or_a_command_is_reported() {
    let tree = Tree::planted(&[
        ("src/read/a.rs", "// errors=\"skip\"\nlet a = \"use errors=\\\"skip\\\"\";\n"),
        ("src/check/b.rs", "let b = \"or mode \\\"r\\\", or mqstore repair\";\n"),
        ("src/bindings/c.rs", "let c = \"recovery=\";\n"),
    ]);
    let found = super::shown(&foreign_words(&tree));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("src/check/b.rs:1: `mode"), "{found:?}");
    assert!(found[2].starts_with("src/read/a.rs:2: `errors=`"), "{found:?}");
}

#[test]
fn a_fix_without_words_is_reported() {
    let tree = Tree::planted(&[(FIXES, "    \"rebuild\": _rebuild,\n    \"open\": lambda _: words(\"\"),\n")]);
    let found = super::shown(&unworded_fixes(&tree));
    assert_eq!(found.len(), 8, "{found:?}");
    assert_eq!(found[0], "python/mqstore/_fixes.py:1: there are no words for the fix after");
}

#[test]
fn a_face_without_words_for_a_remedy_is_reported() {
    let all = |after: &str| -> String {
        let lines = Remedy::ALL.iter().map(|remedy| format!("    \"{}\"{after}", remedy.name()));
        lines.collect()
    };
    let tree = Tree::planted(&[
        ("python/mqstore/errors.py", &all(",\n")),
        ("python/mqstore/spark/_remedies.py", &all(": None,\n")),
        ("python/mqstore/cli/_words.py", "    \"skip\": _SKIP,\n"),
    ]);
    let found = super::shown(&unworded(&tree));
    assert_eq!(found.len(), Remedy::ALL.len() - 1, "{found:?}");
    assert!(
        found.iter().all(|line| line.starts_with("python/mqstore/cli/_words.py:1: ")),
        "{found:?}"
    );
}
