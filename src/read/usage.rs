//! Log usage: messages and their bytes, counted by topic, queue, tag, hour and segment in one scan.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use foldhash::fast::RandomState;

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{Check, MessageView, is_salvage_record};
use crate::log::SequentialRead;
use crate::read::asked_queues::AskedQueues;
use crate::read::message_reader::MessageReader;
use crate::read::walk::{LogWalk, Walked};

const HOUR_MS: i64 = 3_600_000;

/// A grouping of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageBy {
    /// Their topic.
    Topic,
    /// The id of their queue.
    QueueId,
    /// Their tags, as in the property.
    Tags,
    /// The hour of their store time, in UTC.
    Hour,
    /// The segment of the log that they lie in.
    Segment,
}

/// One value that messages share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shared {
    /// A topic or tags; `None` for messages without tags.
    Text(Option<String>),
    /// The id of a queue, the first ms of an hour, the physical offset at which a segment starts.
    Number(i64),
}

/// The messages of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageCount {
    /// The number of messages.
    pub messages: i64,
    /// Bytes of their records.
    pub bytes: i64,
    /// The smallest store time, in ms.
    pub first_store_time: i64,
    /// The largest store time, in ms.
    pub last_store_time: i64,
}

/// The counts of a scan of the log.
#[derive(Debug, Clone)]
pub struct Usage {
    /// The groups, ascending: for each what its messages share, in the order in which it was asked for.
    pub groups: Vec<(Vec<Shared>, UsageCount)>,
    /// The physical offsets of the pass.
    pub covers: Range<i64>,
    /// The ranges among them where no message could be counted: it was lost or is damaged, or its segment is missing. Ascending.
    pub unread: Vec<Range<i64>>,
}

impl MessageReader {
    /// Counts every message of the log, also those that are in no queue. Bodies are not checked. With [`Errors::Skip`] the scan continues
    /// after damage, at the next whole record.
    ///
    /// # Errors
    /// [`crate::error::Error::Corrupt`] at damage, and [`crate::error::Error::Io`].
    pub fn usage(&self, by: &[UsageBy], errors: Errors) -> Result<Usage> {
        let covers = self.physical_bounds();
        let mut counts = Counts::new(by, self);
        let mut unread = Vec::new();
        let (log, mut read) = (self.log(), SequentialRead::default());
        let mut walk = self.log_walk(covers.clone(), Check::Structure);
        read.advance_to(log, covers.start, covers.end);
        while let Some(walked) = walk.advance()? {
            match walked {
                Walked::Record => {
                    let damage = counts.add(&walk, &mut unread)?;
                    if let (Some(damage), Errors::Raise) = (damage, errors) {
                        return Err(damage);
                    }
                }
                Walked::Stop => {
                    let (damage, stretch) = walk.pass_damage()?;
                    if let (Some(damage), Errors::Raise) = (damage, errors) {
                        return Err(damage);
                    }
                    add_unread(&mut unread, stretch);
                }
            }
            read.advance_to(log, walk.position(), covers.end);
        }
        read.drop_before(log, i64::MAX);
        Ok(Usage {
            groups: counts.into_groups(),
            covers,
            unread,
        })
    }
}

/// Adds a stretch to those before it.
fn add_unread(unread: &mut Vec<Range<i64>>, stretch: Range<i64>) {
    match unread.last_mut() {
        Some(last) if last.end == stretch.start => last.end = stretch.end,
        _ => unread.push(stretch),
    }
}

/// Counts by group. A group's key takes few bytes: a message of a known group allocates nothing.
struct Counts<'a> {
    by: &'a [UsageBy],
    reader: &'a MessageReader,
    key: Vec<u8>,
    groups: HashMap<Box<[u8]>, (Vec<Shared>, UsageCount), RandomState>,
    /// Asked for the first record of a group whose queue is unknown: no checksum covers topic and queue id.
    asked: AskedQueues,
}

impl<'a> Counts<'a> {
    fn new(by: &'a [UsageBy], reader: &'a MessageReader) -> Self {
        Self {
            by,
            reader,
            key: Vec::new(),
            groups: HashMap::default(),
            asked: AskedQueues::new(None, None, false),
        }
    }

