//! The start of the log scan of an open: docs/FORMAT.md, "Start and recovery".

use crate::error::Result;
use crate::format::{Check, CqUnit};
use crate::log::{ConsumeQueueStore, LogFiles, LogRecord, StoredMessage};
use crate::recovery::store_state::StoreState;

/// Returns the physical offset from which every record is read. A record starts there. No message before it is missing in the queues, and
/// none has a key that is missing in the index. `index_from` is the first message of which a key may be missing. After a crash,
/// everything before it is on disk, as the checkpoint says.
pub(super) fn scan_start(store: &StoreState<'_>, index_from: i64) -> Result<i64> {
    let StoreState { log, check, .. } = *store;
    if store.intent.is_salvage() || store.intent.is_rebuild() || has_other_entries(store)? {
        return Ok(log.first_offset());
    }
    let mut start = match store.intent.cut_at() {
        Some(cut) => newest_start(log, cut, check)?,
        None => start_by_queues(store)?,
    };
    if index_from < start {
        start = start.min(start_by_index(log, index_from, check)?);
    }
    if !store.records.shutdown.is_clean() {
        start = start.min(match last_stamped(store)? {
            Some(last) => last.view().end(),
            None => start_by_time(log, store.records.checkpoint.min_timestamp(), check)?,
        });
    }
    Ok(start)
}

/// Returns true if the number of queue entries up to the message of our stamp differs from the number in the stamp. Then a queue file was
/// removed, or a torn entry leads to a wrong offset. In a queue that got no message since, nothing else shows that. Where a broker
/// has closed the store, a queue whose directory has no file does.
fn has_other_entries(store: &StoreState<'_>) -> Result<bool> {
    let StoreState { log, queues, .. } = *store;
    let checkpoint = store.records.checkpoint;
    let Some(known) = checkpoint.queue_entries(log.first_offset()) else {
        return Ok(store.records.shutdown.is_clean() && queues.has_queue_without_file());
    };
    // No message came after the stamp of a clean exit.
    let until = (!store.records.shutdown.is_clean()).then_some(checkpoint.logics_physical_offset);
    Ok(queues.count_entries(until)? != known)
}

/// Returns the message of our stamp: it and all messages before it are on disk and in their queues. `None` for a broker's stamps, which are
/// times and leave a margin.
pub(super) fn last_stamped(store: &StoreState<'_>) -> Result<Option<StoredMessage>> {
    let StoreState { log, check, .. } = *store;
    let checkpoint = store.records.checkpoint;
    if !checkpoint.is_ours() {
        return Ok(None);
    }
    Ok(match log.read(checkpoint.logics_physical_offset, check)? {
        // It is another message if the checkpoint is of another history of this log.
        LogRecord::Message(message) => Some(message).filter(|last| last.view().store_time() == checkpoint.physic_msg_timestamp),
        _ => None,
    })
}

/// Returns the end of the furthest message that a queue entry names, if that message is whole. Otherwise the start of the newest segment at
/// or before that end that begins with a whole record.
fn start_by_queues(store: &StoreState<'_>) -> Result<i64> {
    let StoreState { log, queues, check, .. } = *store;
    if queues.rocksdb().is_some() || queues.has_only_batch_queues() {
        return newest_start(log, i64::MAX, check);
    }
    let Some(last) = last_unit(queues)? else {
        return Ok(log.first_offset());
    };
    if let LogRecord::Message(message) = log.read(last.physical_offset, check)?
        && message.view().size() as i32 == last.size
    {
        return Ok(last.end());
    }
    newest_start(log, last.end(), check)
}

/// Returns the queue entry whose message ends furthest in the log.
pub(crate) fn last_unit(queues: &ConsumeQueueStore) -> Result<Option<CqUnit>> {
    let mut furthest: Option<CqUnit> = None;
    for (_, _, queue) in queues.file_queues() {
        let last = queue.last_unit()?;
        furthest = furthest.into_iter().chain(last).max_by_key(|unit| unit.end());
    }
    Ok(furthest)
}

fn start_by_index(log: &LogFiles, index_from: i64, check: Check) -> Result<i64> {
    let is_start = index_from == log.first_offset() || matches!(log.read(index_from, check)?, LogRecord::Message(_));
    if is_start {
        Ok(index_from)
    } else {
        newest_start(log, index_from, check)
    }
}

/// Returns the start of the newest segment at or before `until` that begins with a whole record; otherwise the first segment.
fn newest_start(log: &LogFiles, until: i64, check: Check) -> Result<i64> {
    newest(log, check, |start| Ok(start <= until))
}

/// Returns the start of the newest segment that begins with a whole record stored at `until` or before. Only the store time of the other
/// segments is read: there may be hundreds.
fn start_by_time(log: &LogFiles, until: i64, check: Check) -> Result<i64> {
    let wanted = |start| Ok(log.claimed_store_time(start)?.is_some_and(|time| time != 0 && time <= until));
    newest(log, check, wanted)
}

fn newest(log: &LogFiles, check: Check, wanted: impl Fn(i64) -> Result<bool>) -> Result<i64> {
    for start in log.starts().rev() {
        if wanted(start)? && matches!(log.read(start, check)?, LogRecord::Message(_)) {
            return Ok(start);
        }
    }
    Ok(log.first_offset())
}
