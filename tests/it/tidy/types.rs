//! A file is one type or one topic: no file of `src` holds only `impl` blocks of types that other files declare.

use std::collections::BTreeSet;

use super::tree::{Finding, Token, Tree, code, tokens};

/// The items at the top of a file.
#[derive(Debug, Default)]
struct Items<'a> {
    /// The types, traits and macros that it declares.
    declared: Vec<&'a str>,
    /// The types that it implements something for, with their lines.
    implemented: Vec<(&'a str, usize)>,
    /// Other files can call a function of it.
    has_public_function: bool,
}

/// Reports each file that holds only `impl` blocks of types of other files.
pub(super) fn stray_impls(tree: &Tree) -> Vec<Finding> {
    let codes: Vec<(&str, String)> = tree.files(&["src/"], ".rs").map(|(path, text)| (path, code(text))).collect();
    let tokens: Vec<(&str, Vec<Token<'_>>)> = codes.iter().map(|(path, code)| (*path, tokens(code))).collect();
    let files: Vec<(&str, Items<'_>)> = tokens.iter().map(|(path, tokens)| (*path, Items::of(tokens))).collect();
    let declared: BTreeSet<&str> = files.iter().flat_map(|(_, items)| items.declared.iter().copied()).collect();
    files
        .iter()
        .filter_map(|(path, items)| {
            let (name, line) = items.stray(&declared)?;
            let message = format!("the file holds only `impl` blocks: move them to the file that declares `{name}`");
            let path = (*path).to_owned();
            Some(Finding { path, line, message })
        })
        .collect()
}

impl<'a> Items<'a> {
    fn of(tokens: &[Token<'a>]) -> Self {
        let mut items = Self::default();
        let (mut depth, mut is_public) = (0_usize, false);
        for (at, token) in tokens.iter().enumerate() {
            match token.text {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => {
                    depth = depth.saturating_sub(1);
                    is_public &= token.text != "}";
                }
                _ if depth > 0 => {}
                ";" => is_public = false,
                "pub" => is_public = true,
                "fn" => items.has_public_function |= is_public,
                "struct" | "enum" | "union" | "trait" | "type" => items.declared.extend(tokens.get(at + 1).map(|name| name.text)),
                "macro_rules" => items.declared.extend(tokens.get(at + 2).map(|name| name.text)),
                "impl" => items
                    .implemented
                    .extend(implemented(&tokens[at + 1..]).map(|name| (name, token.line))),
                _ => {}
            }
        }
        items
    }

    /// Returns the first type that the file only implements, if it holds nothing of its own.
    fn stray(&self, declared: &BTreeSet<&str>) -> Option<(&'a str, usize)> {
        if !self.declared.is_empty() || self.has_public_function {
            return None;
        }
        self.implemented.iter().find(|(name, _)| declared.contains(name)).copied()
    }
}

/// Returns the name of the type that an `impl` block is for, from the tokens after `impl`.
fn implemented<'a>(tokens: &[Token<'a>]) -> Option<&'a str> {
    let mut depth = 0_usize;
    let mut name = None;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "<" => depth += 1,
            ">" if at > 0 && tokens[at - 1].text == "-" => {}
            ">" => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            "{" | "where" => break,
            "for" => name = None,
            "dyn" | "mut" | "unsafe" => {}
            // The last segment of the first path is the name; `+ Bound` does not change it.
            text if text.starts_with(|first: char| first.is_alphabetic()) => {
                let continues = at > 0 && tokens[at - 1].text == "::";
                let is_lifetime = at > 0 && tokens[at - 1].text == "'";
                if !is_lifetime && (continues || name.is_none()) {
                    name = Some(text);
                }
            }
            _ => {}
        }
    }
    name
}

#[test]
fn a_file_of_impl_blocks_alone_is_reported() {
    let tree = Tree::planted(&[
        ("src/log.rs", "pub struct Log<T>(T);\nimpl<T: Fn() -> u8> Log<T> {}\n"),
        (
            "src/stray.rs",
            "const A: u8 = 1;\nimpl<'a, T> fmt::Debug for crate::log::Log<T> {}\nfn help() { struct Inner; }\n",
        ),
        ("src/other.rs", "use std::io;\nimpl Log<u8> { pub fn a() {} }\n"),
        ("src/own.rs", "pub(super) enum Own {}\nimpl Log<u16> {}\n"),
        ("src/topic.rs", "impl Log<u32> {}\npub(crate) fn open() {}\n"),
        ("src/foreign.rs", "impl From<u8> for std::string::String {}\n"),
    ]);
    assert_eq!(
        super::shown(&stray_impls(&tree)),
        [
            "src/other.rs:2: the file holds only `impl` blocks: move them to the file that declares `Log`",
            "src/stray.rs:2: the file holds only `impl` blocks: move them to the file that declares `Log`",
        ]
    );
}
