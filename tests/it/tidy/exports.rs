//! A module re-exports only what another module, a test, a benchmark, a fuzz target or a document names.

use std::collections::BTreeSet;

use super::modules::Module;
use super::order::re_exports;
use super::tree::{Finding, Tree, code, tokens};

/// Returns every re-exported name that is used nowhere outside of its module.
pub(super) fn unused(tree: &Tree) -> Vec<Finding> {
    let sources = tree.files(&["src/", "tests/it/", "benches/", "fuzz/"], ".rs");
    let documents = tree.files(&["docs/", "README", "CONTRIBUTING"], ".md");
    let texts = sources
        .map(|(path, text)| (path, code(text)))
        .chain(documents.map(|(path, text)| (path, text.to_owned())));
    let words: Vec<(&str, BTreeSet<String>)> = texts
        .map(|(path, text)| (path, tokens(&text).iter().map(|word| word.text.to_owned()).collect()))
        .collect();
    let mut findings = Vec::new();
    for room in Module::root(tree).children {
        let folder = room.file.trim_end_matches("mod.rs");
        let is_used = |name: &str| {
            words
                .iter()
                .any(|(path, words)| !path.starts_with(folder) && words.contains(name))
        };
        let text = code(tree.text(&room.file).unwrap_or_default());
        for (name, line) in re_exports(&tokens(&text)) {
            if !is_used(name) {
                let path = room.file.clone();
                let message = format!("nothing outside of `{}` names `{name}`: do not re-export it", room.name);
                findings.push(Finding { path, line, message });
            }
        }
    }
    findings
}

#[test]
fn a_re_exported_name_that_nothing_else_names_is_reported() {
    let of_format =
        "mod record;\npub use record::{Blank, Record, read as read_record};\npub(crate) use record::Size;\nuse record::Own;\n";
    let tree = Tree::planted(&[
        ("src/lib.rs", "pub mod format;\npub mod log;\n"),
        ("src/format/mod.rs", of_format),
        ("src/format/record.rs", "fn blank() -> Blank {}\n"),
        ("src/log.rs", "use crate::format::Record;\n// Not this: Blank\n"),
        ("docs/FORMAT.md", "`format::read_record`\n"),
    ]);
    assert_eq!(
        super::shown(&unused(&tree)),
        [
            "src/format/mod.rs:2: nothing outside of `format` names `Blank`: do not re-export it",
            "src/format/mod.rs:3: nothing outside of `format` names `Size`: do not re-export it",
        ]
    );
}
