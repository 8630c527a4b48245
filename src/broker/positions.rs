//! The positions of a consumer that reads the store of another process, in a file of its user.
//!
//! A position is a queue offset and the identity of the record before it: its offsets and the checksum of its bytes. A consumer that starts
//! compares it with the store, so that it neither skips nor repeats messages of a store that was replaced, cut or shortened. What the
//! file holds is always verified: identities are read, the log is refreshed, which fails if it was cut, and only then is the file replaced.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::consumer_offset::QueueProgress;
use crate::error::{Error, Result};
use crate::format::{RecordIdentity, StoredPosition, StoredPositions, crc32, decode_positions, encode_positions};
use crate::read::{MessageReader, OnMissing};
use crate::storage::{Env, Lock, Step, read_file, replace_file};
use crate::sync::{Mutex, lock};

/// The largest file that is read.
const MAX_FILE: usize = 64 << 20;
/// The number of offsets before a position that are searched for a readable record.
const MAX_DISTANCE: i64 = 64;

/// The positions of a consumer, and their file.
#[derive(Debug)]
pub(super) struct Positions {
    env: Arc<dyn Env>,
    path: PathBuf,
    /// The positions in the file.
    stored: Mutex<Stored>,
    progress: Mutex<BTreeMap<(String, i32), Arc<QueueProgress>>>,
    /// The lock of the file, until it is released. Held while the file is replaced.
    owned: Mutex<Option<Lock>>,
    /// Counts changes of progress.
    changes: Arc<AtomicI64>,
}

#[derive(Debug)]
struct Stored {
    positions: StoredPositions,
    /// The changes that the file has.
    changes: i64,
}

impl Positions {
    /// Locks and reads the file at `path`. A missing file has no positions.
    ///
    /// # Errors
    /// [`Error::PositionsLocked`] if another consumer has the file; [`Error::Corrupt`] if it is damaged; [`Error::Invalid`] for a file in
    /// the store that `reader` reads; [`Error::Io`].
    pub(super) fn open(reader: &MessageReader, path: &Path) -> Result<Self> {
        let env = Arc::clone(reader.env());
        expect_outside(env.as_ref(), reader.path(), path)?;
        let mut lock_path = OsString::from(path);
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let owned = env.lock(&lock_path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::PositionsLocked { path: lock_path.clone() },
            _ => Error::full_or_io("lock", &lock_path, error),
        })?;
        let positions = match read_file(env.as_ref(), path, MAX_FILE)? {
            None => StoredPositions::new(),
            Some(bytes) => {
                decode_positions(&bytes).map_err(|malformed| Error::corrupt(path, malformed.at as u64, malformed.reason))?
            }
        };
        Ok(Self {
            env,
            path: path.to_owned(),
            stored: Mutex::new(Stored { positions, changes: 0 }),
            progress: Mutex::default(),
            owned: Mutex::new(Some(owned)),
            changes: Arc::default(),
        })
    }

    /// Compares the positions in these topics with the store. Where one does not fit, `on_missing` decides.
    ///
    /// # Errors
    /// [`Error::PositionMismatch`], [`Error::OffsetOutOfRange`] with [`OnMissing::Refuse`]; those of reading.
    pub(super) fn verify(&self, reader: &MessageReader, topics: &[String], on_missing: OnMissing) -> Result<()> {
        let mut stored = lock(&self.stored);
        for ((topic, queue_id), position) in &mut stored.positions {
            if !topics.contains(topic) {
                continue;
            }
            let bounds = reader.queue_bounds(topic, *queue_id)?;
            match self.verify_position(reader, (topic, *queue_id), position, bounds.clone()) {
                Err(refused @ (Error::PositionMismatch { .. } | Error::OffsetOutOfRange { .. })) => {
                    let next = on_missing.bound(bounds).ok_or(refused)?;
                    *position = StoredPosition { next, record: None };
                    self.changes.fetch_add(1, Ordering::AcqRel);
                }
                verified => verified?,
            }
        }
        Ok(())
    }

    /// Compares the positions in the file with another reader of the store. A poll finds those outside of their queue.
    ///
    /// # Errors
    /// [`Error::PositionMismatch`]; those of reading.
    pub(super) fn verify_again(&self, reader: &MessageReader) -> Result<()> {
        let stored = lock(&self.stored);
        for ((topic, queue_id), position) in &stored.positions {
            let bounds = reader.queue_bounds(topic, *queue_id)?;
            match self.verify_position(reader, (topic, *queue_id), position, bounds) {
                Err(Error::OffsetOutOfRange { .. }) => {}
                verified => verified?,
            }
        }
        Ok(())
    }

    fn verify_position(
        &self,
        reader: &MessageReader,
        (topic, queue_id): (&str, i32),
        position: &StoredPosition,
        bounds: Range<i64>,
    ) -> Result<()> {
        let offset = position.next;
        if offset < bounds.start || offset > bounds.end {
            let topic = topic.to_owned();
            return Err(Error::OffsetOutOfRange {
                topic,
                queue_id,
                offset,
                bounds,
            });
        }
        let Some(record) = &position.record else { return Ok(()) };
        match difference(reader, (topic, queue_id), record, &bounds)? {
            None => Ok(()),
            Some(reason) => Err(Error::PositionMismatch {
                path: self.path.clone(),
                topic: topic.to_owned(),
                queue_id,
                offset,
                reason,
            }),
        }
    }

    /// Returns the progress in a queue, for reading and setting.
    pub(super) fn of_queue(&self, topic: &str, queue_id: i32) -> Arc<QueueProgress> {
        let name = (topic.to_owned(), queue_id);
        let stored = lock(&self.stored).positions.get(&name).map(|position| position.next);
        let mut progress = lock(&self.progress);
        let known = progress
            .entry(name)
            .or_insert_with(|| Arc::new(QueueProgress::new(stored, &self.changes)));
        known.clone()
    }

    /// Returns true if there is progress in a queue of the topic.
    pub(super) fn has_progress(&self, topic: &str) -> bool {
        lock(&self.stored).positions.keys().any(|(name, _)| name == topic)
    }

    /// Releases the file for another consumer.
    pub(super) fn release(&self) {
        lock(&self.owned).take();
    }

    /// Replaces the file, durably, if a position has changed. `confirm` fails if the log of `reader` was cut since it was read.
    ///
    /// # Errors
    /// [`Error::Closed`] after [`release`](Self::release); that of `confirm`; [`Error::DiskFull`], [`Error::Io`]: the file has older positions.
    pub(super) fn persist(&self, reader: &MessageReader, confirm: impl FnOnce() -> Result<()>) -> Result<()> {
        let owned = lock(&self.owned);
        if owned.is_none() {
            return Err(Error::Closed);
        }
        let changes = self.changes.load(Ordering::Acquire);
        let (stored_changes, mut positions) = {
            let stored = lock(&self.stored);
            (stored.changes, stored.positions.clone())
        };
        if stored_changes == changes {
            return Ok(());
        }
        for ((topic, queue_id), progress) in &*lock(&self.progress) {
            let Some(next) = progress.get() else { continue };
            let name = (topic.clone(), *queue_id);
            if positions
                .get(&name)
                .is_none_or(|known| known.next != next || known.record.is_none())
            {
                let record = identity_near(reader, &name, next)?;
                positions.insert(name, StoredPosition { next, record });
            }
        }
        confirm()?;
        replace_file(
            self.env.as_ref(),
            &self.path,
            &encode_positions(&positions),
            Step::SettingsFile,
            Step::SettingsRenamed,
        )?;
        *lock(&self.stored) = Stored { positions, changes };
        Ok(())
    }
}

