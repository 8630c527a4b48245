//! What a message on its way in is made of. Knows no Python.

use crate::arrow::columns::expect_field;
use crate::arrow::table::{At, Chunk, Table, room_for};
use crate::error::{Error, Result};
use crate::format::{Host, Malformed, Message, PropertyList, property};
use crate::interrupt;
use crate::store::Incoming;

/// What the rows of a batch may leave out.
pub(crate) struct Defaults<'a> {
    pub(crate) topic: Option<&'a str>,
    /// 0 if it is left out.
    pub(crate) queue_id: Option<i32>,
    /// ms.
    pub(crate) born_time: i64,
}

impl Defaults<'_> {
    /// # Errors
    /// [`Error::IllegalMessage`] where nothing names a topic.
    pub(crate) fn topic(&self, stated: Option<&str>) -> Result<String> {
        let topic = stated.or(self.topic);
        topic
            .map(str::to_owned)
            .ok_or_else(|| Error::illegal("no topic: name it in the row or as `topic`".to_owned()))
    }
}

impl Defaults<'_> {
    /// The topic and the queue of a row whose columns state them; the arguments speak for rows that state none.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a column and an argument contradict each other; [`Error::IllegalMessage`] where nothing names a topic.
    pub(crate) fn place(&self, topic: Option<&str>, queue_id: Option<i32>) -> Result<(String, i32)> {
        if let (Some(argument), Some(column)) = (self.topic, topic)
            && argument != column
        {
            return invalid(format!(
                "topic is {argument:?}, but the row's topic is {column:?}: leave one of the two out"
            ));
        }
        if let (Some(argument), Some(column)) = (self.queue_id, queue_id)
            && argument != column
        {
            return invalid(format!(
                "queue is {argument}, but the row's queue_id is {column}: leave one of the two out"
            ));
        }
        Ok((self.topic(topic)?, queue_id.or(self.queue_id).unwrap_or_default()))
    }
}

/// `ip:port`; 127.0.0.1:0 if it is left out.
///
/// # Errors
/// [`Error::IllegalMessage`].
pub(crate) fn host(stated: Option<&str>) -> Result<Host> {
    let refused = |malformed: Malformed| Error::illegal(malformed.reason.into_owned());
    stated.map_or(Ok(Host::LOCAL), |text| text.parse().map_err(refused))
}

