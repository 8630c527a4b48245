//! Carries the plan of a writer out on disk. Queues and index are truncated before the log. The entries that the queues lack are written
//! after it.

use std::path::Path;
use std::sync::Arc;

use crate::config::FlushDiskType;
use crate::error::Result;
use crate::format::{CHECKPOINT_FILE, FlushedMark};
use crate::log::{CommitLog, FlushedMarkFile, LogEnd, QueueOffsets, save_checkpoint};
use crate::recovery::open::{Recovered, WritePlan};
use crate::recovery::recovery_note::RecoveryNote;
use crate::recovery::writer_state::claim_log;
use crate::storage::Env;

/// Makes the files what the plan says, durably, and gives the log that can be appended to.
///
/// # Errors
/// [`crate::error::Error::DiskFull`], [`crate::error::Error::Io`]: the note of this recovery stays, and the next one does all of it
/// again.
pub(crate) fn apply(env: &Arc<dyn Env>, path: &Path, recovered: &Recovered, plan: &WritePlan) -> Result<CommitLog> {
    let Recovered {
        log,
        queues,
        index,
        report,
        ..
    } = recovered;
    let entries_from = if plan.is_rebuilt {
        Some(log.first_offset())
    } else {
        plan.rewrite_from
    };
    queues.truncate_dirty(entries_from, plan.is_redone)?;
    index.truncate_dirty(plan.sizes.index, plan.kept_index, plan.rewrite_from.is_none(), plan.is_redone)?;
    let mut queue_offsets = QueueOffsets::new();
    for (topic, queue_id, queue) in queues.file_queues() {
        let of_topic = queue_offsets.entry(topic.to_string()).or_default();
        of_topic.insert(queue_id, queue.max_offset());
    }
    for lost in &report.lost {
        log.write_salvage_records(lost)?;
    }
    let end = LogEnd {
        at: report.log_end,
        written_until: plan.written_until,
        rewrite_from: plan.rewrite_from.map(|from| from.max(plan.on_disk_until)),
        last_store_time: report.last_store_time,
        covered_time: plan.covered_time,
        queue_offsets,
    };
    let mut log = log.clone().truncate(env.clone(), plan.sizes.commit_log, end)?;
    let mark = FlushedMark {
        flushed: report.log_end,
        own_from: plan.own_from.unwrap_or(report.log_end),
        is_sync: plan.flush_disk_type == FlushDiskType::Sync,
    };
    // Before the claim: a mark of another log, which may have the same claim, is not above the end of this one when the claim is there.
    log.keep_mark(FlushedMarkFile::open(env.as_ref(), path, mark)?);
    if plan.own_from.is_none() || plan.rewrite_from.is_some() {
        claim_log(env.as_ref(), path, mark.own_from)?;
    }
    // Not earlier: until all of the store is salvaged, the old stamps make `heal` refuse it.
    if let Some(checkpoint) = &plan.checkpoint {
        save_checkpoint(env.as_ref(), &path.join(CHECKPOINT_FILE), checkpoint)?;
    }
    let all: Vec<_> = queues.file_queues().into_iter().map(|(_, _, queue)| queue).collect();
    queues.write_out(&all, &|_| ())?;
    if !report.lost.is_empty() || plan.is_rebuilt {
        // The next recovery starts after these entries, and does not write them again.
        queues.sync()?;
    }
    if plan.note.is_some() || plan.is_noted {
        RecoveryNote::remove(env.as_ref(), path)?;
    }
    Ok(log)
}
