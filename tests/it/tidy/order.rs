//! The one rule of imports: a module imports only from what is declared above it.
//!
//! Two modules are compared where their paths part. A module may use all that lies below itself; of another folder it names
//! only what that folder's `mod.rs` re-exports.

use std::collections::BTreeMap;

use super::modules::Module;
use super::tree::{Finding, Token, Tree, code, tokens};

/// A path in the code: its segments, the name that it gets here, and its line.
#[derive(Debug, Clone)]
struct Path<'a> {
    segments: Vec<&'a str>,
    name: &'a str,
    line: usize,
}

/// Every import or inline path that breaks the rule.
pub(super) fn upward_imports(tree: &Tree) -> Vec<Finding> {
    let root = Module::root(tree);
    let mut findings = Vec::new();
    for (module_path, module) in root.walk() {
        let text = code(tree.text(&module.file).unwrap_or_default());
        for path in absolute_paths(&tokens(&text), &module_path) {
            if let Some(message) = breach(tree, &root, &module_path, &path.segments) {
                let (path, line) = (module.file.clone(), path.line);
                findings.push(Finding { path, line, message });
            }
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

/// Returns why the module at `from` may not use the path, if it may not.
fn breach(tree: &Tree, root: &Module, from: &[&str], path: &[&str]) -> Option<String> {
    let mut target = Vec::new();
    let mut module = root;
    while let Some((_, child)) = path.get(target.len()).and_then(|name| module.child(name)) {
        target.push(child.name.as_str());
        module = child;
    }
    if target.starts_with(from) {
        return None;
    }
    if from.starts_with(&target) {
        return breach_through_parent(tree, module, from, path.get(target.len()).copied(), &target);
    }
    let level = from.iter().zip(&target).take_while(|(a, b)| a == b).count();
    let parent = from[..level]
        .iter()
        .fold(root, |module, name| module.child(name).map_or(module, |(_, child)| child));
    if let Some(message) = below(parent, from[level], target[level]) {
        return Some(message);
    }
    let folder = parent.child(target[level]).map_or(parent, |(_, child)| child);
    let is_re_exported = path.len() == level + 2 && re_exporting_child(tree, folder, path[level + 1]).is_some();
    (target.len() > level + 1 && !is_re_exported).then(|| {
        let folder = target[..=level].join("::");
        format!(
            "`{}` reaches inside `{folder}`: name what its mod.rs re-exports",
            path.join("::")
        )
    })
}

/// A name taken from a parent's `mod.rs`: fine if that re-exports it from a child declared above ours.
fn breach_through_parent(tree: &Tree, parent: &Module, from: &[&str], name: Option<&str>, at: &[&str]) -> Option<String> {
    let shown = if at.is_empty() {
        "the crate root".to_owned()
    } else {
        format!("`{}`", at.join("::"))
    };
    let Some(name) = name.filter(|name| *name != "*") else {
        return Some(format!("imports the whole of {shown}: name the items"));
    };
    match re_exporting_child(tree, parent, name) {
        Some(child) if child == from[at.len()] => None,
        Some(child) => below(parent, from[at.len()], child),
        None => Some(format!(
            "`{name}` is {shown}'s own: a parent uses its children, not the other way round"
        )),
    }
}

/// Returns true if `name` is declared below `from`, both children of `parent`.
fn below(parent: &Module, from: &str, name: &str) -> Option<String> {
    let (own, _) = parent.child(from)?;
    let (other, module) = parent.child(name)?;
    (other > own).then(|| {
        let place = format!("{}:{}", module.declared_in, module.line);
        format!("`{from}` may not import from `{name}`, which is declared below it ({place})")
    })
}

/// The child from which a `mod.rs` re-exports the name.
fn re_exporting_child<'m>(tree: &Tree, parent: &'m Module, name: &str) -> Option<&'m str> {
    let text = code(tree.text(&parent.file).unwrap_or_default());
    let tokens = tokens(&text);
    let (mut children, mut globs) = (BTreeMap::new(), Vec::new());
    for at in (0..tokens.len()).filter(|at| tokens[*at].text == "use") {
        let mut paths = Vec::new();
        path_tree(&tokens, at + 1, &[], &mut paths);
        for path in paths {
            let first = path
                .segments
                .iter()
                .find(|segment| **segment != "self")
                .copied()
                .unwrap_or_default();
            match parent.child(first) {
                Some((_, child)) if path.name == "*" => globs.push(child),
                Some((_, child)) => drop(children.insert(path.name.to_owned(), child)),
                None => {}
            }
        }
    }
    let by_glob = || globs.into_iter().find(|child| defines(tree, child, name));
    children.get(name).copied().or_else(by_glob).map(|child| child.name.as_str())
}

/// The names that a `mod.rs` re-exports, each with its line.
pub(super) fn re_exports<'a>(tokens: &[Token<'a>]) -> Vec<(&'a str, usize)> {
    let is_public = |at: usize| tokens[..at].last().is_some_and(|before| matches!(before.text, "pub" | ")"));
    let mut paths = Vec::new();
    for at in (0..tokens.len()).filter(|at| tokens[*at].text == "use" && is_public(*at)) {
        path_tree(tokens, at + 1, &[], &mut paths);
    }
    paths.iter().map(|path| (path.name, path.line)).collect()
}

