//! The store of a slave: compared with the log of its master, cut where that has other bytes, extended by what the master sends.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::broker::cut_settings;
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{Check, utc_text};
use crate::log::{LogFiles, ReceivedTail};
use crate::recovery::{ReplicaLog, expect_store};
use crate::remedy::Remedy;
use crate::storage::Env;
use crate::store::{MessageStore, OpenMode, choose_sizes};

/// The store of a slave, which is made once the master has said where its log begins.
#[derive(Debug)]
pub(super) struct ReplicaStore {
    env: Arc<dyn Env>,
    path: PathBuf,
    config: StoreConfig,
    segment_size: i64,
    store: Option<Arc<MessageStore>>,
    /// True while a reopen has failed: the directory is not known to be empty.
    is_left_closed: bool,
    tail: ReceivedTail,
}

/// The removal of the end of a slave's log, where its master has other bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlaveCut {
    /// The physical offset of the first byte that was removed.
    pub offset: i64,
    /// The number of bytes that were removed.
    pub bytes: i64,
    /// The time, in ms.
    pub time: i64,
}

/// The tail that a cut would remove.
struct RemovedTail {
    bytes: i64,
    messages: u64,
    /// The store times of its first and last message, in ms.
    times: Option<(i64, i64)>,
}

/// Refuses options that promise more than a slave does.
fn expect_options(config: &StoreConfig) -> Result<()> {
    let default = StoreConfig::default();
    let meaningless = [
        ("flush_disk_type", config.flush_disk_type != default.flush_disk_type),
        ("transient_store_pool_enable", config.transient_store_pool_enable),
        ("broker_role", config.broker_role != default.broker_role),
        ("ha_listen_port", config.ha_listen_port.is_some()),
        ("listen_port", config.listen_port.is_some()),
        ("recovery", config.recovery != default.recovery),
        ("ha_listen_host", config.ha_listen_host != default.ha_listen_host),
        ("in_sync_replicas", config.in_sync_replicas.is_some()),
        ("slave_timeout", config.slave_timeout != default.slave_timeout),
        (
            "ha_max_gap_not_in_sync",
            config.ha_max_gap_not_in_sync != default.ha_max_gap_not_in_sync,
        ),
        ("services", config.services.is_some()),
        ("file_reserved_time", config.file_reserved_time.is_some()),
        ("max_log_bytes", config.max_log_bytes.is_some()),
        ("disk_max_used_space_ratio", config.disk_max_used_space_ratio.is_some()),
    ];
    match meaningless.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((name, _)) => Err(Error::Invalid {
            what: format!("{name} has no meaning for a slave: leave it out"),
        }),
    }
}

/// Opens the store at `path`, if there is one with a segment.
fn find_store(env: &Arc<dyn Env>, path: &Path, config: &StoreConfig) -> Result<Option<Arc<MessageStore>>> {
    match expect_store(env.as_ref(), path) {
        Err(Error::NoSuchDirectory { .. }) => return Ok(None),
        Err(_) if env.list(path).is_ok_and(|entries| entries.is_empty()) => return Ok(None),
        found => found?,
    }
    let mode = OpenMode::Replica(ReplicaLog::Continued);
    let store = MessageStore::open(env, path, config.clone(), mode)?;
    // The directory of a store that was begun, and never got a segment, is an empty one.
    let has_segment = store.reader().log().files_end() > 0;
    Ok(has_segment.then(|| Arc::new(store)))
}

impl ReplicaStore {
    /// Opens the store at `path`, if there is one with a segment.
    ///
    /// # Errors
    /// Those of [`MessageStore::open`].
    pub(super) fn open(env: &Arc<dyn Env>, path: &Path, mut config: StoreConfig) -> Result<Self> {
        expect_options(&config)?;
        let mode = OpenMode::Replica(ReplicaLog::Continued);
        let store = find_store(env, path, &config)?;
        let sizes = match &store {
            Some(store) => store.config().mapped_file_size_commit_log,
            None => Some(choose_sizes(env, path, &mut config, true, mode)?.commit_log),
        };
        Ok(Self {
            env: env.clone(),
            path: path.to_owned(),
            config,
            segment_size: sizes.and_then(|size| i64::try_from(size).ok()).unwrap_or(i64::MAX),
            store,
            is_left_closed: false,
            tail: ReceivedTail::default(),
        })
    }

    /// Returns the open store; `None` before the first bytes.
    pub(super) fn store(&self) -> Option<&Arc<MessageStore>> {
        self.store.as_ref()
    }

    /// Returns true if the log, which has no record, may begin at `offset`.
    pub(super) fn may_begin_at(&self, offset: i64) -> bool {
        match &self.store {
            Some(_) => offset == self.end(),
            // The end of the segment is an offset, too.
            None => offset % self.segment_size == 0 && offset.checked_add(self.segment_size).is_some(),
        }
    }

