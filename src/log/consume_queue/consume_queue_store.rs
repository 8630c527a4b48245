//! All consume queues of a store, by topic and queue id: their directories, their file sizes, and the queue formats that this crate
//! does not read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use crate::error::{Error, Result};
use crate::format::{
    BATCH_CONSUME_QUEUE_DIR, CONSUME_QUEUE_DIR, CQ_UNIT_SIZE, ROCKSDB_CONSUME_QUEUE_DIR, UNFINISHED_PREFIX, is_light_queue,
    parse_segment_name,
};
use crate::log::consume_queue::consume_queue::ConsumeQueue;
use crate::log::consume_queue::tail::QueueTail;
use crate::log::consume_queue::truncate::UnsyncedTruncation;
use crate::log::consume_queue::write_out::{SYNCED_ONE_BY_ONE, StagedFile, Unsynced};
use crate::log::rocksdb::is_database;
use crate::remedy::Remedy;
use crate::storage::{DirEntry, EntryKind, Env, FileSystem, Fitted, MappedFileQueue, MappingPool, Step, usual_len};

/// The queues of one topic.
#[derive(Debug)]
enum TopicQueues {
    Files(QueuesById),
    /// The directory of the topic's batch consume queue.
    Batch(PathBuf),
}

/// Ascending by queue id. There may be very many topics with one queue, for which a map takes several times the memory.
type QueuesById = Vec<(i32, Arc<ConsumeQueue>)>;

/// The topics by name. The name is shared by everything that belongs to its queues.
type Topics = BTreeMap<Arc<str>, TopicQueues>;

/// The queues of all topics; queues may be added concurrently with reads.
#[derive(Debug)]
pub struct ConsumeQueueStore {
    env: Arc<dyn Env>,
    root: PathBuf,
    file_size: Option<u64>,
    pool: Arc<MappingPool>,
    topics: RwLock<Topics>,
    /// Files that a writer had not finished when it died.
    staged: Vec<PathBuf>,
    /// Entries with the name of a topic or of a queue id that are not directories.
    misplaced: Vec<PathBuf>,
    /// The RocksDB database of queues, if there is one.
    database: Option<PathBuf>,
    /// Set if a topic had queues in files at the open.
    has_files: bool,
    /// Held open by a writer: each sync reports the errors since the last one.
    file_system: OnceLock<Arc<dyn FileSystem>>,
    /// At first `Everything`: recovery may have written to any of the files.
    unsynced: Mutex<Unsynced>,
}

impl ConsumeQueueStore {
    /// Lists the queues in the store directory `root`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a queue file of the wrong length or name, [`Error::Io`].
    pub fn load(env: Arc<dyn Env>, root: &Path, file_size: Option<u64>) -> Result<Self> {
        let mut store = Self {
            env,
            root: root.to_owned(),
            file_size,
            pool: MappingPool::shared(),
            topics: RwLock::default(),
            staged: Vec::new(),
            misplaced: Vec::new(),
            database: None,
            has_files: false,
            file_system: OnceLock::new(),
            unsynced: Mutex::new(Unsynced::Everything),
        };
        let mut topics = Topics::new();
        let dir = root.join(CONSUME_QUEUE_DIR);
        let in_dir = list(store.env.as_ref(), &dir)?;
        for (topic, dir) in topic_dirs(&dir, &in_dir) {
            let entries = list(store.env.as_ref(), &dir)?;
            store.staged.extend(staged_files(&dir, &entries));
            store
                .misplaced
                .extend(misplaced_entries(&dir, &entries, |name| parse_queue_id(name).is_some()));
            let queues = store.load_topic(&dir, &entries)?;
            if !queues.is_empty() {
                topics.insert(topic.into(), TopicQueues::Files(queues));
            }
        }
        let batch_dir = root.join(BATCH_CONSUME_QUEUE_DIR);
        for (topic, dir) in topic_dirs(&batch_dir, &list(store.env.as_ref(), &batch_dir)?) {
            topics.entry(topic.into()).or_insert(TopicQueues::Batch(dir));
        }
        store.has_files = !topics.is_empty();
        store.database = store.find_database(&in_dir)?;
        // A database in the directory of the topics has files there.
        if store.database.is_none() {
            store.misplaced.extend(misplaced_entries(&dir, &in_dir, |_| true));
        }
        store.topics = RwLock::new(topics);
        store.expect_file_size()?;
        if store.file_size.is_none() {
            let sizes = store.file_queues().into_iter().map(|(_, _, queue)| queue.file_size());
            store.file_size = sizes.into_iter().find(|size| *size > 0);
        }
        Ok(store)
    }

