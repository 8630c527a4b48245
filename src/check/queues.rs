//! Compares the queue files with the log: each message has its entry, and each entry leads to its message.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::check::context::{Context, Writer};
use crate::check::finding_id::FindingId;
use crate::check::findings::{Affected, Finding};
use crate::error::Result;
use crate::format::{
    CONSUME_QUEUE_DIR, CQ_UNIT_SIZE, Check, CqUnit, DelayLevels, DispatchRequest, LIGHT_QUEUE_ID, MAX_QUEUE_OFFSET,
    MIN_RECORD_SIZE, MessageView, Transaction, is_light_queue, is_salvage_record,
};
use crate::interrupt;
use crate::log::{ConsumeQueue, ConsumeQueueStore, EntryCursor, LogFiles, LogRecord, QueueHandle, QueueTable};
use crate::recovery::RecoveredQueue;

/// Findings at entries that follow each other are one.
const STEP: u64 = CQ_UNIT_SIZE as u64;
/// Findings about one topic are one.
const ANYWHERE: u64 = u64::MAX;
/// Entries that are read at once.
const AT_ONCE: i64 = 1024;

/// All queues, while the log is read from start to end.
#[derive(Debug)]
pub(super) struct Queues<'a> {
    pub(super) store: &'a ConsumeQueueStore,
    /// Entries of a queue that are read at once.
    at_once: i64,
    levels: DelayLevels,
    /// Some topic has queues on disk.
    has_topics: bool,
    /// Some light queue has files.
    has_light: bool,
    /// Topics of messages that have none there.
    missing: BTreeSet<String>,
    /// `None` for a queue of a form that is not read.
    compared: QueueTable<Option<Compared>>,
    /// Entries that were compared.
    pub(super) entries: u64,
}

/// One queue.
#[derive(Debug)]
struct Compared {
    topic: Arc<str>,
    queue_id: i32,
    queue: Arc<ConsumeQueue>,
    entries: EntryCursor,
    /// The queue offsets of the entries in its files.
    written: Range<i64>,
    /// The entries before this one were compared.
    next: i64,
    /// The topic has no queue at all, and other topics have some.
    is_topic_missing: bool,
    /// After the next start of a broker.
    recovered: RecoveredQueue,
}

impl<'a> Queues<'a> {
    pub(super) fn new(store: &'a ConsumeQueueStore, at_once: i64, levels: DelayLevels, context: &mut Context<'_>) -> Self {
        let mut queues = Self {
            store,
            at_once,
            levels,
            has_topics: !store.topics().is_empty(),
            has_light: store.has_light_queues(),
            missing: BTreeSet::new(),
            compared: QueueTable::default(),
            entries: 0,
        };
        let file_len = store.usual_file_len();
        for (topic, queue_id, queue) in store.file_queues() {
            check_name(&topic, context);
            let compared = Compared::new(topic.clone(), queue_id, queue, at_once, false);
            compared.look_at_files(file_len, context);
            queues.compared.add(topic.as_bytes(), queue_id, Some(compared));
        }
        queues
    }

    /// Compares the entry of a message. Messages come in the order of the log.
    ///
    /// # Errors
    /// Those of reading an entry, and the message to which it leads.
    #[inline]
    pub(super) fn compare(
        &mut self,
        view: &MessageView<'_>,
        dispatched: &DispatchRequest<'_>,
        context: &mut Context<'_>,
    ) -> Result<()> {
        let Some(unit) = dispatched.unit(&self.levels) else {
            return Ok(());
        };
        let known = self.compared.find(view.topic_bytes(), view.queue_id());
        let handle = if let Some(handle) = known {
            handle
        } else {
            let queue = self.queue_of(view, context);
            self.compared.add(view.topic_bytes(), view.queue_id(), queue)
        };
        self.compare_at(handle, view.queue_offset(), (view, dispatched, unit), context)?;
        if self.has_light {
            self.compare_light(view, dispatched, unit, context)?;
        }
        Ok(())
    }

    /// Compares the entries of a message in the light queues that have files. A broker removes those that nobody uses.
    fn compare_light(
        &mut self,
        view: &MessageView<'_>,
        dispatched: &DispatchRequest<'_>,
        unit: CqUnit,
        context: &mut Context<'_>,
    ) -> Result<()> {
        for (name, offset) in view.light_queues().into_iter().filter(|(name, _)| is_light_queue(name)) {
            if let Some(handle) = self.compared.find(name.as_bytes(), LIGHT_QUEUE_ID) {
                self.compare_at(handle, offset, (view, dispatched, unit), context)?;
            }
        }
        Ok(())
    }