/// Returns true if the module's own file has an item of that name.
fn defines(tree: &Tree, module: &Module, name: &str) -> bool {
    let text = code(tree.text(&module.file).unwrap_or_default());
    let is_item = |w: &[Token<'_>]| super::documents::ITEM_WORDS.contains(&w[0].text) && w[1].text == name;
    tokens(&text).windows(2).any(is_item)
}

/// All paths that start with `crate`, `self` or `super`, counted from the crate.
fn absolute_paths<'a>(tokens: &[Token<'a>], module: &[&'a str]) -> Vec<Path<'a>> {
    let mut found = Vec::new();
    let mut inline = Vec::new(); // (name, depth of its brace)
    let (mut depth, mut at) = (0_usize, 0);
    while at < tokens.len() {
        let is = |ahead: usize, text: &str| tokens.get(at + ahead).is_some_and(|token| token.text == text);
        match tokens[at].text {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                inline.retain(|(_, brace)| *brace < depth);
            }
            "mod" if is(2, "{") => inline.push((tokens[at + 1].text, depth)),
            "crate" | "self" | "super" if is(1, "::") && !(at > 0 && tokens[at - 1].text == "::") => {
                let mut paths = Vec::new();
                at = path_tree(tokens, at, &[], &mut paths);
                let here: Vec<&str> = module.iter().copied().chain(inline.iter().map(|(name, _)| *name)).collect();
                found.extend(paths.into_iter().map(|path| from_crate(&path, &here)));
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Resolves the leading `crate`, `self` and `super`s.
fn from_crate<'a>(path: &Path<'a>, here: &[&'a str]) -> Path<'a> {
    let mut base = here.to_vec();
    let mut rest = path.segments.as_slice();
    while let [first @ ("crate" | "self" | "super"), after @ ..] = rest {
        match *first {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            _ => {}
        }
        rest = after;
    }
    base.extend(rest);
    let Path { name, line, .. } = *path;
    Path {
        segments: base,
        name,
        line,
    }
}

/// Reads a path or a tree of paths (`a::{b, c as d, e::*}`) and returns where it ends.
fn path_tree<'a>(tokens: &[Token<'a>], start: usize, prefix: &[&'a str], found: &mut Vec<Path<'a>>) -> usize {
    let mut segments = prefix.to_vec();
    let mut at = start;
    while let Some(token) = tokens.get(at) {
        let is = |ahead: usize, text: &str| tokens.get(at + ahead).is_some_and(|token| token.text == text);
        if token.text == "{" {
            return path_group(tokens, at + 1, &segments, found);
        }
        if token.text != "*" && !token.text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            break;
        }
        if token.text != "self" || segments.is_empty() {
            segments.push(token.text);
        }
        if is(1, "::") {
            at += 2;
            continue;
        }
        let (name, end) = if is(1, "as") {
            (tokens[at + 2].text, at + 3)
        } else {
            (segments[segments.len() - 1], at + 1)
        };
        let line = token.line;
        found.push(Path { segments, name, line });
        return end;
    }
    if let (Some(name), Some(token)) = (segments.last().copied(), tokens.get(at.saturating_sub(1))) {
        let line = token.line;
        found.push(Path { segments, name, line });
    }
    at.max(start + 1)
}

fn path_group<'a>(tokens: &[Token<'a>], start: usize, prefix: &[&'a str], found: &mut Vec<Path<'a>>) -> usize {
    let mut at = start;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "}" => return at + 1,
            "," => at += 1,
            _ => at = path_tree(tokens, at, prefix, found),
        }
    }
    at
}