/// Refuses a file in the store: a reader writes nothing there.
fn expect_outside(env: &dyn Env, store: &Path, path: &Path) -> Result<()> {
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let dir = env.canonical(dir).map_err(|error| Error::io("open", dir, error))?;
    let store = env.canonical(store).map_err(|error| Error::io("open", store, error))?;
    if dir.starts_with(&store) {
        return Err(Error::Invalid {
            what: format!(
                "positions is {}, a file in the store {}: a reader writes nothing there, so choose another directory",
                path.display(),
                store.display()
            ),
        });
    }
    Ok(())
}

/// Returns the identity of the last readable record before `next`, or of the one at `next`.
fn identity_near(reader: &MessageReader, (topic, queue_id): &(String, i32), next: i64) -> Result<Option<RecordIdentity>> {
    let bounds = reader.queue_bounds(topic, *queue_id)?;
    let before = (bounds.start.max(next.saturating_sub(MAX_DISTANCE))..next.min(bounds.end)).rev();
    for offset in before.chain(bounds.contains(&next).then_some(next)) {
        match reader.message_in_queue(topic, *queue_id, offset) {
            Ok(message) => {
                let view = message.view();
                return Ok(Some(RecordIdentity {
                    queue_offset: offset,
                    physical_offset: view.physical_offset(),
                    size: i32::try_from(view.bytes().len()).unwrap_or(i32::MAX),
                    crc32: crc32(view.bytes()),
                }));
            }
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns in what the store differs from the record that a position names; `None` if it has the record, or if the record has expired.
fn difference(
    reader: &MessageReader,
    (topic, queue_id): (&str, i32),
    record: &RecordIdentity,
    bounds: &Range<i64>,
) -> Result<Option<String>> {
    let RecordIdentity {
        queue_offset,
        physical_offset,
        size,
        crc32,
    } = *record;
    let found = if queue_offset < bounds.start {
        if physical_offset < reader.physical_bounds().start {
            return Ok(None);
        }
        format!(
            "is before the first message of the queue, {}, while the log has that offset",
            bounds.start
        )
    } else {
        match reader.position(topic, queue_id, queue_offset)? {
            None => "is not there".to_owned(),
            Some(entry) if (entry.physical_offset, entry.store_size) != (physical_offset, size) => {
                format!("has {} bytes at physical offset {}", entry.store_size, entry.physical_offset)
            }
            Some(_) => match reader.record_checksum(physical_offset)? {
                Some(found) if found == crc32 => return Ok(None),
                Some(found) => format!("has CRC-32 {found:08x}"),
                None => "cannot be read".to_owned(),
            },
        }
    };
    Ok(Some(format!(
        "the message at queue offset {queue_offset} had {size} bytes at physical offset {physical_offset} with CRC-32 {crc32:08x}, and \
         now {found}"
    )))
}
