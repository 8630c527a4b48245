//! The files of a store, compared with the model: what a broker or the next writer finds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::format::{
    BLANK_SIZE, CQ_UNIT_SIZE, Checkpoint, CqUnit, FlushedMark, INDEX_HEADER_SIZE, ITEM_SIZE, IndexGeometry, IndexHeader,
    IndexItem, index_key_hash, parse_segment_name,
};

use super::history::Geometry;
use super::model::{Checked, Entry, ensure, queues};
use super::torn::Garbled;
use crate::simulated_env::SimulatedEnv;

/// The files of a store, by their path below its directory.
pub(super) struct Files(BTreeMap<PathBuf, Vec<u8>>);

/// The least content that the files must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A writer has it open: queues and index may end before the last messages.
    Open,
    /// It was closed.
    Closed,
}

impl Files {
    pub(super) fn of(env: &SimulatedEnv, root: &Path) -> Self {
        let below = |(path, bytes): (PathBuf, Vec<u8>)| Some((path.strip_prefix(root).ok()?.to_owned(), bytes));
        Self(env.files(root).into_iter().filter_map(below).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(Path::new(name)).map(Vec::as_slice)
    }

    fn below(&self, dir: &str) -> impl Iterator<Item = (&PathBuf, &Vec<u8>)> {
        let dir = PathBuf::from(dir);
        self.0.iter().filter(move |(path, _)| path.starts_with(&dir))
    }

    pub(super) fn checkpoint(&self) -> Checkpoint {
        self.get("checkpoint").map(Checkpoint::decode).unwrap_or_default()
    }

    /// The mark of what was flushed.
    pub(super) fn mark(&self) -> Option<FlushedMark> {
        self.get("config/mqstore.flushed").and_then(FlushedMark::decode)
    }

    /// The log's bytes, one segment after the other.
    pub(super) fn log(&self) -> Vec<u8> {
        self.below("commitlog").flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }

    /// Returns the differences between these files and others, except the files that say who has the store open.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let names: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let mut counted = names
            .into_iter()
            .filter(|name| !["lock", "abort"].iter().any(|own| name.as_os_str() == *own));
        let different = counted.find(|name| self.0.get(*name) != other.0.get(*name))?;
        let describe = |files: &Self| files.0.get(different).map(Vec::len);
        let at = self.0.get(different).zip(other.0.get(different));
        let at = at.and_then(|(a, b)| a.iter().zip(b).position(|(a, b)| a != b));
        Some(format!(
            "{} ({:?} and {:?} bytes) at byte {at:?}",
            different.display(),
            describe(self),
            describe(other)
        ))
    }

    /// An entry after the last message of its queue that points at or past the end of the log. Earlier ones are written again
    /// when their message is dispatched; until then a power cut may bring an old one back, and the next recovery examines it.
    pub(super) fn entry_past(&self, entries: &[Arc<Entry>], garbled: &Garbled) -> Option<String> {
        let end = entries.last().map_or(0, |entry| entry.end());
        let expected = queues(entries);
        for (path, bytes) in self.below("consumequeue") {
            let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
            let [_, topic, queue_id, name] = parts[..] else { continue };
            let queue = queue_id
                .parse()
                .map_or(0, |id| expected.get(&(topic, id)).map_or(0, Vec::len));
            let is_sound = queue_id.parse().is_ok_and(|id| !garbled.is_in(topic, id));
            let start = parse_segment_name(name).unwrap_or(0) as usize / CQ_UNIT_SIZE;
            let units = bytes.as_chunks::<CQ_UNIT_SIZE>().0.iter().map(CqUnit::decode);
            let mut later = units.skip(queue.saturating_sub(start));
            if let Some(past) = later.find(|unit| is_sound && unit.size > 0 && unit.physical_offset >= end) {
                return Some(format!("{past:?} in {}, the log ends at {end}", path.display()));
            }
        }
        None
    }

    /// Compares every file with the messages in the log.
    pub(super) fn check(&self, entries: &[Arc<Entry>], garbled: &Garbled, geometry: Geometry, state: State) -> Checked {
        self.check_log(entries, geometry.segment as usize, state)?;
        self.check_queues(entries, garbled, geometry.queue_file as usize, state)?;
        if !garbled.is_any() && !garbled.is_index_torn {
            self.check_index(entries, geometry, state)?;
            self.check_checkpoint(entries, geometry, state)?;
        }
        let has_abort = self.get("abort").is_some();
        ensure(
            has_abort == (state == State::Open),
            "abort is there while a writer is",
            || format!("abort is there: {has_abort}"),
        )
    }

