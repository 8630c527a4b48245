//! The stamps of the checkpoint, each of which is written after everything that it covers is on disk.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{Checkpoint, IndexGeometry};
use crate::log::{CommitLog, ConsumeQueueStore, IndexService, load_checkpoint, save_checkpoint};
use crate::storage::Env;

/// The last message that is in its queue and in the index; all zeros before the first message.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastDispatched {
    /// The start of its record.
    pub physical_offset: i64,
    /// Its store time, in ms.
    pub store_time: i64,
}

/// The writer of the checkpoint of one store.
#[derive(Debug)]
pub struct Checkpointer {
    /// The file system.
    pub env: Arc<dyn Env>,
    /// The path of the checkpoint.
    pub path: PathBuf,
    /// The log that it covers.
    pub log: Arc<CommitLog>,
    /// The queues that it covers.
    pub queues: Arc<ConsumeQueueStore>,
    /// The index that it covers.
    pub index: Arc<IndexService>,
    /// The geometry of the index files.
    pub geometry: IndexGeometry,
}

impl Checkpointer {
    /// Syncs the log, the queue files, and the mark of the flushed offset, which needs no free space. Returns the physical offset of
    /// the first message whose queue entry is in memory only.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`], [`crate::error::Error::Poisoned`].
    pub fn sync_queues(&self) -> Result<Option<i64>> {
        self.log.flush()?;
        self.queues.sync()?;
        self.log.sync_mark()?;
        Ok(self.queues.first_unwritten())
    }

    /// Syncs everything and stamps it. The queues are written back up to `last`. Every key of a message before `keys_dispatched` is
    /// in the index.
    ///
    /// # Errors
    /// [`crate::error::Error::DiskFull`]: the old stamps remain. [`crate::error::Error::Io`], [`crate::error::Error::Poisoned`].
    pub fn stamp(&self, last: LastDispatched, keys_dispatched: i64) -> Result<()> {
        // Before the sync: no later message gets this store time, so the stamp covers no message that the sync did not cover.
        self.log.close_store_time(last.store_time);
        self.log.flush()?;
        self.queues.sync()?;
        let index_msg_timestamp = self.index.sync(self.geometry)?;
        self.log.sync_mark()?;
        let checkpoint = Checkpoint {
            physic_msg_timestamp: last.store_time,
            logics_msg_timestamp: last.store_time,
            index_msg_timestamp,
            logics_physical_offset: last.physical_offset,
            keys_dispatched,
            index_items: self.index.items(),
            keys_stamp: last.store_time,
            queue_entries: self.queues.count_entries(None)?,
            log_start: self.log.files().first_offset(),
            ..load_checkpoint(self.env.as_ref(), &self.path)?
        };
        save_checkpoint(self.env.as_ref(), &self.path, &checkpoint)
    }
}
