//! What a reader and a writer open: the files of a store, recovered in memory. For a writer there is also the plan that makes the
//! disk agree.
//!
//! Nothing here changes a file. [`crate::recovery::apply`] does.

use std::path::Path;
use std::sync::Arc;

use crate::config::{FlushDiskType, Recovery, Sizes, StoreConfig};
use crate::error::{Error, Result};
use crate::format::{Checkpoint, IndexGeometry};
use crate::log::{ConsumeQueueStore, IndexService, KeptIndex, LastWriter, LogFiles};
use crate::recovery::broker_recovery::{BrokerRecovery, RecoveredQueue};
use crate::recovery::decision::{expect_recoverable, find_cut, find_missing};
use crate::recovery::index_end::{IndexStart, estimate_index_start, find_index_start};
use crate::recovery::opened::Opened;
use crate::recovery::plan::{RecoveryPlan, RecoveryReport, plan};
use crate::recovery::recovery_note::RecoveryNote;
use crate::recovery::store_files::StoreFiles;
use crate::recovery::writer_state::{WriterState, is_closed};
use crate::storage::Env;

/// The files of a store, recovered in memory: queues and index agree with the log up to its end.
pub(crate) struct Recovered {
    pub(crate) log: Arc<LogFiles>,
    pub(crate) queues: Arc<ConsumeQueueStore>,
    pub(crate) index: Arc<IndexService>,
    /// The record starts that the mark and the stamp named when the store was opened.
    pub(crate) last_writer: LastWriter,
    /// What was found.
    pub(crate) report: RecoveryReport,
}

impl Recovered {
    fn of(last_writer: LastWriter, files: StoreFiles, report: RecoveryReport) -> Self {
        Self {
            last_writer,
            log: files.log,
            queues: files.queues,
            index: files.index,
            report,
        }
    }
}

/// How a writer goes on with what was found.
pub(crate) struct WritePlan {
    /// The sizes of the files that the writer makes.
    pub(crate) sizes: Sizes,
    /// What is kept of the index.
    pub(crate) kept_index: KeptIndex,
    /// The first message of which a key may be missing in it.
    pub(crate) index_from: i64,
    /// From this physical offset on the log and the queue entries of its messages are written again, because they may be in memory only;
    /// `None` if everything is on disk.
    pub(crate) rewrite_from: Option<i64>,
    /// Whether queues, index and checkpoint are made anew: every queue entry is written again.
    pub(crate) is_rebuilt: bool,
    /// Every byte of the log below this physical offset is on disk all the same. Queue entries of its messages may not be.
    pub(crate) on_disk_until: i64,
    /// The claim that stays; `None` if the log is claimed from its end on.
    pub(crate) own_from: Option<i64>,
    /// With `SYNC_FLUSH` the writer shows only what is flushed.
    pub(crate) flush_disk_type: FlushDiskType,
    /// The recovery note to write before the first change; `None` if recovery changes nothing.
    pub(crate) note: Option<RecoveryNote>,
    /// Past it every byte of the log is zero.
    pub(crate) written_until: i64,
    /// There is a recovery note, valid or not.
    pub(crate) is_noted: bool,
    /// Whether an earlier recovery has not ended: what it wrote can be read, and may not be on disk.
    pub(crate) is_redone: bool,
    /// The stamps that replace those on disk; `None` if those stay. A stamp in the future is replaced, because it would one day cover
    /// messages that came after it. So is a stamp that a salvage makes invalid.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// The store time up to which the checkpoint covers messages.
    pub(crate) covered_time: i64,
}

/// Opens the files of the store in the directory `path`, and recovers them in memory.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for an option, [`crate::error::Error::Corrupt`] for files that cannot belong together,
/// [`crate::error::Error::Io`].
pub(crate) fn open_for_reading(env: &Arc<dyn Env>, path: &Path, config: &StoreConfig) -> Result<Recovered> {
    let mut looks = 1;
    loop {
        let state = WriterState::read(env.as_ref(), path)?;
        let looked = look(env, path, config, state);
        if looks == LOOKS || is_consistent(env.as_ref(), path, &state, &looked)? {
            return Ok(looked?.0);
        }
        looks += 1;
    }
}