    fn check_log(&self, entries: &[Arc<Entry>], segment: usize, state: State) -> Checked {
        let check = "the log is one chain";
        let mut at = 0;
        for (path, bytes) in self.below("commitlog") {
            let start = path.file_name().and_then(|name| name.to_str()).and_then(parse_segment_name);
            ensure(start == Some(at) && bytes.len() == segment, check, || {
                format!("{} has {} bytes, a segment at {at} was expected", path.display(), bytes.len())
            })?;
            at += segment as u64;
        }
        let log = self.log();
        let end = entries.last().map_or(0, |entry| entry.end() as usize);
        let first_byte = |start: usize| log.get(start..).unwrap_or_default().iter().position(|byte| *byte != 0);
        let own = if end.is_multiple_of(segment) {
            None
        } else {
            blank(&log, end, segment)
        };
        let stale = first_byte(own.unwrap_or(end));
        ensure(stale.is_none(), "the log ends in zeros", || {
            format!("it ends at {end}, byte {stale:?} after it is not zero")
        })?;
        let needed = end.div_ceil(segment) * segment;
        // The segment in which the log continues may follow a full one, or be the first.
        let goes_on = end.is_multiple_of(segment) || own.is_some();
        let most = if goes_on { needed + segment } else { needed };
        ensure(
            log.len() >= needed && (state == State::Open || log.len() <= most),
            check,
            || format!("the log ends at {end}, its files at {}", log.len()),
        )
    }

    fn check_queues(&self, entries: &[Arc<Entry>], garbled: &Garbled, file_len: usize, state: State) -> Checked {
        let check = "queue files agree with the log";
        let mut expected = queues(entries);
        let mut found: BTreeMap<(String, i32), Vec<u8>> = BTreeMap::new();
        for (path, bytes) in self.below("consumequeue") {
            let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
            let [_, topic, queue_id, name] = parts[..] else { continue };
            let queue_id = queue_id.parse().unwrap_or(-1);
            // A message that a tear changed may have any queue offset in any queue.
            if garbled.is_in(topic, queue_id) {
                continue;
            }
            let queue = found.entry((topic.to_owned(), queue_id)).or_default();
            let is_next = parse_segment_name(name) == Some(queue.len() as u64) && bytes.len() == file_len;
            ensure(is_next, check, || {
                format!("{} with {} bytes follows {}", path.display(), bytes.len(), queue.len())
            })?;
            let is_empty = bytes.iter().all(|byte| *byte == 0);
            ensure(!is_empty, "no queue file is all zeros", || path.display().to_string())?;
            queue.extend(bytes);
        }
        for ((topic, queue_id), bytes) in &found {
            let messages = expected.remove(&(topic.as_str(), *queue_id)).unwrap_or_default();
            let units: Vec<CqUnit> = bytes.as_chunks::<CQ_UNIT_SIZE>().0.iter().map(CqUnit::decode).collect();
            let count = units.iter().take_while(|unit| unit.size != 0).count();
            let is_right = units[..count].iter().eq(messages.iter().map(|entry| &entry.unit).take(count))
                && bytes[count * CQ_UNIT_SIZE..].iter().all(|byte| *byte == 0)
                && (state == State::Open || count == messages.len());
            ensure(is_right, check, || {
                format!(
                    "{topic} {queue_id} holds {units:?}, messages: {:?}",
                    messages.iter().map(|entry| entry.unit).collect::<Vec<_>>()
                )
            })?;
        }
        expected.retain(|(topic, queue_id), _| !garbled.is_in(topic, *queue_id));
        ensure(state == State::Open || expected.is_empty(), check, || {
            format!("no files for {:?}", expected.keys())
        })
    }