fn planted(format: &str, record: &str, index: &str, read: &str) -> Vec<String> {
    let tree = Tree::planted(&[
        ("src/lib.rs", "pub mod format;\npub mod log;\npub mod read;\n"),
        ("src/format/mod.rs", format),
        ("src/format/record.rs", record),
        ("src/format/index.rs", index),
        ("src/log.rs", ""),
        ("src/read.rs", read),
    ]);
    super::shown(&upward_imports(&tree))
}

const FORMAT: &str =
    "mod record;\nmod index;\npub use index::Header;\npub use record::{Record, read as read_record};\npub fn own() {}\n";

#[test]
fn downward_imports_are_fine() {
    let index = "use super::record::Record;\nuse crate::format::read_record;\nuse super::Header as H;\n";
    let read = "use crate::{format::{self, Record, read_record}, log};\nmod inner { use super::X; use crate::log::Y; }\n";
    assert_eq!(planted(FORMAT, "", index, read), Vec::<String>::new());
}

#[test]
fn an_upward_import_is_reported_with_its_line() {
    let record = "//! One parser.\n\nuse std::io;\nuse crate::{\n    log::CommitLog,\n};\n";
    assert_eq!(
        planted(FORMAT, record, "", ""),
        ["src/format/record.rs:5: `format` may not import from `log`, which is declared below it (src/lib.rs:2)"]
    );
}

#[test]
fn an_upward_path_in_the_middle_of_code_is_reported_too() {
    let record =
        "fn f() -> u8 { // crate::log is fine in a comment\n    let s = \"crate::log::x\";\n    crate::read::size(s)\n}\n";
    assert_eq!(
        planted(FORMAT, record, "", ""),
        ["src/format/record.rs:3: `format` may not import from `read`, which is declared below it (src/lib.rs:3)"]
    );
}

#[test]
fn a_sibling_further_down_is_reported_also_through_their_mod_rs() {
    let record = "use super::index::Header;\nuse super::Header as H;\nuse crate::format::Header as G;\n";
    let message = "`record` may not import from `index`, which is declared below it (src/format/mod.rs:2)";
    let expected: Vec<String> = (1..=3)
        .map(|line| format!("src/format/record.rs:{line}: {message}"))
        .collect();
    assert_eq!(planted(FORMAT, record, "", ""), expected);
}

#[test]
fn reaching_inside_another_room_is_reported() {
    assert_eq!(
        planted(FORMAT, "", "", "use crate::format::record::Record;\n"),
        ["src/read.rs:1: `format::record::Record` reaches inside `format`: name what its mod.rs re-exports"]
    );
}

#[test]
fn taking_the_parents_own_items_is_reported() {
    assert_eq!(
        planted(FORMAT, "use super::own;\nuse super::*;\n", "", ""),
        [
            "src/format/record.rs:1: `own` is `format`'s own: a parent uses its children, not the other way round",
            "src/format/record.rs:2: imports the whole of `format`: name the items",
        ]
    );
}