    /// Counts the message that the walk shows, or notes that it was lost or is damaged, and returns the damage.
    fn add(&mut self, walk: &LogWalk<'_>, unread: &mut Vec<Range<i64>>) -> Result<Option<Error>> {
        let Some(view) = walk.view() else { return Ok(None) };
        if is_salvage_record(&view) {
            add_unread(unread, view.physical_offset()..view.end());
            return Ok(None);
        }
        let mut key = mem::take(&mut self.key);
        key.clear();
        for by in self.by {
            self.push_key(*by, &view, &mut key);
        }
        let one = UsageCount {
            messages: 1,
            bytes: i64::from(view.size()),
            first_store_time: view.store_time(),
            last_store_time: view.store_time(),
        };
        // The key was made of memory that a truncation may have zeroed concurrently.
        walk.check_intact()?;
        if let Some((_, count)) = self.groups.get_mut(&key[..]) {
            count.add(one);
        } else {
            if let Some(damage) = self.find_wrong_place(&view)? {
                add_unread(unread, view.physical_offset()..view.end());
                return Ok(Some(damage));
            }
            let shared = self.by.iter().map(|by| self.shared(*by, &view)).collect();
            walk.check_intact()?;
            self.groups.insert(key.as_slice().into(), (shared, one));
        }
        self.key = key;
        Ok(None)
    }

    /// Returns the damage if the record names a queue that is unknown, and another queue leads to it.
    fn find_wrong_place(&mut self, view: &MessageView<'_>) -> Result<Option<Error>> {
        let is_counted_by_place = self.by.iter().any(|by| matches!(by, UsageBy::Topic | UsageBy::QueueId));
        let is_known = |queue: Result<Option<_>>| !matches!(queue, Ok(None));
        if !is_counted_by_place || is_known(self.reader.queue(&view.topic(), view.queue_id())) {
            return Ok(None);
        }
        match self.asked.lead_to(view.physical_offset(), self.reader) {
            Err(damage @ Error::Corrupt { .. }) => Ok(Some(damage)),
            is_led => is_led.map(|_| None),
        }
    }

    /// Appends the value that distinguishes the group of this message from others.
    fn push_key(&self, by: UsageBy, view: &MessageView<'_>, key: &mut Vec<u8>) {
        match by {
            UsageBy::Topic => push_text(Some(&view.topic()), key),
            UsageBy::Tags => push_text(view.tags().as_deref(), key),
            _ => key.extend(self.number(by, view).to_be_bytes()),
        }
    }

    fn shared(&self, by: UsageBy, view: &MessageView<'_>) -> Shared {
        match by {
            UsageBy::Topic => Shared::Text(Some(view.topic().into_owned())),
            UsageBy::Tags => Shared::Text(view.tags().map(std::borrow::Cow::into_owned)),
            _ => Shared::Number(self.number(by, view)),
        }
    }

    fn number(&self, by: UsageBy, view: &MessageView<'_>) -> i64 {
        match by {
            UsageBy::Hour => view.store_time().div_euclid(HOUR_MS).saturating_mul(HOUR_MS),
            UsageBy::Segment => self.reader.log().start_of_segment(view.physical_offset()),
            _ => i64::from(view.queue_id()),
        }
    }

    fn into_groups(self) -> Vec<(Vec<Shared>, UsageCount)> {
        let mut groups: Vec<_> = self.groups.into_values().collect();
        groups.sort_by(|(a, _), (b, _)| a.cmp(b));
        groups
    }
}

impl UsageCount {
    fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.first_store_time = self.first_store_time.min(other.first_store_time);
        self.last_store_time = self.last_store_time.max(other.last_store_time);
    }
}

/// Appends a text with its length, so that no other begins with the same bytes.
fn push_text(text: Option<&str>, key: &mut Vec<u8>) {
    let len = text.map_or(u64::MAX, |text| text.len() as u64);
    key.extend(len.to_be_bytes());
    key.extend_from_slice(text.unwrap_or_default().as_bytes());
}