    /// Returns the end of its log with the part of a record that has come.
    pub(super) fn received_end(&self) -> i64 {
        self.end() + self.tail.waiting() as i64
    }

    /// Returns the end of its log.
    pub(super) fn end(&self) -> i64 {
        self.store.as_ref().map_or(0, |store| store.appended_offset())
    }

    /// Returns the begin of its log.
    pub(super) fn begin(&self) -> i64 {
        self.store.as_ref().map_or(0, |store| store.reader().log().first_offset())
    }

    /// Returns the start of the segment that contains this physical offset.
    pub(super) fn start_of_segment(&self, offset: i64) -> i64 {
        offset - offset.rem_euclid(self.segment_size)
    }

    /// Returns the log, and the range of its offsets; `None` without a record.
    fn log(&self) -> Option<(&LogFiles, std::ops::Range<i64>)> {
        let log = self.store.as_ref()?.reader().log();
        let range = log.first_offset()..self.end();
        (!range.is_empty()).then_some((log, range))
    }

    /// Returns the start of the last record that begins at least `distance` bytes before the end, or of the first record. Without a
    /// record it is the end.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(super) fn record_before_end(&self, distance: i64) -> Result<i64> {
        let Some((log, range)) = self.log() else {
            return Ok(self.end());
        };
        if let Some(last) = self.tail.last_record().filter(|_| distance == 0) {
            return Ok(last);
        }
        let target = range.end.saturating_sub(distance.max(1)).max(range.start);
        let mut last = log.start_of_segment(target).max(range.start);
        let mut scan = log.scan(last, range.end, Check::Structure);
        while scan.advance()? {
            match scan.view() {
                Some(view) if view.physical_offset() <= target => last = view.physical_offset(),
                _ => break,
            }
        }
        Ok(last)
    }

    /// Returns the start of the last record that was stored at least `age` ms before another one, by the clock of the master; `None` without
    /// one.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(super) fn record_of_age(&self, age: i64) -> Result<Option<i64>> {
        let (Some(store), Some((log, range))) = (&self.store, self.log()) else {
            return Ok(None);
        };
        let newest = store.received_log().last_store_time().saturating_sub(age);
        let mut segment = log.start_of_segment(range.end - 1);
        while log.claimed_store_time(segment)?.is_none_or(|time| time > newest) {
            if segment <= range.start {
                return Ok(None);
            }
            segment = log.start_of_segment(segment - 1);
        }
        let mut old = None;
        let mut scan = log.scan(segment, range.end, Check::Structure);
        while scan.advance()? {
            match scan.view() {
                Some(view) if view.store_time() <= newest => old = Some(view.physical_offset()),
                _ => break,
            }
        }
        Ok(old)
    }

    /// Returns true if no earlier record can be asked for.
    pub(super) fn is_first_record(&self, offset: i64) -> bool {
        self.log().is_none_or(|(_, range)| offset <= range.start)
    }

    /// Compares bytes of the master's log with this one, up to its end. Returns the physical offset of the first difference.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(super) fn first_difference(&self, mut at: i64, bytes: &[u8]) -> Result<Option<i64>> {
        let Some((log, range)) = self.log() else {
            return Ok(None);
        };
        let mut rest = bytes;
        let mut own = Vec::new();
        while at < range.end && !rest.is_empty() {
            let len = (range.end.min(log.end_of_segment(at)) - at).min(rest.len() as i64) as usize;
            let (piece, later) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            own.resize(piece.len(), 0);
            log.fill(at, &mut own)?;
            if own != piece {
                let equal = own.iter().zip(piece).take_while(|(own, sent)| own == sent).count();
                return Ok(Some(at + equal as i64));
            }
            at += piece.len() as i64;
            rest = later;
        }
        Ok(None)
    }

    /// Returns the end of the last record, from the one at `from` on, that ends at or before `offset`; `from` without one.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(super) fn last_end_before(&self, from: i64, offset: i64) -> Result<i64> {
        let Some((log, range)) = self.log() else {
            return Ok(from);
        };
        let mut end = from;
        let mut scan = log.scan(from, range.end, Check::Structure);
        while scan.advance()? {
            match scan.view().map(|view| view.end()) {
                Some(next) if next <= offset => end = next,
                _ => break,
            }
        }
        Ok(end)
    }

    /// Refuses to cut the log at `at` if that removes what no slave has received.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with what would go; those of reading the log.
    pub(super) fn expect_received(&self, at: i64, master: &str) -> Result<()> {
        let received_from = self
            .store
            .as_ref()
            .and_then(|store| store.received_from())
            .unwrap_or(i64::MAX);
        if at >= received_from {
            return Ok(());
        }
        let RemovedTail { bytes, messages, times } = self.tail_from(at)?;
        let stored = times.map_or_else(String::new, |(first, last)| {
            format!(", which were stored from {} to {}", utc_text(first), utc_text(last))
        });
        Err(Error::Unsupported {
            path: self.path.clone(),
            what: format!(
                "the log and that of the master at {master} differ from physical offset {at} on, and what is there below {} was not \
                 received from a master: a cut there removes {bytes} bytes with {messages} messages{stored}",
                received_from.min(self.end())
            ),
            remedy: Some(Remedy::DiscardTail),
        })
    }

    fn tail_from(&self, at: i64) -> Result<RemovedTail> {
        let mut tail = RemovedTail {
            bytes: self.end() - at,
            messages: 0,
            times: None,
        };
        if let Some((log, range)) = self.log() {
            let mut scan = log.scan(at, range.end, Check::Structure);
            while scan.advance()? {
                let Some(time) = scan.view().map(|view| view.store_time()) else {
                    break;
                };
                tail.messages += 1;
                tail.times = Some(tail.times.map_or((time, time), |(first, _)| (first, time)));
            }
        }
        Ok(tail)
    }

    /// Returns the refusal of a master that has no record of this log. It has ended the last connection for `reason`.
    pub(super) fn other_log(&self, master: &str, reason: Option<&Error>) -> Error {
        let begin = self.begin();
        let ended = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        Error::Unsupported {
            path: self.path.clone(),
            what: format!(
                "no record of this log, which begins at {begin}, is in the log of the master at {master}{ended}: it is another log, or the \
                 master has removed what this one holds; name another master, or an empty directory"
            ),
            remedy: None,
        }
    }

    /// Returns the refusal of a master whose log begins at `begin`, after `at`, where this one would continue.
    pub(super) fn below_begin(&self, master: &str, at: i64, begin: i64) -> Error {
        Error::Unsupported {
            path: self.path.clone(),
            what: format!(
                "the log of the master at {master} begins at physical offset {begin}, and this one would continue at {at}: the master has \
                 removed what is between; keep this store, and follow the master into an empty directory from its begin on"
            ),
            remedy: None,
        }
    }

    /// Makes the store, whose log begins at `at`.
    ///
    /// # Errors
    /// Those of [`MessageStore::open`].
    pub(super) fn begin_at(&mut self, at: i64) -> Result<()> {
        self.reopen(ReplicaLog::BeginsAt(at))
    }

    /// Returns the refusal of a master that sends its log from `at` on.
    pub(super) fn wrong_start(&self, at: i64) -> Error {
        Error::Unsupported {
            path: self.path.clone(),
            what: format!(
                "the master sends its log from physical offset {at} on, where no segment of {} bytes of this log begins: its segments have \
                 another size (geometry, mapped_file_size_commit_log), or this log is empty and begins before it",
                self.segment_size
            ),
            remedy: None,
        }
    }

    /// Cuts the log at `at`, the end of a record, durably: the progress of groups and of delayed messages first, so that it never passes
    /// the end of the log. Open readers of the directory keep the log that they have opened.
    ///
    /// # Errors
    /// Those of [`cut_settings`], [`MessageStore::close`] and [`MessageStore::open`].
    pub(super) fn cut(&mut self, at: i64) -> Result<SlaveCut> {
        if let Some(store) = &self.store {
            cut_settings(store, at)?;
        }
        let bytes = self.end() - at;
        self.reopen(ReplicaLog::CutAt(at))?;
        Ok(SlaveCut {
            offset: at,
            bytes,
            time: self.env.now_ms(),
        })
    }

    fn reopen(&mut self, log: ReplicaLog) -> Result<()> {
        self.is_left_closed = true;
        self.close()?;
        let mode = OpenMode::Replica(log);
        let opened = MessageStore::open(&self.env, &self.path, self.config.clone(), mode)?;
        self.store = Some(Arc::new(opened));
        self.is_left_closed = false;
        Ok(())
    }

    /// Opens the store again that a failed [`Self::begin`] or [`Self::cut`] has left closed, and returns true if it did. A failed cut may
    /// have lowered the mark of what was flushed, and cut queues: the open makes them again, and the log is compared again.
    ///
    /// # Errors
    /// Those of [`MessageStore::open`].
    pub(super) fn open_again(&mut self) -> Result<bool> {
        if !self.is_left_closed {
            return Ok(false);
        }
        self.store = find_store(&self.env, &self.path, &self.config)?;
        self.is_left_closed = false;
        Ok(true)
    }

    /// Forgets the part of a record that has come: the connection has ended.
    pub(super) fn forget_tail(&mut self) {
        self.tail.clear();
    }

    /// Appends bytes of the master's log, which follow those that came before.
    ///
    /// # Errors
    /// Those of [`ReceivedTail::take`].
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match &self.store {
            Some(store) => self.tail.take(store.received_log(), bytes),
            None => Err(Error::Closed),
        }
    }

    /// Closes the store. A second call does nothing.
    ///
    /// # Errors
    /// Those of [`MessageStore::close`].
    pub(super) fn close(&mut self) -> Result<()> {
        self.tail = ReceivedTail::default();
        match self.store.take() {
            Some(store) => store.close(),
            None => Ok(()),
        }
    }
}
