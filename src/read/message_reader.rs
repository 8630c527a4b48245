//! A store opened for reading.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::config::{Errors, StoreConfig};
use crate::error::{Error, Result};
use crate::format::{Check, CqUnit, IndexHeader, MessageId, MessageView, is_salvage_record};
use crate::log::{
    ConsumeQueue, ConsumeQueueStore, IndexService, LastWriter, LogFiles, LogRecord, RecordCursor, RecordStarts, StoredMessage,
    fill_from_record,
};
use crate::read::damage::{EXPIRED, WAS_LOST, first_damage, nothing_at};
use crate::read::walked_keys::WalkedStretches;
use crate::recovery::{Cuts, Recovered, RecoveryReport, expect_store, open_for_reading};
use crate::remedy::Remedy;
use crate::storage::Env;
use crate::watermark::Watermark;

/// The location of a message in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Its record's first byte.
    pub physical_offset: i64,
    /// Its record's bytes.
    pub store_size: i32,
}

/// A store opened read-only: what its directory held, whoever writes to it, when it was opened or [refreshed](MessageReader::refresh) last.
/// Changes no byte and takes no lock.
#[derive(Debug)]
pub struct MessageReader {
    pub(super) env: Arc<dyn Env>,
    path: PathBuf,
    config: StoreConfig,
    log: Arc<LogFiles>,
    queues: Arc<ConsumeQueueStore>,
    index: Arc<IndexService>,
    /// The traces that the open has found.
    last_writer: LastWriter,
    /// The cuts of the log by slaves before the open.
    pub(super) cuts: Cuts,
    /// The end of the log; a writer of this process moves it, or a refresh.
    pub(super) readable: Arc<Watermark>,
    /// The end of the messages that a writer of this process has appended since the open and put into their queues.
    pub(super) dispatched: Arc<Watermark>,
    report: RecoveryReport,
    /// Start and store time of the last message, after which a refresh continues. `None` if a writer of this process moves the end.
    pub(super) last: Option<Mutex<(i64, i64)>>,
    /// An index that has all keys of the last message: the header of its last file, and where the log ended.
    pub(super) indexed_to_end: Mutex<Option<(IndexHeader, i64)>>,
    pub(super) walked: WalkedStretches,
    pub(super) counted: Mutex<Option<CountedStretch>>,
    physical_memory: u64,
}

/// A stretch of the log whose records were counted by the queue entries, and the segments of it that these do not fill.
pub(super) type CountedStretch = (Range<i64>, Vec<Range<i64>>);

impl MessageReader {
    /// Opens the store in the directory `path`; a store that was not closed is recovered in memory.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::Invalid`] for an option, [`Error::Corrupt`] for files that cannot belong together,
    /// [`Error::Io`].
    pub fn open(env: &Arc<dyn Env>, path: &Path, mut config: StoreConfig) -> Result<Self> {
        config.validate()?;
        expect_store(env.as_ref(), path)?;
        fill_from_record(env, path, &mut config)?;
        let recovered = open_for_reading(env, path, &config)?;
        let log_end = Arc::new(Watermark::new(recovered.report.log_end));
        let last = Mutex::new((recovered.report.last_offset, recovered.report.last_store_time));
        Ok(Self {
            last: Some(last),
            ..Self::new(env, path, config, recovered, log_end.clone(), log_end)
        })
    }

    /// Reads a store that was recovered. Its log ends at `readable`, and the messages before `dispatched` are in their queues:
    /// the writer of this process raises both.
    pub(crate) fn new(
        env: &Arc<dyn Env>,
        path: &Path,
        config: StoreConfig,
        recovered: Recovered,
        readable: Arc<Watermark>,
        dispatched: Arc<Watermark>,
    ) -> Self {
        Self {
            env: env.clone(),
            path: path.to_owned(),
            config,
            log: recovered.log,
            queues: recovered.queues,
            index: recovered.index,
            last_writer: recovered.last_writer,
            cuts: recovered.cuts,
            readable,
            dispatched,
            report: recovered.report,
            last: None,
            indexed_to_end: Mutex::default(),
            walked: WalkedStretches::default(),
            counted: Mutex::default(),
            physical_memory: env.physical_memory(),
        }
    }

