//! Arguments of a call. Each is refused by its name and with what is expected. PyO3's own extraction would name it only in a note.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::Borrowed;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::type_object::PyTypeInfo;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyMapping, PyString};

use super::interpreter::hang_at_exit;
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::MessageType;
use crate::read::{OnMissing, QueryBy, Side};
use crate::store::QueueChoice;

/// Puts the name of an argument before the text of an error that refuses it. Any other error stays as it is: code of the caller, or the
/// handler of a signal, raised it.
pub(super) fn named(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    if !is_refusal(py, &error) {
        return error;
    }
    let text = match str_of(error.value(py)) {
        Ok(text) => format!("{name}: {text}"),
        Err(other) => return other,
    };
    if error.is_instance_of::<PyUnicodeEncodeError>(py) {
        // It cannot be made of a text.
        return PyValueError::new_err(text);
    }
    // In place, so that the exception keeps its type and attributes.
    match error.value(py).setattr("args", (text,)) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// Returns whether an error is one by which an argument is refused.
pub(super) fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyValueError>(py)
        || error.is_instance_of::<PyOverflowError>(py)
}

/// Replaces the `TypeError` of a value of another type by one with this text. Any other error stays as it is.
pub(super) fn explained(py: Python<'_>, error: PyErr, text: impl FnOnce() -> PyResult<String>) -> PyErr {
    if error.is_instance_of::<PyTypeError>(py) {
        text().map_or_else(|other| other, PyTypeError::new_err)
    } else {
        error
    }
}

/// Returns the items of a mapping; `None` for another object. `cast::<PyMapping>()` would print and drop what `isinstance` raises, such
/// as the exception of a signal handler.
pub(super) fn items_of_mapping<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyIterator>>> {
    if value.is_instance_of::<PyDict>() || value.is_instance(PyMapping::type_object(value.py()).as_any())? {
        value.call_method0("items")?.try_iter().map(Some)
    } else {
        Ok(None)
    }
}

/// Converts a whole number.
///
/// # Errors
/// `TypeError`, `ValueError` for a number that does not fit, and errors of the caller's `__index__`.
pub(super) fn whole<T: TryFrom<i64>>(value: &Bound<'_, PyAny>, name: &str) -> PyResult<T> {
    let number = match value.extract::<i64>() {
        Ok(number) => T::try_from(number).ok(),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => None,
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) && !value.hasattr("__index__")? => {
            return Err(PyTypeError::new_err(format!("{name} is an int, not {}", type_of(value)?)));
        }
        Err(error) => return Err(error),
    };
    let expected = if T::try_from(-1).is_err() {
        "an int from 0 to 2**63 - 1"
    } else if T::try_from(i64::MAX).is_err() {
        "an int of 32 bits"
    } else {
        "an int of 64 bits"
    };
    match number {
        Some(number) => Ok(number),
        None => Err(PyValueError::new_err(format!(
            "{name} is {}: expected {expected}",
            str_of(value)?
        ))),
    }
}

/// Extracts a whole number or None.
fn optional_whole<T: TryFrom<i64>>(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<T>> {
    if value.is_none() {
        Ok(None)
    } else {
        whole(value, name).map(Some)
    }
}

/// Converts True or False.
fn truth(value: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    let wrong = || Ok(format!("{name} is True or False, not {}", repr_of(value)?));
    value.extract().map_err(|error| explained(value.py(), error, wrong))
}

/// Converts True, False or None.
fn optional_truth(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<bool>> {
    if value.is_none() {
        return Ok(None);
    }
    let wrong = || Ok(format!("{name} is True, False or None, not {}", repr_of(value)?));
    value.extract().map(Some).map_err(|error| explained(value.py(), error, wrong))
}

/// Converts names of columns; None for all.
fn names(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<Vec<String>>> {
    if value.is_none() {
        return Ok(None);
    }
    let wrong = || {
        let shown = repr_of(value)?;
        Ok(format!(
            "{what} is a sequence of names, such as [\"topic\", \"body\"], not {shown}"
        ))
    };
    value.extract().map(Some).map_err(|error| explained(value.py(), error, wrong))
}

/// Converts text that can be stored, where Python keeps it.
///
/// # Errors
/// `TypeError`; `IllegalMessageError` for half of a surrogate pair, which no UTF-8 has.
pub(super) fn text<'a>(value: Borrowed<'a, '_, PyAny>, what: &str) -> PyResult<&'a str> {
    if let Ok(text) = value.extract::<&'a str>() {
        return Ok(text);
    }
    if !value.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(format!("{what} is a str, not {}", type_of(&value)?)));
    }
    let text = repr_of(&value)?;
    Err(Error::illegal(format!(
        "{what} {text} holds a lone surrogate: it is not text that can be stored"
    ))
    .into())
}

