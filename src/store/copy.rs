//! Copying messages of another store.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::error::{Error, Result};
use crate::format::{HALF_TOPIC, MessageView};
use crate::store::append::Appender;
use crate::store::message_checker::Incoming;

/// Topics in which a broker keeps the state of transactions. Bodies in the second one name queue offsets of the first one: in a
/// copy, whose queues begin at 0, there are other half messages. The broker would take an open transaction for an ended one, or
/// ask about an ended one again.
const OF_TRANSACTIONS: [&str; 2] = [HALF_TOPIC, "RMQ_SYS_TRANS_OP_HALF_TOPIC"];

/// Bytes of messages that wait in memory until they are appended.
const WAITING: usize = 1 << 20;

/// The messages that a copy has stored.
#[derive(Debug, Clone, Default)]
pub struct Copied {
    /// Messages by topic, as the copy calls it.
    pub topics: BTreeMap<String, u64>,
    /// Bytes of their records.
    pub bytes: u64,
    /// Messages that were left out because they are a broker's own state of transactions, by topic.
    pub left_out: BTreeMap<String, u64>,
    /// Messages that have a later store time than they had, because times in a log do not fall.
    pub raised: u64,
}

/// Appends the messages of another store, in the order in which they come, with every field but their offsets.
#[derive(Debug)]
pub struct Copier<'s> {
    appender: Appender<'s>,
    keeps_store_times: bool,
    /// New names of topics in the copy.
    renamed: HashMap<String, String>,
    /// The new names.
    new_names: HashSet<String>,
    waiting: Vec<Incoming<'static>>,
    waiting_bytes: usize,
    copied: Copied,
}

impl<'s> Copier<'s> {
    /// Renames the topics in `renamed`. A topic that maps to itself keeps its name, and others may get that name, too.
    pub fn new(appender: Appender<'s>, renamed: HashMap<String, String>, keeps_store_times: bool) -> Self {
        Self {
            appender: if keeps_store_times {
                appender.keeping_store_times()
            } else {
                appender
            },
            keeps_store_times,
            new_names: renamed.values().cloned().collect(),
            renamed,
            waiting: Vec::new(),
            waiting_bytes: 0,
            copied: Copied::default(),
        }
    }

    /// Takes a message over.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a topic that is not renamed, and whose name another topic gets; [`Error::IllegalMessage`] for a
    /// message that is only read, such as a batch that is stored whole; those of [`Appender::append_all`].
    pub fn take(&mut self, view: &MessageView<'_>) -> Result<()> {
        let topic = view.topic();
        if OF_TRANSACTIONS.contains(&&*topic) {
            *self.copied.left_out.entry(topic.into_owned()).or_default() += 1;
            return Ok(());
        }
        let mut message = view.to_message();
        match self.renamed.get(&*topic) {
            Some(name) => message.topic = name.clone().into(),
            None if self.new_names.contains(&*topic) => {
                return Err(Error::Invalid {
                    what: format!(
                        "rename gives another topic the name {topic:?}, which a topic of this store has: leave that out, or merge them with \
                         {topic:?}: {topic:?} in rename"
                    ),
                });
            }
            None => {}
        }
        self.waiting_bytes += message.encoded_len();
        let mut message = Incoming::Copied(message.into_owned());
        let of_message = |error| match error {
            Error::IllegalMessage { what, status } => Error::IllegalMessage {
                what: format!(
                    "the message of topic {topic} at physical offset {} cannot be copied: {what}",
                    view.physical_offset()
                ),
                status,
            },
            other => other,
        };
        self.appender.check(&mut message).map_err(of_message)?;
        self.waiting.push(message);
        if self.waiting_bytes < WAITING {
            return Ok(());
        }
        self.append_waiting()
    }

    /// Appends what was taken last.
    ///
    /// # Errors
    /// Those of [`Appender::append_all`].
    pub fn finish(mut self) -> Result<Copied> {
        self.append_waiting()?;
        Ok(self.copied)
    }

    fn append_waiting(&mut self) -> Result<()> {
        self.waiting_bytes = 0;
        let taken = std::mem::take(&mut self.waiting);
        let told: Vec<_> = taken
            .iter()
            .map(Incoming::message)
            .map(|message| (message.topic.clone().into_owned(), message.store_time))
            .collect();
        let mut stored = Vec::with_capacity(taken.len());
        self.appender.append_all(taken, &mut stored)?;
        for ((topic, store_time), result) in told.into_iter().zip(stored) {
            *self.copied.topics.entry(topic).or_default() += 1;
            self.copied.bytes += u64::from(result.appended.wrote_bytes.unsigned_abs());
            self.copied.raised += u64::from(self.keeps_store_times && result.appended.store_time > store_time);
        }
        Ok(())
    }
}
