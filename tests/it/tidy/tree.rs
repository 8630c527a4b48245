//! The input of the checks: files by path, Rust text without comments and strings, and its tokens.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A repository: path with `/` from its root -> text (empty for files that are not text).
pub(super) struct Tree(BTreeMap<String, String>);

/// One breach: where, and what the rule is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A word, a `::`, or any other single character of Rust code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// From 1.
    pub(super) line: usize,
}

impl Tree {
    /// The repository that this test was built from, without what is built or downloaded.
    pub(super) fn of_this_repository() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = BTreeMap::new();
        collect(root, root, &mut files);
        Self(files)
    }

    /// A planted repository.
    pub(super) fn planted(files: &[(&str, &str)]) -> Self {
        Self(
            files
                .iter()
                .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
                .collect(),
        )
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Returns true if a file or a folder has this path.
    pub(super) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.0.contains_key(path) || self.0.keys().any(|file| file.starts_with(&folder))
    }

    /// The files below one of these folders whose names end so.
    pub(super) fn files<'a>(&'a self, folders: &'a [&str], ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .iter()
            .filter(move |(path, _)| path.ends_with(ending) && folders.iter().any(|folder| path.starts_with(folder)))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if matches!(name.as_str(), "target" | "__pycache__" | "artifacts" | "corpus") || name.starts_with('.') && name != ".ci" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            collect(root, &entry.path(), files);
            continue;
        }
        let path = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let is_text = [".rs", ".py", ".pyi", ".md", ".toml"]
            .iter()
            .any(|ending| path.ends_with(ending));
        let text = if is_text {
            std::fs::read_to_string(entry.path()).unwrap()
        } else {
            String::new()
        };
        files.insert(path, text);
    }
}

/// Rust text with comments, strings and characters blanked out; every line keeps its number.
pub(super) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !in_word(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => character_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        blank(&mut out[at..end]);
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

/// Returns true if the byte before `at` belongs to the same word (the `b` of a raw byte string does not count).
fn in_word(bytes: &[u8], at: usize) -> bool {
    let before = |back: usize| {
        at.checked_sub(back)
            .is_some_and(|i| bytes[i].is_ascii_alphanumeric() || bytes[i] == b'_')
    };
    before(1) && (bytes[at - 1] != b'b' || before(2))
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(bytes.len(), |n| at + n)
}

fn comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0_usize, start);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let hashes = bytes[start + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &bytes[open + 1..];
    let length = body
        .windows(close.len())
        .position(|window| window == close)
        .unwrap_or(body.len());
    Some((open + 1 + length + close.len()).min(bytes.len()))
}

/// The end of a character literal; `None` for a lifetime or a label.
fn character_end(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start + 1) == Some(&b'\\') {
        let length = bytes[start + 3..].iter().position(|byte| *byte == b'\'')?;
        return Some(start + 3 + length + 1);
    }
    let rest = std::str::from_utf8(&bytes[start + 1..]).ok()?;
    let character = rest.chars().next()?;
    rest[character.len_utf8()..]
        .starts_with('\'')
        .then(|| start + 1 + character.len_utf8() + 1)
}

/// The tokens of text that [`code`] returned.
pub(super) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (index, mut rest) in code.lines().enumerate() {
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let length = match word {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                word => word,
            };
            let (text, after) = rest.split_at(length);
            if !first.is_whitespace() {
                tokens.push(Token { text, line: index + 1 });
            }
            rest = after;
        }
    }
    tokens
}

#[test]
fn code_is_what_remains_without_comments_strings_and_characters() {
    let text =
        "let a = 'x'; // use crate::a\nlet b: &'static str = \"fn { \\\" }\"; /* { /* } */ */ let c = br#\"unsafe \"\"#; '\\'' }";
    let words: Vec<&str> = code(text).leak().split_whitespace().collect();
    assert_eq!(words.join(" "), "let a = ; let b: &'static str = ; let c = b ; }");
    assert_eq!(code(text).lines().count(), 2);
}
