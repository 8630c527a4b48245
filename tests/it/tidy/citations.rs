//! Sections of the pages about bytes that the sources cite: each must be a heading of its page.

use super::tree::{Finding, Tree};

const DOCUMENTS: [&str; 2] = ["docs/FORMAT.md", "docs/BROKER_RECORDS.md"];
/// More than the longest heading.
const REACH: usize = 120;

/// Citations of the form `docs/FORMAT.md, section X` or `docs/FORMAT.md, "X"` whose X is not a heading of that page.
pub(super) fn unresolved(tree: &Tree) -> Vec<Finding> {
    DOCUMENTS
        .into_iter()
        .flat_map(|document| unresolved_in(tree, document))
        .collect()
}

fn unresolved_in(tree: &Tree, page: &str) -> Vec<Finding> {
    let document = tree.text(page).unwrap_or_default();
    let headings: Vec<&str> = document
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim())
        .collect();
    let mut findings = Vec::new();
    for (path, text) in tree.files(&["src/"], ".rs") {
        for (at, _) in text.match_indices(page) {
            let cited = without_line_breaks(&text[at + page.len()..]);
            let message = if let Some(rest) = cited.strip_prefix(", section ") {
                let known = headings.iter().any(|heading| is_named_by(heading, rest));
                (!known).then(|| rest.split(['.', ')', ';']).next().unwrap_or_default().to_owned())
            } else if let Some((name, _)) = cited.strip_prefix(", \"").and_then(|rest| rest.split_once('"')) {
                (!headings.contains(&name)).then(|| name.to_owned())
            } else {
                None
            };
            findings.extend(message.map(|name| Finding {
                path: path.to_owned(),
                line: text[..at].matches('\n').count() + 1,
                message: format!("{page} has no section \"{name}\""),
            }));
        }
    }
    findings
}

/// Returns true if text begins with this heading and not with a longer word.
fn is_named_by(heading: &str, text: &str) -> bool {
    text.strip_prefix(heading)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Returns the beginning of a comment that may continue over several lines, as one line.
fn without_line_breaks(text: &str) -> String {
    let lines = text.lines().take(2).map(|line| {
        let line = line.trim();
        line.trim_start_matches("//!")
            .trim_start_matches("///")
            .trim_start_matches("//")
            .trim()
    });
    lines.collect::<Vec<_>>().join(" ").chars().take(REACH).collect()
}

#[test]
fn a_cited_section_that_is_not_in_the_document_is_reported() {
    let source = "//! One (docs/FORMAT.md, section Consume queue), two (docs/FORMAT.md, \"Lookup by time\"), all in docs/FORMAT.md.\n\
        //! Three (docs/FORMAT.md, section\n//! Queue extension); four (docs/FORMAT.md, section Consume queues).\n\
        /// Source: docs/FORMAT.md, \"Consume\".\nfn one() {}\n";
    let tree = Tree::planted(&[
        ("docs/FORMAT.md", "# The bytes\n## Consume queue\n### Lookup by time\n"),
        ("docs/BROKER_RECORDS.md", "# Records\n## Timer messages\n"),
        ("src/log/one.rs", source),
        (
            "src/broker/two.rs",
            "//! docs/BROKER_RECORDS.md, \"Timer messages\" and docs/BROKER_RECORDS.md, section Consume queue.\n",
        ),
        ("tests/it/one.rs", "// docs/FORMAT.md, section Nothing\n"),
    ]);
    assert_eq!(
        super::shown(&unresolved(&tree)),
        [
            "src/log/one.rs:2: docs/FORMAT.md has no section \"Queue extension\"",
            "src/log/one.rs:3: docs/FORMAT.md has no section \"Consume queues\"",
            "src/log/one.rs:4: docs/FORMAT.md has no section \"Consume\"",
            "src/broker/two.rs:1: docs/BROKER_RECORDS.md has no section \"Consume queue\"",
        ]
    );
}
