//! Plain technical English: phrases of a private dialect in comments, pages and the texts of errors, doc comments without a subject or a
//! verb, and long names of tests.

use super::tree::{Finding, Tree, tokens};

/// Folders and files with prose.
const PROSE: [&str; 10] = [
    "src/",
    "python/",
    "tests/",
    "benches/",
    "fuzz/",
    "spark_examples/",
    "docs/",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
];
/// The beginnings of a doc comment that has neither a noun phrase nor a verb at its head.
const OPENERS: [&str; 20] = [
    "What",
    "Whether",
    "Where",
    "Why",
    "Which",
    "Those",
    "As",
    "Who",
    "Whose",
    "Anything",
    "Nothing",
    "Nobody",
    "Everything",
    "So",
    "Such",
    "None",
    "How",
    "Up",
    "By",
    "For which",
];
/// Phrases of the dialect, and the next words with which a phrase is plain English.
const DIALECT: [(&str, &[&str]); 28] = [
    ("anew", &[]),
    ("tell of", &[]),
    ("tells of", &[]),
    ("told of", &[]),
    ("tells", &["the", "a", "an"]),
    ("told", &["the", "a", "an"]),
    ("telling", &["the", "a", "an"]),
    ("is none", &["of"]),
    ("are none", &["of"]),
    ("be none", &["of"]),
    ("so many", &["that", "as"]),
    ("so long", &["that", "as"]),
    ("so much", &["that", "as"]),
    ("so often", &["that", "as"]),
    ("go on", &[]),
    ("goes on", &[]),
    ("going on", &[]),
    ("stands", &["for", "in", "alone"]),
    ("stood", &["for", "in", "alone"]),
    ("mend", &[]),
    ("mends", &[]),
    ("mended", &[]),
    ("let go", &[]),
    ("lets go", &[]),
    ("one that", &[]),
    ("lacks", &[]),
    ("meanwhile", &[]),
    ("by way of", &[]),
];
/// Folders whose string literals users read.
const WITH_TEXTS: [&str; 2] = ["src/", "python/"];
/// Words with which the next phrase is plain English: "there is none", "the one that".
const PLAIN_BEFORE: [&str; 2] = ["there", "the"];
/// Places that keep such a phrase: file, a part of the line, reason.
const ALLOWED: [(&str, &str, &str); 0] = [];
/// The longest name of a test.
const NAME: usize = 70;

/// A line of prose, without its comment signs.
struct Line<'a> {
    number: usize,
    text: &'a str,
    /// True for the first line of a paragraph of a doc comment.
    is_head: bool,
}

/// Lines with a phrase of the dialect, and doc comments whose first word makes a sentence fragment.
pub(super) fn dialect(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in prose(tree) {
        for line in lines(path, text) {
            let words: Vec<String> = words(line.text).collect();
            let message = if let Some(opener) = opener(&words).filter(|_| line.is_head) {
                format!("`{opener}` begins no noun phrase and no sentence")
            } else if let Some(phrase) = phrase(&words) {
                format!("`{phrase}` is not plain English")
            } else {
                continue;
            };
            if !ALLOWED
                .iter()
                .any(|(file, part, _)| *file == path && line.text.contains(part))
            {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: line.number,
                    message,
                });
            }
        }
    }
    findings
}

/// Names of tests that are too long.
pub(super) fn long_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in prose(tree).filter(|(path, _)| path.starts_with("tests/") || path.starts_with("src/")) {
        let tokens = tokens(text);
        let names = tokens
            .windows(2)
            .filter(|pair| matches!(pair[0].text, "fn" | "def") && pair[1].text.len() > NAME);
        findings.extend(names.map(|pair| Finding {
            path: path.to_owned(),
            line: pair[1].line,
            message: format!("a name of {} characters; {NAME} are allowed", pair[1].text.len()),
        }));
    }
    findings
}

fn prose(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let of_this_rule = "tests/it/tidy/words.rs";
    [".rs", ".py", ".pyi", ".md"]
        .into_iter()
        .flat_map(|ending| tree.files(&PROSE, ending))
        .filter(move |(path, _)| *path != of_this_rule)
}

/// The lines of comments, docstrings or pages in a file, and the texts that its code has for users.
fn lines<'a>(path: &str, text: &'a str) -> Vec<Line<'a>> {
    let mut lines = match path.rsplit_once('.') {
        Some((_, "md")) => return page(text),
        Some((_, "rs")) => rust(text),
        _ => python(text),
    };
    if WITH_TEXTS.iter().any(|folder| path.starts_with(folder)) {
        lines.extend(texts(text));
        lines.sort_by_key(|line| line.number);
    }
    lines
}

/// The string literals of code that have several words, as far as one line has all of the literal.
fn texts(text: &str) -> impl Iterator<Item = Line<'_>> {
    let code = text.lines().zip(1..).filter(|(text, _)| {
        let text = text.trim_start();
        !text.starts_with("//") && !text.starts_with('#') && !text.contains("\"\"\"")
    });
    code.flat_map(|(text, number)| {
        let literals = text.split('"').skip(1).step_by(2).filter(|literal| literal.contains(' '));
        literals.map(move |text| Line {
            number,
            text,
            is_head: false,
        })
    })
}

