//! Names in the documents: an item in backticks is in the sources, a path is in the repository.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Module;
use super::tree::{Finding, Tree, code, tokens};

/// Words before the name of an item.
pub(super) const ITEM_WORDS: [&str; 10] = [
    "struct",
    "enum",
    "union",
    "trait",
    "fn",
    "const",
    "static",
    "type",
    "mod",
    "macro_rules",
];
/// Folders and files that a path in backticks may start with.
const PATHS: [&str; 9] = [
    "src/",
    "tests/",
    "python/",
    "docs/",
    "spark_examples/",
    "benches/",
    "fuzz/",
    ".ci/",
    "Cargo.",
];

/// What one room defines.
#[derive(Default)]
struct Names<'a> {
    /// Items and what is re-exported under another name.
    items: BTreeSet<&'a str>,
    /// Fields and variants: the first word of a line before one of `: , ( { =`.
    members: BTreeSet<&'a str>,
}

/// Every name or path in the documents that nothing answers to.
pub(super) fn unresolved(tree: &Tree) -> Vec<Finding> {
    let root = Module::root(tree);
    let codes: BTreeMap<&str, String> = tree.files(&["src/"], ".rs").map(|(path, text)| (path, code(text))).collect();
    let rooms: BTreeMap<&str, Names<'_>> = root
        .children
        .iter()
        .map(|room| (room.name.as_str(), names(room, &codes)))
        .collect();
    let mut findings = Vec::new();
    for (path, text) in tree.files(&["docs/", "README", "CONTRIBUTING", "CHANGELOG"], ".md") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, text) in prose(text) {
            let in_code = text
                .split('`')
                .skip(1)
                .step_by(2)
                .filter_map(|span| name_message(&rooms, span).or_else(|| path_message(tree, span)));
            let linked = text.split("](").skip(1).filter_map(|rest| link_message(tree, folder, rest));
            findings.extend(in_code.chain(linked).map(|message| Finding {
                path: path.to_owned(),
                line,
                message,
            }));
        }
    }
    findings
}

/// The lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

fn names<'a>(room: &Module, codes: &'a BTreeMap<&str, String>) -> Names<'a> {
    let mut names = Names::default();
    for (_, module) in room.walk() {
        let Some(text) = codes.get(module.file.as_str()) else {
            continue;
        };
        let words: Vec<&str> = tokens(text)
            .iter()
            .map(|token| token.text)
            .filter(|word| *word != "!")
            .collect();
        let named = words
            .windows(2)
            .filter(|pair| ITEM_WORDS.contains(&pair[0]) || pair[0] == "as");
        names.items.extend(named.map(|pair| pair[1]));
        for line in text.lines() {
            let declaration = line.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            let Some(word) = first_word(declaration) else { continue };
            if declaration[word.len()..].trim_start().starts_with([':', ',', '(', '{', '=']) {
                names.members.insert(word);
            }
        }
    }
    names
}

fn first_word(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

/// What is wrong with `room::Name` or `room::Name::member`; `None` for all other text.
fn name_message(rooms: &BTreeMap<&str, Names<'_>>, span: &str) -> Option<String> {
    let span = span.trim_start_matches("mqstore::").trim_start_matches("crate::");
    let end = span
        .find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
        .unwrap_or(span.len());
    let mut segments = span[..end].split("::");
    let room = segments.next()?;
    let names = rooms.get(room)?;
    let is_known = |(place, name): (usize, &str)| names.items.contains(name) || place > 0 && names.members.contains(name);
    let missing = segments.enumerate().find(|segment| !is_known(*segment))?.1;
    Some(format!("`{}`: the room `{room}` has no `{missing}`", &span[..end]))
}

/// What is wrong with a path in backticks; `None` for all other text and for patterns.
fn path_message(tree: &Tree, span: &str) -> Option<String> {
    let is_path = PATHS.iter().any(|start| span.starts_with(start)) && !span.contains([' ', '*', '<', '{', '$']);
    (is_path && !tree.exists(span)).then(|| format!("`{span}` does not exist"))
}

/// What is wrong with the target of a relative link.
fn link_message(tree: &Tree, folder: &str, rest: &str) -> Option<String> {
    let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
    if target.is_empty() || target.contains(':') {
        return None;
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    (!tree.exists(&path)).then(|| format!("the link to {target} leads nowhere"))
}

#[test]
fn a_name_or_path_that_nothing_answers_to_is_reported() {
    let record =
        "pub enum Record { End }\npub struct Unit {\n    pub size: i32,\n}\nimpl Unit { pub fn decode() {} }\nfn read() {}\n";
    let prose = "`format::Unit`, `format::Unit::size`, `format::Unit::decode(bytes)`, `format::read_record`, `std::io`\n\
        `format::Units` and `format::Unit::encode`\n```\nformat::Lost `format::Lost`\n```\n\
        `src/format/record.rs`, `src/lost.rs`, `src/*.rs`, [one](../src/lib.rs#L3), [two](LOST.md), [three](https://a.b)\n";
    let tree = Tree::planted(&[
        ("src/lib.rs", "/// Bytes.\npub mod format;\n"),
        (
            "src/format/mod.rs",
            "mod record;\npub use record::{Unit, read as read_record};\n",
        ),
        ("src/format/record.rs", record),
        ("docs/FORMAT.md", prose),
    ]);
    assert_eq!(
        super::shown(&unresolved(&tree)),
        [
            "docs/FORMAT.md:2: `format::Units`: the room `format` has no `Units`",
            "docs/FORMAT.md:2: `format::Unit::encode`: the room `format` has no `encode`",
            "docs/FORMAT.md:6: `src/lost.rs` does not exist",
            "docs/FORMAT.md:6: the link to LOST.md leads nowhere",
        ]
    );
}
