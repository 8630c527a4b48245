//! Opens for reading and for writing: the files of a store, recovered in memory. For a writer there is also the plan that makes the
//! disk agree.
//!
//! An open changes no file before [`Unrecovered::recover`].

use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::config::{Sizes, StoreConfig};
use crate::error::{Error, Result};
use crate::format::{IndexGeometry, NO_OWN_RECORDS};
use crate::log::{KeptIndex, LastWriter};
use crate::recovery::broker_recovery::{BrokerRecovery, RecoveredQueue};
use crate::recovery::decision::{expect_recoverable, find_cut_off, find_missing};
use crate::recovery::index_end::{IndexStart, estimate_index_start, find_index_start};
use crate::recovery::plan::{RecoveryPlan, RecoveryReport, plan};
use crate::recovery::recovery_note::RecoveryNote;
use crate::recovery::replica_note::{Cuts, expect_uncut, uncut_env};
use crate::recovery::store_files::StoreFiles;
use crate::recovery::store_state::{Exit, Intent, Opener, StoreState};
use crate::recovery::unrecovered::{Recovered, Unrecovered};
use crate::recovery::write_plan::{Facts, WritePlan};
use crate::recovery::writer_state::{WriterState, is_closed};
use crate::storage::Env;

/// Opens the files of the store in the directory `path`, and recovers them in memory.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for an option, [`crate::error::Error::Corrupt`] for files that cannot belong together,
/// [`crate::error::Error::Io`].
pub(crate) fn open_for_reading(env: &Arc<dyn Env>, path: &Path, config: &StoreConfig) -> Result<Recovered> {
    let mut looks = 1;
    loop {
        let state = WriterState::read(env.as_ref(), path)?;
        let looked = look_uncut(env, path, config, state);
        if looks == LOOKS || is_consistent(env.as_ref(), path, &state, &looked)? {
            return Ok(looked?.0);
        }
        looks += 1;
    }
}

/// An index from which no key is missing: a reader puts none into it.
const NO_KEY: i64 = i64::MAX;
/// Bounds the attempts to read a store that another process changes all the time.
const LOOKS: usize = 8;

/// Returns false if another process may have changed the store during the attempt: files that were read before and after a writer was
/// opened or closed contradict each other, and so may what a broker has removed since the plan was made.
fn is_consistent(env: &dyn Env, path: &Path, before: &WriterState, looked: &Result<(Recovered, u64)>) -> Result<bool> {
    let is_doubtful = match looked {
        Ok((recovered, removals)) if recovered.log.removals() != *removals => return Ok(false),
        Ok((recovered, _)) => recovered.report.missing.is_some(),
        Err(error) => matches!(
            error,
            Error::Corrupt { .. } | Error::Io { .. } | Error::Invalid { .. } | Error::LogCut { .. }
        ),
    };
    if is_doubtful {
        return Ok(WriterState::read(env, path)? == *before);
    }
    // A reader of a closed store shows what no writer has made durable yet.
    Ok(looked.is_err() || !before.clean || is_closed(env, path)?)
}

/// Opens the files once, and expects that no slave has cut the log during that. Later each name is checked by itself.
fn look_uncut(env: &Arc<dyn Env>, path: &Path, config: &StoreConfig, state: WriterState) -> Result<(Recovered, u64)> {
    let (cuts, opened) = (state.replica.cuts, Arc::<OnceLock<Cuts>>::default());
    let looked = look(&uncut_env(env, path, &opened), path, config, state)?;
    opened.get_or_init(|| cuts);
    expect_uncut(env.as_ref(), path, cuts)?;
    Ok(looked)
}

/// Opens the files once. Returns also the number of removals on which the plan is based.
fn look(env: &Arc<dyn Env>, path: &Path, config: &StoreConfig, state: WriterState) -> Result<(Recovered, u64)> {
    let files = StoreFiles::load(env, path, config, state)?;
    let shown_until = files.shown_until(env.as_ref(), path)?;
    // A clean exit shows that a writer has recovered the store since a note was written.
    let note = if files.state.clean {
        None
    } else {
        RecoveryNote::load(env.as_ref(), path)?
    };
    let opener = Opener::Reader {
        is_written_to: files.is_written_to(env.as_ref(), path)?,
        shown_until,
    };
    let records = files.records(files.state.exit(), note);
    let store = StoreState::new(files.families(), records, opener, Intent::of(config.recovery), config);
    let (plan, removals) = loop {
        let removals = files.log.removals();
        let plan = plan(&store, NO_KEY)?;
        // A broker may remove a segment after it was listed. That is not a hole in the log: the log starts later now.
        if files.log.removals() == removals {
            break (plan, removals);
        }
    };
    let lost = if store.records.shutdown.is_clean() || store.is_written_to() {
        (0, 0)
    } else {
        count_lost_by_brokers(&files, &plan)?
    };
    // The plan leaves out the queue entries past the end, which show where records start.
    let cut_off = find_cut_off(&store, &plan.report)?;
    let mut report = plan.apply_in_memory(&store)?;
    (report.lost_by_brokers, report.keys_lost_by_brokers) = lost;
    report.missing = find_missing(&store, &report, cut_off.as_ref())?;
    if report.clean_exit {
        files.log.set_immutable_until(report.log_end);
    }
    Ok((recovered(store.last_writer(), files, report), removals))
}

