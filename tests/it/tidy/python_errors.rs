//! Errors that Python raises in the bindings, and that must reach the caller: a signal handler may raise in any Python code.

use super::tree::{Finding, Token, Tree, code, tokens};

/// Types whose check asks `isinstance`, which runs Python code. `PyO3` prints and drops the error of that code.
const ABSTRACT: [&str; 2] = ["PyMapping", "PySequence"];
/// Functions that return the text of an object. Formatting what `PyO3` returns would drop the error of a signal handler.
const TEXTS: [&str; 3] = ["repr", "str", "fully_qualified_name"];
/// The file of the functions that keep that error.
const OF_TEXTS: &str = "src/bindings/arguments.rs";
/// Functions of `PyO3` that run Python code, or may.
const RUN_PYTHON: [&str; 21] = [
    "call",
    "call0",
    "call1",
    "call_method",
    "call_method0",
    "call_method1",
    "contains",
    "eq",
    "extract",
    "get",
    "get_item",
    "getattr",
    "hasattr",
    "import",
    "is_instance",
    "is_truthy",
    "lt",
    "repr",
    "rich_compare",
    "str",
    "try_iter",
];
/// Types that `extract` makes without running Python code.
const PLAIN: [&str; 4] = ["str", "u8", "String", "("];
/// Methods that drop an error.
const DROPPING: [&str; 9] = [
    "ok",
    "is_ok",
    "is_err",
    "is_ok_and",
    "is_err_and",
    "unwrap_or",
    "unwrap_or_default",
    "unwrap_or_else",
    "flatten",
];
/// Methods whose closure drops an error if it ignores its argument.
const MAPPING: [&str; 3] = ["map_err", "or_else", "map_or_else"];
/// Files in which an error may be dropped, because an exception is already on its way or the interpreter ends.
const EXEMPT: [&str; 2] = ["src/bindings/interpreter.rs", "src/bindings/imports.rs"];

/// Checks and conversions of Python objects that drop what Python code raises.
pub(super) fn dropped(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files(&["src/bindings/"], ".rs") {
        let code = code(text);
        let tokens = tokens(&code);
        let mut report = |line: usize, message: String| {
            let path = path.to_owned();
            findings.push(Finding { path, line, message });
        };
        for at in 0..tokens.len() {
            if let Some(name) = abstract_check(&tokens, at) {
                report(
                    tokens[at].line,
                    format!("a check for {name} runs `isinstance` and drops its error: use `is_instance`"),
                );
            }
            if EXEMPT.contains(&path) {
                continue;
            }
            if path != OF_TEXTS && tokens[at].text == "." && tokens.get(at + 1).is_some_and(|name| TEXTS.contains(&name.text)) {
                report(
                    tokens[at].line,
                    "a formatted object drops the error of its text: use `str_of`, `repr_of` or `type_of`".to_owned(),
                );
            }
            if let Some(call) = dropped_at(&tokens, at).and_then(python_call) {
                report(
                    tokens[at].line,
                    format!("the error of `{call}` is dropped: return each but that of a wrong type, such as by `explained`"),
                );
            }
        }
    }
    findings
}

/// The abstract type for which the function here checks, by a turbofish.
fn abstract_check<'a>(tokens: &[Token<'a>], at: usize) -> Option<&'a str> {
    let checks = ["cast", "cast_into", "is_instance_of", "extract", "downcast", "downcast_into"];
    let [function, colons, open, name] = tokens.get(at..at + 4)? else {
        return None;
    };
    let is_check = checks.contains(&function.text) && colons.text == "::" && open.text == "<";
    (is_check && ABSTRACT.contains(&name.text)).then_some(name.text)
}

/// The expression whose error is dropped here.
fn dropped_at<'a, 'b>(tokens: &'b [Token<'a>], at: usize) -> Option<&'b [Token<'a>]> {
    let is = |offset: usize, text: &str| tokens.get(at + offset).is_some_and(|token| token.text == text);
    if is(0, ".") && is(2, "(") && tokens.get(at + 1).is_some_and(|name| DROPPING.contains(&name.text)) {
        return Some(receiver(tokens, at));
    }
    if is(0, ".") && is(2, "(") && is(3, "|") && is(4, "_") && tokens.get(at + 1).is_some_and(|name| MAPPING.contains(&name.text))
    {
        return Some(receiver(tokens, at));
    }
    if is(0, "let") && is(1, "Ok") && is(2, "(") {
        let begin = at + 3 + tokens[at + 3..].iter().position(|token| token.text == "=")? + 1;
        let ends =
            |at: usize| matches!(tokens[at].text, "else" | "{") || tokens[at..].iter().take(2).all(|token| token.text == "&");
        return Some(&tokens[begin..(begin..tokens.len()).find(|at| ends(*at))?]);
    }
    if is(0, "Err") && is(1, "(") && is(2, "_") && is(3, ")") {
        return matched(tokens, at);
    }
    None
}

