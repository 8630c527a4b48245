//! A store that a writer has found, before and after its recovery on disk.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::config::{Sizes, StoreConfig};
use crate::error::Result;
use crate::format::{CHECKPOINT_FILE, IndexGeometry};
use crate::log::{
    CommitLog, ConsumeQueueStore, FlushedMarkFile, IndexService, LastWriter, LogEnd, LogFiles, QueueOffsets, record_geometry,
    save_checkpoint,
};
use crate::recovery::directory::{make_directories, mark_open, remove_unfinished};
use crate::recovery::plan::RecoveryReport;
use crate::recovery::recovery_note::RecoveryNote;
use crate::recovery::replica_note::Cuts;
use crate::recovery::write_plan::{IndexPlan, LogPlan, QueuesPlan, RecordsPlan, WritePlan};
use crate::recovery::writer_state::claim_log;
use crate::storage::Env;

/// The files of a store, recovered in memory: queues and index agree with the log up to its end.
pub(crate) struct Recovered {
    pub(crate) log: Arc<LogFiles>,
    pub(crate) queues: Arc<ConsumeQueueStore>,
    pub(crate) index: Arc<IndexService>,
    /// The record starts that the mark and the stamp named when the store was opened.
    pub(crate) last_writer: LastWriter,
    /// The cuts of the log by slaves before the open.
    pub(crate) cuts: Cuts,
    /// The findings of the open.
    pub(crate) report: RecoveryReport,
}

/// A store that may be written to and is not recovered on disk yet: nothing of it was changed.
pub(crate) struct Unrecovered {
    pub(crate) found: Recovered,
    /// The cuts that the files of a slave are of, set once it is recovered.
    pub(super) opened: Arc<OnceLock<Cuts>>,
    pub(super) plan: WritePlan,
    pub(super) sizes: Sizes,
}

/// A store that is recovered on disk.
pub(crate) struct Writable {
    pub(crate) found: Recovered,
    /// The log that can be appended to.
    pub(crate) log: CommitLog,
    /// The first message of which a key may be missing in the index.
    pub(crate) index_from: i64,
    /// The geometry of the index files.
    pub(crate) index_geometry: IndexGeometry,
    /// The physical offset from which on every record was ours before this open; `None` if a broker has started since.
    pub(crate) was_own_from: Option<i64>,
    /// The physical offset from which on the log was received from a master; `None` for a log that is appended to.
    pub(crate) received_from: Option<i64>,
}

impl Unrecovered {
    /// Recovers the store at `path` on disk, durably. These are all disk steps of an open, in their order. Each relies on those before it,
    /// and after a crash at any of them the next open makes the same decisions. The derived files are cut before the log, because a queue
    /// entry must never point past the end of the log.
    ///
    /// # Errors
    /// [`crate::error::Error::DiskFull`], [`crate::error::Error::Io`]: the note of this recovery stays, and the next one does all of it
    /// again.
    pub(crate) fn recover(self, env: &Arc<dyn Env>, path: &Path, config: &StoreConfig) -> Result<Writable> {
        let Self {
            found,
            opened,
            plan,
            sizes,
        } = self;
        let directory = plan.directory;
        make_directories(env.as_ref(), path, directory.is_begun)?;
        // Before the first change.
        if let Some(note) = directory.note {
            note.save(env.as_ref(), path)?;
        }
        mark_open(env.as_ref(), path)?;
        record_geometry(env, path, config)?;
        if directory.has_unfinished_files {
            remove_unfinished(env.as_ref(), path)?;
        }
        if let Some(begun) = plan.records.cut {
            // From now on no name leads a reader that has the store open to another file.
            begun.save(env.as_ref(), path)?;
            // Mark and stamps that cover what is cut would make every later open refuse a store of which a part is cut.
            FlushedMarkFile::open(env.as_ref(), path, plan.records.mark)?;
            plan.records.stamp(env.as_ref(), path)?;
        }
        plan.queues.cut(&found.queues)?;
        plan.index.cut(&found.index, sizes.index)?;
        let mut log = plan.log.cut(env, &found)?;
        // Before the claim: a mark of another log, which may have the same claim, is not above the end of this one when the claim is there.
        log.keep_mark(FlushedMarkFile::open(env.as_ref(), path, plan.records.mark)?);
        if let Some(replica) = plan.records.replica {
            replica.save(env.as_ref(), path)?;
        }
        if plan.records.is_claimed {
            claim_log(env.as_ref(), path, plan.records.mark.own_from)?;
        }
        // Not earlier: until all of the store is salvaged, the old stamps make `heal` refuse it.
        plan.records.stamp(env.as_ref(), path)?;
        plan.queues.write_missing(&found.queues)?;
        // After the last sync.
        if directory.removes_note {
            RecoveryNote::remove(env.as_ref(), path)?;
        }
        // From now on a later cut is noticed: before, the names change under this recovery itself.
        opened.get_or_init(|| plan.records.replica.map_or(found.cuts, |note| note.cuts));
        Ok(Writable {
            found,
            log,
            index_from: plan.index.from,
            index_geometry: sizes.index,
            was_own_from: plan.records.was_own_from,
            received_from: plan.records.replica.and_then(|note| note.received_from),
        })
    }
}