    /// Compares the entry of a message at this queue offset of a queue.
    #[inline]
    fn compare_at(
        &mut self,
        handle: QueueHandle,
        offset: i64,
        (view, dispatched, unit): (&MessageView<'_>, &DispatchRequest<'_>, CqUnit),
        context: &mut Context<'_>,
    ) -> Result<()> {
        let Some(queue) = self.compared.get_mut(handle).and_then(Option::as_mut) else {
            return Ok(());
        };
        self.entries += 1;
        let known = queue.entries.known_unit(offset)?;
        if known.is_some_and(|known| dispatched.is_entry(known, &self.levels)) {
            return queue.pass_over(offset, offset + 1, context);
        }
        queue.look_closer(offset, view, unit, context)
    }

    /// Returns true if no other entries come before these, which agree with their messages: queue offsets.
    pub(super) fn are_next(&self, agreed: &[(QueueHandle, Range<i64>)]) -> bool {
        agreed.iter().all(|(handle, offsets)| {
            let queue = self.compared.get(*handle).and_then(Option::as_ref);
            queue.is_some_and(|queue| queue.next == offsets.start)
        })
    }

    /// Passes over entries that agree with their messages.
    pub(super) fn take_agreed(&mut self, agreed: &[(QueueHandle, Range<i64>)]) {
        for (handle, offsets) in agreed {
            if let Some(Some(queue)) = self.compared.get_mut(*handle) {
                queue.next = offsets.end;
                self.entries += (offsets.end - offsets.start).unsigned_abs();
            }
        }
    }

    /// Creates a queue that has no files; `None` if it is of a form that is not read.
    fn queue_of(&mut self, view: &MessageView<'_>, context: &mut Context<'_>) -> Option<Compared> {
        let (topic, queue_id) = (view.topic().into_owned(), view.queue_id());
        check_name(&topic, context);
        if self.store.rocksdb().is_some() {
            return None;
        }
        let is_missing = self.has_topics && (self.missing.contains(&topic) || !self.store.has_topic(&topic));
        if is_missing {
            self.missing.insert(topic.clone());
        }
        let queue = self.store.queue_or_new(&topic, queue_id)?;
        Some(Compared::new(topic.into(), queue_id, queue, self.at_once, is_missing))
    }

    /// Compares the entries after the last message of each queue. Returns the number of entries that were compared.
    ///
    /// # Errors
    /// Those of reading an entry, and the record to which it leads.
    pub(super) fn finish(self, context: &mut Context<'_>) -> Result<u64> {
        for mut queue in self.compared.into_values().into_iter().flatten() {
            let end = queue.written.end;
            queue.pass_over(end, end, context)?;
        }
        Ok(self.entries)
    }
}

/// Reports a topic that a broker does not accept. It has characters that a broker refuses in all names but its own.
fn check_name(topic: &str, context: &mut Context<'_>) {
    let is_accepted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '|' | '-' | '_');
    // A broker makes the names of light queues itself, with a `$`.
    let is_made = topic.is_empty() || is_light_queue(topic);
    if !is_made && !topic.chars().all(is_accepted) {
        let path = context.root.join(CONSUME_QUEUE_DIR).join(topic);
        let affected = Affected {
            topic: Some(topic.to_owned()),
            ..Affected::default()
        };
        let what = format!("topic {topic:?} has characters that a broker refuses");
        context.add_after(Finding::new(FindingId::LogTopicName, &path, 0, what).of(affected), ANYWHERE);
    }
}

/// Adds the finding about a message whose queue offset another message has, to which the entry leads.
fn add_taken(view: &MessageView<'_>, is_light: bool, found: CqUnit, context: &mut Context<'_>) {
    let at = view.physical_offset();
    let id = if found.physical_offset > at || is_light {
        FindingId::LogEarlierTopic
    } else {
        context.contradictions.add_without_entry(at, true);
        FindingId::LogDuplicateQueueOffset
    };
    let (path, position) = context.log.path_of(at);
    let what = format!(
        "the entry leads to another message of this queue offset, at {}",
        found.physical_offset
    );
    context.add_after(Finding::new(id, &path, position, what).of(Affected::of(view)), ANYWHERE);
}

