//! Extraction of a message from Python objects: the arguments of `append` and `Message`, and the rows of `append_batch`.

use std::borrow::Cow;

use pyo3::Borrowed;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDelta, PyIterator, PyString};

use super::arguments::{explained, is_refusal, items_of_mapping, named, repr_of, text, type_of};
use super::time::{delta_ms, now_ms, to_ms};
use crate::arrow::host;
use crate::error::Error;
use crate::format::{Message, PropertyList, Round, property};

/// The arguments that become properties of a message.
#[derive(Default)]
pub(super) struct PropertyArguments<'a, 'py> {
    pub(super) unique_key: Option<&'a str>,
    pub(super) sharding_key: Option<&'a str>,
    pub(super) tags: Option<&'a str>,
    /// A str, or an iterable of them.
    pub(super) keys: Option<&'a Bound<'py, PyAny>>,
    /// A mapping of str to str, or an iterable of pairs of them.
    pub(super) properties: Option<&'a Bound<'py, PyAny>>,
    /// 0 for none.
    pub(super) delay_level: i32,
    /// In ms.
    pub(super) deliver_at: Option<i64>,
}

impl PropertyArguments<'_, '_> {
    /// # Errors
    /// `IllegalMessageError`, `TypeError`.
    pub(super) fn encode(self) -> PyResult<Vec<u8>> {
        let keys;
        let mut list = PropertyList::default();
        if let Some(properties) = self.properties {
            for pair in pairs(properties)? {
                let [name, value] = name_and_value(&pair?)?;
                list.put(owned(&name, "properties: a name")?, owned(&value, "properties: a value")?);
            }
        }
        if let Some(unique_key) = self.unique_key {
            list.put(property::UNIQ_KEY, unique_key);
        }
        if let Some(sharding_key) = self.sharding_key {
            list.put(property::SHARDING_KEY, sharding_key);
        }
        if let Some(tags) = self.tags {
            list.put_tags(tags).map_err(Error::of_properties)?;
        }
        if let Some(given) = self.keys {
            keys = texts(given)?;
            list.put_keys(&keys).map_err(Error::of_properties)?;
        }
        list.put_delay_level(self.delay_level).map_err(Error::of_properties)?;
        list.put_deliver_at(self.deliver_at).map_err(Error::of_properties)?;
        Ok(list.encode().map_err(Error::of_properties)?)
    }
}

/// The fields of a message, as a call, a tuple or a dict states them.
#[derive(Default)]
pub(super) struct MessageArguments<'a, 'p, 'py> {
    pub(super) topic: Cow<'a, str>,
    pub(super) body: Cow<'a, [u8]>,
    pub(super) properties: PropertyArguments<'p, 'py>,
    pub(super) queue_id: i32,
    /// In ms.
    pub(super) born_time: i64,
    pub(super) born_host: Option<&'p str>,
    pub(super) store_host: Option<&'p str>,
    pub(super) flag: i32,
    pub(super) sys_flag: i32,
    pub(super) reconsume_times: i32,
    pub(super) prepared_transaction_offset: i64,
}

impl<'a> MessageArguments<'a, '_, '_> {
    /// Encodes the properties, and parses the hosts.
    ///
    /// # Errors
    /// `IllegalMessageError`, `TypeError`, `ValueError`.
    pub(super) fn message(self) -> PyResult<Message<'a>> {
        Ok(Message {
            topic: self.topic,
            body: self.body,
            properties: self.properties.encode()?.into(),
            queue_id: self.queue_id,
            born_time: self.born_time,
            born_host: host(self.born_host)?,
            store_host: host(self.store_host)?,
            flag: self.flag,
            sys_flag: self.sys_flag,
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: self.prepared_transaction_offset,
            ..Message::default()
        })
    }
}

/// Converts the time at which a message was made to ms.
pub(super) fn born_time(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if value.is_none() {
        return Ok(None);
    }
    to_ms(value, "born_time", Round::Down).map(Some)
}

