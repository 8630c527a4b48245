//! The search for open transactions: one rule, for the process that writes a store and for those that only read it.
//!
//! A half message is open if it lies at or after the progress, and nothing has ended it: no op message lists it, no committed or given-up
//! message in the log names it or an older copy of it, and no broker has stored it again. The log is read from the mark on, or without
//! one from the first half message that may be open. What cannot be read is counted: it may be a half message, or the end of one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use super::copies::real_place;
use super::transaction_mark::TransactionMark;
use super::transaction_record::listed;
use super::transaction_state::{TransactionState, UnreadEnds};
use crate::config::Errors;
use crate::error::{Error, Result, TransactionOutcome};
use crate::format::{
    CONSUME_QUEUE_DIR, Check, GIVEN_UP_TOPIC, HALF_TOPIC, MessageView, OP_TOPIC, Transaction, is_salvage_record, property,
};
use crate::log::StoredMessage;
use crate::read::{MessageReader, OnDamage, QueueScan, Walked};

/// A half message whose transaction is open.
#[derive(Debug, Clone)]
pub struct OpenHalf {
    /// The half message.
    pub message: StoredMessage,
    /// The number of times that its producers were asked.
    pub checks: u32,
}

/// The half messages whose transactions are open.
#[derive(Debug, Clone, Default)]
pub struct OpenHalves {
    /// In the order in which they were stored.
    pub halves: Vec<OpenHalf>,
    /// Half messages that cannot be read.
    pub passed_over: u64,
    /// The other offsets that could not be read: some of the half messages may have ended.
    pub unread: UnreadEnds,
}

impl OpenHalves {
    /// Returns true if nothing was left unread: no other transaction is open, and each of these is.
    pub fn is_complete(&self) -> bool {
        self.passed_over == 0 && self.unread == UnreadEnds::default()
    }

    /// Returns a sentence for each reason why the answer may be wrong.
    pub fn doubts(&self) -> Vec<String> {
        let UnreadEnds {
            ops,
            stretches,
            queues,
            is_log_partial,
        } = &self.unread;
        let counted = [
            (
                self.passed_over,
                "half messages are lost or damaged, and their transactions may be open",
            ),
            (
                *ops,
                "op messages are lost or damaged, and may have ended transactions that are listed",
            ),
            (
                *stretches,
                "stretches of the log are damaged, and may have ended transactions that are listed",
            ),
        ];
        let counted = counted.into_iter().filter(|(count, _)| *count > 0);
        let lost = queues
            .iter()
            .map(|topic| format!("the queue of {topic} is lost: rebuild restores it"));
        let missing =
            is_log_partial.then(|| "messages of the log are missing, and may have ended transactions that are listed".to_owned());
        counted
            .map(|(count, what)| format!("{count} {what}"))
            .chain(lost)
            .chain(missing)
            .collect()
    }
}

/// The half and op messages and the log that an open has found.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    halves: Range<i64>,
    ops: Range<i64>,
    log_end: i64,
}

impl Bounds {
    pub(super) fn of(reader: &MessageReader) -> Result<Self> {
        Ok(Self {
            halves: reader.queue_bounds(HALF_TOPIC, 0)?,
            ops: reader.queue_bounds(OP_TOPIC, 0)?,
            log_end: reader.physical_bounds().end,
        })
    }
}

/// The stored progress.
#[derive(Debug, Default)]
pub(super) struct StoredProgress {
    /// The queue offset of the first half message that may be open.
    pub(super) half: i64,
    /// The queue offset of the first op message that lists one from there on.
    pub(super) op: i64,
    /// The mark, unless a broker has started since it was written.
    pub(super) mark: Option<TransactionMark>,
}