impl RecordsPlan {
    /// Replaces the stamps, if they have to be.
    fn stamp(&self, env: &dyn Env, path: &Path) -> Result<()> {
        let checkpoint = self.checkpoint.as_ref();
        checkpoint.map_or(Ok(()), |stamps| save_checkpoint(env, &path.join(CHECKPOINT_FILE), stamps))
    }
}

impl QueuesPlan {
    /// Truncates the files where the queues end.
    fn cut(&self, queues: &ConsumeQueueStore) -> Result<()> {
        if self.is_replaced {
            return queues.cut();
        }
        queues.truncate_dirty(self.rewrite_from, self.is_redone)
    }

    /// Writes the entries that the files do not have.
    fn write_missing(&self, queues: &ConsumeQueueStore) -> Result<()> {
        let all: Vec<_> = queues.file_queues().into_iter().map(|(_, _, queue)| queue).collect();
        queues.write_out(&all, &|_| ())?;
        if self.is_synced { queues.sync() } else { Ok(()) }
    }
}

impl IndexPlan {
    /// Truncates the files to the part that is kept.
    fn cut(&self, index: &IndexService, geometry: IndexGeometry) -> Result<()> {
        if self.is_replaced {
            return index.cut(geometry, self.kept);
        }
        index.truncate_dirty(geometry, self.kept, self.is_on_disk, self.is_redone)
    }
}

impl LogPlan {
    /// Writes salvage records over what was lost, truncates the log at its end, and returns the log to append to.
    fn cut(self, env: &Arc<dyn Env>, found: &Recovered) -> Result<CommitLog> {
        let mut queue_offsets = QueueOffsets::new();
        for (topic, queue_id, queue) in found.queues.file_queues() {
            let of_topic = queue_offsets.entry(topic.to_string()).or_default();
            of_topic.insert(queue_id, queue.max_offset());
        }
        for lost in &self.lost {
            found.log.write_salvage_records(lost)?;
        }
        if self.is_begun {
            // Before mark and claim: a mark past the end of a log without a segment would say that the log is lost.
            found.log.begin(env.as_ref(), self.end as u64, self.segment_size)?;
        }
        let end = LogEnd {
            at: self.end,
            written_until: self.zero_until,
            rewrite_from: self.rewrite_from,
            is_replaced: self.is_replaced,
            last_store_time: self.last_store_time,
            covered_time: self.covered_time,
            queue_offsets,
        };
        found.log.clone().truncate(env.clone(), self.segment_size, end)
    }
}