    fn check_index(&self, entries: &[Arc<Entry>], geometry: Geometry, state: State) -> Checked {
        let shape = IndexGeometry {
            slots: geometry.slots as u32,
            items: geometry.items as u32,
        };
        let mut expected: Vec<(i32, i64, i64)> = Vec::new();
        for entry in entries {
            let hashes = entry.keys.iter().map(|key| index_key_hash(&entry.topic, key));
            expected.extend(hashes.map(|hash| (hash, entry.physical_offset, entry.store_time)));
        }
        let mut left = expected.as_slice();
        for (path, bytes) in self.below("index") {
            let count = check_index_file(bytes, shape, left).map_err(|what| super::model::Violation {
                check: "index files agree with the log",
                what: format!("{}: {what}", path.display()),
            })?;
            left = &left[count..];
        }
        ensure(
            state == State::Open || left.is_empty(),
            "index files agree with the log",
            || format!("{} keys are in no file", left.len()),
        )
    }

    /// The message that the checkpoint names is in the log.
    fn check_checkpoint(&self, entries: &[Arc<Entry>], geometry: Geometry, state: State) -> Checked {
        let check = "the checkpoint covers only messages that are there";
        let stamps = self.checkpoint();
        let last = entries.last().map_or(0, |entry| entry.store_time);
        let stamped = stamps.physic_msg_timestamp.max(stamps.logics_msg_timestamp);
        ensure(stamped <= last, check, || {
            format!("{stamps:?}, the last message is of {last}")
        })?;
        let full = self
            .below("index")
            .filter_map(|(_, bytes)| Some(IndexHeader::decode(bytes.first_chunk()?)));
        let full = full.filter(|header| header.index_count >= geometry.items as i32);
        let newest = full.map(|header| header.end_time).max().unwrap_or(0);
        ensure(stamps.index_msg_timestamp <= newest, check, || {
            format!("{stamps:?}, the last full index is of {newest}")
        })?;
        ensure(
            state == State::Open || stamped == last,
            "a close stamps the checkpoint",
            || format!("{stamps:?}, the last message is of {last}"),
        )
    }
}

/// Returns the end of the BLANK at the log's end, if there is one: the segment was ended, and the next one was never made.
fn blank(log: &[u8], end: usize, segment: usize) -> Option<usize> {
    let head: [u8; BLANK_SIZE] = *log.get(end..)?.first_chunk()?;
    let remaining = segment - end % segment;
    (head == mqstore::format::encode_blank(remaining as u32)).then_some(end + BLANK_SIZE)
}

/// Compares one file with the keys that are expected from it on, and returns how many it has.
fn check_index_file(bytes: &[u8], shape: IndexGeometry, expected: &[(i32, i64, i64)]) -> Result<usize, String> {
    let header = bytes.first_chunk::<INDEX_HEADER_SIZE>().map(IndexHeader::decode);
    let Some(header) = header.filter(|_| bytes.len() as u64 == shape.file_len()) else {
        return Err(format!("it has {} bytes", bytes.len()));
    };
    let count = header.index_count as usize - 1;
    let Some(own) = expected.get(..count) else {
        return Err(format!("it has {count} keys, {} are left", expected.len()));
    };
    let mut newest: BTreeMap<u32, i32> = BTreeMap::new();
    for (number, (hash, offset, _)) in own.iter().enumerate() {
        let number = number as u32 + 1;
        let at = shape.item_position(number) as usize;
        let item = IndexItem::decode(bytes[at..].first_chunk::<ITEM_SIZE>().unwrap());
        let slot = newest.entry(shape.slot_of(*hash)).or_default();
        if (item.key_hash, item.physical_offset, item.previous) != (*hash, *offset, *slot) {
            return Err(format!(
                "item {number} is {item:?}, expected {hash} at {offset} with link {slot}"
            ));
        }
        *slot = number as i32;
    }
    for slot in 0..shape.slots {
        let at = shape.slot_position(slot) as usize;
        let found = i32::from_be_bytes(*bytes[at..].first_chunk().unwrap());
        if found != newest.get(&slot).copied().unwrap_or(0) {
            return Err(format!("slot {slot} holds {found}, expected {:?}", newest.get(&slot)));
        }
    }
    let ends = own.first().zip(own.last());
    let is_right = header.slot_count as usize == newest.len()
        && ends.is_none_or(|((_, first, begin), (_, last, end))| {
            (header.begin_physical_offset, header.end_physical_offset) == (*first, *last)
                && (header.begin_time, header.end_time) == (*begin, *end)
        });
    if is_right {
        Ok(count)
    } else {
        Err(format!("{header:?} for {own:?}"))
    }
}