/// Returns true if a record of the log can be that long. Otherwise the entry is not a sign of a missing part of the log. A log without a
/// segment gives no bound.
pub(super) fn could_be_of_record(unit: CqUnit, log: &LogFiles) -> bool {
    let size = unit.size.unsigned_abs();
    size as usize >= MIN_RECORD_SIZE && (log.segment_size() == 0 || u64::from(size) <= log.segment_size())
}

impl Compared {
    fn new(topic: Arc<str>, queue_id: i32, queue: Arc<ConsumeQueue>, at_once: i64, is_topic_missing: bool) -> Self {
        let written = queue.written();
        let end = Some(written.end).filter(|_| !written.is_empty());
        Self {
            recovered: RecoveredQueue::new(end),
            topic,
            queue_id,
            entries: EntryCursor::reading_at_once(Arc::clone(&queue), at_once),
            queue,
            next: written.start,
            written,
            is_topic_missing,
        }
    }

    /// Checks the lengths of files. A live writer may be making a file.
    fn look_at_files(&self, usual_len: Option<u64>, context: &mut Context<'_>) {
        for (path, len, expected) in self.queue.wrong_lengths() {
            let what = format!("it has {len} bytes, a whole queue file has {expected}");
            context.add(Finding::new(FindingId::QueueFileLength, path, len.min(expected), what));
        }
        let expected = match usual_len {
            // The size of this queue is the length of its only file.
            Some(usual) if self.queue.last_file_start() == Some(self.written.start) => usual,
            usual => usual.unwrap_or(0).max(self.queue.file_size()),
        };
        if let Some(len) = self.queue.last_file_len()
            && len != expected
            && context.writer != Writer::Live
        {
            let (path, _) = self.path_of(self.queue.last_file_start().unwrap_or(0));
            let what = format!("it has {len} bytes, a whole queue file has {expected}");
            context.add(Finding::new(FindingId::QueueFileLength, &path, len, what));
        }
        for path in self.queue.foreign_files() {
            let what = "this is not a queue file".to_owned();
            context.add(Finding::new(FindingId::QueueForeignFile, &path, 0, what));
        }
        if let Some(start) = self.queue.last_file_start().filter(|start| *start >= self.written.end) {
            let what = format!(
                "the last file of topic {:?}, queue {}, has no entry",
                self.topic, self.queue_id
            );
            let (path, _) = self.path_of(start);
            context.add_left_by_crash(Finding::new(FindingId::QueueZeroFile, &path, 0, what), 0);
        }
    }

    /// Checks the entries before `until` that were not compared yet: they belong to no message of the log. The next message has `next` or a
    /// later one.
    #[inline]
    fn pass_over(&mut self, until: i64, next: i64, context: &mut Context<'_>) -> Result<()> {
        if until > self.next {
            self.look_at_rest(until, context)?;
        }
        self.next = self.next.max(next);
        Ok(())
    }

    fn look_at_rest(&mut self, until: i64, context: &mut Context<'_>) -> Result<()> {
        let end = until.min(self.written.end);
        let mut units = Vec::new();
        while self.next < end {
            interrupt::check()?;
            units.clear();
            self.queue.add_units(self.next..end.min(self.next + AT_ONCE), &mut units)?;
            if units.is_empty() {
                let written = self.queue.written_unit(self.next)?;
                self.look_at_lone(written.filter(|unit| unit.is_valid()), context)?;
                self.next += 1;
            }
            for unit in &units {
                self.look_at_lone(Some(*unit), context)?;
                self.next += 1;
            }
        }
        if until > self.next && self.next > 0 && !context.has_damage() && !self.is_topic_missing {
            let what = format!("no message up to {until}");
            self.add(FindingId::QueueHole, self.next, None, &what, context);
        }
        Ok(())
    }

