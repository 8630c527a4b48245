//! Segments of the log that are missing, cut short or empty, and the segments that a repaired copy gets in their place.
//!
//! The copy has a segment for each that is missing between others, and for each up to the highest physical offset that the mark of what was
//! flushed, a queue entry, an index item or the checkpoint names, so that no offset is assigned again. They are zeros, which a salvage
//! replaces by salvage records. The last one ends with a salvage record past the highest name: there the log ends.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::check::queues::could_be_of_record;
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{
    CHECKPOINT_FILE, COMMIT_LOG_DIR, INDEX_DIR, MIN_RECORD_SIZE, encode_salvage_record, parse_segment_name, segment_name,
};
use crate::log::{ConsumeQueueStore, IndexService, LogFiles, load_checkpoint};
use crate::read::MessageReader;
use crate::recovery::mark_of_log;
use crate::storage::{Access, Env, File};

/// The segments that a repaired copy gets.
#[derive(Debug, Clone, Default)]
pub(super) struct MissingLog {
    segment_size: u64,
    /// The start of each of them, with the bytes that it has.
    segments: BTreeMap<i64, u64>,
    /// `None` if the log keeps its end.
    last_record: Option<LastRecord>,
    /// Physical offsets whose messages are lost.
    pub(super) lost: Vec<Range<i64>>,
}

/// The salvage record at which the log of the copy ends.
#[derive(Debug, Clone, Copy)]
struct LastRecord {
    /// The start of its segment.
    segment: i64,
    physical_offset: i64,
    /// From here up to the record the log has no whole record.
    after: i64,
    store_time: i64,
}

impl MissingLog {
    /// Finds what is missing of the log of `reader`, which was opened to salvage the store at `root`. Without any segment nothing is known.
    ///
    /// # Errors
    /// [`Error::Io`], those of opening queues and index.
    pub(super) fn find(env: &Arc<dyn Env>, root: &Path, config: &StoreConfig, reader: &MessageReader) -> Result<Self> {
        let log = reader.log();
        if log.files_end() == 0 {
            return Ok(Self::default());
        }
        let mut missing = Self {
            segment_size: log.segment_size(),
            ..Self::default()
        };
        let end = reader.physical_bounds().end;
        let named_end = NamedEnds::of(env, root, config, log, end)?.highest();
        if named_end > end {
            let record = MIN_RECORD_SIZE as i64;
            let is_inside = named_end.saturating_add(record) <= log.end_of_segment(named_end);
            let at = if is_inside { named_end } else { log.end_of_segment(named_end) };
            missing.last_record = Some(LastRecord {
                segment: at - log.path_of(at).1.cast_signed(),
                physical_offset: at,
                after: end,
                store_time: reader.recovery().last_store_time,
            });
            missing.lost.push(end..at);
        }
        missing.add_segments(env.as_ref(), root, log, end)?;
        Ok(missing)
    }

    /// Returns true if the log has a segment, which shows the size of those that are missing.
    pub(super) fn is_known(&self) -> bool {
        self.segment_size > 0
    }

    /// Returns true if the log of the copy ends past every offset that other files name.
    pub(super) fn extends_log(&self) -> bool {
        self.last_record.is_some()
    }