/// Bounds the looks at a store that another process changes all the time.
const LOOKS: usize = 8;

/// Returns false if another process may have changed the store during the look: files that were read before and after a writer was
/// opened or closed contradict each other, and so may what a broker has removed since the plan was made.
fn is_consistent(env: &dyn Env, path: &Path, before: &WriterState, looked: &Result<(Recovered, u64)>) -> Result<bool> {
    let is_doubtful = match looked {
        Ok((recovered, removals)) if recovered.log.removals() != *removals => return Ok(false),
        Ok((recovered, _)) => recovered.report.missing.is_some(),
        Err(error) => matches!(error, Error::Corrupt { .. } | Error::Io { .. } | Error::Invalid { .. }),
    };
    if is_doubtful {
        return Ok(WriterState::read(env, path)? == *before);
    }
    // A reader of a closed store shows what no writer has made durable yet.
    Ok(looked.is_err() || !before.clean || is_closed(env, path)?)
}

/// Opens the files once. Returns also the number of removals on which the plan is based.
fn look(env: &Arc<dyn Env>, path: &Path, config: &StoreConfig, state: WriterState) -> Result<(Recovered, u64)> {
    let files = StoreFiles::load(env, path, config, state)?;
    let shown_until = files.shown_until(env.as_ref(), path)?;
    let unfinished = unfinished_recovery(env.as_ref(), path, &files)?;
    let opened = Opened {
        shown_until,
        closed_at: unfinished.and_then(|note| note.closed_at),
        is_written_to: files.is_written_to(env.as_ref(), path)?,
        ..files.opened(config, None)
    };
    let (plan, removals) = loop {
        let removals = files.log.removals();
        let plan = plan(&opened)?;
        // A broker may remove a segment after it was listed. That is no hole in the log: the log starts later now.
        if files.log.removals() == removals {
            break (plan, removals);
        }
    };
    let lost = if opened.clean || opened.is_written_to {
        (0, 0)
    } else {
        count_lost_by_brokers(&files, &plan)?
    };
    // The plan leaves out the queue entries past the end, which show where records start.
    let cut = find_cut(&opened, &plan.report)?;
    let mut report = plan.apply_in_memory(&opened)?;
    (report.lost_by_brokers, report.keys_lost_by_brokers) = lost;
    report.missing = find_missing(&opened, &report)?.or(cut);
    if report.clean_exit {
        files.log.settle(report.log_end);
    }
    Ok((Recovered::of(opened.last_writer(), files, report), removals))
}

/// Returns the note of a recovery that has not ended. A clean exit shows that a writer has recovered the store since a note was written.
fn unfinished_recovery(env: &dyn Env, path: &Path, files: &StoreFiles) -> Result<Option<RecoveryNote>> {
    if files.state.clean {
        return Ok(None);
    }
    RecoveryNote::load(env, path)
}

/// Counts the messages of the plan, and the keys, that the recovery of a broker would not bring back.
fn count_lost_by_brokers(files: &StoreFiles, plan: &RecoveryPlan) -> Result<(u64, u64)> {
    let recovery = BrokerRecovery::of_crashed(&files.log, &files.state.found)?;
    let mut messages = 0;
    for ((topic, queue_id), tail) in &plan.undispatched {
        let queue = files.queues.queue(topic, *queue_id).ok().flatten();
        let written = queue.map(|queue| queue.written()).filter(|written| !written.is_empty());
        let mut recovered = RecoveredQueue::new(written.map(|written| written.end));
        for (offset, unit) in tail.iter() {
            messages += u64::from(!recovered.dispatch(&recovery, unit.physical_offset, offset).is_empty());
        }
    }
    let keys = files
        .index
        .count_keys(files.state.found.index_msg_timestamp, recovery.start())?;
    Ok((messages, keys))
}