/// Finds the transactions that have ended. Returns them with the mark at which the search of the log has begun.
///
/// # Errors
/// Those of reading queues and the log.
pub(super) fn find_ended(
    reader: &Arc<MessageReader>,
    bounds: &Bounds,
    stored: StoredProgress,
) -> Result<(TransactionState, TransactionMark)> {
    let within = |offset: i64, bounds: &Range<i64>| offset.min(bounds.end).max(bounds.start);
    let mut state = TransactionState::new(within(stored.half, &bounds.halves), within(stored.op, &bounds.ops));
    for (topic, offset, queue) in [(HALF_TOPIC, stored.half, &bounds.halves), (OP_TOPIC, stored.op, &bounds.ops)] {
        if offset > 0 && queue.end == 0 && !has_files(reader, topic)? {
            state.unread.queues.push(topic);
        }
    }
    state.unread.is_log_partial = reader.recovery().missing.is_some();
    load_ops(reader, &mut state, bounds.ops.end)?;
    let open = load_halves(reader, &mut state, bounds.halves.end)?;
    // The commits before the mark may have no other trace than op messages.
    let mark = stored.mark.filter(|_| state.unread == UnreadEnds::default());
    let from = mark.as_ref().map(|mark| mark.settled_end);
    let from = from.or_else(|| open.keys().min().copied()).unwrap_or(bounds.log_end);
    if !open.is_empty() {
        let (copies, damaged) = find_copies(reader, &open, from..bounds.log_end)?;
        state.unread.stretches = damaged;
        for (half, outcome) in copies {
            state.end(half, outcome, true);
        }
    }
    let mark = TransactionMark {
        settled_end: from,
        checks: mark.map(|mark| mark.checks).unwrap_or_default(),
    };
    Ok((state, mark))
}

/// Reads the half messages from a queue offset on that are not among the ended ones. `checks` are questions beyond those that a half
/// message states.
///
/// # Errors
/// Those of reading.
pub(super) fn list_open(
    reader: &Arc<MessageReader>,
    halves: Range<i64>,
    ended: &BTreeSet<i64>,
    checks: &BTreeMap<i64, u32>,
    unread: UnreadEnds,
) -> Result<OpenHalves> {
    let on_damage = OnDamage::new(Errors::Skip);
    let scan = QueueScan::new(reader.clone(), HALF_TOPIC.to_owned(), 0, halves)?;
    let mut open = OpenHalves {
        unread,
        ..OpenHalves::default()
    };
    for message in scan.on_damage(on_damage.clone()) {
        let message = message?;
        let offset = message.view().queue_offset();
        if !ended.contains(&offset) {
            let checks = checks_of(&message.view()).saturating_add(checks.get(&offset).copied().unwrap_or(0));
            open.halves.push(OpenHalf { message, checks });
        }
    }
    open.passed_over = on_damage.skipped();
    Ok(open)
}

/// Searches the log, from the mark or the first open half message on.
///
/// # Errors
/// Those of reading.
pub(super) fn search(reader: &Arc<MessageReader>, stored: StoredProgress) -> Result<OpenHalves> {
    let bounds = Bounds::of(reader)?;
    let (state, mark) = find_ended(reader, &bounds, stored)?;
    let halves = state.half()..bounds.halves.end;
    list_open(reader, halves, &state.ended(), &mark.checks, state.unread)
}

/// Searches a stretch of the log for committed and given-up messages that name one of these half messages, by their physical offsets.
/// Returns how these have ended, and the number of damaged stretches.
///
/// # Errors
/// Those of reading the log.
pub(super) fn find_copies<T: Copy>(
    reader: &MessageReader,
    open: &HashMap<i64, T>,
    stretch: Range<i64>,
) -> Result<(Vec<(T, TransactionOutcome)>, u64)> {
    let start = stretch.start.max(reader.physical_bounds().start);
    let (mut found, mut damaged) = (Vec::new(), 0);
    if start >= stretch.end {
        return Ok((found, damaged));
    }
    // Other messages name physical offset 0, too, such as those that a broker gives up.
    let first = open.get(&0).and_then(|_| reader.message_at(0).ok());
    let is_named = |view: &MessageView<'_>| {
        view.prepared_transaction_offset() != 0 || first.as_ref().is_some_and(|first| is_copy(view, &first.view()))
    };
    let mut walk = reader.log_walk(start..stretch.end, Check::Structure);
    while let Some(walked) = walk.advance()? {
        if walked == Walked::Stop {
            damaged += u64::from(!walk.pass_damage()?.1.is_empty());
            continue;
        }
        let view = walk.view();
        let is_lost = view.is_some_and(|view| is_salvage_record(&view));
        let end = view.filter(is_named).and_then(|view| outcome_by(&view, open));
        walk.check_intact()?;
        damaged += u64::from(is_lost);
        found.extend(end);
    }
    Ok((found, damaged))
}

