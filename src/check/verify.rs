//! One pass over the log, and the other files beside it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::check::context::{Context, Writer};
use crate::check::contradictions::{Decided, is_proven_by_entry};
use crate::check::finding_id::{FindingId, Severity};
use crate::check::findings::{Affected, Finding};
use crate::check::index::Keys;
use crate::check::index_files::look_at_dropped_keys;
use crate::check::last_dispatched::last_dispatched;
use crate::check::queues::Queues;
use crate::check::sections::{Agreed, ComparedSections, SectionReader};
use crate::check::small_files::{
    look_at_checkpoint, look_at_names, look_at_settings, look_at_types, look_past_end, note_kept_elsewhere,
};
use crate::check::store_times::{OutOfOrder, StoreTimes};
use crate::error::{Error, Result};
use crate::format::{ABORT_FILE, CHECKPOINT_FILE, Check, DispatchRequest, INDEX_DIR, LOCK_FILE, MessageView, is_salvage_record};
use crate::log::{ConsumeQueueStore, EntryCursor, IndexService, LogRecord, load_checkpoint};
use crate::read::{MessageReader, Throttle, Walked};
use crate::recovery::{BrokerRecovery, WriterState, expect_uncut, mark_of_log};
use crate::storage::Env;

/// Bytes after which the pass pauses.
const PAUSE: i64 = 1 << 20;
/// The most passes over a store that another process changes.
const LOOKS: usize = 4;
/// Bytes of a section: worth the change of hands, and not too much for the cache of a core.
const SECTION: i64 = 1 << 20;
/// Each thread keeps the next entries of each queue, of at most this many queues over all threads.
const MOST_KEPT: usize = 1 << 16;
/// The most entries of all queues, 12 MB, that one thread keeps.
const MOST_ENTRIES: usize = 1 << 19;

/// Errors that explain why the log ends before the mark of what was flushed.
const DAMAGED_LOG: [FindingId; 4] = [
    FindingId::LogDamagedRecord,
    FindingId::LogMissingSegment,
    FindingId::LogCutShort,
    FindingId::LogSegmentAfterEnd,
];
/// Errors of other files that an open takes for a sign of missing messages, too.
const OTHER_SIGNS: [FindingId; 3] = [
    FindingId::QueueEntryPastEnd,
    FindingId::CheckpointAhead,
    FindingId::QueueFileLength,
];

/// The options of a verification.
#[derive(Debug, Clone, Copy)]
pub struct VerifyRequest {
    /// Also the checksums of bodies, and the links of the index.
    pub deep: bool,
    /// A bound on the reading.
    pub max_bytes_per_s: Option<u64>,
    /// The number of threads that read the log; fewer with very many queues. The findings do not depend on it.
    pub threads: usize,
    /// Bytes of the log that a thread reads at once.
    pub section_bytes: i64,
}

impl Default for VerifyRequest {
    fn default() -> Self {
        Self {
            deep: true,
            max_bytes_per_s: None,
            threads: 1,
            section_bytes: SECTION,
        }
    }
}

/// The scope and the findings of a verification.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// The store.
    pub path: PathBuf,
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
    /// The physical offsets of the log that were compared.
    pub covered: Range<i64>,
    /// Messages that were compared.
    pub messages: u64,
    /// Queue entries that messages should have.
    pub queue_entries: u64,
    /// Items of the index that were compared.
    pub index_items: u64,
    /// Its duration.
    pub took: Duration,
    /// The records that name another place than their queue entry.
    pub(super) contradictions: Decided,
}

impl VerifyRequest {
    /// Returns the part of a record that is compared.
    fn check(self) -> Check {
        if self.deep { Check::Whole } else { Check::Structure }
    }
}

impl VerifyReport {
    /// Returns true if all findings are notes.
    pub fn is_ok(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }

    /// Keeps notes, and findings that the earlier attempt also had in the same file.
    fn keep_what_stays(&mut self, earlier: &Self) {
        let known: BTreeSet<_> = earlier.findings.iter().map(|finding| (finding.id, &finding.file)).collect();
        self.findings
            .retain(|finding| finding.severity == Severity::Note || known.contains(&(finding.id, &finding.file)));
    }
}