    /// Returns the store directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the options with which it was opened.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Returns the report of the recovery by the open.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.report
    }

    /// Returns the physical offsets from the first segment's start to the log's end.
    pub fn physical_bounds(&self) -> Range<i64> {
        self.log.first_offset()..self.readable.get()
    }

    /// Returns the evidence of where records start, for a search after damage.
    pub(crate) fn record_starts(&self) -> RecordStarts<'_> {
        RecordStarts::new(&self.log, &self.queues, Some(&self.index), self.last_writer)
    }

    /// Returns the end of the log.
    pub(super) fn log_end(&self) -> i64 {
        self.readable.get()
    }

    /// Returns the names of the topics that have queues, ascending. Where the queues are a `RocksDB` database, the log is walked for them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn topics(&self) -> Result<Vec<String>> {
        if self.queues.rocksdb().is_none() {
            return Ok(self.queues.topics());
        }
        let mut topics = BTreeSet::new();
        let unread = self.walk(self.physical_bounds(), |view| {
            let topic = view.topic();
            if !topics.contains(topic.as_ref()) {
                topics.insert(topic.into_owned());
            }
        })?;
        first_damage(&unread).map_or_else(|| Ok(topics.into_iter().collect()), |damage| Err(damage.clone()))
    }

    /// Returns true if [`MessageReader::topics`] has this name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn has_topic(&self, topic: &str) -> Result<bool> {
        if self.queues.rocksdb().is_none() {
            return Ok(self.queues.has_topic(topic));
        }
        Ok(self.topics()?.iter().any(|name| name == topic))
    }

    /// Returns those of the topics that are not there yet, ascending. Where the queues are a `RocksDB` database it returns none: the whole
    /// log would have to be read for that.
    pub fn absent_topics(&self, named: impl IntoIterator<Item = String>) -> BTreeSet<String> {
        let queues = self.queue_store();
        let is_unread = |topic: &String| queues.rocksdb().is_some() || queues.rocksdb_of_light(topic).is_some();
        let is_absent = |topic: &String| !is_unread(topic) && !queues.has_topic(topic);
        named.into_iter().filter(is_absent).collect()
    }

    /// Ids of the topic's queues, ascending; empty for an unknown topic.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the queues are a `RocksDB` database or the topic's is a batch consume queue.
    pub fn queue_ids(&self, topic: &str) -> Result<Vec<i32>> {
        self.queues.queue_ids(topic)
    }

    /// Returns the queue offsets from the first message to the next one's; `0..0` for an absent queue.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`].
    pub fn queue_bounds(&self, topic: &str, queue_id: i32) -> Result<Range<i64>> {
        let queue = self.queue(topic, queue_id)?;
        Ok(queue.map_or(0..0, |queue| queue.min_offset()..queue.max_offset()))
    }

    /// Returns the end of the queue in a log that ends at `log_end`; 0 for an absent queue.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`], and [`Error::Io`].
    pub(crate) fn queue_end_at(&self, topic: &str, queue_id: i32, log_end: i64) -> Result<i64> {
        let queue = self.queue(topic, queue_id)?;
        queue.map_or(Ok(0), |queue| queue.offset_from(log_end))
    }

    /// Returns the location of the message with this queue offset; `None` if absent, or it has expired or was lost. Does not read
    /// the record.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`], and [`Error::Corrupt`], [`Error::Io`].
    pub fn position(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<Option<Position>> {
        let Some(unit) = self.entry(topic, queue_id, queue_offset)? else {
            return Ok(None);
        };
        if self.is_lost(unit, (topic, queue_id, queue_offset))? {
            return Ok(None);
        }
        let has_expired = !self.log.holds(unit.physical_offset)? && self.log.is_removed(unit.physical_offset);
        Ok((!has_expired).then_some(Position {
            physical_offset: unit.physical_offset,
            store_size: unit.size,
        }))
    }

    /// Returns true if the log has no message for the entry of this topic, queue id and queue offset: recovery has put a salvage record in
    /// its place, or has filled a hole of the queue with an entry that leads to another message.
    #[inline]
    pub(super) fn is_lost(&self, unit: CqUnit, (topic, queue_id, queue_offset): (&str, i32, i64)) -> Result<bool> {
        if !unit.is_lost() {
            return Ok(false);
        }
        Ok(match self.log.read(unit.physical_offset, Check::Structure)? {
            // The tags code of the entry may be damaged.
            LogRecord::Message(message) => !message.view().is_in_queue_at(topic, queue_id, queue_offset),
            _ => true,
        })
    }

    /// Returns the entry of the message with this queue offset; `None` if absent.
    pub(super) fn entry(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<Option<CqUnit>> {
        match self.queue(topic, queue_id)? {
            Some(queue) => entry(&queue, queue_offset),
            None => Ok(None),
        }
    }

    /// Returns the message with this queue offset.
    ///
    /// # Errors
    /// [`Error::NotFound`] outside the queue or when the log no longer holds it, [`Error::Corrupt`], [`Error::Io`].
    pub fn message_in_queue(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<StoredMessage> {
        let queue = self.queue(topic, queue_id)?;
        self.message_of_queue(queue.as_deref(), topic, queue_id, queue_offset)
    }

    /// Calls [`MessageReader::message_in_queue`] for a caller with the queue: finding it costs as much as reading an entry of it.
    pub(super) fn message_of_queue(
        &self,
        queue: Option<&ConsumeQueue>,
        topic: &str,
        queue_id: i32,
        queue_offset: i64,
    ) -> Result<StoredMessage> {
        let unit = match queue {
            Some(queue) => {
                self.follow_removals(queue)?;
                entry(queue, queue_offset)?
            }
            None => None,
        };
        let Some(unit) = unit else {
            return Err(self.not_in_queue(topic, queue_id, queue_offset)?);
        };
        let at = unit.physical_offset;
        match self.message_of_entry(topic, queue_id, queue_offset, unit)? {
            Some(message) => Ok(message),
            None if self.log.is_removed(at) => Err(self.not_in_queue(topic, queue_id, queue_offset)?),
            None => {
                let entry = self.entry_text(topic, queue_id, queue_offset)?;
                let why = format!("{entry} points to physical offset {at}, and this segment is missing");
                Err(self.advise(self.log.corrupt(at, why)))
            }
        }
    }

    /// Describes a queue entry: the message that it stands for, and its file and byte.
    fn entry_text(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<String> {
        let message = message_text(topic, queue_id, queue_offset);
        let position = self.queue(topic, queue_id)?.map(|queue| queue.path_of(queue_offset));
        Ok(match position {
            Some((path, byte)) => format!("the entry of {message} ({} at byte {byte})", path.display()),
            None => format!("the entry of {message}"),
        })
    }

    fn not_in_queue(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<Error> {
        let Range { start, end } = self.queue_bounds(topic, queue_id)?;
        Ok(Error::not_found(format!(
            "{topic}/{queue_id} holds no message at queue offset {queue_offset}: it spans {start} to {end} (exclusive)"
        )))
    }

    /// Returns the damage of a record that names another topic, queue id or queue offset than the entry that leads to it, which is one of
    /// a queue of these topics. No checksum covers these fields. Returns `None` if the record's own entry leads to it, and if no entry of
    /// the topics does: its queue may have expired, or be lost.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn find_wrong_place<'a>(
        &self,
        topics: impl IntoIterator<Item = &'a str>,
        view: &MessageView<'_>,
    ) -> Result<Option<Error>> {
        let at = view.physical_offset();
        if let Ok(Some(queue)) = self.queue(&view.topic(), view.queue_id())
            && queue
                .known_unit(view.queue_offset())?
                .is_some_and(|unit| unit.physical_offset == at)
        {
            return Ok(None);
        }
        for topic in topics {
            for queue_id in self.queue_ids(topic).unwrap_or_default() {
                let Some(queue) = self.queue(topic, queue_id)? else { continue };
                let mut entry = None;
                queue.visit_from(at, |queue_offset, unit| {
                    entry = Some((queue_offset, unit)).filter(|(_, unit)| unit.physical_offset == at);
                    Ok(false)
                })?;
                let Some((queue_offset, unit)) = entry else { continue };
                match self.message_of_entry(topic, queue_id, queue_offset, unit) {
                    Err(damage @ Error::Corrupt { .. }) => return Ok(Some(damage)),
                    led_to => led_to.map(drop)?,
                }
            }
        }
        Ok(None)
    }

    /// Returns the message that a queue entry points at; `None` if its segment is gone. A record of that queue and number is known to start
    /// there, so that anything else is damage.
    pub(super) fn message_of_entry(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: i64,
        unit: CqUnit,
    ) -> Result<Option<StoredMessage>> {
        let (at, log) = (unit.physical_offset, self.physical_bounds());
        let damaged = |why: String| self.advise(self.log.corrupt(at, why));
        if at >= log.end {
            return Err(self.outside_of_log(topic, queue_id, queue_offset, unit)?);
        }
        match self.log.read(at, Check::Whole)? {
            LogRecord::Missing if at < log.start && !self.log.is_removed(at) => {
                Err(self.outside_of_log(topic, queue_id, queue_offset, unit)?)
            }
            LogRecord::Missing => Ok(None),
            LogRecord::Message(message) if is_salvage_record(&message.view()) => {
                let lost = message_text(topic, queue_id, queue_offset);
                let why = format!("{lost} was lost, and recovery has put a salvage record in its place");
                Err(self.log.corrupt(at, why).with_remedy(Remedy::Skip))
            }
            LogRecord::Message(message) if message.view().is_in_queue_at(topic, queue_id, queue_offset) => Ok(Some(message)),
            LogRecord::Message(_) if unit.is_lost() => {
                let hole = message_text(topic, queue_id, queue_offset);
                let why = format!("{hole} is in no file of the store");
                Err(self.log.corrupt(at, why).with_remedy(Remedy::Skip))
            }
            LogRecord::Message(message) => {
                let view = message.view();
                let found = message_text(&view.topic(), view.queue_id(), view.queue_offset());
                let entry = self.entry_text(topic, queue_id, queue_offset)?;
                Err(damaged(format!(
                    "{entry} points here, to {found}: the entry or the record is damaged"
                )))
            }
            LogRecord::Corrupt(error) | LogRecord::NoRecord(error) => {
                let message = message_text(topic, queue_id, queue_offset);
                Err(self.advise(error.of_message(&message)))
            }
            LogRecord::Blank { .. } | LogRecord::End => {
                let entry = self.entry_text(topic, queue_id, queue_offset)?;
                Err(damaged(format!("{entry} points here, and no record starts here")))
            }
        }
    }

    /// Reads the record to which the entry of a topic, queue id and queue offset leads. Returns true if it is the message, and whole. If
    /// not, [`message_of_entry`](Self::message_of_entry) returns the reason.
    pub(super) fn read_expected(&self, cursor: &mut RecordCursor, place: (&str, i32, i64), unit: CqUnit) -> Result<bool> {
        let (topic, queue_id, queue_offset) = place;
        let found = cursor.read(&self.log, unit.physical_offset, Check::Whole)?;
        let stands_there =
            |view: MessageView<'_>| view.is_in_queue_at(topic, queue_id, queue_offset) && !is_salvage_record(&view);
        Ok(matches!(found, LogRecord::Message(()))
            && unit.physical_offset < self.log_end()
            && cursor.view().is_some_and(stands_there))
    }

    /// Returns the error of an entry that points to no offset of the log.
    fn outside_of_log(&self, topic: &str, queue_id: i32, queue_offset: i64, unit: CqUnit) -> Result<Error> {
        let message = message_text(topic, queue_id, queue_offset);
        let Range { start, end } = self.physical_bounds();
        let why = format!(
            "the entry of {message} names {} bytes at physical offset {}, but the log spans {start} to {end} (exclusive)",
            unit.size, unit.physical_offset
        );
        Ok(match self.queue(topic, queue_id)? {
            Some(queue) => queue.corrupt(queue_offset, why),
            None => self.log.corrupt(unit.physical_offset, why),
        })
    }

    /// Returns the message whose record starts at this physical offset. Its body is checked against its CRC.
    ///
    /// # Errors
    /// [`Error::NotFound`] where no record starts, [`Error::Corrupt`] for a damaged one, [`Error::Io`].
    pub fn message_at(&self, physical_offset: i64) -> Result<StoredMessage> {
        let Range { start, end } = self.physical_bounds();
        let nothing = |why: String| nothing_at(physical_offset, &why);
        if !(start..end).contains(&physical_offset) {
            return Err(nothing(format!("the log spans {start} to {end} (exclusive)")));
        }
        match self.log.read(physical_offset, Check::Whole)? {
            LogRecord::Message(message) if is_salvage_record(&message.view()) => Err(nothing_at(physical_offset, WAS_LOST)),
            LogRecord::Message(message) => Ok(message),
            LogRecord::Corrupt(error) => Err(self.advise(error)),
            LogRecord::NoRecord(error) => Err(nothing(error.text().to_string())),
            LogRecord::Missing if self.log.is_removed(physical_offset) => Err(nothing_at(physical_offset, EXPIRED)),
            LogRecord::Missing => Err(nothing("its segment is missing".to_owned())),
            LogRecord::Blank { .. } => Err(nothing("the BLANK at a segment's end starts here".to_owned())),
            LogRecord::End => Err(nothing("it lies inside a record or a BLANK".to_owned())),
        }
    }

    /// Returns the message with this id: an offset id (32 or 56 hex digits) if a record starts where it points, whatever its host; else
    /// the first stored one with this unique key that the index leads to, over every topic that has queues. With `walk` the log is read
    /// from start to end for a unique key that the index does not hold.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Corrupt`], [`Error::Io`].
    pub fn message(&self, id: &str, walk: bool) -> Result<StoredMessage> {
        let offset_id = id.parse::<MessageId>();
        if let Ok(offset_id) = offset_id {
            match self.message_at(offset_id.physical_offset) {
                Err(Error::NotFound { .. }) => {}
                found => return found,
            }
        }
        if let Some(message) = self.message_by_unique_key(id, walk)? {
            return Ok(message);
        }
        let no_offset = match offset_id {
            Ok(offset_id) => format!(
                "no record starts at physical offset {}, where {id:?} points",
                offset_id.physical_offset
            ),
            Err(_) => format!("{id:?} is not an offset id (32 or 56 hex digits)"),
        };
        if walk {
            let what = format!("{no_offset}, and no message has it as its unique key");
            return Err(Error::not_found(what));
        }
        let Range { start, end } = self.physical_bounds();
        let what = format!(
            "{no_offset}, and the index leads to no message with it as its unique key; the {} bytes of the log were not searched",
            end - start
        );
        Err(Error::not_found(what).with_remedy(Remedy::WalkLog))
    }

    /// Lets the smallest offset of the queue take account of every file that was found to be removed.
    pub(super) fn follow_removals(&self, queue: &ConsumeQueue) -> Result<()> {
        queue.follow_removals(self.log.removals(), || self.log.first_offset())
    }

    /// Returns the queue, whose smallest offset takes account of every file that was found to be removed.
    pub(super) fn queue(&self, topic: &str, queue_id: i32) -> Result<Option<Arc<ConsumeQueue>>> {
        let queue = self.queues.queue(topic, queue_id)?;
        if let Some(queue) = &queue {
            self.follow_removals(queue)?;
        }
        Ok(queue)
    }

    /// Adds the remedy to the error of a damaged message.
    pub(super) fn advise(&self, damage: Error) -> Error {
        damage.with_remedy(if self.log.has_gap() {
            Remedy::SkipOrPutBack
        } else {
            Remedy::SkipOrSalvage
        })
    }

    /// Passes over damage where that is asked for.
    ///
    /// # Errors
    /// The damage, with what can be done about it, unless it is skipped; any other error.
    pub(super) fn skip(&self, damage: Error, errors: Errors) -> Result<()> {
        match (damage, errors) {
            (Error::Corrupt { .. }, Errors::Skip) => Ok(()),
            (damage, _) => Err(self.advise(damage)),
        }
    }

    pub(crate) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    pub(crate) fn log(&self) -> &LogFiles {
        &self.log
    }

    pub(crate) fn queue_store(&self) -> &ConsumeQueueStore {
        &self.queues
    }

    pub(crate) fn index(&self) -> &IndexService {
        &self.index
    }

    /// Returns the distance before the log's end within which a message counts as cached.
    pub(super) fn memory_window(&self) -> i64 {
        self.config.memory_window(self.physical_memory)
    }
}

/// Describes a message.
pub(super) fn message_text(topic: &str, queue_id: i32, queue_offset: i64) -> String {
    format!("the message of topic {topic:?}, queue {queue_id}, queue offset {queue_offset}")
}

/// Returns the entry at this queue offset; `None` if absent.
fn entry(queue: &ConsumeQueue, queue_offset: i64) -> Result<Option<CqUnit>> {
    if (queue.min_offset()..queue.max_offset()).contains(&queue_offset) {
        queue.unit(queue_offset)
    } else {
        Ok(None)
    }
}
