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

/// The items that one top-level module defines.
#[derive(Default)]
struct Names<'a> {
    /// Items and what is re-exported under another name.
    items: BTreeSet<&'a str>,
    /// Fields and variants: the first word of a line before one of `: , ( { =`.
    members: BTreeSet<&'a str>,
}

/// Every name or path in the documents that does not exist.
pub(super) fn unresolved(tree: &Tree) -> Vec<Finding> {
    let root = Module::root(tree);
    let codes: BTreeMap<&str, String> = tree.files(&["src/"], ".rs").map(|(path, text)| (path, code(text))).collect();
    let rooms: BTreeMap<&str, Names<'_>> = root
        .children
        .iter()
        .map(|room| (room.name.as_str(), names(room, &codes)))
        .collect();
    let words = long_words(tree);
    let mut findings = Vec::new();
    for (path, text) in tree.files(&["docs/", "README", "CONTRIBUTING", "CHANGELOG"], ".md") {
        for (line, text) in prose(text) {
            let in_code = text.split('`').skip(1).step_by(2).filter_map(|span| {
                name_message(&rooms, span)
                    .or_else(|| path_message(tree, span))
                    .or_else(|| long_name_message(&words, span))
            });
            let linked = text.split("](").skip(1).filter_map(|rest| link_message(tree, path, rest));
            findings.extend(in_code.chain(linked).map(|message| {
                let path = path.to_owned();
                Finding { path, line, message }
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

/// Returns true for the name of a test or an option: one word of five parts or more.
fn is_long_name(text: &str) -> bool {
    text.matches('_').count() >= 4 && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn long_words(tree: &Tree) -> BTreeSet<&str> {
    let files = [".rs", ".py", ".pyi"]
        .iter()
        .flat_map(|ending| tree.files(&["src/", "tests/", "python/"], ending));
    let words = files.flat_map(|(_, text)| text.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.filter(|word| is_long_name(word)).collect()
}

fn long_name_message(words: &BTreeSet<&str>, span: &str) -> Option<String> {
    (is_long_name(span) && !words.contains(span)).then(|| format!("`{span}`: no test and no option has this name"))
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

/// Returns what is wrong with `room::Name` or `room::Name::member`; `None` for all other text.
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
    Some(format!("`{}`: the module `{room}` has no `{missing}`", &span[..end]))
}

/// Returns what is wrong with a path in backticks; `None` for all other text and for patterns.
fn path_message(tree: &Tree, span: &str) -> Option<String> {
    let is_path = PATHS.iter().any(|start| span.starts_with(start)) && !span.contains([' ', '*', '<', '{', '$']);
    (is_path && !tree.exists(span)).then(|| format!("`{span}` does not exist"))
}

/// Returns what is wrong with the target of a relative link in `page`: the file is absent, or has no heading of this anchor.
fn link_message(tree: &Tree, page: &str, rest: &str) -> Option<String> {
    let target = rest.split([')', ' ']).next().unwrap_or_default();
    if target.is_empty() || target.contains(':') {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let mut parts: Vec<&str> = page.split('/').collect();
    if !file.is_empty() {
        parts.pop();
    }
    for part in file.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    if !tree.exists(&path) {
        return Some(format!("the link to {target} leads nowhere"));
    }
    let is_page = matches!(path.rsplit_once('.'), Some((_, "md")));
    let text = tree.text(&path).filter(|_| is_page && !anchor.is_empty())?;
    let mut headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    (!headings.any(|(_, line)| anchor_of(line) == anchor)).then(|| format!("the link to {target} leads to no heading"))
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Dependencies of `Cargo.toml` and of the extras in `pyproject.toml` that CONTRIBUTING.md does not name.
pub(super) fn unexplained_dependencies(tree: &Tree) -> Vec<Finding> {
    let explained: BTreeSet<&str> = tree
        .text("CONTRIBUTING.md")
        .unwrap_or_default()
        .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-')
        .collect();
    let mut findings = Vec::new();
    for path in ["Cargo.toml", "pyproject.toml"] {
        let mut section = "";
        for (index, line) in tree.text(path).unwrap_or_default().lines().enumerate() {
            if line.starts_with('[') {
                section = line;
            }
            let names: Vec<&str> = match section {
                "[dependencies]" | "[dev-dependencies]" => line.split_once(" = ").map(|(name, _)| name).into_iter().collect(),
                "[project.optional-dependencies]" => line.split('"').skip(1).step_by(2).map(requirement_name).collect(),
                _ => continue,
            };
            for name in names
                .into_iter()
                .filter(|name| *name != "mqstore" && !explained.contains(name))
            {
                let message = format!("CONTRIBUTING.md does not say why `{name}` is needed");
                let (path, line) = (path.to_owned(), index + 1);
                findings.push(Finding { path, line, message });
            }
        }
    }
    findings
}

/// `pyarrow` of `pyarrow>=18`.
fn requirement_name(requirement: &str) -> &str {
    let end = requirement.find(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
    &requirement[..end.unwrap_or(requirement.len())]
}

#[test]
fn a_dependency_without_a_reason_is_reported() {
    let tree = Tree::planted(&[
        (
            "Cargo.toml",
            "[package]\nname = \"x\"\n[dependencies]\nlibc = \"0.2\"\nmemmap2 = \"0.9\"\n",
        ),
        (
            "pyproject.toml",
            "[project.optional-dependencies]\nall = [\"mqstore[spark]\", \"pyarrow>=18\"]\n",
        ),
        ("CONTRIBUTING.md", "| libc | calls |\n"),
    ]);
    assert_eq!(
        super::shown(&unexplained_dependencies(&tree)),
        [
            "Cargo.toml:5: CONTRIBUTING.md does not say why `memmap2` is needed",
            "pyproject.toml:2: CONTRIBUTING.md does not say why `pyarrow` is needed",
        ]
    );
}

#[test]
fn a_name_or_path_that_nothing_answers_to_is_reported() {
    let record =
        "pub enum Record { End }\npub struct Unit {\n    pub size: i32,\n}\nimpl Unit { pub fn decode() {} }\nfn read() {}\n";
    let prose = "`format::Unit`, `format::Unit::size`, `format::Unit::decode(bytes)`, `format::read_record`, `std::io`\n\
        `format::Units` and `format::Unit::encode`\n```\nformat::Lost `format::Lost`\n```\n\
        `src/format/record.rs`, `src/lost.rs`, `src/*.rs`, [one](../src/lib.rs#L3), [two](LOST.md), [three](https://a.b)\n\
        `a_unit_is_twenty_bytes`, `a_unit_is_forty_bytes`\n";
    let tree = Tree::planted(&[
        ("src/lib.rs", "/// Bytes.\npub mod format;\n"),
        (
            "src/format/mod.rs",
            "mod record;\npub use record::{Unit, read as read_record};\n",
        ),
        ("src/format/record.rs", record),
        ("docs/FORMAT.md", prose),
        ("tests/it/format.rs", "fn a_unit_is_twenty_bytes() {}\n"),
    ]);
    assert_eq!(
        super::shown(&unresolved(&tree)),
        [
            "docs/FORMAT.md:2: `format::Units`: the module `format` has no `Units`",
            "docs/FORMAT.md:2: `format::Unit::encode`: the module `format` has no `encode`",
            "docs/FORMAT.md:6: `src/lost.rs` does not exist",
            "docs/FORMAT.md:6: the link to LOST.md leads nowhere",
            "docs/FORMAT.md:7: `a_unit_is_forty_bytes`: no test and no option has this name",
        ]
    );
}

#[test]
fn a_link_to_a_heading_that_is_absent_is_reported() {
    let links = "# One\n## Two `x` & three\n[a](#one), [b](#two-x--three), [c](B.md#four), [d](B.md#five), [e](../src/lib.rs#L3)\n\
        [f](#six), [g](../README.md#seven)\n";
    let tree = Tree::planted(&[
        ("docs/A.md", links),
        ("docs/B.md", "## Four\n```\n# five\n```\n"),
        ("README.md", "## Seven\n"),
        ("src/lib.rs", ""),
    ]);
    assert_eq!(
        super::shown(&unresolved(&tree)),
        [
            "docs/A.md:3: the link to B.md#five leads to no heading",
            "docs/A.md:4: the link to #six leads to no heading",
        ]
    );
}