/// Lines of a page outside of code blocks.
fn page(text: &str) -> Vec<Line<'_>> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (text, number) in text.lines().zip(1..) {
        let is_fence = text.trim_start().starts_with("```");
        in_code ^= is_fence;
        if !in_code && !is_fence {
            lines.push(Line {
                number,
                text,
                is_head: false,
            });
        }
    }
    lines
}

/// Doc comments and comments that have a line of their own.
fn rust(text: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut after_doc = false;
    for (text, number) in text.lines().zip(1..) {
        let text = text.trim_start();
        let doc = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"));
        if let Some(text) = doc.or_else(|| text.strip_prefix("//")) {
            lines.push(Line {
                number,
                text,
                is_head: doc.is_some() && !after_doc,
            });
        }
        after_doc = doc.is_some_and(|text| !text.trim().is_empty());
    }
    lines
}

/// Docstrings, and comments.
fn python(text: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut in_string = false;
    for (text, number) in text.lines().zip(1..) {
        let quotes = text.matches("\"\"\"").count();
        if in_string || quotes > 0 {
            lines.push(Line {
                number,
                text: text.trim().trim_matches('"'),
                is_head: quotes > 0 && !in_string,
            });
        } else if let Some((_, comment)) = text.split_once("# ").or_else(|| text.split_once("#: ")) {
            lines.push(Line {
                number,
                text: comment,
                is_head: false,
            });
        }
        in_string ^= quotes % 2 == 1;
    }
    lines
}

/// The words of a line; text in backquotes is one word.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split('`').enumerate().flat_map(|(nth, text)| {
        let is_code = nth % 2 == 1;
        let words = text
            .split(|c: char| !c.is_alphanumeric() && c != '\'')
            .filter(|word| !word.is_empty());
        let words: Vec<String> = if is_code {
            vec!["`".to_owned()]
        } else {
            words.map(str::to_owned).collect()
        };
        words
    })
}

/// The opener with which a line begins.
fn opener(words: &[String]) -> Option<&'static str> {
    let begins = |opener: &&str| {
        opener
            .split(' ')
            .enumerate()
            .all(|(at, word)| words.get(at).is_some_and(|own| own == word))
    };
    OPENERS.into_iter().find(begins)
}

/// The first phrase of the dialect in a line.
fn phrase(words: &[String]) -> Option<&'static str> {
    // `None` of Python is no word of a sentence.
    let plain = |word: &String| if word == "None" { word.clone() } else { word.to_lowercase() };
    let words: Vec<String> = words.iter().map(plain).collect();
    DIALECT.iter().find_map(|(phrase, plain_with)| {
        let length = phrase.split(' ').count();
        let is_here = words.windows(length).enumerate().any(|(at, window)| {
            let before = at.checked_sub(1).map_or("", |at| words[at].as_str());
            let after = words.get(at + length).map_or("", String::as_str);
            phrase.split(' ').eq(window.iter().map(String::as_str))
                && !PLAIN_BEFORE.contains(&before)
                && !plain_with.contains(&after)
        });
        is_here.then_some(*phrase)
    })
}

#[test]
fn a_phrase_of_the_dialect_and_a_fragment_are_reported() {
    let tree = Tree::planted(&[
        (
            "src/a.rs",
            "/// What it is.\n///\n/// For which it is.\n///\n/// For a fork.\n///\n/// Returns `so many` of it.\nfn a() {} // anew\n// It goes on.\nlet b = \"it lacks this\";\n",
        ),
        (
            "python/b.py",
            "def b():\n    \"\"\"Whether it is.\n\n    It tells the user.\n    \"\"\"\n    # as so many\n    #: It stands here.\n    \
             raise ValueError(\"one that is wrong\")\n",
        ),
        ("tests/it/d.rs", "let d = \"it lacks this\";\n"),
        ("CHANGELOG.md", "- Nothing goes on.\n"),
        ("docs/C.md", "It is none of these.\n```\nanew\n```\nIt is none.\n"),
    ]);
    let found = super::shown(&dialect(&tree));
    assert_eq!(
        found,
        [
            "src/a.rs:1: `What` begins no noun phrase and no sentence",
            "src/a.rs:3: `For which` begins no noun phrase and no sentence",
            "src/a.rs:9: `goes on` is not plain English",
            "src/a.rs:10: `lacks` is not plain English",
            "python/b.py:2: `Whether` begins no noun phrase and no sentence",
            "python/b.py:6: `so many` is not plain English",
            "python/b.py:7: `stands` is not plain English",
            "python/b.py:8: `one that` is not plain English",
            "CHANGELOG.md:1: `goes on` is not plain English",
            "docs/C.md:5: `is none` is not plain English",
        ]
    );
}

#[test]
fn a_name_over_the_limit_is_reported() {
    let name = "a".repeat(NAME + 1);
    let text = format!("fn {name}() {{}}\nfn {}() {{}}\n", &name[1..]);
    let tree = Tree::planted(&[("tests/it/a.rs", &text)]);
    assert_eq!(
        super::shown(&long_names(&tree)),
        ["tests/it/a.rs:1: a name of 71 characters; 70 are allowed"]
    );
}

#[test]
fn few_places_are_allowed_and_each_has_a_reason() {
    assert!(ALLOWED.len() <= 100);
    assert!(ALLOWED.iter().all(|(_, _, reason)| !reason.is_empty()));
}