    /// Returns the database directory, if the queues are only in RocksDB.
    pub fn rocksdb(&self) -> Option<&Path> {
        self.database.as_deref().filter(|_| !self.has_files)
    }

    /// Returns the database directory, if a broker keeps queues in RocksDB, too. The light queues may be only there.
    pub fn second_rocksdb(&self) -> Option<&Path> {
        self.database.as_deref().filter(|_| self.has_files)
    }

    /// Returns the database directory if it may hold the light queue of this name, which has no file.
    pub fn rocksdb_of_light(&self, topic: &str) -> Option<&Path> {
        self.second_rocksdb().filter(|_| is_light_queue(topic))
    }

    /// Returns true if a light queue has files. Where a database holds queues, too, it holds the light queues, and the broker writes there.
    pub(crate) fn has_light_queues(&self) -> bool {
        self.second_rocksdb().is_none() && self.read().keys().any(|topic| is_light_queue(topic))
    }

    /// Returns true if there are topics, and all of them have batch consume queues.
    pub fn has_only_batch_queues(&self) -> bool {
        let topics = self.read();
        !topics.is_empty() && topics.values().all(|queues| matches!(queues, TopicQueues::Batch(_)))
    }

    /// Returns the topics, ascending by name.
    pub fn topics(&self) -> Vec<String> {
        self.read().keys().map(ToString::to_string).collect()
    }

    /// Returns true if the topic has queues in any format but RocksDB's.
    pub fn has_topic(&self, topic: &str) -> bool {
        self.read().contains_key(topic)
    }

    /// Returns the topic's queue ids, ascending; empty for an unknown topic.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for RocksDB and batch consume queues.
    pub fn queue_ids(&self, topic: &str) -> Result<Vec<i32>> {
        self.with_topic(topic, |queues| queues.iter().map(|(id, _)| *id).collect())
    }

    /// Returns a queue; `None` if it is absent.
    ///
    /// # Errors
    /// Those of [`ConsumeQueueStore::queue_ids`].
    pub fn queue(&self, topic: &str, queue_id: i32) -> Result<Option<Arc<ConsumeQueue>>> {
        self.with_topic(topic, |queues| {
            let index = queues.binary_search_by_key(&queue_id, |(id, _)| *id).ok()?;
            queues.get(index).map(|(_, queue)| queue.clone())
        })
    }

    /// Returns every queue that is kept in files, with its topic and id.
    pub fn file_queues(&self) -> Vec<(Arc<str>, i32, Arc<ConsumeQueue>)> {
        let mut found = Vec::new();
        for (topic, queues) in self.read().iter() {
            if let TopicQueues::Files(queues) = queues {
                found.extend(queues.iter().map(|(id, queue)| (topic.clone(), *id, queue.clone())));
            }
        }
        found
    }

    /// Returns the physical offset of the first message whose queue entry is not written back.
    pub(crate) fn first_unwritten(&self) -> Option<i64> {
        let queues = self.file_queues();
        queues.iter().filter_map(|(_, _, queue)| queue.first_unwritten()).min()
    }

    /// Returns the queue, which is added if it is absent; `None` for a batch topic.
    pub(crate) fn queue_or_new(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        if let Ok(Some(queue)) = self.queue(topic, queue_id) {
            return Some(queue);
        }
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let queues = topics.entry(topic.into()).or_insert_with(|| TopicQueues::Files(Vec::new()));
        let TopicQueues::Files(queues) = queues else { return None };
        Some(match queues.binary_search_by_key(&queue_id, |(id, _)| *id) {
            Ok(index) => queues.get(index)?.1.clone(),
            Err(index) => {
                let dir = self.root.join(CONSUME_QUEUE_DIR).join(topic).join(queue_id.to_string());
                // The directory was listed when the store was opened: no file is opened by a name from a record.
                let queue = ConsumeQueue::empty(self.env.clone(), &dir, self.file_size, self.pool.clone());
                let queue = Arc::new(queue);
                queues.insert(index, (queue_id, queue.clone()));
                queue
            }
        })
    }

