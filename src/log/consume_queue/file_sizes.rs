//! The lengths of a store's queue files, with which a size given or recorded is compared.

use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{CONSUME_QUEUE_DIR, CQ_UNIT_SIZE, parse_segment_name};
use crate::log::consume_queue::consume_queue_store::ConsumeQueueStore;
use crate::log::consume_queue::directories::{is_directory, list, queue_dirs};
use crate::storage::{DirEntry, Env, Fitted, MappedFileQueue, MappingPool, usual_len};

impl ConsumeQueueStore {
    /// Refuses a file size that no file has, and that files contradict. Where some have it, the others are damaged.
    pub(super) fn expect_file_size(&self) -> Result<()> {
        let queues = self.file_queues();
        let fitted = || queues.iter().map(|(.., queue)| queue.files.fitted());
        match fitted().find_map(|fitted| fitted.contradiction()) {
            Some(error) if !fitted().any(Fitted::has_whole) => Err(error.clone().of_option("mapped_file_size_consume_queue")),
            _ => Ok(()),
        }
    }

    /// Returns the lengths of the files of the queues below the store directory `root`, up to the first queue with a file of the
    /// `expected` length.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub(crate) fn sample_file_lens(env: &dyn Env, root: &Path, expected: u64) -> Result<Vec<u64>> {
        let is_file = |entry: &&DirEntry| entry.name.to_str().and_then(parse_segment_name).is_some() && entry.len > 0;
        let mut lens: Vec<u64> = Vec::new();
        first_in_queues(env, root, |dir| {
            lens.extend(list(env, dir)?.iter().filter(is_file).map(|entry| entry.len));
            Ok(lens.contains(&expected).then_some(()))
        })?;
        Ok(lens)
    }

    /// Returns the size of a queue file below the store directory `root`: that of the first queue that has a file of a possible length.
    ///
    /// # Errors
    /// As [`MappedFileQueue::load_with_misfits`].
    pub fn find_file_size(env: &Arc<dyn Env>, root: &Path) -> Result<Option<u64>> {
        let unit = CQ_UNIT_SIZE as u64;
        first_in_queues(env.as_ref(), root, |dir| {
            let files = MappedFileQueue::load_with_misfits(env.clone(), dir, None, MappingPool::shared(), unit)?;
            Ok(Some(files.file_size()).filter(|size| *size > 0 && size.is_multiple_of(unit)))
        })
    }

    /// Returns the most frequent length of a queue's last file; `None` without queues.
    pub(crate) fn usual_file_len(&self) -> Option<u64> {
        usual_len(self.file_queues().iter().filter_map(|(.., queue)| queue.last_file_len()))
    }
}

/// Returns the first answer that `ask` gives for the directory of a queue.
fn first_in_queues<T>(env: &dyn Env, root: &Path, mut ask: impl FnMut(&Path) -> Result<Option<T>>) -> Result<Option<T>> {
    let topics = root.join(CONSUME_QUEUE_DIR);
    for topic in list(env, &topics)?.iter().filter(|entry| is_directory(entry)) {
        let dir = topics.join(&topic.name);
        for (_, queue) in queue_dirs(&dir, &list(env, &dir)?) {
            if let Some(answer) = ask(&queue)? {
                return Ok(Some(answer));
            }
        }
    }
    Ok(None)
}
