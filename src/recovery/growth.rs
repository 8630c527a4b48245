//! Growth of a store since it was opened for reading: the plan of an open, from the end of the log then.

use std::path::Path;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::Checkpoint;
use crate::log::{ConsumeQueueStore, LogFiles, LogRecord, load_flushed_mark};
use crate::recovery::plan::{RecoveryReport, plan_from, scan_end};
use crate::recovery::replica_note::ReplicaNote;
use crate::recovery::store_state::{Exit, Families, Intent, LastShutdown, Opener, StoreState, WriterRecords};
use crate::recovery::undispatched::QueueTails;
use crate::recovery::writer_state::{load_own_from, shown_until};
use crate::remedy::Remedy;
use crate::storage::Env;

/// The messages that the log has gained.
pub(crate) struct Growth {
    /// The end of the log now, and its last message.
    pub(crate) report: RecoveryReport,
    /// The entries of the new messages.
    pub(crate) entries: QueueTails,
}

/// Reads the log from `from` on, its former end. `None` if only a new open can see what the queues hold: a queue begins again,
/// as after its topic was deleted, or has a gap.
///
/// # Errors
/// [`Error::Corrupt`] for damage that whole records follow, [`Error::Io`], those of [`crate::interrupt::check`].
pub(crate) fn find_growth(
    env: &dyn Env,
    path: &Path,
    config: &StoreConfig,
    log: &LogFiles,
    queues: &ConsumeQueueStore,
    from: i64,
) -> Result<Option<Growth>> {
    let claim = load_own_from(env, path)?;
    // Before the log is looked at: a live writer raises the mark.
    let mark = load_flushed_mark(env, path)?.filter(|mark| Some(mark.own_from) == claim);
    let opener = Opener::Reader {
        is_written_to: true,
        shown_until: shown_until(env, path, mark)?,
    };
    let records = WriterRecords {
        shutdown: LastShutdown {
            exit: Exit::Crashed,
            note: None,
        },
        claim,
        flushed: None,
        checkpoint: Checkpoint::default(),
        replica: ReplicaNote::default(),
    };
    let families = Families {
        log,
        queues,
        index: None,
    };
    let store = StoreState::new(families, records, opener, Intent::of(config.recovery), config);
    if store.intent.is_salvage() {
        return Ok(None);
    }
    let until = scan_end(from, &store)?;
    let (plan, gap) = plan_from(from, until, &store)?;
    if log.claimed_end(plan.report.log_end)?.is_some_and(|end| end < until) {
        return Err(damage(&store, &plan.report)?);
    }
    let restarts = |topic: &str, id: i32, first: Option<i64>| {
        let queue = queues.queue(topic, id).ok().flatten();
        queue.zip(first).is_some_and(|(queue, first)| first < queue.max_offset())
    };
    let mut tails = plan.undispatched.iter();
    if gap || plan.report.refused > 0 || tails.any(|((topic, id), tail)| restarts(topic, *id, tail.first())) {
        return Ok(None);
    }
    Ok(Some(Growth {
        report: plan.report,
        entries: plan.undispatched,
    }))
}

/// Returns the damage of this record: the writer continues after a record only once it is whole.
fn damage(store: &StoreState<'_>, report: &RecoveryReport) -> Result<Error> {
    let at = report.log_end;
    let found = match store.log.read(at, store.check)? {
        LogRecord::Corrupt(error) | LogRecord::NoRecord(error) => error,
        _ => store.log.corrupt(at, report.stop_reason.clone()),
    };
    Ok(found.with_remedy(Remedy::SkipOrSalvage))
}
