//! The rows of `append_batch`.

use std::borrow::Cow;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyTuple};

use super::arguments::{named, text, type_of, whole};
use super::fields::{MessageArguments, PropertyArguments, body, deliver_at, is_buffer};
use super::imports;
use super::message::Message;
use super::time::to_ms;
use crate::arrow::{Defaults, column_names, expect_field, incoming, no_body};
use crate::format::{self, Round};
use crate::interrupt;
use crate::store::Incoming;

/// The messages of rows; their bodies stay in the rows.
///
/// # Errors
/// `IllegalMessageError` and `TypeError`, naming the row.
pub(super) fn messages<'a>(rows: &'a [Bound<'_, PyAny>], defaults: &Defaults<'a>) -> PyResult<Vec<Incoming<'a>>> {
    let messages = rows.iter().enumerate().map(|(at, row)| {
        interrupt::check()?;
        message(row, defaults).map_err(|error| named(row.py(), &format!("message {at}"), error))
    });
    messages.collect()
}

fn message<'a>(row: &'a Bound<'_, PyAny>, defaults: &Defaults<'a>) -> PyResult<Incoming<'a>> {
    // Most rows are bodies: the cheapest test comes first.
    if row.is_instance_of::<PyBytes>() {
        return from_body(row, defaults);
    }
    if let Ok(row) = row.cast::<PyTuple>() {
        return from_tuple(row, defaults).map(Incoming::Sent);
    }
    if let Ok(row) = row.cast::<PyDict>() {
        return from_dict(row, defaults);
    }
    if let Ok(message) = row.cast::<Message>() {
        let message = message.get().to_stored()?;
        defaults.topic_and_queue(Some(&message.topic), Some(message.queue_id), None)?;
        return Ok(Incoming::Copied(message));
    }
    if !is_buffer(row)? {
        return Err(PyTypeError::new_err(format!(
            "a row is a body (bytes, or a buffer of bytes), a tuple (topic, body, tags, keys, properties, queue_id), a dict of a message's \
             fields or a Message, not {}",
            type_of(row)?
        )));
    }
    from_body(row, defaults)
}

fn from_body<'a>(row: &'a Bound<'_, PyAny>, defaults: &Defaults<'a>) -> PyResult<Incoming<'a>> {
    let topic = defaults.topic(None)?;
    Ok(Incoming::Sent(format::Message {
        topic: topic.into(),
        queue_id: defaults.queue_id(topic, None, None)?,
        born_time: defaults.born_time,
        body: body(row.as_borrowed())?,
        ..format::Message::default()
    }))
}

fn from_tuple<'a>(row: &'a Bound<'_, PyTuple>, defaults: &Defaults<'a>) -> PyResult<format::Message<'a>> {
    if !(2..=6).contains(&row.len()) {
        return Err(PyTypeError::new_err(format!(
            "a row is (topic, body, tags, keys, properties, queue_id), the last four optional, not {} values",
            row.len()
        )));
    }
    let given = |at: usize| row.get_borrowed_item(at).ok().filter(|value| !value.is_none());
    let (topic, tags, keys, properties, queue_id) = (given(0), given(2), given(3), given(4), given(5));
    let tags = tags.map(|tags| text(tags, "tags")).transpose()?;
    let topic = topic.map(|topic| text(topic, "a topic")).transpose()?;
    let topic = defaults.topic(topic)?;
    let properties = PropertyArguments {
        unique_key: None,
        sharding_key: None,
        tags,
        keys: keys.as_deref(),
        properties: properties.as_deref(),
        delay_level: 0,
        deliver_at: None,
    };
    let message = MessageArguments {
        topic: topic.into(),
        queue_id: match queue_id {
            Some(queue_id) => whole(&queue_id, "queue_id")?,
            None => defaults.queue_id(topic, None, None)?,
        },
        born_time: defaults.born_time,
        body: body(row.get_borrowed_item(1)?)?,
        properties,
        ..MessageArguments::default()
    };
    message.message()
}

/// Returns true for None, or NaN, which pandas has for it (`frame.to_dict("records")`).
fn is_null(value: &Bound<'_, PyAny>) -> bool {
    value.is_none() || value.cast::<PyFloat>().is_ok_and(|number| number.value().is_nan())
}

/// Text of a field, if it is given.
fn stated<'a>(value: Option<&'a Bound<'_, PyAny>>, name: &str) -> PyResult<Option<&'a str>> {
    value.map(|value| text(value.as_borrowed(), name)).transpose()
}

/// Returns the fields of a message by their names, as `Message.to_dict` has them; fields that a store assigns again do not count.
fn from_dict<'a>(row: &Bound<'_, PyDict>, defaults: &Defaults<'a>) -> PyResult<Incoming<'a>> {
    for name in row.keys() {
        let name = text(name.as_borrowed(), "the name of a field")?;
        if let Err(error) = expect_field(name) {
            let closest = imports::there_is(row.py(), name, column_names())?;
            return Err(PyValueError::new_err(format!("{error}{closest}")));
        }
    }
    let given = |name: &str| Ok::<_, PyErr>(row.get_item(name)?.filter(|value| !is_null(value)));
    let given_int = |name: &str| given(name)?.map_or(Ok(0), |value| whole(&value, name));
    let (topic, born_host, store_host) = (given("topic")?, given("born_host")?, given("store_host")?);
    let (tags, unique_key, sharding_key) = (given("tags")?, given("unique_key")?, given("sharding_key")?);
    let sharding_key = stated(sharding_key.as_ref(), "sharding_key")?;
    let (keys, properties) = (given("keys")?, given("properties")?);
    let delay_level = given_int("delay_level")?;
    let deliver_at = given("deliver_at")?.map_or(Ok(None), |time| deliver_at(&time))?;
    let properties = PropertyArguments {
        unique_key: stated(unique_key.as_ref(), "unique_key")?,
        sharding_key,
        tags: stated(tags.as_ref(), "tags")?,
        keys: keys.as_ref(),
        properties: properties.as_ref(),
        delay_level,
        deliver_at,
    };
    let queue_id = given("queue_id")?.map(|value| whole(&value, "queue_id")).transpose()?;
    let (topic, queue_id) = defaults.topic_and_queue(stated(topic.as_ref(), "topic")?, queue_id, sharding_key)?;
    let message = MessageArguments {
        topic: topic.to_owned().into(),
        queue_id,
        born_time: given("born_time")?.map_or(Ok(defaults.born_time), |time| to_ms(&time, "born_time", Round::Down))?,
        body: Cow::Owned(body(given("body")?.ok_or_else(no_body)?.as_borrowed())?.into_owned()),
        properties,
        flag: given_int("flag")?,
        sys_flag: given_int("sys_flag")?,
        reconsume_times: given_int("reconsume_times")?,
        prepared_transaction_offset: given("prepared_transaction_offset")?
            .map_or(Ok(0), |value| whole(&value, "prepared_transaction_offset"))?,
        born_host: stated(born_host.as_ref(), "born_host")?,
        store_host: stated(store_host.as_ref(), "store_host")?,
    };
    let is_delayed = delay_level != 0 || deliver_at.is_some();
    Ok(incoming(message.message()?, is_delayed))
}