/// Converts text that is an argument of its own.
fn argument<'a>(value: &'a Bound<'_, PyAny>, what: &str) -> PyResult<&'a str> {
    text(value.as_borrowed(), what)
}

/// Converts a str or an iterable of str.
pub(super) fn texts(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<String>> {
    if value.is_instance_of::<PyString>() {
        return Ok(vec![text(value.as_borrowed(), name)?.to_owned()]);
    }
    let wrong = || Ok(format!("{name} is a str or several, not {}", type_of(value)?));
    let items = value.try_iter().map_err(|error| explained(value.py(), error, wrong))?;
    items
        .map(|item| Ok(text(item?.as_borrowed(), &format!("one of {name}"))?.to_owned()))
        .collect()
}

/// Returns the type of a value, for a refusal.
pub(super) fn type_of(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(value.get_type().fully_qualified_name()?.to_string_lossy().into_owned())
}

/// Returns the text of an object, for a refusal. Formatting the object itself would print and drop what its code, or the handler of a
/// signal, raises.
pub(super) fn str_of(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(value.str()?.to_string_lossy().into_owned())
}

/// Returns the representation of an object, for a refusal, as [`str_of`].
pub(super) fn repr_of(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(value.repr()?.to_string_lossy().into_owned())
}

/// Extracts text or None.
fn optional<'a>(value: &'a Bound<'_, PyAny>, what: &str) -> PyResult<Option<&'a str>> {
    if value.is_none() {
        Ok(None)
    } else {
        argument(value, what).map(Some)
    }
}

/// Converts a path: str, bytes or what has `__fspath__`. The empty one names no directory.
///
/// # Errors
/// `TypeError`; `NotAStoreError`, a `FileNotFoundError`.
pub(super) fn path(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    hang_at_exit();
    let of_system = value.py().import("os")?.call_method1("fspath", (value,));
    let of_system = of_system.map_err(|error| named(value.py(), "path", error))?;
    let path = match of_system.cast::<PyBytes>() {
        Ok(bytes) => PathBuf::from(OsString::from_vec(bytes.as_bytes().to_vec())),
        Err(_) => of_system.extract()?,
    };
    if path.as_os_str().is_empty() {
        return Err(Error::NotAStore {
            path,
            found: "an empty path".to_owned(),
        }
        .into());
    }
    Ok(path)
}

/// Converts the argument `errors`: the treatment of damage, by default as the store was opened.
pub(super) fn errors(value: &Bound<'_, PyAny>) -> PyResult<Option<Errors>> {
    if value.is_none() {
        return Ok(None);
    }
    let word = one_of(value, Errors::NAMES);
    word.map(Some).map_err(|error| named(value.py(), "errors", error))
}

/// Converts the argument `on_missing`: the start in a queue that does not reach to the position asked for.
pub(super) fn on_missing(value: &Bound<'_, PyAny>) -> PyResult<Option<OnMissing>> {
    if value.is_none() {
        return Ok(None);
    }
    let word = one_of(value, [("earliest", OnMissing::Earliest), ("latest", OnMissing::Latest)]);
    word.map(Some).map_err(|error| named(value.py(), "on_missing", error))
}

/// Values of `side`.
pub(super) const SIDES: [(&str, Side); 2] = [("left", Side::Left), ("right", Side::Right)];

/// Converts one of two words.
///
/// # Errors
/// `TypeError`, `ValueError`, without the name of the argument.
pub(super) fn one_of<T>(value: &Bound<'_, PyAny>, choices: [(&str, T); 2]) -> PyResult<T> {
    let [(first, _), (second, _)] = &choices;
    let expected = format!("expected \"{first}\" or \"{second}\", got {}", repr_of(value)?);
    let Ok(given) = value.extract::<&str>() else {
        return Err(PyTypeError::new_err(expected));
    };
    let found = choices.into_iter().find(|(word, _)| *word == given);
    found.map(|(_, choice)| choice).ok_or_else(|| PyValueError::new_err(expected))
}

/// Converts the argument `physical`: the physical offsets from the first up to the second, each of which may be `None`.
pub(super) fn physical(value: Option<&Bound<'_, PyAny>>) -> PyResult<Range<i64>> {
    let Some(value) = value else { return Ok(0..i64::MAX) };
    let Ok((first, second)) = value.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        return Err(PyTypeError::new_err(format!(
            "physical is a pair of where it begins and where it ends, such as (a, None), not {}",
            repr_of(value)?
        )));
    };
    let start = optional_whole(&first, "physical")?.unwrap_or(0);
    let end = optional_whole(&second, "physical")?.unwrap_or(i64::MAX);
    if start > end {
        return Err(PyValueError::new_err(format!(
            "physical begins at {start} and ends before that, at {end}"
        )));
    }
    Ok(start..end)
}