/// The expression before the method call at `dot`, up to the start of its statement or argument.
fn receiver<'a, 'b>(tokens: &'b [Token<'a>], dot: usize) -> &'b [Token<'a>] {
    let mut depth = 0;
    for at in (0..dot).rev() {
        match tokens[at].text {
            ")" | "]" | "}" => depth += 1,
            "(" | "[" | "{" | ";" | "," | "=" | "|" if depth == 0 => return &tokens[at + 1..dot],
            "(" | "[" | "{" => depth -= 1,
            _ => {}
        }
    }
    &tokens[..dot]
}

/// The expression that the `match` around the pattern at `at` looks at.
fn matched<'a, 'b>(tokens: &'b [Token<'a>], at: usize) -> Option<&'b [Token<'a>]> {
    let mut depth = 0;
    let open = (0..at).rev().find(|before| match tokens[*before].text {
        "}" => {
            depth += 1;
            false
        }
        "{" if depth == 0 => true,
        "{" => {
            depth -= 1;
            false
        }
        _ => false,
    })?;
    let begin = (0..open).rev().find(|before| tokens[*before].text == "match")?;
    Some(&tokens[begin + 1..open])
}

/// The first function in an expression that runs Python code.
fn python_call<'a>(expression: &[Token<'a>]) -> Option<&'a str> {
    (0..expression.len()).find_map(|at| {
        let name = expression[at].text;
        let before = at.checked_sub(1).map_or("", |before| expression[before].text);
        let is_buffer = name == "get" && before == "::";
        if before != "." && !is_buffer || !RUN_PYTHON.contains(&name) || name == "get" && !is_buffer {
            return None;
        }
        // `extract::<&'a str>()`
        let after = expression.get(at + 1..).unwrap_or_default();
        let generic = after.iter().take_while(|token| token.text != ">").map(|token| token.text);
        let is_plain = name == "extract" && after.first()?.text == "::" && generic.into_iter().any(|text| PLAIN.contains(&text));
        (!is_plain).then_some(name)
    })
}

#[test]
fn a_dropped_error_of_python_code_is_reported_and_a_handled_one_is_not() {
    let tree = Tree::planted(&[
        (
            "src/bindings/dropping.rs",
            "fn a() {\n\
             let mapping = value.cast::<PyMapping>()?;\n\
             let Ok(items) = value.try_iter() else { return };\n\
             if let Ok(number) = value.extract::<i64>() {}\n\
             value.extract::<f64>().map_err(|_| refused())?;\n\
             let name = value.getattr(name).ok();\n\
             match value.call0() {\nOk(_) => {}\nErr(_) => {}\n}\n\
             let is_buffer = PyBuffer::<u8>::get(value).is_ok();\n\
             let text = format!(\"not {}\", value.repr()?);\n\
             }\n",
        ),
        (
            "src/bindings/keeping.rs",
            "fn a() {\n\
             let items = value.try_iter().map_err(|error| explained(py, error, wrong))?;\n\
             let Ok(text) = value.extract::<&str>() else { return };\n\
             if let Ok(text) = value.extract::<&'a str>() && is_short(text) {}\n\
             let text = format!(\"not {}\", repr_of(value)?);\n\
             match value.extract::<i64>() {\nOk(_) => {}\nErr(error) => {}\n}\n\
             if let Ok(slice) = index.cast::<PySlice>() {}\n\
             let first = table.get(0).unwrap_or_default();\n\
             }\n",
        ),
        ("src/read/other.rs", "fn a() { value.try_iter().ok(); }\n"),
    ]);
    let findings = super::shown(&dropped(&tree));
    let lines: Vec<_> = findings.iter().map(|finding| finding.split(": ").next().unwrap()).collect();
    let expected = [2, 3, 4, 5, 6, 9, 11, 12].map(|line| format!("src/bindings/dropping.rs:{line}"));
    assert_eq!(lines, expected, "{findings:?}");
}