/// Returns true if queue 0 of a topic has a file. A reader may have been opened before the queue was made.
fn has_files(reader: &MessageReader, topic: &str) -> Result<bool> {
    let path = reader.path().join(CONSUME_QUEUE_DIR).join(topic).join("0");
    match reader.env().list(&path) {
        Ok(files) => Ok(!files.is_empty()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(Error::io("list", path, error)),
    }
}

/// Reads the op messages from the progress on, and counts those that are lost or damaged.
fn load_ops(reader: &Arc<MessageReader>, state: &mut TransactionState, end: i64) -> Result<()> {
    let on_damage = OnDamage::new(Errors::Skip);
    let scan = QueueScan::new(reader.clone(), OP_TOPIC.to_owned(), 0, state.op()..end)?;
    for op in scan.on_damage(on_damage.clone()) {
        let op = op?;
        let halves = listed(&op.view());
        let start = state.half();
        for half in halves.iter().filter(|half| **half >= start) {
            state.end(*half, TransactionOutcome::Ended, false);
        }
        state.note_op(op.view().queue_offset(), halves.iter().max().copied());
    }
    state.unread.ops = on_damage.skipped();
    Ok(())
}

/// Reads the half messages from the progress on. Returns the queue offsets of those that may be open by the physical offsets of their
/// records and of their older copies. Damaged ones are among them.
///
/// A broker stores a half message again for a question, with a higher number of questions, and may write no progress any more.
fn load_halves(reader: &Arc<MessageReader>, state: &mut TransactionState, end: i64) -> Result<HashMap<i64, i64>> {
    let scan = QueueScan::new(reader.clone(), HALF_TOPIC.to_owned(), 0, state.half()..end)?;
    let mut scan = scan.on_damage(OnDamage::new(Errors::Skip));
    let mut known: HashMap<_, VecDeque<Copies>> = HashMap::new();
    let mut offsets = HashMap::new();
    let mut again = Vec::new();
    while let Some((offset, unit)) = scan.next_entry(false)? {
        offsets.insert(unit.physical_offset, offset);
        let message = match scan.message(offset, unit) {
            Err(error) if error.is_damage() => continue,
            message => message?,
        };
        let view = message.view();
        let Some(unique_key) = view.unique_key() else { continue };
        let key = (unique_key.into_owned(), view.born_time(), view.body_crc(), real_place(&view));
        let checks = checks_of(&view);
        let of_key = known.entry(key).or_default();
        let before = of_key.iter().position(|before| before.checks < checks);
        let mut offsets = Vec::new();
        if let Some(before) = before.and_then(|before| of_key.remove(before)) {
            again.push(before.last);
            offsets = before.offsets;
        }
        offsets.push(unit.physical_offset);
        of_key.push_back(Copies {
            last: offset,
            checks,
            offsets,
        });
    }
    for offset in again {
        state.end(offset, TransactionOutcome::StoredAgain, false);
    }
    for copies in known.into_values().flatten() {
        offsets.extend(copies.offsets.into_iter().map(|offset| (offset, copies.last)));
    }
    offsets.retain(|_, offset| state.outcome(*offset).is_none());
    Ok(offsets)
}

/// The copies of a half message.
#[derive(Debug)]
struct Copies {
    /// The queue offset of the last one.
    last: i64,
    /// The number of questions that the last one states.
    checks: u32,
    /// The physical offsets of all.
    offsets: Vec<i64>,
}

/// Returns true if a message has the fields that a half message and its copies share. A retry of a committed message has its type, too.
fn is_copy(view: &MessageView<'_>, half: &MessageView<'_>) -> bool {
    let shared = |view: &MessageView<'_>| {
        let unique_key = view.unique_key().map(Cow::into_owned);
        (view.born_time(), view.body_crc(), view.reconsume_times(), unique_key)
    };
    shared(view) == shared(half)
}

/// Returns the half message that a copy in the log ends, and how.
fn outcome_by<T: Copy>(view: &MessageView<'_>, open: &HashMap<i64, T>) -> Option<(T, TransactionOutcome)> {
    let half = *open.get(&view.prepared_transaction_offset())?;
    if view.transaction() == Transaction::Commit {
        Some((half, TransactionOutcome::Committed(view.physical_offset())))
    } else {
        view.has_topic(GIVEN_UP_TOPIC).then_some((half, TransactionOutcome::GivenUp))
    }
}

/// Returns the number of questions that a half message states.
fn checks_of(view: &MessageView<'_>) -> u32 {
    let stated = view.properties().get(property::TRANSACTION_CHECK_TIMES);
    stated.and_then(|stated| stated.parse().ok()).unwrap_or(0)
}