/// Opens the files of a store that this process is going to write to, and says how it goes on.
///
/// # Errors
/// As [`open_for_reading`]; [`crate::error::Error::Corrupt`] for what a writer must not touch,
/// [`crate::error::Error::Unsupported`].
pub(crate) fn open_for_writing(
    env: &Arc<dyn Env>,
    path: &Path,
    config: &StoreConfig,
    sizes: Sizes,
    is_rebuilt: bool,
) -> Result<(Recovered, WritePlan)> {
    config.validate()?;
    let files = StoreFiles::load(env, path, config, WriterState::read(env.as_ref(), path)?)?;
    files.queues.expect_writable(is_rebuilt)?;
    let note = RecoveryNote::load(env.as_ref(), path)?;
    let unfinished = note.filter(|_| !files.state.clean);
    let opened = Opened {
        is_rebuilt,
        closed_at: unfinished.and_then(|note| note.closed_at),
        ..files.opened(config, None)
    };
    let (plan, index_start) = plan_with_index(&files, &opened, sizes.index)?;
    let unsynced_from = plan.unsynced_from;
    let mut report = plan.apply_in_memory(&opened)?;
    files.queues.expect_directories()?;
    let closed_at = if report.clean_exit {
        Some(report.log_end)
    } else {
        opened.closed_at
    };
    expect_recoverable(&Opened { closed_at, ..opened }, &report)?;
    report.missing = find_missing(&opened, &report)?;
    let written_until = files.log.written_until(report.log_end)?;
    report.bytes_cut = (written_until - report.log_end) as u64;
    let rewrite_from = unfinished.map_or(unsynced_from, |note| note.rewrite_from.min(unsynced_from));
    let rewrite_from = if opened.is_on_disk() {
        is_rebuilt.then_some(report.log_end)
    } else {
        Some(rewrite_from)
    };
    let is_changed = rewrite_from.is_some() || written_until > report.log_end || files.index.is_changed_by(index_start.kept);
    // After a clock was set back, a stamp in the future is right if a message has its time.
    let mut stamps = files.state.found.ignoring_future(env.now_ms().max(report.last_store_time));
    if config.recovery == Recovery::Salvage {
        stamps = stamps.of_another_history(report.last_store_time);
    }
    if is_rebuilt {
        stamps = stamps.without_index().of_another_history(report.last_store_time);
    }
    let plan = WritePlan {
        sizes,
        kept_index: index_start.kept,
        index_from: index_start.from,
        rewrite_from,
        is_rebuilt,
        note: is_changed.then_some(RecoveryNote {
            rewrite_from: rewrite_from.unwrap_or(report.log_end),
            closed_at,
        }),
        // What an unfinished recovery, or a salvage, has written may not be on disk.
        on_disk_until: opened
            .flushed
            .filter(|_| unfinished.is_none() && !opened.is_salvage())
            .unwrap_or(0),
        flush_disk_type: config.flush_disk_type,
        own_from: files.state.claim.filter(|from| *from <= report.log_end),
        written_until: unfinished.map_or(written_until, |_| files.log.files_end()),
        is_noted: note.is_some(),
        is_redone: unfinished.is_some(),
        checkpoint: Some(stamps).filter(|stamps| *stamps != files.state.found),
        covered_time: stamps.physic_msg_timestamp.min(report.last_store_time),
    };
    Ok((Recovered::of(opened.last_writer(), files, report), plan))
}

/// The plan for a writer, whose scan starts early enough for every key that the index lacks.
fn plan_with_index(files: &StoreFiles, opened: &Opened<'_>, geometry: IndexGeometry) -> Result<(RecoveryPlan, IndexStart)> {
    let StoreFiles {
        log, index, checkpoint, ..
    } = files;
    if opened.is_rebuilt {
        let kept = KeptIndex::default();
        let from = log.first_offset();
        let opened = Opened {
            index_from: Some(from),
            ..*opened
        };
        return Ok((plan(&opened)?, IndexStart { kept, from }));
    }
    index.expect_geometry(geometry)?;
    let mut index_from = estimate_index_start(log, index, checkpoint, geometry)?;
    loop {
        let plan = plan(&Opened {
            index_from: Some(index_from),
            ..*opened
        })?;
        let start = find_index_start(log, index, checkpoint, geometry, plan.report.log_end)?;
        if start.from >= plan.report.scan_start {
            return Ok((plan, start));
        }
        // An index file cannot be used after all, so the messages of its keys have to be read, too.
        index_from = start.from;
    }
}