    /// Returns true if another process has removed a topic with queue files.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn has_lost_topic(&self) -> Result<bool> {
        let dir = self.root.join(CONSUME_QUEUE_DIR);
        let there: BTreeSet<String> = topic_dirs(&dir, &list(self.env.as_ref(), &dir)?)
            .map(|(topic, _)| topic)
            .collect();
        let is_lost = |(topic, queues): (&Arc<str>, &TopicQueues)| match queues {
            TopicQueues::Files(queues) => !there.contains(&**topic) && queues.iter().any(|(_, queue)| queue.has_files()),
            TopicQueues::Batch(_) => false,
        };
        Ok(self.read().iter().any(is_lost))
    }

    /// Returns the topics with a batch consume queue, which are only read.
    pub(crate) fn batch_topics(&self) -> BTreeSet<String> {
        let topics = self.read();
        let batch = topics.iter().filter(|(_, queues)| matches!(queues, TopicQueues::Batch(_)));
        batch.map(|(topic, _)| topic.to_string()).collect()
    }

    /// Refuses queues that cannot be written to: a database, or a queue whose last file is cut short.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::Corrupt`].
    pub(crate) fn expect_writable(&self, is_rebuilt: bool) -> Result<()> {
        if let Some(path) = self.rocksdb() {
            return Err(Error::Unsupported {
                path: path.to_owned(),
                what: "the consume queues are a RocksDB database".to_owned(),
                remedy: Some(Remedy::ReadOnly),
            });
        }
        // A rebuild moves files of a wrong length out of the store.
        if is_rebuilt { Ok(()) } else { self.expect_whole() }
    }

    /// Returns the entries with the name of a topic or of a queue id that are not directories: no message can be put into that
    /// queue.
    pub(crate) fn misplaced(&self) -> &[PathBuf] {
        &self.misplaced
    }

    /// Refuses queues with entries in memory whose file cannot be created.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(crate) fn expect_directories(&self) -> Result<()> {
        let dirs = self.root.join(CONSUME_QUEUE_DIR);
        let is_needed = |path: &&PathBuf| {
            let queues = self.file_queues();
            queues
                .iter()
                .any(|(topic, id, _)| dirs.join(&**topic).join(id.to_string()).starts_with(path))
        };
        self.misplaced.iter().find(is_needed).map_or(Ok(()), |path| {
            Err(Error::Invalid {
                what: format!(
                    "{} is not a directory, and messages need one there: move it out of the store",
                    path.display()
                ),
            })
        })
    }

    /// Refuses queues if a file has a wrong length.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn expect_whole(&self) -> Result<()> {
        let usual = self.usual_file_len().unwrap_or(0);
        self.file_queues()
            .iter()
            .try_for_each(|(_, _, queue)| queue.expect_whole(usual))
    }

    /// Returns true if a queue has a directory, but neither a file nor an entry in memory.
    pub(crate) fn has_queue_without_file(&self) -> bool {
        let queues = self.file_queues();
        queues
            .iter()
            .any(|(_, _, queue)| queue.last_file_len().is_none() && queue.max_offset() == 0)
    }

    /// Writes back the in-memory entries of these queues. `progressed` is called after each step that may take a while, with true if
    /// a sync comes next.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(crate) fn write_out(&self, queues: &[Arc<ConsumeQueue>], progressed: &dyn Fn(bool)) -> Result<()> {
        loop {
            let mut without_file = self.write_back(queues, progressed)?;
            if without_file.is_empty() {
                return Ok(());
            }
            self.create_files(&mut without_file, progressed)?;
        }
    }

    /// Writes back the in-memory entries of these queues into existing files. Returns the queues whose next entries need a new file.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(crate) fn write_back(&self, queues: &[Arc<ConsumeQueue>], progressed: &dyn Fn(bool)) -> Result<Vec<Arc<ConsumeQueue>>> {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        let mut without_file = Vec::new();
        for queue in queues {
            if queue.write_back(&mut unsynced)? {
                without_file.push(queue.clone());
            }
            progressed(false);
        }
        Ok(without_file)
    }

    /// Creates the next file of each of these queues, with the entries that it has in memory. `queues` keeps those that still have
    /// entries in memory, also after a failure. Entries may be added concurrently.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(crate) fn create_files(&self, queues: &mut Vec<Arc<ConsumeQueue>>, progressed: &dyn Fn(bool)) -> Result<()> {
        let (published, outcome) = self.publish_all(queues, ConsumeQueue::stage, progressed);
        let mut published = published.into_iter();
        queues.retain(|_| published.next().flatten() != Some(false));
        outcome
    }

    /// Publishes the file that `stage` creates for each of these queues under a temporary name, if it does. The files are synced before,
    /// together if there are many. Returns what [`ConsumeQueue::publish`] has returned for each queue, in their order; `None`, or nothing
    /// at the end, for those without a published file.
    fn publish_all(
        &self,
        queues: &[Arc<ConsumeQueue>],
        stage: impl Fn(&ConsumeQueue) -> Result<Option<StagedFile>>,
        progressed: &dyn Fn(bool),
    ) -> (Vec<Option<bool>>, Result<()>) {
        let mut staged = Vec::new();
        let mut outcome = self.stage_all(queues, stage, &mut staged, progressed);
        progressed(false);
        // Held while files get their names: a sync covers a file whose entries have left the memory.
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        // Names are created, and perhaps removed again.
        *unsynced = Unsynced::Everything;
        let mut publish = |queue: &ConsumeQueue, file: &StagedFile| {
            if outcome.is_ok() {
                match queue.publish(file) {
                    Ok(waits) => {
                        progressed(false);
                        return Some(waits);
                    }
                    Err(error) => outcome = Err(error),
                }
            }
            // An unfinished file must not keep its space.
            file.discard(self.env.as_ref());
            None
        };
        let published = queues
            .iter()
            .zip(&staged)
            .map(|(queue, file)| publish(queue, file.as_ref()?))
            .collect();
        (published, outcome)
    }

    /// Calls `stage` for each queue, and syncs the files that it has created.
    fn stage_all(
        &self,
        queues: &[Arc<ConsumeQueue>],
        stage: impl Fn(&ConsumeQueue) -> Result<Option<StagedFile>>,
        staged: &mut Vec<Option<StagedFile>>,
        progressed: &dyn Fn(bool),
    ) -> Result<()> {
        for queue in queues {
            let mut file = stage(queue)?;
            if staged.len() >= SYNCED_ONE_BY_ONE {
                file.iter_mut().for_each(StagedFile::close);
            }
            staged.push(file);
            progressed(false);
        }
        progressed(true);
        match staged.iter().flatten().count() {
            0..=SYNCED_ONE_BY_ONE => staged.iter().flatten().try_for_each(StagedFile::sync),
            _ => self.sync_all(Step::QueueFiles),
        }
    }

    /// Truncates the files at the current ends of the queues, durably. After a crash (`rewrite_from`: entries of messages from
    /// there on may not be on disk) the remaining entries are rewritten, and unfinished files are removed. With `is_redone` an
    /// earlier recovery was interrupted, and everything that it may have cut is cut again.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(crate) fn truncate_dirty(&self, rewrite_from: Option<i64>, is_redone: bool) -> Result<()> {
        self.open_file_system()?;
        let mut unsynced = UnsyncedTruncation::default();
        for (_, _, queue) in self.file_queues() {
            unsynced.add(queue.truncate_dirty(rewrite_from.is_none(), is_redone)?);
            if let Some(physical) = rewrite_from {
                queue.rewrite(physical)?;
            }
        }
        if rewrite_from.is_some() {
            for staged in &self.staged {
                self.env.unlink(staged).map_err(|error| Error::io("remove", staged, error))?;
            }
        }
        // Removed names may still be on disk, in unknown directories.
        if is_redone {
            return self.sync_all(Step::QueuesCut);
        }
        self.sync_truncation(&unsynced)
    }

    /// Cuts the files at the current ends of the queues, durably, without a change of their bytes: a file of which a part is kept is
    /// replaced by a copy of that part.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(crate) fn cut(&self) -> Result<()> {
        self.open_file_system()?;
        let queues: Vec<_> = self.file_queues().into_iter().map(|(_, _, queue)| queue).collect();
        let mut unsynced = UnsyncedTruncation::default();
        for queue in &queues {
            unsynced.add(queue.truncate_dirty(true, false)?);
        }
        // Before a file is replaced: a removed file that comes back would follow a gap.
        self.sync_truncation(&unsynced)?;
        let mut unsynced = UnsyncedTruncation::default();
        let (replaced, outcome) = self.publish_all(&queues, ConsumeQueue::stage_kept, &|_| ());
        outcome?;
        for (queue, _) in queues.iter().zip(replaced).filter(|(_, replaced)| replaced.is_some()) {
            unsynced.add_replaced(queue);
        }
        self.sync_truncation(&unsynced)
    }

    fn sync_truncation(&self, unsynced: &UnsyncedTruncation) -> Result<()> {
        match unsynced.len() {
            0 => Ok(()),
            1..=SYNCED_ONE_BY_ONE => unsynced.sync(self.env.as_ref()),
            _ => self.sync_all(Step::QueuesCut),
        }
    }

    /// Returns the number of entries in the files of all queues; with `until`, of messages up to the one at that physical offset.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn count_entries(&self, until: Option<i64>) -> Result<i64> {
        let queues = self.file_queues();
        queues.iter().map(|(_, _, queue)| queue.count_entries(until)).sum()
    }

    /// Returns the number of entries at the ends of all queues that point to messages at or after this physical offset, with a
    /// possible record size of at most `longest` bytes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn count_entries_from(&self, physical: i64, longest: u64) -> Result<u64> {
        let queues = self.file_queues();
        queues
            .iter()
            .map(|(_, _, queue)| queue.count_entries_from(physical, longest))
            .sum()
    }

    /// Syncs everything that was written back.
    pub(crate) fn sync(&self) -> Result<()> {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        unsynced.sync(|| self.sync_all(Step::QueueFiles))
    }

    fn sync_all(&self, step: Step) -> Result<()> {
        let synced = self.file_system().and_then(|file_system| file_system.sync(step));
        synced.map_err(|error| Error::io("sync", &self.root, error))
    }

    /// Opens the file system before any write: an error that is reported to another process first is then reported here, too.
    fn open_file_system(&self) -> Result<()> {
        let opened = self.file_system().map(drop);
        opened.map_err(|error| Error::io("open", &self.root, error))
    }

    /// Returns the file system, which a writer keeps open.
    fn file_system(&self) -> io::Result<Arc<dyn FileSystem>> {
        if let Some(open) = self.file_system.get() {
            return Ok(open.clone());
        }
        let opened = self.env.file_system(&self.root)?;
        Ok(self.file_system.get_or_init(|| opened).clone())
    }

    fn with_topic<T: Default>(&self, topic: &str, take: impl FnOnce(&QueuesById) -> T) -> Result<T> {
        if let Some(path) = self.rocksdb() {
            return Err(unsupported(path, "the consume queues are a RocksDB database"));
        }
        match self.read().get(topic) {
            None => match self.rocksdb_of_light(topic) {
                Some(path) => Err(unsupported(path, "the light queues are in a RocksDB database")),
                None => Ok(T::default()),
            },
            Some(TopicQueues::Files(queues)) => Ok(take(queues)),
            Some(TopicQueues::Batch(path)) => Err(unsupported(path, "the topic has a batch consume queue")),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Topics> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn load_topic(&self, dir: &Path, entries: &[DirEntry]) -> Result<QueuesById> {
        let load = |(queue_id, dir): (i32, PathBuf)| {
            let queue = ConsumeQueue::load(self.env.clone(), &dir, self.file_size, self.pool.clone())?;
            Ok((queue_id, Arc::new(queue)))
        };
        let mut queues: QueuesById = queue_dirs(dir, entries).map(load).collect::<Result<_>>()?;
        queues.sort_by_key(|(queue_id, _)| *queue_id);
        queues.shrink_to_fit();
        Ok(queues)
    }

    /// Returns the directory of a RocksDB database of queues: that of the topics, whose entries are given, or another one.
    fn find_database(&self, in_dir: &[DirEntry]) -> Result<Option<PathBuf>> {
        if is_database(in_dir) {
            return Ok(Some(self.root.join(CONSUME_QUEUE_DIR)));
        }
        let dir = self.root.join(ROCKSDB_CONSUME_QUEUE_DIR);
        let is_there = is_database(&list(self.env.as_ref(), &dir)?);
        Ok(is_there.then_some(dir))
    }

    /// Refuses a given file size that no file has and that the files contradict. If some files have it, the others are damaged.
    pub(super) fn expect_file_size(&self) -> Result<()> {
        let queues = self.file_queues();
        let fitted = || queues.iter().map(|(.., queue)| queue.files.fitted());
        match fitted().find_map(|fitted| fitted.contradiction()) {
            Some(error) if !fitted().any(Fitted::has_whole) => Err(error.clone().of_option("mapped_file_size_consume_queue")),
            _ => Ok(()),
        }
    }

    /// Returns the lengths of the queue files in the store directory `root`, up to the first queue with a file of the `expected`
    /// length.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub(crate) fn sample_file_lens(env: &dyn Env, root: &Path, expected: u64) -> Result<Vec<u64>> {
        let is_file = |entry: &&DirEntry| entry.name.to_str().and_then(parse_segment_name).is_some() && entry.len > 0;
        let mut lens: Vec<u64> = Vec::new();
        find_in_queue_dirs(env, root, |dir| {
            lens.extend(list(env, dir)?.iter().filter(is_file).map(|entry| entry.len));
            Ok(lens.contains(&expected).then_some(()))
        })?;
        Ok(lens)
    }

    /// Returns the size of a queue file in the store directory `root`: that of the first queue that has a file of a possible
    /// length.
    ///
    /// # Errors
    /// As [`MappedFileQueue::load_derived`].
    pub fn find_file_size(env: &Arc<dyn Env>, root: &Path) -> Result<Option<u64>> {
        let unit = CQ_UNIT_SIZE as u64;
        find_in_queue_dirs(env.as_ref(), root, |dir| {
            let files = MappedFileQueue::load_derived(env.clone(), dir, None, MappingPool::shared(), unit)?;
            Ok(Some(files.file_size()).filter(|size| *size > 0 && size.is_multiple_of(unit)))
        })
    }

    /// Returns the most frequent length of a queue's last file; `None` without queues.
    pub(crate) fn usual_file_len(&self) -> Option<u64> {
        usual_len(self.file_queues().iter().filter_map(|(.., queue)| queue.last_file_len()))
    }

    /// Adds the entries of messages that another process has appended, and returns the queue; `None` for a batch consume queue.
    pub(crate) fn add(&self, topic: &str, queue_id: i32, entries: QueueTail) -> Option<Arc<ConsumeQueue>> {
        let queue = self.queue_or_new(topic, queue_id)?;
        queue.extend(entries);
        Some(queue)
    }
}

