//! The rows of `append_batch`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::arguments::{extract, text, type_of};
use super::fields::{PropertyArguments, body, is_buffer};
use super::message::Message;
use crate::arrow::Defaults;
use crate::format;
use crate::store::Incoming;

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