    /// Returns true if the copy gets no segment and no record.
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.last_record.is_none()
    }

    /// Adds the segments that are missing, or shorter than the others, up to the end of the log.
    fn add_segments(&mut self, env: &dyn Env, root: &Path, log: &LogFiles, end: i64) -> Result<()> {
        let dir = root.join(COMMIT_LOG_DIR);
        let mut lengths = BTreeMap::new();
        for entry in env.list(&dir).map_err(|error| Error::io("list", &dir, error))? {
            if let Some(start) = entry.name.to_str().and_then(parse_segment_name) {
                lengths.insert(start.cast_signed(), entry.len);
            }
        }
        let size = self.segment_size.cast_signed();
        let in_files = log.files_end() - 1;
        let last = self.last_record.map_or(in_files, |last| last.segment.max(in_files));
        // Empty files directly before the first segment are part of the log.
        let mut start = log.first_offset();
        while lengths.contains_key(&(start - size)) {
            start -= size;
        }
        while start <= last {
            let len = lengths.get(&start).copied().unwrap_or(0);
            if len < self.segment_size {
                self.segments.insert(start, len);
                let whole_until = log.end_of_records(start, start + len.cast_signed())?;
                let lost = whole_until..(start + size).min(end);
                if !lost.is_empty() {
                    self.lost.push(lost);
                }
            }
            start += size;
        }
        Ok(())
    }

    /// Returns each segment that is made, with what is done in a sentence.
    pub(super) fn changes(&self, root: &Path) -> Vec<(PathBuf, String)> {
        let mut changes = Vec::new();
        for (start, len) in &self.segments {
            let what = if *len == 0 {
                "the segment is made, and salvage records take the places of its messages".to_owned()
            } else {
                format!("the segment is extended from {len} to {} bytes", self.segment_size)
            };
            changes.push((path_of(root, *start), what));
        }
        if let Some(last) = self.last_record {
            let at = last.physical_offset;
            let what = format!("the log ends with a salvage record at physical offset {at}, so that no offset is assigned again");
            changes.push((path_of(root, last.segment), what));
        }
        changes
    }

    /// Makes the segments in the directory of a copied log. The caller syncs them.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(super) fn fill(&self, env: &dyn Env, log: &Path) -> Result<()> {
        for start in self.segments.keys() {
            let path = segment_in(log, *start);
            let file = open_or_create(env, &path)?;
            file.allocate(self.segment_size)
                .map_err(|error| Error::full_or_io("allocate", &path, error))?;
        }
        let Some(last) = self.last_record else {
            return Ok(());
        };
        self.zero_stale_bytes(env, log, last)?;
        let path = segment_in(log, last.segment);
        let position = (last.physical_offset - last.segment).unsigned_abs();
        let record = encode_salvage_record(last.physical_offset, MIN_RECORD_SIZE, false, last.store_time);
        let record = record.map_err(|malformed| Error::corrupt(&path, position, malformed.to_string()))?;
        open_or_create(env, &path)?
            .write_all_at(&record, position)
            .map_err(|error| Error::full_or_io("write", &path, error))
    }

    /// Zeroes what precedes the last record and is not a record: the lengths of stale records would lead a salvage past the last record.
    fn zero_stale_bytes(&self, env: &dyn Env, log: &Path, last: LastRecord) -> Result<()> {
        let size = self.segment_size.cast_signed();
        let mut segment = last.segment;
        while segment + size > last.after {
            let stale = last.after.max(segment) - segment..last.physical_offset.min(segment + size) - segment;
            let path = segment_in(log, segment);
            open_or_create(env, &path)?
                .zero(stale.start.unsigned_abs()..stale.end.unsigned_abs())
                .map_err(|error| Error::full_or_io("zero", &path, error))?;
            segment -= size;
        }
        Ok(())
    }
}

fn path_of(root: &Path, start: i64) -> PathBuf {
    segment_in(&root.join(COMMIT_LOG_DIR), start)
}

fn segment_in(log: &Path, start: i64) -> PathBuf {
    log.join(segment_name(start.unsigned_abs()))
}

fn open_or_create(env: &dyn Env, path: &Path) -> Result<Arc<dyn File>> {
    match env.open(path, Access::ReadWrite) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            env.create(path).map_err(|error| Error::full_or_io("create", path, error))
        }
        opened => opened.map_err(|error| Error::io("open", path, error)),
    }
}

/// Ends of messages that files other than the log name, from the end of the log on.
struct NamedEnds {
    segment_size: i64,
    /// The end of the log.
    log_end: i64,
    /// The highest end in each segment.
    ends: BTreeMap<i64, i64>,
    /// The mark of what was flushed. A checksum covers it.
    marked: i64,
}

impl NamedEnds {
    fn of(env: &Arc<dyn Env>, root: &Path, config: &StoreConfig, log: &LogFiles, log_end: i64) -> Result<Self> {
        let mut ends = Self {
            segment_size: log.segment_size().cast_signed(),
            log_end,
            ends: BTreeMap::new(),
            marked: mark_of_log(env.as_ref(), root)?.unwrap_or(0),
        };
        let queues = ConsumeQueueStore::load(env.clone(), root, config.mapped_file_size_consume_queue)?;
        for (_, _, queue) in queues.file_queues() {
            queue.visit_from(log_end, |_, unit| {
                if could_be_of_record(unit, log) {
                    ends.add(unit.end());
                }
                Ok(true)
            })?;
        }
        let index = IndexService::load(env, &root.join(INDEX_DIR), config.index_geometry(), None)?;
        index.visit_from(log_end, |item| {
            ends.add_message(item.physical_offset);
            Ok(true)
        })?;
        let stamped = load_checkpoint(env.as_ref(), &root.join(CHECKPOINT_FILE))?.logics_physical_offset;
        // 0 names no message.
        if stamped >= log_end.max(1) {
            ends.add_message(stamped);
        }
        Ok(ends)
    }

    /// Adds a message of unknown size.
    fn add_message(&mut self, physical_offset: i64) {
        self.add(physical_offset.saturating_add(MIN_RECORD_SIZE as i64));
    }

    fn add(&mut self, end: i64) {
        let highest = self.ends.entry(end.div_euclid(self.segment_size)).or_default();
        *highest = end.max(*highest);
    }

    /// Returns the highest end. An entry, item or stamp may be damaged itself and name any offset, so it counts only in the segment in
    /// which the log ends, or directly after a segment with another that counts: queue entries name messages in each segment.
    fn highest(&self) -> i64 {
        let mut last = self.log_end.max(self.marked).div_euclid(self.segment_size);
        let mut highest = self.marked;
        for (segment, end) in &self.ends {
            if *segment > last + 1 {
                break;
            }
            last = last.max(*segment);
            highest = highest.max(*end);
        }
        highest
    }
}