fn unsupported(path: &Path, what: &str) -> Error {
    Error::Unsupported {
        path: path.to_owned(),
        what: format!("{what}, which is not read by queue; message_at, message and query work on this store"),
        remedy: None,
    }
}

/// Returns the topics in a directory of queues, ascending by name.
pub(super) fn topic_dirs<'a>(dir: &'a Path, entries: &'a [DirEntry]) -> impl Iterator<Item = (String, PathBuf)> + 'a {
    let topics = entries.iter().filter(|entry| is_directory(entry));
    topics.filter_map(|entry| Some((entry.name.to_str()?.to_owned(), dir.join(&entry.name))))
}

/// Returns the unfinished files in a topic's directory.
pub(super) fn staged_files(dir: &Path, entries: &[DirEntry]) -> Vec<PathBuf> {
    let names = entries.iter().map(|entry| &entry.name);
    let staged = names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(UNFINISHED_PREFIX)));
    staged.map(|name| dir.join(name)).collect()
}

/// Returns the entries with such names that are not directories, except a writer's unfinished files.
pub(super) fn misplaced_entries<'a>(
    dir: &'a Path,
    entries: &'a [DirEntry],
    has_name: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = PathBuf> + 'a {
    let names = entries.iter().filter(|entry| !is_directory(entry));
    let names = names.filter_map(|entry| entry.name.to_str());
    let named = names.filter(move |name| !name.starts_with(UNFINISHED_PREFIX) && has_name(name));
    named.map(|name| dir.join(name))
}

