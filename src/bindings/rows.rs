//! Messages as Python gives them: the arguments of `append`, the rows of `append_batch`.

use std::borrow::Cow;

use pyo3::Borrowed;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping, PyString, PyTuple};

use super::arguments::{extract, text, type_of};
use super::message::Message;
use crate::arrow::{Defaults, PropertyList};
use crate::error::Error;
use crate::format::{self, property};
use crate::store::Incoming;

/// What every property of a message can be given by.
#[derive(Default)]
pub(super) struct PropertyArguments<'a, 'py> {
    pub(super) unique_key: Option<&'a str>,
    pub(super) tags: Option<&'a str>,
    /// A str, or an iterable of them.
    pub(super) keys: Option<&'a Bound<'py, PyAny>>,
    /// A mapping of str to str.
    pub(super) properties: Option<&'a Bound<'py, PyAny>>,
    /// 0 for none.
    pub(super) delay_level: i32,
}

impl PropertyArguments<'_, '_> {
    /// # Errors
    /// `IllegalMessageError`, `TypeError`.
    pub(super) fn encode(&self) -> PyResult<Vec<u8>> {
        let mut list = PropertyList::default();
        if let Some(properties) = self.properties {
            let Ok(pairs) = properties.cast::<PyMapping>() else {
                let what = format!("properties is a mapping of str to str, not {}", type_of(properties)?);
                return Err(PyTypeError::new_err(what));
            };
            for pair in pairs.items()? {
                let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
                list.put(text(&name, "properties: a name")?, text(&value, "properties: a value")?);
            }
        }
        if let Some(unique_key) = self.unique_key {
            list.put(property::UNIQ_KEY, unique_key);
        }
        if let Some(tags) = self.tags {
            list.put(property::TAGS, tags);
        }
        if let Some(keys) = self.keys {
            list.put_keys(&texts(keys)?)?;
        }
        if self.delay_level < 0 {
            return Err(Error::illegal(format!(
                "delay_level is {}: give a level from 1, or 0 for none",
                self.delay_level
            ))
            .into());
        }
        if self.delay_level > 0 {
            list.put(property::DELAY, self.delay_level.to_string());
        }
        Ok(list.encode()?)
    }
}

/// The body. Only bytes stay where they are: other buffers may change while they are read, and a record whose checksum does not
/// match its body would end the log there.
///
/// # Errors
/// `TypeError` if it is no buffer of bytes.
pub(super) fn body<'a>(value: Borrowed<'a, '_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = value.extract::<&'a [u8]>() {
        return Ok(Cow::Borrowed(bytes));
    }
    let wrong = |why: String| PyTypeError::new_err(format!("a body is bytes or a buffer of bytes, not {why}"));
    match PyBuffer::<u8>::get(&value) {
        Ok(buffer) => Ok(Cow::Owned(buffer.to_vec(value.py())?)),
        Err(_) if value.is_instance_of::<PyString>() => Err(wrong("str: encode it".to_owned())),
        Err(_) => Err(wrong(type_of(&value)?)),
    }
}

/// The messages of rows; their bodies stay in the rows.
///
/// # Errors
/// `IllegalMessageError` and `TypeError`, naming the row.
pub(super) fn messages<'a>(rows: &'a [Bound<'_, PyAny>], defaults: &Defaults<'_>) -> PyResult<Vec<Incoming<'a>>> {
    let messages = rows.iter().enumerate().map(|(at, row)| {
        message(row, defaults).map_err(|error| {
            let value = error.value(row.py());
            // In place, so that the exception keeps its type and its status.
            match value.setattr("args", (format!("message {at}: {value}"),)) {
                Ok(()) => error,
                Err(other) => other,
            }
        })
    });
    messages.collect()
}

fn message<'a>(row: &'a Bound<'_, PyAny>, defaults: &Defaults<'_>) -> PyResult<Incoming<'a>> {
    if let Ok(message) = row.cast::<Message>() {
        return Ok(Incoming::Copied(message.get().to_stored()?));
    }
    if let Ok(row) = row.cast::<PyTuple>() {
        return from_tuple(row, defaults).map(Incoming::Sent);
    }
    if !is_buffer(row) {
        return Err(PyTypeError::new_err(format!(
            "a row is a body (bytes, or a buffer of bytes), a tuple (topic, body, tags, keys, properties, queue) or a Message, not {}",
            type_of(row)?
        )));
    }
    Ok(Incoming::Sent(format::Message {
        topic: defaults.topic(None)?,
        queue_id: defaults.queue_id,
        born_time: defaults.born_time,
        body: body(row.as_borrowed())?,
        ..format::Message::default()
    }))
}

/// Whether it is what [`body`] takes.
pub(super) fn is_buffer(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyBytes>() || PyBuffer::<u8>::get(value).is_ok()
}

fn from_tuple<'a>(row: &'a Bound<'_, PyTuple>, defaults: &Defaults<'_>) -> PyResult<format::Message<'a>> {
    if !(2..=6).contains(&row.len()) {
        return Err(PyTypeError::new_err(format!(
            "a row is (topic, body, tags, keys, properties, queue), the last four optional, not {} values",
            row.len()
        )));
    }
    let given = |at: usize| row.get_item(at).ok().filter(|value| !value.is_none());
    let (topic, tags, keys, properties, queue) = (given(0), given(2), given(3), given(4), given(5));
    let tags = tags.map(|tags| text(&tags, "tags")).transpose()?;
    let topic = topic.map(|topic| text(&topic, "a topic")).transpose()?;
    let properties = PropertyArguments {
        unique_key: None,
        tags: tags.as_deref(),
        keys: keys.as_ref(),
        properties: properties.as_ref(),
        delay_level: 0,
    };
    Ok(format::Message {
        topic: defaults.topic(topic.as_deref())?,
        queue_id: queue.map_or(Ok(defaults.queue_id), |queue| extract(&queue, "queue"))?,
        born_time: defaults.born_time,
        body: body(row.get_borrowed_item(1)?)?,
        properties: properties.encode()?,
        ..format::Message::default()
    })
}

fn texts(keys: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if keys.is_instance_of::<PyString>() {
        return Ok(vec![text(keys, "keys: a key")?]);
    }
    let Ok(each) = keys.try_iter() else {
        let what = format!("keys is a str or an iterable of them, not {}", type_of(keys)?);
        return Err(PyTypeError::new_err(what));
    };
    each.map(|key| text(&key?, "keys: a key")).collect()
}