/// Converts the time of delivery to ms: a time, rounded up, or a timedelta from now.
///
/// # Errors
/// As [`to_ms`], and `ValueError` for a negative timedelta.
pub(super) fn deliver_at(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if value.is_none() {
        return Ok(None);
    }
    let Ok(delta) = value.cast::<PyDelta>() else {
        return to_ms(value, "deliver_at", Round::Up).map(Some).map_err(|error| {
            explained(value.py(), error, || {
                let given = repr_of(&value.get_type())?;
                Ok(format!(
                    "deliver_at: expected a datetime with a timezone, a timedelta or an int of ms since 1970, got {given}"
                ))
            })
        });
    };
    let delay = delta_ms(delta).map_err(|error| named(value.py(), "deliver_at", error))?;
    Ok(Some(now_ms().saturating_add_unsigned(delay)))
}

/// The body. Only bytes stay where they are: other buffers may change while they are read, and a record whose checksum does not
/// match its body would end the log there.
///
/// # Errors
/// `TypeError` if it is not a buffer of bytes.
pub(super) fn body<'a>(value: Borrowed<'a, '_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = value.extract::<&'a [u8]>() {
        return Ok(Cow::Borrowed(bytes));
    }
    let wrong = |why: String| PyTypeError::new_err(format!("a body is bytes or a buffer of bytes, not {why}"));
    match buffer(&value)? {
        Some(buffer) => Ok(Cow::Owned(buffer.to_vec(value.py())?)),
        None if value.is_instance_of::<PyString>() => Err(wrong("str: encode it".to_owned())),
        None => Err(wrong(type_of(&value)?)),
    }
}

/// Returns true if [`body`] takes it.
///
/// # Errors
/// That of the object's `__buffer__`.
pub(super) fn is_buffer(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(value.is_instance_of::<PyBytes>() || buffer(value)?.is_some())
}

/// Returns the buffer of an object; `None` for an object that has none of bytes.
fn buffer(value: &Bound<'_, PyAny>) -> PyResult<Option<PyBuffer<u8>>> {
    match PyBuffer::<u8>::get(value) {
        Ok(buffer) => Ok(Some(buffer)),
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) || error.is_instance_of::<PyBufferError>(value.py()) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The pairs of a mapping, or of what pyarrow makes of a map: a list of tuples.
fn pairs<'py>(properties: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    if let Some(pairs) = items_of_mapping(properties)? {
        return Ok(pairs);
    }
    let wrong = || {
        let given = type_of(properties)?;
        Ok(format!(
            "properties is a mapping of str to str, or an iterable of pairs of them, not {given}"
        ))
    };
    if properties.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(wrong()?));
    }
    properties
        .try_iter()
        .map_err(|error| explained(properties.py(), error, wrong))
}

fn name_and_value<'py>(pair: &Bound<'py, PyAny>) -> PyResult<[Bound<'py, PyAny>; 2]> {
    let wrong = || {
        let given = repr_of(pair)?;
        PyResult::Ok(PyTypeError::new_err(format!(
            "properties is a mapping of str to str, or an iterable of pairs of them, not of {given}"
        )))
    };
    if pair.is_instance_of::<PyString>() {
        return Err(wrong()?);
    }
    match pair.extract() {
        Ok(pair) => Ok(pair),
        // The value is not a sequence, or not one of two items.
        Err(error) if is_refusal(pair.py(), &error) => Err(wrong()?),
        Err(error) => Err(error),
    }
}

/// Text of an object that nobody keeps.
fn owned(value: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    text(value.as_borrowed(), what).map(str::to_owned)
}

/// The keys of a message, from a str or an iterable of them.
///
/// # Errors
/// `TypeError`; what the iterable raises.
pub(super) fn texts<'a>(keys: &'a Bound<'_, PyAny>) -> PyResult<Vec<Cow<'a, str>>> {
    if keys.is_instance_of::<PyString>() {
        return Ok(vec![text(keys.as_borrowed(), "keys: a key")?.into()]);
    }
    let wrong = || Ok(format!("keys is a str or an iterable of them, not {}", type_of(keys)?));
    let each = keys.try_iter().map_err(|error| explained(keys.py(), error, wrong))?;
    each.map(|key| owned(&key?, "keys: a key").map(Cow::Owned)).collect()
}