/// Returns the ids and directories of a topic's queues. Like RocketMQ, it skips entries whose name is not a number.
pub(super) fn queue_dirs(topic: &Path, entries: &[DirEntry]) -> impl Iterator<Item = (i32, PathBuf)> {
    let dirs = entries.iter().filter(|entry| is_directory(entry));
    dirs.filter_map(|entry| Some((parse_queue_id(entry.name.to_str()?)?, topic.join(&entry.name))))
}

/// Returns true for a directory.
pub(super) fn is_directory(entry: &DirEntry) -> bool {
    entry.kind == EntryKind::Directory
}

/// Parses the id in the name of a queue's directory, in the form that a broker writes.
pub(super) fn parse_queue_id(name: &str) -> Option<i32> {
    name.parse().ok().filter(|id: &i32| *id >= 0 && id.to_string() == name)
}

/// Returns the entries of a directory; no entries if it is missing.
pub(super) fn list(env: &dyn Env, dir: &Path) -> Result<Vec<DirEntry>> {
    match env.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| Error::io("list", dir, error)),
    }
}

/// Returns the first result that `ask` returns for the directory of a queue.
fn find_in_queue_dirs<T>(env: &dyn Env, root: &Path, mut ask: impl FnMut(&Path) -> Result<Option<T>>) -> Result<Option<T>> {
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