/// Compares log, queues, index, checkpoint and settings with each other and with the format, in one pass over the log. It compares
/// the store of the reader as it is now, also if a writer has changed it since the reader was opened. Beside a live writer of another
/// process it covers the log up to its end at the start of the call. Calls `progress` with the bytes that were read so far, and the
/// total.
///
/// # Errors
/// [`Error::Io`], [`Error::Corrupt`] for files that are cut short during the pass, [`Error::LogCut`] if a slave cuts the log during each of
/// several passes, those of [`MessageReader::open`], what [`interrupt::check`](crate::interrupt::check) and `progress` return. Damage is a
/// finding.
pub fn verify(
    env: &Arc<dyn Env>,
    reader: &MessageReader,
    request: VerifyRequest,
    mut progress: impl FnMut(i64, i64) -> Result<()>,
) -> Result<VerifyReport> {
    let started = Instant::now();
    let mut looks = 1;
    let mut earlier: Option<VerifyReport> = None;
    loop {
        let before = WriterState::read(env.as_ref(), reader.path())?;
        let reopened = reader.reopened(env)?;
        let looked = look(env, reopened.as_ref().unwrap_or(reader), request, started, &mut progress);
        if may_be_of_a_cut(&looked)
            && let Err(cut) = expect_uncut(env.as_ref(), reader.path(), before.replica.cuts)
        {
            // The look has compared files of two logs.
            if looks >= LOOKS {
                return Err(cut);
            }
            earlier = None;
            looks += 1;
            continue;
        }
        match looked {
            // A broker has removed an index file since it was listed.
            Err(error) if error.is_missing_file() && looks < LOOKS => looks += 1,
            Ok(mut found) => {
                let after = WriterState::read(env.as_ref(), reader.path())?;
                let is_live = before.is_written_to && after.is_written_to;
                // What no writer disturbed is damage.
                if found.is_ok() || (!is_live && before == after) {
                    return Ok(found);
                }
                match &earlier {
                    Some(earlier) if is_live || looks >= LOOKS => {
                        found.keep_what_stays(earlier);
                        return Ok(found);
                    }
                    None if looks >= LOOKS => return Ok(found),
                    _ => {}
                }
                earlier = Some(found);
                looks += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns true for the results of a look that a cut of the log during it explains.
fn may_be_of_a_cut(looked: &Result<VerifyReport>) -> bool {
    match looked {
        Ok(_) => true,
        Err(error) => matches!(error, Error::LogCut { .. } | Error::Corrupt { .. }) || error.is_missing_file(),
    }
}

fn look(
    env: &Arc<dyn Env>,
    reader: &MessageReader,
    request: VerifyRequest,
    started: Instant,
    progress: &mut impl FnMut(i64, i64) -> Result<()>,
) -> Result<VerifyReport> {
    let (root, config, log) = (reader.path(), reader.config(), reader.log());
    let mut context = context_of(env.as_ref(), reader)?;
    let goes_past_end = goes_past_end(reader, &context)?;
    if goes_past_end {
        context.bounds.end = log.files_end();
    }
    look_at_names(env.as_ref(), &mut context)?;
    let queues = ConsumeQueueStore::load(env.clone(), root, config.mapped_file_size_consume_queue)?;
    let index = IndexService::load(env, &root.join(INDEX_DIR), config.index_geometry(), None)?;
    // What has expired since the log was listed has no queue file and no index file any more.
    log.list_again(context.bounds.end)?;
    look_at_types(env.as_ref(), &queues, &mut context)?;
    note_kept_elsewhere(env.as_ref(), &queues, &mut context)?;
    look_at_settings(env.as_ref(), reader, &queues, &mut context)?;
    let (levels, check) = (config.delay_levels()?, request.check());
    let file_queues = queues.file_queues();
    let at_once = (MOST_ENTRIES / file_queues.len().max(1)).clamp(1, EntryCursor::MAX_AT_ONCE as usize) as i64;
    let compared = Queues::new(&queues, at_once, levels.clone(), &mut context);
    let checkpoint = load_checkpoint(env.as_ref(), &root.join(CHECKPOINT_FILE))?;
    if context.writer == Writer::Crashed {
        context.brokers = Some(BrokerRecovery::of_crashed(log, &checkpoint)?);
    }
    let keys = Keys::new(&index, request.deep, &mut context)?;
    let files = keys.files();
    look_at_dropped_keys(&files, &checkpoint, &mut context)?;
    let threads = count_threads(request, file_queues.len());
    let mut pass = LogCheck {
        queues: compared,
        keys,
        context,
        reader,
        check,
        throttle: request.max_bytes_per_s.map(Throttle::new),
        goes_past_end,
        progress,
        paused_at: reader.physical_bounds().start,
        messages: 0,
        store_times: StoreTimes::new(env.now_ms()),
    };
    let section_reader = || SectionReader::new(log, check, &levels, &file_queues, at_once, &files);
    let bounds = pass.context.bounds.clone();
    ComparedSections::run(log, &bounds, request.section_bytes, threads, section_reader, |sections| {
        pass.run(sections)
    })?;
    let last_store_time = pass.finish_store_times();
    let (mut context, messages) = (pass.context, pass.messages);
    let queue_entries = pass.queues.finish(&mut context)?;
    let index_items = pass.keys.finish(&mut context)?;
    look_past_end(&mut context)?;
    look_at_checkpoint(env.as_ref(), last_store_time, &mut context)?;
    add_missing(env.as_ref(), reader, &mut context)?;
    let contradictions = context.contradictions.decide(reader, &queues, context.bounds.end)?;
    Ok(VerifyReport {
        path: root.to_owned(),
        covered: context.bounds.clone(),
        findings: context.into_findings(&contradictions),
        contradictions,
        messages,
        queue_entries,
        index_items,
        took: started.elapsed(),
    })
}

/// Begins a look at the store of a reader. Queues are listed after it.
fn context_of<'a>(env: &dyn Env, reader: &'a MessageReader) -> Result<Context<'a>> {
    let mut context = Context::of(reader, writer_of(env, reader.path())?);
    if context.writer == Writer::Live {
        context.last_dispatched = last_dispatched(env, reader)?;
    }
    Ok(context)
}

/// Returns the number of threads that read sections.
fn count_threads(request: VerifyRequest, queues: usize) -> usize {
    let most = match request.max_bytes_per_s {
        // Others would read ahead of what is bounded.
        Some(_) => 1,
        None => MOST_KEPT / queues.max(1),
    };
    request.threads.clamp(1, most.max(1))
}

/// Adds what the reader knows of missing messages, unless an error explains it. An end of the log that no damaged stretch explains is damage
/// that only an open looks for, such as a body that differs from its checksum.
fn add_missing(env: &dyn Env, reader: &MessageReader, context: &mut Context<'_>) -> Result<()> {
    let has_error = |ids: &[FindingId]| ids.iter().any(|id| context.findings().has_error(*id));
    let ends_before_mark = mark_of_log(env, context.root)?.is_some_and(|flushed| flushed > context.bounds.end);
    let is_known = has_error(&DAMAGED_LOG) || (!ends_before_mark && has_error(&OTHER_SIGNS));
    let end = reader.physical_bounds().end;
    let is_end_known = end >= context.bounds.end || context.is_damaged(end, Affected::default);
    if let Some(missing) = reader.recovery().missing.as_ref().filter(|_| !is_known || !is_end_known) {
        let (path, position) = context.log.path_of(end);
        context.add(Finding::new(FindingId::LogEndsEarly, &path, position, missing.what.clone()));
    }
    Ok(())
}

fn writer_of(env: &dyn Env, root: &Path) -> Result<Writer> {
    let lock = root.join(LOCK_FILE);
    if env
        .is_locked(&lock)
        .map_err(|error| Error::io("query the lock of", &lock, error))?
    {
        return Ok(Writer::Live);
    }
    let entries = env.list(root).map_err(|error| Error::io("list", root, error))?;
    let is_open = entries.iter().any(|entry| entry.name == ABORT_FILE);
    Ok(if is_open { Writer::Crashed } else { Writer::Closed })
}

/// Returns true if damage has ended the log, and not the last append: then the bytes after it are verified, too.
fn goes_past_end(reader: &MessageReader, context: &Context<'_>) -> Result<bool> {
    let (log, end) = (reader.log(), context.bounds.end);
    let is_missing = reader.recovery().missing.is_some();
    match context.writer {
        Writer::Live => return Ok(false),
        Writer::Crashed => return Ok(is_missing),
        Writer::Closed => {}
    }
    Ok(match log.read(end, Check::Whole)? {
        LogRecord::Corrupt(_) => true,
        LogRecord::NoRecord(_) | LogRecord::Missing if is_missing => true,
        _ => reader
            .record_starts()
            .next_record(end, end + 1, reader.recovery().stale_before)?
            .is_some(),
    })
}

/// The state of one pass over the log.
struct LogCheck<'a, T> {
    context: Context<'a>,
    reader: &'a MessageReader,
    queues: Queues<'a>,
    keys: Keys,
    check: Check,
    throttle: Option<Throttle>,
    /// The end of the log is where no record follows any more.
    goes_past_end: bool,
    progress: T,
    paused_at: i64,
    messages: u64,
    store_times: StoreTimes,
}

impl<T: FnMut(i64, i64) -> Result<()>> LogCheck<'_, T> {
    fn run(&mut self, sections: &mut ComparedSections<'_, '_>) -> Result<()> {
        let mut at = self.context.bounds.start;
        while let Some((section, agreed)) = sections.next()? {
            let agreed = agreed.filter(|agreed| agreed.stretch.start == at);
            at = match agreed {
                Some(agreed) if self.take_agreed(&agreed)? => agreed.stretch.end,
                _ => match self.walk(at, section.end)? {
                    Some(next) => next,
                    None => break,
                },
            };
            self.pause(at)?;
        }
        let Range { start, end } = self.context.bounds;
        (self.progress)(end - start, end - start)
    }

    /// Skips a section that agrees as a whole; `false` if it does not agree with the entries before it.
    fn take_agreed(&mut self, agreed: &Agreed) -> Result<bool> {
        let Some(times) = agreed.store_times else {
            return Ok(false);
        };
        let agrees = self.store_times.are_followed_by_all(times, agreed.messages)
            && self.queues.are_next(&agreed.queues)
            && self.keys.take_agreed(&agreed.items, agreed.stretch.end, &mut self.context)?;
        if agrees {
            self.queues.take_agreed(&agreed.queues);
            self.messages += agreed.messages;
            self.store_times.take_agreed(times.1);
        }
        Ok(agrees)
    }

    /// Compares the records from `from` up to `until` one by one, and returns where the next one starts; `None` if the log ends before it.
    fn walk(&mut self, from: i64, until: i64) -> Result<Option<i64>> {
        if from >= until {
            return Ok(Some(from));
        }
        let mut walk = self.reader.log_walk(from..until, self.check);
        while let Some(walked) = walk.advance()? {
            match walked {
                Walked::Record => {
                    let Some(view) = walk.view() else { break };
                    self.compare(&view)?;
                    // The bytes that were compared may be zeros of a page that was lost since.
                    walk.check_intact()?;
                    self.pause(walk.position())?;
                }
                Walked::Stop => {
                    let Some(stop) = walk.stop() else { break };
                    match self.pass_over(walk.position(), stop)? {
                        Some(next) => walk.resume_at(next),
                        None => return Ok(None),
                    }
                }
            }
        }
        Ok(Some(walk.position()))
    }

    fn pause(&mut self, at: i64) -> Result<()> {
        if at - self.paused_at < PAUSE {
            return Ok(());
        }
        if let Some(throttle) = &mut self.throttle {
            throttle.wait((at - self.paused_at).unsigned_abs())?;
        }
        self.paused_at = at;
        let Range { start, end } = self.context.bounds;
        (self.progress)(at - start, end - start)
    }

    /// Compares queue and index with a message.
    #[inline]
    fn compare(&mut self, view: &MessageView<'_>) -> Result<()> {
        if is_salvage_record(view) {
            self.add_lost(view);
            return Ok(());
        }
        self.messages += 1;
        let out_of_order = self.store_times.take(view);
        self.add_out_of_order(out_of_order);
        let dispatched = DispatchRequest::of(view);
        self.queues.compare(view, &dispatched, &mut self.context)?;
        self.keys.compare(view, &dispatched, &mut self.context)
    }

    /// Reports what is wrong at an offset without a whole record. Returns the start of the next record; `None` if the log ends there.
    fn pass_over(&mut self, at: i64, found: &LogRecord<()>) -> Result<Option<i64>> {
        let log = self.context.log;
        let end = self.context.bounds.end;
        if let (LogRecord::Corrupt(error), LogRecord::Message(message)) = (found, log.read(at, Check::Structure)?) {
            // The lengths fit, and a checksum does not: the rest of the record can be compared.
            let view = message.view();
            if is_proven_by_entry(&view, self.queues.store)? {
                return Ok(Some(view.end()));
            }
            self.add_damaged(at..view.end(), error, Affected::of(&view));
            if view.has_queue_entry() {
                self.context.is_damaged(at, || Affected::of(&view));
            }
            self.compare(&view)?;
            return Ok(Some(view.end()));
        }
        let (damage, next) = self.reader.past_damage(at, found, end)?;
        let is_end = match found {
            LogRecord::Corrupt(_) => false,
            LogRecord::NoRecord(_) => self.reader.recovery().missing.is_none(),
            _ => true,
        };
        if self.goes_past_end && next >= end && is_end {
            self.context.bounds.end = at;
            return Ok(None);
        }
        if let Some(damage) = damage {
            let is_missing = matches!(found, LogRecord::Missing);
            if is_missing {
                let (path, position) = log.path_of(at);
                let what = format!("no segment holds the physical offsets from {at} to {next}");
                let finding = Finding::new(FindingId::LogMissingSegment, &path, position, what);
                self.context.add_damaged(at..next, finding);
            } else {
                self.add_damaged(at..next, &damage, Affected::default());
            }
        }
        Ok(Some(next.min(end)))
    }

    fn add_damaged(&mut self, stretch: Range<i64>, damage: &Error, affected: Affected) {
        let (path, position, what) = match damage {
            Error::Corrupt {
                path, offset, reason, ..
            } => (path.clone(), *offset, reason.clone()),
            other => {
                let (path, position) = self.context.log.path_of(stretch.start);
                (path, position, other.text().to_string())
            }
        };
        let what = format!("physical offsets {} to {}: {what}", stretch.start, stretch.end);
        let finding = Finding::new(FindingId::LogDamagedRecord, &path, position, what);
        self.context.add_damaged(stretch, finding.of(affected));
    }

    /// Adds the finding of a salvage record. Index items of the lost messages may lead to it.
    #[cold]
    fn add_lost(&mut self, view: &MessageView<'_>) {
        let (path, position) = self.context.log.path_of(view.physical_offset());
        let what = format!("a salvage record of {} bytes", view.size());
        let finding = Finding::new(FindingId::LogLostMessages, &path, position, what);
        self.context.add_damaged(view.physical_offset()..view.end(), finding);
    }

    /// Compares the last store time with the clock. Returns the latest store time.
    fn finish_store_times(&mut self) -> Option<i64> {
        let (latest, out_of_order) = self.store_times.finish();
        self.add_out_of_order(out_of_order);
        latest
    }

    fn add_out_of_order(&mut self, found: impl IntoIterator<Item = OutOfOrder>) {
        for OutOfOrder { id, at, what, affected } in found {
            let (path, position) = self.context.log.path_of(at);
            self.context.add(Finding::new(id, &path, position, what).of(affected));
        }
    }
}