/// Returns the condition by which a query finds messages.
///
/// # Errors
/// `TypeError` for a key and a tag, and for neither.
pub(super) fn query_by(key: Option<&str>, tag: Option<&str>) -> PyResult<QueryBy> {
    match (key, tag) {
        (Some(key), None) => Ok(QueryBy::Key(key.to_owned())),
        (None, Some(tag)) if tag.contains("||") => Err(PyValueError::new_err(format!(
            "tag is {tag:?}: query() takes one tag; ask for each of them, or use get(tags=...), which takes an expression"
        ))),
        (None, Some(tag)) => Ok(QueryBy::Tag(tag.to_owned())),
        (Some(_), Some(_)) => Err(PyTypeError::new_err(
            "query() finds by a key or by a tag: leave one of them out",
        )),
        (None, None) => Err(PyTypeError::new_err(
            "query() finds by a key or by a tag: give one of them, or use scan(), which finds by time, properties and body",
        )),
    }
}

/// Tags of which a message has one: "a || b".
///
/// # Errors
/// `TypeError`; `ValueError` for "a && b".
pub(super) fn tag_expression<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a str>> {
    let expression = tags(value)?;
    match expression {
        Some(text) if text.contains("&&") => Err(PyValueError::new_err(format!(
            "tags is {text:?}: a message has one tag, so that tags are joined by \"||\" only"
        ))),
        _ => Ok(expression),
    }
}