/// A row with every field of a message. One that names a level asks to be delayed; any other stays in its topic, as a record that is
/// copied.
pub(crate) fn incoming(message: Message<'_>, delay_level: i32) -> Incoming<'_> {
    if delay_level == 0 {
        return Incoming::Copied(message);
    }
    Incoming::Sent(Message {
        body: message.body.into_owned().into(),
        ..message
    })
}

/// The error for a row without a body. An empty body is allowed; a missing one is a mistake.
pub(crate) fn no_body() -> Error {
    Error::illegal("body is null: give bytes, b\"\" for an empty body".to_owned())
}

/// A column that pandas adds of its own for the labels of rows, `__index_level_0__` and so on.
fn is_index_of_pandas(name: &str) -> bool {
    name.strip_prefix("__index_level_").is_some_and(|rest| rest.ends_with("__"))
}

/// The messages of a table with the columns of a message; their bodies stay in the table.
///
/// # Errors
/// [`Error::Invalid`] for the columns, [`Error::IllegalMessage`] naming the row.
pub(crate) fn messages<'a>(table: &'a Table, defaults: &Defaults<'_>) -> Result<Vec<Incoming<'a>>> {
    let names: Vec<&str> = table.names().collect();
    let mut told = names.iter().filter(|name| !is_index_of_pandas(name));
    told.try_for_each(|name| expect_field(name))?;
    if let Some(twice) = names
        .iter()
        .find(|name| names.iter().filter(|other| other == name).count() > 1)
    {
        return invalid(format!("there are two columns {twice:?}"));
    }
    if !names.contains(&"body") {
        return invalid(format!(
            "expected a column \"body\", but the columns are {}",
            names.join(", ")
        ));
    }
    let mut messages = room_for(table.rows())?;
    for chunk in table.chunks() {
        let message = message_of_row(&chunk, defaults)?;
        for row in 0..chunk.len() {
            interrupt::check()?;
            let made = message(row).and_then(|message| message.ok_or_else(|| Error::illegal("the row is null".to_owned())));
            messages.push(made.map_err(|error| error.at_row(messages.len()))?);
        }
    }
    Ok(messages)
}

fn message_of_row<'d, 'a: 'd>(chunk: &Chunk<'a>, defaults: &'d Defaults<'_>) -> Result<At<'d, Incoming<'a>>> {
    let rows = *chunk;
    let (topic, queue_id, born_time) = (chunk.text("topic")?, chunk.integer("queue_id")?, chunk.time("born_time")?);
    let (body, properties) = (chunk.bytes("body")?, properties_of_row(chunk)?);
    let delay_level = chunk.integer("delay_level")?;
    let (flag, sys_flag) = (chunk.integer("flag")?, chunk.integer("sys_flag")?);
    let reconsume_times = chunk.integer("reconsume_times")?;
    let prepared_transaction_offset = chunk.integer("prepared_transaction_offset")?;
    let (born_host, store_host) = (chunk.text("born_host")?, chunk.text("store_host")?);
    Ok(Box::new(move |row| {
        if rows.is_null(row) {
            return Ok(None);
        }
        let delay_level = int32("delay_level", delay_level(row)?)?.unwrap_or_default();
        let (topic, queue_id) = defaults.place(topic(row)?, int32("queue_id", queue_id(row)?)?)?;
        let message = Message {
            topic: topic.into(),
            queue_id,
            born_time: born_time(row)?.unwrap_or(defaults.born_time),
            body: body(row)?.ok_or_else(no_body)?.into(),
            properties: properties(row, delay_level)?.into(),
            flag: int32("flag", flag(row)?)?.unwrap_or_default(),
            sys_flag: int32("sys_flag", sys_flag(row)?)?.unwrap_or_default(),
            reconsume_times: int32("reconsume_times", reconsume_times(row)?)?.unwrap_or_default(),
            prepared_transaction_offset: prepared_transaction_offset(row)?.unwrap_or_default(),
            born_host: host(born_host(row)?)?,
            store_host: host(store_host(row)?)?,
            ..Message::default()
        };
        Ok(Some(incoming(message, delay_level)))
    }))
}

fn properties_of_row<'a>(chunk: &Chunk<'a>) -> Result<impl Fn(usize, i32) -> Result<Vec<u8>> + use<'a>> {
    let (properties, unique_key) = (chunk.pairs("properties")?, chunk.text("unique_key")?);
    let (tags, keys) = (chunk.text("tags")?, chunk.texts("keys")?);
    Ok(move |row, delay_level| {
        let mut list = PropertyList::default();
        for (name, value) in properties(row)?.unwrap_or_default() {
            list.put(name, value);
        }
        if let Some(unique_key) = unique_key(row)? {
            list.put(property::UNIQ_KEY, unique_key);
        }
        if let Some(tags) = tags(row)? {
            list.put_tags(tags).map_err(Error::of_properties)?;
        }
        list.put_keys(&keys(row)?.unwrap_or_default()).map_err(Error::of_properties)?;
        list.put_delay_level(delay_level).map_err(Error::of_properties)?;
        list.encode().map_err(Error::of_properties)
    })
}

fn int32(name: &str, value: Option<i64>) -> Result<Option<i32>> {
    let narrow =
        |value: i64| i32::try_from(value).map_err(|_| Error::illegal(format!("{name} is {value}, which does not fit int32")));
    value.map(narrow).transpose()
}

fn invalid<T>(what: String) -> Result<T> {
    Err(Error::Invalid { what })
}
