//! The table of ordering steps in docs/STEPS.md compared with `enum Step`: the same names in the same order.

use super::tree::{Finding, Tree, code};

const DOCUMENT: &str = "docs/STEPS.md";
const SOURCE: &str = "src/storage/env.rs";

/// The first place where document and enum differ.
pub(super) fn out_of_step(tree: &Tree) -> Vec<Finding> {
    let documented = documented(tree.text(DOCUMENT).unwrap_or_default());
    let declared = declared(&code(tree.text(SOURCE).unwrap_or_default()));
    let len = documented.len().max(declared.len());
    let pairs = (0..len).map(|at| (documented.get(at), declared.get(at)));
    let mut parted = pairs.filter(|(documented, step)| documented.map(|(_, name)| name) != *step);
    let Some((documented, step)) = parted.next() else {
        return Vec::new();
    };
    let name = |name: Option<&String>| name.map_or("nothing".to_owned(), |name| format!("`{name}`"));
    vec![Finding {
        path: DOCUMENT.to_owned(),
        line: documented.map_or(0, |(line, _)| *line),
        message: format!(
            "{} is where {SOURCE} has {}",
            name(documented.map(|(_, name)| name)),
            name(step)
        ),
    }]
}

/// The first cells of the table whose head begins with `step`, with their lines.
fn documented(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with("| step |"));
    let rows = lines.skip(2).take_while(|(_, line)| line.starts_with('|'));
    rows.filter_map(|(index, row)| Some((index + 1, row.split('`').nth(1)?.to_owned())))
        .collect()
}

/// The variants, in order.
fn declared(code: &str) -> Vec<String> {
    let body = code.split("pub enum Step {").nth(1).unwrap_or_default();
    let body = body.split('}').next().unwrap_or_default();
    body.split(',')
        .map(|variant| variant.trim().to_owned())
        .filter(|variant| !variant.is_empty())
        .collect()
}

#[test]
fn a_step_that_is_missing_or_misplaced_in_the_document_is_reported() {
    let source = "/// Steps.\npub enum Step {\n    /// One, two.\n    One,\n    /// Two {}.\n    Two,\n}\n";
    let tree = |rows: &str| {
        let document = format!("# Steps\n\n| step | when |\n|-|-|\n{rows}\n`Three`\n");
        Tree::planted(&[(SOURCE, source), (DOCUMENT, document.as_str())])
    };
    assert_eq!(out_of_step(&tree("| `One` | x |\n| `Two` | y |\n")), []);
    let reported = |rows: &str| super::shown(&out_of_step(&tree(rows)));
    assert_eq!(
        reported("| `Two` | x |\n| `One` | y |\n"),
        ["docs/STEPS.md:5: `Two` is where src/storage/env.rs has `One`"]
    );
    assert_eq!(
        reported("| `One` | x |\n"),
        ["docs/STEPS.md:0: nothing is where src/storage/env.rs has `Two`"]
    );
    assert_eq!(
        reported("| `One` | x |\n| `Two` | x |\n| `Three` | x |\n"),
        ["docs/STEPS.md:7: `Three` is where src/storage/env.rs has nothing"]
    );
}
