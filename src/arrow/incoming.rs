//! Messages from the rows of a table, to be appended. Independent of Python.

use std::iter;

use crate::arrow::cell::At;
use crate::arrow::columns::expect_field;
use crate::arrow::table::{Chunk, Table, try_with_capacity};
use crate::error::{Error, Result};
use crate::format::{Host, Malformed, Message, PropertyList, Round, property};
use crate::interrupt;
use crate::store::{Incoming, QueueChoice, TopicQueues};

/// The values for columns that the rows of a batch leave out.
pub(crate) struct Defaults<'a> {
    pub(crate) topic: Option<&'a str>,
    /// Queue 0 if it is left out. No sharding key.
    pub(crate) queue: Option<QueueChoice<'a>>,
    /// The queues among which a sharding key or a turn chooses.
    pub(crate) topics: TopicQueues,
    /// In ms.
    pub(crate) born_time: i64,
}

impl<'a> Defaults<'a> {
    /// Returns the topic of a row, or else that of the arguments.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`] without a topic.
    pub(crate) fn topic<'t>(&self, stated: Option<&'t str>) -> Result<&'t str>
    where
        'a: 't,
    {
        let topic = stated.or(self.topic);
        topic.ok_or_else(|| Error::illegal("no topic: name it in the row or as `topic`".to_owned()))
    }

    /// Returns the topic and the queue of a row, from its columns or else from the arguments.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a column and an argument contradict each other; [`Error::IllegalMessage`] without a topic.
    pub(crate) fn topic_and_queue<'t>(
        &self,
        topic: Option<&'t str>,
        queue_id: Option<i32>,
        sharding_key: Option<&str>,
    ) -> Result<(&'t str, i32)>
    where
        'a: 't,
    {
        if let (Some(argument), Some(column)) = (self.topic, topic)
            && argument != column
        {
            return invalid(format!(
                "topic is {argument:?}, but the row's topic is {column:?}: leave one of the two out"
            ));
        }
        if let (Some(QueueChoice::Id(argument)), Some(column)) = (self.queue, queue_id)
            && argument != column
        {
            return invalid(format!(
                "queue_id is {argument}, but the row's queue_id is {column}: leave one of the two out"
            ));
        }
        let topic = self.topic(topic)?;
        Ok((topic, self.queue_id(topic, queue_id, sharding_key)?))
    }

    /// Returns the queue of a row of this topic. Turns are for rows that state neither a queue nor a sharding key.
    ///
    /// # Errors
    /// Those of [`QueueChoice::of`] and [`TopicQueues::queue_id`].
    pub(crate) fn queue_id(&self, topic: &str, stated: Option<i32>, sharding_key: Option<&str>) -> Result<i32> {
        let default = self
            .queue
            .filter(|queue| sharding_key.is_none() || *queue != QueueChoice::Next);
        let queue = stated.map(QueueChoice::Id).or(default);
        self.topics.queue_id(topic, QueueChoice::of(queue, sharding_key)?)
    }
}

/// Parses `ip:port`; 127.0.0.1:0 if it is left out.
///
/// # Errors
/// [`Error::IllegalMessage`].
pub(crate) fn host(stated: Option<&str>) -> Result<Host> {
    let refused = |malformed: Malformed| Error::illegal(malformed.reason.into_owned());
    stated.map_or(Ok(Host::LOCAL), |text| text.parse().map_err(refused))
}

/// Converts a row with all fields of a message. With a delay level or a time of delivery the message is delayed; otherwise it stays in
/// its topic, like a copied record.
pub(crate) fn incoming(message: Message<'_>, is_delayed: bool) -> Incoming<'_> {
    if !is_delayed {
        return Incoming::Copied(message);
    }
    Incoming::Sent(Message {
        body: message.body.into_owned().into(),
        ..message
    })
}

/// Returns the error for a row without a body. An empty body is allowed, and must be stated.
pub(crate) fn no_body() -> Error {
    Error::illegal("body is null: give bytes, b\"\" for an empty body".to_owned())
}

/// Returns true for a column that pandas adds for row labels, `__index_level_0__` and so on.
fn is_index_of_pandas(name: &str) -> bool {
    name.strip_prefix("__index_level_").is_some_and(|rest| rest.ends_with("__"))
}

/// The rows of a table with the columns of a message.
pub(crate) struct Rows<'t> {
    table: &'t Table,
    /// The values of the topic column, run-length encoded. They are copied, because another thread may write to the memory of the
    /// table, and a topic is checked before it is stored.
    topics: Vec<(usize, Option<String>)>,
}

impl<'t> Rows<'t> {
    /// Reads the topics of a table.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the columns.
    pub(crate) fn of(table: &'t Table) -> Result<Self> {
        expect_columns(table)?;
        let mut topics: Vec<(usize, Option<String>)> = Vec::new();
        for chunk in table.chunks() {
            let topic = chunk.text("topic")?;
            if topic.is_nothing() {
                topics.push((chunk.len(), None));
                continue;
            }
            for row in 0..chunk.len() {
                interrupt::check()?;
                let topic = topic.at(row)?;
                match topics.last_mut() {
                    Some((rows, last)) if last.as_deref() == topic => *rows += 1,
                    _ => topics.push((1, topic.map(str::to_owned))),
                }
            }
        }
        Ok(Self { table, topics })
    }