    /// Looks at the entry `self.next`, for which no message has come.
    fn look_at_lone(&mut self, unit: Option<CqUnit>, context: &mut Context<'_>) -> Result<()> {
        let offset = self.next;
        let Some(unit) = unit else {
            if !context.has_damage() && !self.queue.is_removed(offset) {
                let what = "blank entry, and the log has no message for it";
                self.add(FindingId::QueueHole, offset, None, what, context);
            }
            return Ok(());
        };
        let at = unit.physical_offset;
        let has_expired = context.has_expired(at);
        let is_damaged = context.is_damaged(at, || self.affected(offset, Some(unit)));
        if unit.is_pre_blank() || has_expired || is_damaged {
            return Ok(());
        }
        if unit.is_lost() {
            return self.look_at_lost(unit, context);
        }
        if at >= context.bounds.end && could_be_of_record(unit, context.log) {
            if context.writer != Writer::Live {
                let what = format!("it names physical offset {at}, and the log ends at {}", context.bounds.end);
                context.add_past_end(
                    at,
                    self.finding(FindingId::QueueEntryPastEnd, offset, Some(unit), &what),
                    STEP,
                );
            }
            return Ok(());
        }
        let what = match context.log.read(at, Check::Structure)? {
            _ if at >= context.bounds.end => format!("it names a message of {} bytes at physical offset {at}", unit.size),
            LogRecord::Message(message) => {
                let view = message.view();
                let is_its = view.is_in_queue_at(&self.topic, self.queue_id, offset);
                let is_visible = matches!(view.transaction(), Transaction::None | Transaction::Commit);
                if is_its && is_visible || is_salvage_record(&view) {
                    return Ok(());
                }
                if is_its {
                    format!("it leads to physical offset {at}, to a half or rolled-back message, which has no entry")
                } else {
                    context.contradictions.add(&self.topic, self.queue_id, offset, unit);
                    format!(
                        "it leads to physical offset {at}, to the message of topic {:?}, queue {}, queue offset {}",
                        view.topic(),
                        view.queue_id(),
                        view.queue_offset()
                    )
                }
            }
            _ => format!("it leads to physical offset {at}, where no record starts"),
        };
        self.add(FindingId::QueueEntryWrong, offset, Some(unit), &what, context);
        Ok(())
    }

    /// Looks at the entry `self.next` of a lost message. A salvage record explains it. Otherwise recovery has filled a hole of the queue with
    /// an entry that leads to another message, which may be the lost one: then its record names a wrong topic or queue id.
    fn look_at_lost(&self, unit: CqUnit, context: &mut Context<'_>) -> Result<()> {
        let (offset, at) = (self.next, unit.physical_offset);
        let LogRecord::Message(message) = context.log.read(at, Check::Structure)? else {
            return Ok(());
        };
        let view = message.view();
        if is_salvage_record(&view) || view.is_in_queue_at(&self.topic, self.queue_id, offset) {
            return Ok(());
        }
        if view.queue_offset() == offset {
            context.contradictions.add(&self.topic, self.queue_id, offset, unit);
        }
        let what = format!(
            "its message was lost, and it leads to physical offset {at}, to the message of topic {:?}, queue {}, queue offset {}",
            view.topic(),
            view.queue_id(),
            view.queue_offset()
        );
        self.add(FindingId::QueueMessageLost, offset, Some(unit), &what, context);
        Ok(())
    }

    /// Says what is wrong with the entry of a message that is not `unit`.
    fn look_closer(&mut self, offset: i64, view: &MessageView<'_>, unit: CqUnit, context: &mut Context<'_>) -> Result<()> {
        let is_light = is_light_queue(&self.topic);
        let found = self
            .queue
            .written_unit(offset)?
            .filter(|found| found.is_valid() && self.written.contains(&offset));
        let at = unit.physical_offset;
        let (id, what) = match found {
            _ if self.is_topic_missing => self.undispatched(offset, at, context),
            Some(found) if (found.physical_offset, found.size) == (at, unit.size) => {
                if found.ext_address().is_some() {
                    return self.pass_over(offset, offset + 1, context);
                }
                let what = format!("it has the tags code {}, the message {}", found.tags_code, unit.tags_code);
                (FindingId::QueueTagsCode, what)
            }
            Some(found) if found.physical_offset != at && self.leads(offset, found, context)? => {
                add_taken(view, is_light, found, context);
                return Ok(());
            }
            Some(found) => {
                let what = format!(
                    "it names {} bytes at physical offset {}, the message has {} at {at}",
                    found.size, found.physical_offset, unit.size
                );
                (FindingId::QueueEntryWrong, what)
            }
            None if self.is_of_earlier_topic(offset, at)? => {
                let (path, position) = context.log.path_of(at);
                let what = "every entry of the queue leads to a later message".to_owned();
                let finding = Finding::new(FindingId::LogEarlierTopic, &path, position, what).of(Affected::of(view));
                context.add_after(finding, ANYWHERE);
                return Ok(());
            }
            None if offset < self.written.start && context.has_expired(at) => return Ok(()),
            // With its message, or with its topic.
            None if self.queue.is_removed(offset) => {
                self.recovered = RecoveredQueue::new(None);
                return self.pass_over(offset, offset + 1, context);
            }
            None if offset >= self.written.end && context.writer != Writer::Closed && !context.was_dispatched(at) => {
                self.undispatched(offset, at, context)
            }
            None => (
                FindingId::QueueEntryMissing,
                format!("the message at physical offset {at} has no entry"),
            ),
        };
        if found.is_none() && offset != self.next && !is_light && !context.has_damage() {
            context.contradictions.add_without_entry(at, false);
        }
        self.pass_over(offset, offset, context)?;
        let (path, position) = if self.is_topic_missing {
            (context.root.join(CONSUME_QUEUE_DIR).join(&*self.topic), 0)
        } else {
            self.path_of(offset)
        };
        let finding = Finding::new(id, &path, position, self.sentence(offset, &what)).of(self.affected(offset, Some(unit)));
        let finding = context.of_deleted_topic(&self.topic, at, finding);
        context.add_after(finding, if self.is_topic_missing { ANYWHERE } else { STEP });
        self.next = self.next.max(offset.saturating_add(1));
        Ok(())
    }

