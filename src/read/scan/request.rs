//! The request for a scan.

use std::ops::Range;

use memchr::memmem;
use regex::bytes::Regex;

use crate::error::{Error, Result};
use crate::read::get_message::TagFilter;

/// The messages of a scan, and their order. The default is all committed messages of the log, in its order.
#[derive(Debug, Clone)]
pub struct ScanRequest {
    /// Topics; `None` for all.
    pub topics: Option<Vec<String>>,
    /// Queue ids; `None` for all.
    pub queue_ids: Option<Vec<i32>>,
    /// Physical offsets at which a record may start.
    pub physical: Range<i64>,
    /// Times in ms.
    pub times: Range<i64>,
    /// The time of a message to compare.
    pub by: TimeOf,
    /// Tags that are wanted.
    pub tags: TagFilter,
    /// Keys of which a message has one: a unique key, or one of its keys; `None` for any.
    pub keys: Option<Vec<String>>,
    /// Properties, all of which a message has, with these values.
    pub properties: Vec<(String, String)>,
    /// The condition on the body, decompressed.
    pub body: BodyFilter,
    /// The records that count.
    pub transactions: Transactions,
    /// True to return bodies decompressed.
    pub decode_body: bool,
    /// The order.
    pub order: Order,
    /// From the last one to the first.
    pub reverse: bool,
    /// Most messages to give; `None` for all.
    pub limit: Option<u64>,
    /// Most bytes to read in a second; `None` for no bound.
    pub max_bytes_per_s: Option<u64>,
}

impl Default for ScanRequest {
    fn default() -> Self {
        Self {
            topics: None,
            queue_ids: None,
            physical: 0..i64::MAX,
            times: i64::MIN..i64::MAX,
            by: TimeOf::Store,
            tags: TagFilter::default(),
            keys: None,
            properties: Vec::new(),
            body: BodyFilter::default(),
            transactions: Transactions::Committed,
            decode_body: false,
            order: Order::Log,
            reverse: false,
            limit: None,
            max_bytes_per_s: None,
        }
    }
}

/// One of the times of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOf {
    /// When the broker appended it.
    Store,
    /// When the producer made it.
    Born,
}

/// The records of the log that a scan returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transactions {
    /// The messages of consumers, to which the queues of their topics lead. Of a topic without queues in files (its queues
    /// were deleted, or are a database), every message except half and rolled-back ones.
    Committed,
    /// Every whole record: half and rolled-back messages, and those of an earlier topic of the same name, too.
    All,
}

/// The order of the messages that a scan returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The order of physical offsets.
    Log,
    /// The order of topic, queue id and queue offset.
    Queue,
}

/// A condition on a body.
#[derive(Debug, Clone, Default)]
pub struct BodyFilter {
    contains: Option<memmem::Finder<'static>>,
    matches: Option<Regex>,
}

impl BodyFilter {
    /// Creates a condition of bytes that the body holds, and a pattern that it matches somewhere. Each may be left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid pattern: <https://docs.rs/regex/latest/regex/#syntax>.
    pub fn new(contains: Option<&[u8]>, pattern: Option<&str>) -> Result<Self> {
        let matches = pattern.map(Regex::new).transpose().map_err(|error| Error::Invalid {
            what: format!("body_regex is not a regular expression of Rust's regex crate: {error}"),
        })?;
        Ok(Self {
            contains: contains.map(|bytes| memmem::Finder::new(bytes).into_owned()),
            matches,
        })
    }

    pub(super) fn is_any(&self) -> bool {
        self.contains.is_none() && self.matches.is_none()
    }

    pub(super) fn admits(&self, body: &[u8]) -> bool {
        self.contains.as_ref().is_none_or(|finder| finder.find(body).is_some())
            && self.matches.as_ref().is_none_or(|pattern| pattern.is_match(body))
    }
}