    /// Returns the messages; their bodies stay in the table.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the columns, [`Error::IllegalMessage`] with the number of the row.
    pub(crate) fn messages<'a>(&'a self, defaults: &Defaults<'a>) -> Result<Vec<Incoming<'a>>> {
        let mut messages = try_with_capacity(self.table.rows())?;
        let topics = self.topics.iter();
        let mut topics = topics.flat_map(|(rows, topic)| iter::repeat_n(topic.as_deref(), *rows));
        for chunk in self.table.chunks() {
            let columns = Columns::of(&chunk)?;
            for (row, topic) in (0..chunk.len()).zip(&mut topics) {
                interrupt::check()?;
                match columns.message(row, topic, defaults) {
                    Ok(message) => messages.push(message),
                    Err(error) => return Err(error.at_row(messages.len())),
                }
            }
        }
        Ok(messages)
    }
}

fn expect_columns(table: &Table) -> Result<()> {
    let names: Vec<&str> = table.names().collect();
    let mut checked = names.iter().filter(|name| !is_index_of_pandas(name));
    checked.try_for_each(|name| expect_field(name))?;
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
    Ok(())
}

/// The columns of a chunk, except the topic.
struct Columns<'a> {
    rows: Chunk<'a>,
    body: At<'a, &'a [u8]>,
    queue_id: At<'a, i64>,
    born_time: At<'a, i64>,
    properties: At<'a, Vec<(&'a str, &'a str)>>,
    unique_key: At<'a, &'a str>,
    tags: At<'a, &'a str>,
    sharding_key: At<'a, &'a str>,
    keys: At<'a, Vec<&'a str>>,
    delay_level: At<'a, i64>,
    deliver_at: At<'a, i64>,
    flag: At<'a, i64>,
    sys_flag: At<'a, i64>,
    reconsume_times: At<'a, i64>,
    prepared_transaction_offset: At<'a, i64>,
    born_host: At<'a, &'a str>,
    store_host: At<'a, &'a str>,
}

impl<'a> Columns<'a> {
    fn of(rows: &Chunk<'a>) -> Result<Self> {
        Ok(Self {
            rows: *rows,
            queue_id: rows.integer("queue_id")?,
            born_time: rows.time("born_time", Round::Down)?,
            body: rows.bytes("body")?,
            properties: rows.pairs("properties")?,
            unique_key: rows.text("unique_key")?,
            tags: rows.text("tags")?,
            sharding_key: rows.text("sharding_key")?,
            keys: rows.texts("keys")?,
            delay_level: rows.integer("delay_level")?,
            deliver_at: rows.time("deliver_at", Round::Up)?,
            flag: rows.integer("flag")?,
            sys_flag: rows.integer("sys_flag")?,
            reconsume_times: rows.integer("reconsume_times")?,
            prepared_transaction_offset: rows.integer("prepared_transaction_offset")?,
            born_host: rows.text("born_host")?,
            store_host: rows.text("store_host")?,
        })
    }

    fn message(&self, row: usize, topic: Option<&'a str>, defaults: &Defaults<'a>) -> Result<Incoming<'a>> {
        if self.rows.is_null(row) {
            return Err(Error::illegal("the row is null".to_owned()));
        }
        let delay_level = int32("delay_level", self.delay_level.at(row)?)?.unwrap_or_default();
        let deliver_at = self.deliver_at.at(row)?;
        let queue_id = int32("queue_id", self.queue_id.at(row)?)?;
        let (topic, queue_id) = defaults.topic_and_queue(topic, queue_id, self.sharding_key.at(row)?)?;
        let message = Message {
            topic: topic.into(),
            queue_id,
            born_time: self.born_time.at(row)?.unwrap_or(defaults.born_time),
            body: self.body.at(row)?.ok_or_else(no_body)?.into(),
            properties: self.properties(row, delay_level, deliver_at)?.into(),
            flag: int32("flag", self.flag.at(row)?)?.unwrap_or_default(),
            sys_flag: int32("sys_flag", self.sys_flag.at(row)?)?.unwrap_or_default(),
            reconsume_times: int32("reconsume_times", self.reconsume_times.at(row)?)?.unwrap_or_default(),
            prepared_transaction_offset: self.prepared_transaction_offset.at(row)?.unwrap_or_default(),
            born_host: host(self.born_host.at(row)?)?,
            store_host: host(self.store_host.at(row)?)?,
            ..Message::default()
        };
        Ok(incoming(message, delay_level != 0 || deliver_at.is_some()))
    }

    fn properties(&self, row: usize, delay_level: i32, deliver_at: Option<i64>) -> Result<Vec<u8>> {
        let keys = self.keys.at(row)?.unwrap_or_default();
        let mut list = PropertyList::default();
        for (name, value) in self.properties.at(row)?.unwrap_or_default() {
            list.put(name, value);
        }
        if let Some(unique_key) = self.unique_key.at(row)? {
            list.put(property::UNIQ_KEY, unique_key);
        }
        if let Some(sharding_key) = self.sharding_key.at(row)? {
            list.put(property::SHARDING_KEY, sharding_key);
        }
        if let Some(tags) = self.tags.at(row)? {
            list.put_tags(tags).map_err(Error::of_properties)?;
        }
        list.put_keys(&keys).map_err(Error::of_properties)?;
        list.put_delay_level(delay_level).map_err(Error::of_properties)?;
        list.put_deliver_at(deliver_at).map_err(Error::of_properties)?;
        list.encode().map_err(Error::of_properties)
    }
}

fn int32(name: &str, value: Option<i64>) -> Result<Option<i32>> {
    let narrow =
        |value: i64| i32::try_from(value).map_err(|_| Error::illegal(format!("{name} is {value}, which does not fit int32")));
    value.map(narrow).transpose()
}

fn invalid<T>(what: String) -> Result<T> {
    Err(Error::Invalid { what })
}
