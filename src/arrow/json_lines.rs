//! Rows as JSON Lines: one object for each row, with the names of the columns.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_schema::DataType;

use crate::arrow::cell;
use crate::arrow::table::{Chunk, Table};
use crate::error::{Error, Result};
use crate::format::{Date, Round};
use crate::interrupt;

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyAs {
    /// Any bytes.
    Base64,
    /// Bytes that are UTF-8.
    Text,
    /// Bytes that are JSON, as a value of the object.
    Json,
}

/// A function that writes the value of a row.
type Write<'a> = Box<dyn Fn(usize, &mut Vec<u8>) -> Result<()> + 'a>;

/// Writes each row as a line: a time as ISO 8601 in UTC, to the ms, bytes as base64, a list as an array, pairs as an object, a
/// non-finite float as null. `body_as` applies to the column `body`.
///
/// # Errors
/// [`Error::Invalid`] for a column of another type, and for a body that is not valid for `body_as`.
pub(crate) fn json_lines(table: &Table, body_as: BodyAs) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for chunk in table.chunks() {
        let mut columns = Vec::new();
        for name in table.names() {
            let mut label = Vec::new();
            put_text(name, &mut label)?;
            label.push(b':');
            columns.push((label, column(chunk, name, body_as)?));
        }
        for row in 0..chunk.len() {
            interrupt::check()?;
            let mut before = b'{';
            for (label, value) in &columns {
                out.push(before);
                out.extend_from_slice(label);
                value(row, &mut out)?;
                before = b',';
            }
            out.extend_from_slice(if columns.is_empty() { b"{}\n" } else { b"}\n" });
        }
    }
    Ok(out)
}

fn column<'a>(chunk: Chunk<'a>, name: &'a str, body_as: BodyAs) -> Result<Write<'a>> {
    let Some(values) = chunk.column(name) else {
        return Ok(Box::new(|_, out| {
            out.extend_from_slice(b"null");
            Ok(())
        }));
    };
    Ok(match values.data_type() {
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64 => {
            let number = chunk.integer(name)?;
            Box::new(move |row, out| put(number.at(row)?, out, put_number))
        }
        DataType::Boolean => {
            let flag = cell::values(values.as_boolean());
            Box::new(move |row, out| put(flag.at(row)?, out, put_flag))
        }
        DataType::Float64 => {
            let number = cell::values(values.as_primitive::<Float64Type>());
            Box::new(move |row, out| put(number.at(row)?, out, put_float))
        }
        DataType::Timestamp(_, _) => {
            let time = chunk.time(name, Round::Down)?;
            Box::new(move |row, out| put(time.at(row)?, out, put_time))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            let (bytes, physical_offset) = (chunk.bytes(name)?, chunk.integer("physical_offset")?);
            let written_as = if name == "body" { body_as } else { BodyAs::Base64 };
            Box::new(move |row, out| {
                let written = put(bytes.at(row)?, out, |bytes, out| put_bytes(bytes, written_as, out));
                let of_row = |error| Error::Invalid {
                    what: physical_offset.at(row).ok().flatten().map_or_else(
                        || format!("row {row}: {error}"),
                        |offset| format!("the message at physical offset {offset}: {error}"),
                    ),
                };
                written.map_err(of_row)
            })
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(_, _) => {
            let text = chunk.text(name)?;
            Box::new(move |row, out| put(text.at(row)?, out, put_text))
        }
        DataType::Map(_, _) | DataType::Struct(_) => {
            let pairs = chunk.pairs(name)?;
            Box::new(move |row, out| put(pairs.at(row)?, out, put_pairs))
        }
        DataType::List(_) | DataType::LargeList(_) | DataType::ListView(_) | DataType::LargeListView(_) => {
            let texts = chunk.texts(name)?;
            Box::new(move |row, out| put(texts.at(row)?, out, |texts, out| put_texts(&texts, out)))
        }
        other => {
            return Err(Error::Invalid {
                what: format!(
                    "column {name:?} is {other}, which is not written as JSON: cast it to utf8 or int64 in rewrite, or leave it out"
                ),
            });
        }
    })
}

fn put<T>(value: Option<T>, out: &mut Vec<u8>, write: impl FnOnce(T, &mut Vec<u8>) -> Result<()>) -> Result<()> {
    if let Some(value) = value {
        return write(value, out);
    }
    out.extend_from_slice(b"null");
    Ok(())
}

fn put_number(number: i64, out: &mut Vec<u8>) -> Result<()> {
    written(serde_json::to_writer(out, &number))
}

fn put_float(number: f64, out: &mut Vec<u8>) -> Result<()> {
    written(serde_json::to_writer(out, &number))
}

fn put_flag(flag: bool, out: &mut Vec<u8>) -> Result<()> {
    written(serde_json::to_writer(out, &flag))
}

fn put_text(text: &str, out: &mut Vec<u8>) -> Result<()> {
    written(serde_json::to_writer(out, text))
}

fn put_texts(texts: &[&str], out: &mut Vec<u8>) -> Result<()> {
    written(serde_json::to_writer(out, texts))
}

fn put_pairs(pairs: Vec<(&str, &str)>, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'{');
    for (at, (name, value)) in pairs.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        put_text(name, out)?;
        out.push(b':');
        put_text(value, out)?;
    }
    out.push(b'}');
    Ok(())
}

const MS_A_DAY: i64 = 86_400_000;

/// Writes `"2026-11-20T19:55:54.848Z"`; a number of ms since 1970 outside the years 1 to 9999, which the standard writes with four
/// digits.
fn put_time(ms: i64, out: &mut Vec<u8>) -> Result<()> {
    let (days, of_day) = (ms.div_euclid(MS_A_DAY), ms.rem_euclid(MS_A_DAY));
    let Some(Date { year, month, day }) = Date::of(days).filter(|date| (1..=9999).contains(&date.year)) else {
        return put_number(ms, out);
    };
    let (seconds, ms) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    put_text(
        &format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"),
        out,
    )
}

fn put_bytes(bytes: &[u8], body_as: BodyAs, out: &mut Vec<u8>) -> Result<()> {
    let refused = |what: String| Error::Invalid { what };
    match body_as {
        BodyAs::Base64 => put_base64(bytes, out),
        BodyAs::Text => {
            let text = str::from_utf8(bytes);
            let text = text.map_err(|error| refused(format!("the body is not UTF-8 ({error}): use body_as=\"base64\"")))?;
            return put_text(text, out);
        }
        BodyAs::Json => {
            let checked: serde_json::Result<serde_json::Value> = serde_json::from_slice(bytes);
            checked.map_err(|error| refused(format!("the body is not JSON ({error}): use body_as=\"base64\" or \"text\"")))?;
            // In valid JSON a line break occurs only between tokens.
            out.extend(
                bytes
                    .iter()
                    .map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }),
            );
        }
    }
    Ok(())
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn put_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4 + 2);
    out.push(b'"');
    for three in bytes.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) as usize % 64;
            // One byte becomes two digits, two become three.
            let written = if digit <= three.len() { BASE64.get(value) } else { None };
            out.push(written.copied().unwrap_or(b'='));
        }
    }
    out.push(b'"');
}

/// Converts the result of writing to memory, which never fails.
fn written(outcome: serde_json::Result<()>) -> Result<()> {
    outcome.map_err(|error| Error::Invalid { what: error.to_string() })
}