/// Converts arguments. An argument is refused by its name, or by the text after `as`.
macro_rules! arguments {
    (@name $name:ident) => { stringify!($name) };
    (@name $name:ident $text:literal) => { $text };
    ($($(#[$doc:meta])* $name:ident $(<$kept:lifetime>)?: $type:ty, $convert:ident $(as $text:literal)?;)*) => {
        $($(#[$doc])*
        pub(super) fn $name$(<$kept>)?(value: &$($kept)? Bound<'_, PyAny>) -> PyResult<$type> {
            hang_at_exit();
            $convert(value, arguments!(@name $name $($text)?))
        })*
    };
}

arguments! {
    mode<'a>: &'a str, argument;
    topic<'a>: &'a str, argument;
    tags<'a>: Option<&'a str>, optional;
    unique_key<'a>: Option<&'a str>, optional;
    sharding_key<'a>: Option<&'a str>, optional;
    group<'a>: Option<&'a str>, optional;
    born_host<'a>: Option<&'a str>, optional;
    store_host<'a>: Option<&'a str>, optional;
    key<'a>: Option<&'a str>, optional;
    tag<'a>: Option<&'a str>, optional;
    id<'a>: &'a str, argument;
    queue_id: i32, whole;
    queue_offset: i64, whole;
    before_offset: Option<i64>, optional_whole;
    offset: i64, whole;
    physical_offset: i64, whole;
    max_messages: usize, whole;
    limit: Option<usize>, optional_whole;
    max_bytes: usize, whole;
    batch_bytes: usize, whole;
    by<'a>: &'a str, argument;
    transactions<'a>: &'a str, argument;
    order<'a>: &'a str, argument;
    body_regex<'a>: Option<&'a str>, optional;
    reverse: bool, truth;
    decode_body: bool, truth;
    columns: Option<Vec<String>>, names;
    side<'a>: &'a str, argument;
    bounded: bool, truth;
    durable: Option<bool>, optional_truth;
    one_segment: bool, truth;
    keep_store_time: bool, truth;
    dry_run: bool, truth;
    deep: bool, truth;
    walk: bool, truth;
    delay_level: i32, whole;
    flag: i32, whole;
    sys_flag: i32, whole;
    reconsume_times: i32, whole;
    prepared_transaction_offset: i64, whole;
    /// The topic of those rows that name none.
    default_topic<'a>: Option<&'a str>, optional as "topic";
    queues: i32, whole;
    perm: i32, whole;
    is_ordered: bool, truth as "order";
    /// The physical offset of a message, or None for all that was appended.
    offset_or_none: Option<i64>, optional_whole as "offset";
    /// The name of a topic to be looked up.
    name<'a>: &'a str, argument as "the name of a topic";
}

/// Converts one of two words.
///
/// # Errors
/// `ValueError` for another one.
pub(super) fn word<T>(name: &str, given: &str, choices: [(&str, T); 2]) -> PyResult<T> {
    let [(first, _), (second, _)] = &choices;
    let expected = format!("{name} is {given:?}: expected \"{first}\" or \"{second}\"");
    let found = choices.into_iter().find(|(word, _)| *word == given);
    found.map(|(_, choice)| choice).ok_or_else(|| PyValueError::new_err(expected))
}

/// Converts the argument `message_type`: the name of a type, or None.
pub(super) fn message_type(value: &Bound<'_, PyAny>) -> PyResult<Option<MessageType>> {
    let Some(name) = optional(value, "message_type")? else {
        return Ok(None);
    };
    let found = MessageType::parse(name);
    found.map(Some).ok_or_else(|| {
        let names = MessageType::NAMES.map(|(name, _)| name).join(", ");
        PyValueError::new_err(format!("message_type is {name:?}: expected one of {names}"))
    })
}

/// Converts the argument `queue_id` of an append: an id, "next", or None.
pub(super) fn queue_choice(value: &Bound<'_, PyAny>) -> PyResult<Option<QueueChoice<'static>>> {
    hang_at_exit();
    if value.is_none() {
        return Ok(None);
    }
    match value.extract::<&str>() {
        Ok("next") => Ok(Some(QueueChoice::Next)),
        _ => whole(value, "queue_id").map(|id| Some(QueueChoice::Id(id))),
    }
}

/// Converts the argument `queue_ids`: an id or several.
pub(super) fn queue_ids(value: &Bound<'_, PyAny>) -> PyResult<Vec<i32>> {
    match value.try_iter() {
        Ok(items) => items.map(|item| whole(&item?, "one of queue_ids")).collect(),
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => Ok(vec![whole(value, "queue_ids")?]),
        Err(error) => Err(error),
    }
}

/// Converts the argument `properties`: a mapping of str to str.
pub(super) fn pairs(value: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let Some(mut items) = items_of_mapping(value)? else {
        return Err(PyTypeError::new_err(format!(
            "properties is a mapping of str to str, not {}",
            type_of(value)?
        )));
    };
    let pair = |item: PyResult<Bound<'_, PyAny>>| {
        let (name, wanted): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
        let name = text(name.as_borrowed(), "the name of a property")?.to_owned();
        let wanted = text(wanted.as_borrowed(), &format!("the value of property {name:?}"))?.to_owned();
        Ok((name, wanted))
    };
    items.by_ref().map(pair).collect()
}

/// Converts the argument `body_contains`.
pub(super) fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if value.is_instance_of::<PyString>() {
        return Ok(text(value.as_borrowed(), "body_contains")?.as_bytes().to_vec());
    }
    Err(PyTypeError::new_err(format!(
        "body_contains is bytes or str, not {}",
        type_of(value)?
    )))
}

/// Converts the argument `max_mb_per_s` to bytes a second.
pub(super) fn bytes_per_s(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    hang_at_exit();
    let rate: f64 = value.extract().map_err(|error| {
        explained(value.py(), error, || {
            Ok(format!("max_mb_per_s is a number, not {}", type_of(value)?))
        })
    })?;
    if rate.is_nan() || rate <= 0.0 {
        return Err(PyValueError::new_err(format!("max_mb_per_s is {rate}: expected more than 0")));
    }
    Ok((rate * 1e6) as u64)
}

/// Converts the argument `progress`.
pub(super) fn callable(value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    if value.is_callable() {
        return Ok(value.clone().unbind());
    }
    Err(PyTypeError::new_err(format!(
        "progress is a callable of two ints, not {}",
        type_of(value)?
    )))
}

/// Calls `progress`, if there is one, with the bytes that are done and their total.
///
/// # Errors
/// [`Error::Interrupted`] with its exception.
pub(super) fn tell(progress: Option<&Py<PyAny>>, done: i64, all: i64) -> Result<()> {
    let told = progress.and_then(|progress| Python::try_attach(|py| progress.call1(py, (done, all))));
    match told {
        Some(Err(raised)) => Err(Error::Interrupted { cause: Arc::new(raised) }),
        Some(Ok(_)) | None => Ok(()),
    }
}
