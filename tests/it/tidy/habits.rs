//! Files that may use `unsafe`, the longest functions and files, and forbidden words.

use super::tree::{Finding, Token, Tree, code, tokens};

/// The only files with `unsafe` in them.
const UNSAFE_FILES: [&str; 9] = [
    "src/storage/fork.rs",
    "src/storage/real_env.rs",
    "src/storage/real_socket.rs",
    "src/storage/region.rs",
    "src/storage/guard.rs",
    "src/bindings/buffer.rs",
    "src/bindings/arrow_input.rs",
    "src/bindings/capsule.rs",
    "src/bindings/interpreter.rs",
];
/// Lines above an `unsafe` in which its reason may be.
const REASON_LINES: usize = 5;
/// One screen.
const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 800;
/// Words that put work off, spelt so that this file does not contain them.
const LEFT_FOR_LATER: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

fn finding(path: &str, line: usize, message: String) -> Finding {
    let path = path.to_owned();
    Finding { path, line, message }
}

/// `unsafe` outside its files, or without a reason beside it.
pub(super) fn misplaced_unsafe(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files(&["src/"], ".rs") {
        let lines: Vec<&str> = text.lines().collect();
        let code = code(text);
        for line in unsafe_lines(&tokens(&code)) {
            if !UNSAFE_FILES.contains(&path) {
                findings.push(finding(
                    path,
                    line,
                    format!("`unsafe` is allowed only in {}", UNSAFE_FILES.join(", ")),
                ));
            } else if !has_reason(&lines, line) {
                let message = format!("say in a `SAFETY:` comment in the {REASON_LINES} lines above why this holds");
                findings.push(finding(path, line, message));
            }
        }
    }
    findings
}

/// Returns lines with an `unsafe` block, function, impl or trait; the type `unsafe extern "C" fn(..)` does not count.
fn unsafe_lines(tokens: &[Token<'_>]) -> Vec<usize> {
    let is_type = |at: usize| {
        let after = tokens[at + 1..]
            .iter()
            .map(|token| token.text)
            .skip_while(|text| *text == "extern");
        after.take(2).eq(["fn", "("])
    };
    (0..tokens.len())
        .filter(|at| tokens[*at].text == "unsafe" && !is_type(*at))
        .map(|at| tokens[at].line)
        .collect()
}

/// A `SAFETY:` comment close above, or a `# Safety` section in the doc comment that ends just above.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let above = &lines[..line];
    let close = above.iter().rev().take(REASON_LINES + 1).any(|text| text.contains("SAFETY:"));
    let is_doc = |text: &&&str| text.trim_start().starts_with("///") || text.trim_start().starts_with("#[");
    close
        || lines[..line - 1]
            .iter()
            .rev()
            .take_while(is_doc)
            .any(|text| text.contains("# Safety"))
}

/// Functions and files that are too long.
pub(super) fn too_long(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let sources = [
        (".rs", rust_functions as fn(&str) -> Vec<Function>),
        (".py", python_functions),
    ];
    for (ending, functions) in sources {
        for (path, text) in tree.files(&["src/", "python/"], ending) {
            let length = text.lines().count();
            if length > FILE_LINES {
                findings.push(finding(
                    path,
                    length,
                    format!("the file has {length} lines, {FILE_LINES} are allowed"),
                ));
            }
        }
        for (path, text) in tree.files(&["src/", "python/", "tests/", "benches/", "fuzz/", "spark_examples/"], ending) {
            for function in functions(text)
                .into_iter()
                .filter(|function| function.length > FUNCTION_LINES)
            {
                let Function { name, line, length } = function;
                findings.push(finding(
                    path,
                    line,
                    format!("`{name}` has {length} lines, {FUNCTION_LINES} are allowed"),
                ));
            }
        }
    }
    findings
}

struct Function {
    name: String,
    line: usize,
    /// From its `fn` or `def` to its end.
    length: usize,
}

fn rust_functions(text: &str) -> Vec<Function> {
    let code = code(text);
    let tokens = tokens(&code);
    let starts = (0..tokens.len().saturating_sub(1)).filter(|at| tokens[*at].text == "fn" && tokens[at + 1].text != "(");
    starts.filter_map(|at| rust_function(&tokens[at..])).collect()
}