fn recovered(last_writer: LastWriter, files: StoreFiles, report: RecoveryReport) -> Recovered {
    Recovered {
        last_writer,
        cuts: files.state.replica.cuts,
        log: files.log,
        queues: files.queues,
        index: files.index,
        report,
    }
}

/// Counts the messages of the plan, and the keys, that the recovery of a broker would not bring back.
fn count_lost_by_brokers(files: &StoreFiles, plan: &RecoveryPlan) -> Result<(u64, u64)> {
    let recovery = BrokerRecovery::of_crashed(&files.log, &files.state.checkpoint)?;
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
        .count_keys(files.state.checkpoint.index_msg_timestamp, recovery.start())?;
    Ok((messages, keys))
}

/// Opens the files of a store that this process is going to write to, and plans how to recover it. `exit` is [`Exit::New`] in an empty
/// directory.
///
/// # Errors
/// As [`open_for_reading`]; [`crate::error::Error::Corrupt`] for what a writer must not touch,
/// [`crate::error::Error::Unsupported`].
pub(crate) fn open_for_writing(
    env: &Arc<dyn Env>,
    path: &Path,
    config: &StoreConfig,
    sizes: Sizes,
    is_new: bool,
    intent: Intent,
) -> Result<Unrecovered> {
    config.validate()?;
    let opened = Arc::<OnceLock<Cuts>>::default();
    let named = if intent.is_replica() {
        // The log of a slave may be cut while readers of this process still have it.
        uncut_env(env, path, &opened)
    } else {
        env.clone()
    };
    let files = StoreFiles::load(&named, path, config, WriterState::read(env.as_ref(), path)?)?;
    files.queues.expect_writable(intent.is_rebuild())?;
    let exit = if is_new { Exit::New } else { files.state.exit() };
    let records = files.records(exit, RecoveryNote::load(env.as_ref(), path)?);
    let store = StoreState::new(files.families(), records, Opener::Writer, intent, config);
    expect_replica(&files, path, intent)?;
    let (plan, index_start) = plan_with_index(&files, &store, sizes.index)?;
    let unsynced_from = plan.unsynced_from;
    let cut_off = find_cut_off(&store, &plan.report)?;
    let mut report = plan.apply_in_memory(&store)?;
    files.queues.expect_directories()?;
    expect_recoverable(&store, &report)?;
    report.missing = find_missing(&store, &report, cut_off.as_ref())?;
    report.cut = cut_off.map(|cut_off| cut_off.messages).unwrap_or_default();
    if let Some(begin) = intent.begins_at() {
        (report.scan_start, report.log_end) = (begin, begin);
    }
    let written_until = files.log.written_until(report.log_end)?;
    report.bytes_cut = (written_until - report.log_end) as u64;
    let plan = WritePlan::new(&Facts {
        records,
        intent,
        report: &report,
        segments: files.log.first_offset()..files.log.files_end(),
        written_until,
        unsynced_from,
        stamps: files.state.checkpoint,
        now: env.now_ms(),
        kept_index: index_start.kept,
        is_index_cut: files.index.is_changed_by(index_start.kept),
        index_from: intent.begins_at().unwrap_or(index_start.from),
        sizes,
        is_sync: config.flush_disk_type.shows_only_flushed(),
    });
    let last_writer = store.last_writer();
    Ok(Unrecovered {
        found: recovered(last_writer, files, report),
        opened,
        plan,
        sizes,
    })
}

/// Refuses to begin a log where there is one, and to cut a log that another writer has opened since it was compared.
fn expect_replica(files: &StoreFiles, path: &Path, intent: Intent) -> Result<()> {
    if intent.begins_at().is_some() && files.log.files_end() > 0 {
        return Err(Error::Exists { path: path.to_owned() });
    }
    if intent.cut_at().is_some() && files.state.claim != Some(NO_OWN_RECORDS) {
        let what = format!(
            "{}: another writer has opened this log since it was compared with that of its master",
            path.display()
        );
        return Err(Error::Invalid { what });
    }
    Ok(())
}

/// Plans the recovery for a writer, whose scan starts early enough for every key that is missing in the index.
fn plan_with_index(files: &StoreFiles, store: &StoreState<'_>, geometry: IndexGeometry) -> Result<(RecoveryPlan, IndexStart)> {
    let StoreFiles {
        log, index, checkpoint, ..
    } = files;
    if store.intent.is_rebuild() {
        let kept = KeptIndex::default();
        let from = log.first_offset();
        return Ok((plan(store, from)?, IndexStart { kept, from }));
    }
    index.expect_geometry(geometry)?;
    let mut index_from = estimate_index_start(log, index, checkpoint, geometry)?;
    loop {
        let plan = plan(store, index_from)?;
        let start = find_index_start(log, index, checkpoint, geometry, plan.report.log_end)?;
        if start.from >= plan.report.scan_start {
            return Ok((plan, start));
        }
        // An index file cannot be used after all, so the messages of its keys have to be read, too.
        index_from = start.from;
    }
}
