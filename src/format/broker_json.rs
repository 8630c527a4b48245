//! JSON as a broker writes its settings: fastjson does not quote names that are numbers, as in `{"orders@billing":{0:255,1:250}}`.

use serde_json::Value;

use super::bytes::is_zero;
use super::malformed::Malformed;

/// Parses such a text. Of several fields with one name the last counts, as for a broker.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, Malformed> {
    let (quoted, inserted) = quote_numbers(bytes);
    serde_json::from_slice(&quoted).map_err(|error| {
        let at = if error.is_eof() {
            quoted.len()
        } else {
            offset_of(&quoted, error.line(), error.column())
        };
        let before = inserted.partition_point(|quote| *quote < at);
        // Line and column count in the text with the inserted quotes.
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        Malformed::new((at - before).min(bytes.len()), format!("not JSON: {what}"))
    })
}

/// Checks that the bytes are JSON as a broker writes it. A power failure can leave a file of zeros only.
pub fn check_settings(bytes: &[u8]) -> Result<(), Malformed> {
    if is_zero(bytes) {
        return Err(Malformed::new(0, "the file is empty"));
    }
    parse(bytes).map(drop)
}

/// Returns the text with quotes around each name that is a number, and the positions of the inserted quotes.
fn quote_numbers(bytes: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 8);
    let mut inserted = Vec::new();
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let len = match first {
            b'"' => len_of_text(rest),
            b'-' | b'0'..=b'9' => rest.iter().take_while(|byte| matches!(byte, b'-' | b'0'..=b'9')).count(),
            _ => 1,
        };
        let (token, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        // In JSON a number before a colon can only be a name.
        let is_name = is_number(token) && first_but_space(after) == Some(b':');
        if is_name {
            inserted.extend([out.len(), out.len() + 1 + token.len()]);
            out.push(b'"');
        }
        out.extend_from_slice(token);
        if is_name {
            out.push(b'"');
        }
        rest = after;
    }
    (out, inserted)
}

/// Returns the length of the string literal that starts at the first byte, or of all bytes if it does not end.
fn len_of_text(bytes: &[u8]) -> usize {
    let mut is_escaped = true; // The first quote ends nothing.
    let end = bytes.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(bytes.len(), |end| end + 1)
}

fn is_number(token: &[u8]) -> bool {
    let digits = token.strip_prefix(b"-").unwrap_or(token);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn first_but_space(bytes: &[u8]) -> Option<u8> {
    bytes
        .iter()
        .copied()
        .find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

/// Returns the position of a line (from 1) and a column (from 1, in bytes).
fn offset_of(bytes: &[u8], line: usize, column: usize) -> usize {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let start = match line.checked_sub(2) {
        Some(before) => ends.map(|(at, _)| at + 1).nth(before).unwrap_or(bytes.len()),
        None => 0,
    };
    start + column.saturating_sub(1)
}