fn rust_function(tokens: &[Token<'_>]) -> Option<Function> {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for token in tokens {
        match token.text {
            "(" | "[" => others += 1,
            ")" | "]" => others = others.saturating_sub(1),
            ";" if braces == 0 && others == 0 => return None,
            "{" => braces += 1,
            "}" => {
                braces = braces.saturating_sub(1);
                if braces == 0 && others == 0 {
                    let name = tokens[1].text.to_owned();
                    let line = tokens[0].line;
                    return Some(Function {
                        name,
                        line,
                        length: token.line - line + 1,
                    });
                }
            }
            _ => {}
        }
    }
    None
}

fn python_functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut functions = Vec::new();
    for (at, start) in lines.iter().enumerate() {
        let words = start.trim_start().trim_start_matches("async ");
        let Some(name) = words.strip_prefix("def ") else { continue };
        let inside = |line: &str| line.trim().is_empty() || indent(line) > indent(start) || line.trim_start().starts_with(')');
        let body = lines[at + 1..].iter().take_while(|line| inside(line)).count();
        let blank = lines[at + 1..at + 1 + body]
            .iter()
            .rev()
            .take_while(|line| line.trim().is_empty())
            .count();
        let name = name.split('(').next().unwrap_or_default().to_owned();
        functions.push(Function {
            name,
            line: at + 1,
            length: 1 + body - blank,
        });
    }
    functions
}

/// Words that put work off.
pub(super) fn left_for_later(tree: &Tree) -> Vec<Finding> {
    let folders = ["src/", "python/", "tests/", "spark_examples/", "benches/", "fuzz/"];
    let mut findings = Vec::new();
    for (path, text) in [".rs", ".py", ".pyi"].iter().flat_map(|ending| tree.files(&folders, ending)) {
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(word) = words.find(|word| LEFT_FOR_LATER.contains(word)) {
                findings.push(finding(path, index + 1, format!("{word}: do it, or leave it out")));
            }
        }
    }
    findings
}

#[test]
fn unsafe_in_the_wrong_place_or_without_a_reason_is_reported() {
    let with_reason = "type F = unsafe extern \"C\" fn(i32);\n// SAFETY: the slot is ours.\nunsafe { run() }\n";
    let documented = "/// Runs.\n/// # Safety\n/// 1\n/// 2\n/// 3\n/// 4\n/// 5\n/// 6\n#[inline]\nunsafe fn run() {}\n";
    let tree = Tree::planted(&[
        ("src/format/record.rs", "// unsafe in a comment\nlet a = unsafe { b };\n"),
        ("src/storage/guard.rs", &format!("{with_reason}{documented}")),
        (
            "src/storage/region.rs",
            "// SAFETY: too far away\n\n\n\n\n\nunsafe impl Send for Region {}\n",
        ),
    ]);
    let findings = super::shown(&misplaced_unsafe(&tree));
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].starts_with("src/format/record.rs:2: `unsafe` is allowed only in src/storage/fork.rs"));
    assert!(findings[1].starts_with("src/storage/region.rs:7: say in a `SAFETY:` comment"));
}

#[test]
fn a_function_of_seventy_one_lines_and_a_file_of_801_are_reported() {
    let rust = |lines: usize| {
        format!(
            "impl A {{\n    fn long(a: [u8; 3]) {{\n{}    }}\n}}\n",
            "        {}\n".repeat(lines - 2)
        )
    };
    let python = |lines: usize| {
        format!(
            "class A:\n    def long(\n        a,\n    ):\n{}\nB = 1\n",
            "        a()\n".repeat(lines - 3)
        )
    };
    let tree = Tree::planted(&[
        ("src/long.rs", &rust(71)),
        ("src/just.rs", &rust(70)),
        ("python/long.py", &python(71)),
        ("python/just.py", &python(70)),
        ("src/file.rs", &"\n".repeat(801)),
        ("tests/it/file.rs", &"\n".repeat(801)),
    ]);
    assert_eq!(
        super::shown(&too_long(&tree)),
        [
            "src/file.rs:801: the file has 801 lines, 800 are allowed",
            "src/long.rs:2: `long` has 71 lines, 70 are allowed",
            "python/long.py:2: `long` has 71 lines, 70 are allowed",
        ]
    );
}

#[test]
fn a_word_that_puts_work_off_is_reported() {
    let later = LEFT_FOR_LATER[0];
    let tree = Tree::planted(&[(
        "src/a.rs",
        &format!("const T: &str = \"SCHEDULE_TOPIC_XXXX\";\n// {later}: more\n"),
    )]);
    assert_eq!(
        super::shown(&left_for_later(&tree)),
        [format!("src/a.rs:2: {later}: do it, or leave it out")]
    );
}