    /// Describes a message after the last entry of its queue. A live writer dispatches it, and so does the next open for writing.
    fn undispatched(&mut self, offset: i64, physical_offset: i64, context: &Context<'_>) -> (FindingId, String) {
        let losing = self.losing_versions(offset, physical_offset, context);
        if losing.is_empty() && (context.brokers.is_some() || !self.is_topic_missing) {
            return (FindingId::QueueNotDispatched, "the queue ends before this message".to_owned());
        }
        if self.is_topic_missing {
            return (FindingId::QueueTopicMissing, "the topic has no queue".to_owned());
        }
        let versions = losing.join(", ");
        let what = format!(
            "the queue ends before this message, and the recovery of RocketMQ {versions} does not put the message at this queue offset"
        );
        (FindingId::QueueNotRecovered, what)
    }

    /// Dispatches a message without an entry in the model of a broker's recovery, and returns the versions that lose it.
    fn losing_versions(&mut self, offset: i64, physical_offset: i64, context: &Context<'_>) -> Vec<&'static str> {
        let dispatch = |brokers| self.recovered.dispatch(brokers, physical_offset, offset);
        context.brokers.as_ref().map_or_else(Vec::new, dispatch)
    }

    /// Returns true if the entry leads to a message with its queue offset, or to the salvage record of a lost message.
    fn leads(&self, offset: i64, unit: CqUnit, context: &Context<'_>) -> Result<bool> {
        Ok(match context.log.read(unit.physical_offset, Check::Structure)? {
            LogRecord::Message(message) => {
                let view = message.view();
                unit.is_lost() && is_salvage_record(&view) || view.is_in_queue_at(&self.topic, self.queue_id, offset)
            }
            _ => false,
        })
    }

    /// Returns true if the message at `at` is before every message of the queue, which has the file of this queue offset.
    fn is_of_earlier_topic(&self, offset: i64, at: i64) -> Result<bool> {
        let first = self.queue.written_unit(self.written.start)?;
        let is_before = first.is_some_and(|first| first.is_valid() && !first.is_pre_blank() && first.physical_offset > at);
        Ok(is_before && offset >= self.written.start)
    }

    fn add(&self, id: FindingId, offset: i64, unit: Option<CqUnit>, what: &str, context: &mut Context<'_>) {
        context.add_after(self.finding(id, offset, unit, what), STEP);
    }

    fn finding(&self, id: FindingId, offset: i64, unit: Option<CqUnit>, what: &str) -> Finding {
        let (path, position) = self.path_of(offset);
        Finding::new(id, &path, position, self.sentence(offset, what)).of(self.affected(offset, unit))
    }

    fn sentence(&self, offset: i64, what: &str) -> String {
        format!(
            "topic {:?}, queue {}, queue offset {offset}: {what}",
            self.topic, self.queue_id
        )
    }

    fn affected(&self, offset: i64, unit: Option<CqUnit>) -> Affected {
        Affected {
            topic: Some(self.topic.to_string()),
            queue_id: Some(self.queue_id),
            queue_offset: Some(offset),
            physical_offset: unit.map(|unit| unit.physical_offset),
            key: None,
        }
    }

    fn path_of(&self, offset: i64) -> (PathBuf, u64) {
        self.queue.path_of(offset.clamp(0, MAX_QUEUE_OFFSET))
    }
}
