//! Stores that RocketMQ wrote: our types encode every record, queue entry, index file and checkpoint to the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use mqstore::format::{
    BLANK_SIZE, CQ_UNIT_SIZE, Check, Checkpoint, CqUnit, DelayLevels, DispatchRequest, GeometryGuess, INDEX_HEADER_SIZE,
    ITEM_SIZE, IndexGeometry, IndexHeader, MessageView, Record, SLOT_SIZE, detect_index_geometry, encode_blank, index_key_hash,
    parse_index_name, parse_segment_name, property, read_record,
};

use crate::later_formats::{BATCH_CQ_UNIT_SIZE, BatchCqUnit};

/// The directory of golden stores.
pub(crate) fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Unpacks the store of 7,865 events into `into` and returns its path.
pub(crate) fn unpack_events(into: &Path) -> PathBuf {
    unpack("533_events", into)
}

/// Unpacks a golden store that is an archive into `into` and returns its path.
pub(crate) fn unpack(name: &str, into: &Path) -> PathBuf {
    let archive = fs::File::open(golden_dir().join(format!("{name}.tar.xz"))).unwrap();
    let mut tar = Vec::new();
    lzma_rs::xz_decompress(&mut BufReader::new(archive), &mut tar).unwrap();
    tar::Archive::new(&tar[..]).unpack(into).unwrap();
    into.join(name)
}

/// The entries of a directory by name; none if it is missing.
fn list(dir: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let entries = entries.map(|entry| entry.unwrap());
    let mut list: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .collect();
    list.sort();
    list
}

/// The files of one queue or of the log, with the byte at which each starts.
type Segments = Vec<(i64, Vec<u8>)>;

fn segments(dir: &Path) -> Segments {
    let read = |(name, path): (String, PathBuf)| (parse_segment_name(&name).unwrap() as i64, fs::read(path).unwrap());
    list(dir).into_iter().map(read).collect()
}

#[derive(Default)]
struct Tally {
    records: usize,
    blanks: usize,
    entries: usize,
    batch_entries: usize,
    index_files: usize,
    checkpoints: usize,
    differences: Vec<String>,
}

impl Tally {
    fn compare(&mut self, what: impl FnOnce() -> String, ours: &[u8], theirs: &[u8]) {
        if ours != theirs {
            self.differences.push(what());
        }
    }

    fn add(&mut self, other: Self) {
        self.records += other.records;
        self.blanks += other.blanks;
        self.entries += other.entries;
        self.batch_entries += other.batch_entries;
        self.index_files += other.index_files;
        self.checkpoints += other.checkpoints;
        self.differences.extend(other.differences);
    }

    fn print(&self, name: &str) {
        println!(
            "{name:<20} {:>6} records {:>3} blanks {:>6} entries {:>2} batch entries {:>3} index files {:>3} checkpoints {:>3} differences",
            self.records,
            self.blanks,
            self.entries,
            self.batch_entries,
            self.index_files,
            self.checkpoints,
            self.differences.len()
        );
    }
}

/// The whole records of a log by physical offset.
type Log<'a> = BTreeMap<i64, MessageView<'a>>;

fn check_log<'a>(segments: &'a [(i64, Vec<u8>)], tally: &mut Tally) -> Log<'a> {
    let mut log = Log::new();
    for (start, bytes) in segments {
        let mut at = 0;
        loop {
            let offset = start + at as i64;
            match read_record(&bytes[at..], Check::Whole) {
                Record::Message(view) => {
                    let encoded = view.to_message().encode().unwrap();
                    tally.compare(|| format!("record at {offset}"), &encoded, view.bytes());
                    tally.compare(
                        || format!("place of {offset}"),
                        &view.physical_offset().to_be_bytes(),
                        &offset.to_be_bytes(),
                    );
                    tally.records += 1;
                    at += encoded.len();
                    log.insert(offset, view);
                }
                Record::Blank { size } => {
                    let left = (bytes.len() - at) as u32;
                    tally.compare(|| format!("blank at {offset}"), &size.to_be_bytes(), &left.to_be_bytes());
                    tally.compare(
                        || format!("blank at {offset}"),
                        &encode_blank(left),
                        &bytes[at..at + BLANK_SIZE],
                    );
                    tally.blanks += 1;
                    break;
                }
                Record::End => break,
                Record::Corrupt(malformed) => {
                    tally.differences.push(format!("no record at {offset}: {malformed}"));
                    break;
                }
            }
        }
    }
    log
}

/// Every queue under `dir`: topic, queue id and files.
fn queues(dir: &Path) -> Vec<(String, i32, Segments)> {
    let topics = list(dir).into_iter();
    let queues = topics.flat_map(|(topic, path)| list(&path).into_iter().map(move |(queue, path)| (topic.clone(), queue, path)));
    queues
        .map(|(topic, queue, path)| (topic, queue.parse().unwrap(), segments(&path)))
        .collect()
}

fn check_entries(dir: &Path, log: &Log<'_>, tally: &mut Tally) {
    let levels = DelayLevels::default();
    for (topic, queue, files) in queues(&dir.join("consumequeue")) {
        for (start, bytes) in files {
            let (units, _) = bytes.as_chunks::<CQ_UNIT_SIZE>();
            for (unit, queue_offset) in units.iter().zip(start / CQ_UNIT_SIZE as i64..) {
                let entry = CqUnit::decode(unit);
                if !entry.is_valid() {
                    break;
                }
                let at = || format!("entry {topic}/{queue}/{queue_offset}");
                let Some(view) = log.get(&entry.physical_offset) else {
                    tally.differences.push(format!("{} has no record", at()));
                    continue;
                };
                assert_eq!(
                    (&*view.topic(), view.queue_id(), view.queue_offset()),
                    (&*topic, queue, queue_offset)
                );
                let ours = CqUnit {
                    physical_offset: view.physical_offset(),
                    size: view.size() as i32,
                    tags_code: DispatchRequest::of(view).tags_code(&levels),
                };
                tally.compare(at, &ours.encode(), unit);
                tally.entries += 1;
            }
        }
    }
}

fn check_batch_entries(dir: &Path, log: &Log<'_>, tally: &mut Tally) {
    for (topic, queue, files) in queues(&dir.join("batchconsumequeue")) {
        for unit in files.iter().flat_map(|(_, bytes)| bytes.as_chunks::<BATCH_CQ_UNIT_SIZE>().0) {
            let entry = BatchCqUnit::decode(unit);
            if !entry.is_valid() {
                break;
            }
            let view = &log[&entry.physical_offset];
            assert!(view.is_inner_batch());
            let count = view.properties().get(property::INNER_NUM).unwrap().parse().unwrap();
            let ours = BatchCqUnit {
                physical_offset: view.physical_offset(),
                size: view.size() as i32,
                tags_code: DispatchRequest::of(view).tags_code(&DelayLevels::default()),
                store_time: view.store_time(),
                base_offset: view.queue_offset(),
                count,
                compacted_offset: -1,
                reserved: 0,
            };
            tally.compare(
                || format!("batch entry {topic}/{queue}/{}", entry.base_offset),
                &ours.encode(),
                unit,
            );
            tally.batch_entries += 1;
        }
    }
}

/// The image of one index file while keys are put.
struct IndexImage {
    header: IndexHeader,
    geometry: IndexGeometry,
    bytes: Vec<u8>,
}

impl IndexImage {
    fn new(geometry: IndexGeometry, previous: Option<&Self>) -> Self {
        let header = IndexHeader::rolled_from(previous.map(|file| &file.header));
        let mut bytes = vec![0; geometry.file_len() as usize];
        bytes[..INDEX_HEADER_SIZE].copy_from_slice(&header.encode());
        Self { header, geometry, bytes }
    }

    fn put(&mut self, view: &MessageView<'_>, key: &str) -> bool {
        let hash = index_key_hash(&view.topic(), key);
        let slot_at = self.geometry.slot_position(self.geometry.slot_of(hash)) as usize;
        let slot = i32::from_be_bytes(self.bytes[slot_at..slot_at + SLOT_SIZE].try_into().unwrap());
        let number = self.header.index_count;
        let Some(item) = self
            .header
            .admit(self.geometry, slot, hash, view.physical_offset(), view.store_time())
        else {
            return false;
        };
        let item_at = self.geometry.item_position(number as u32) as usize;
        self.bytes[item_at..item_at + ITEM_SIZE].copy_from_slice(&item.encode());
        self.bytes[slot_at..slot_at + SLOT_SIZE].copy_from_slice(&number.to_be_bytes());
        self.bytes[..INDEX_HEADER_SIZE].copy_from_slice(&self.header.encode());
        true
    }
}

/// The index files that a log gives. A record without keys also makes the file in which its keys would be.
fn build_index(log: &Log<'_>, geometry: IndexGeometry, index_tags: bool) -> Vec<IndexImage> {
    let mut images: Vec<IndexImage> = Vec::new();
    for view in log.values() {
        if images.last().is_none_or(|image| image.header.is_full(geometry)) {
            images.push(IndexImage::new(geometry, images.last()));
        }
        for key in DispatchRequest::of(view).index_keys(index_tags) {
            if !images.last_mut().unwrap().put(view, &key) {
                images.push(IndexImage::new(geometry, images.last()));
                assert!(images.last_mut().unwrap().put(view, &key));
            }
        }
    }
    images
}

fn index_files(dir: &Path) -> Vec<Vec<u8>> {
    let files = list(&dir.join("index")).into_iter();
    files
        .filter(|(name, _)| parse_index_name(name).is_some())
        .map(|(_, path)| fs::read(path).unwrap())
        .collect()
}

/// The geometry with which the golden stores were written, by the length of an index file.
fn written_geometry(len: usize) -> IndexGeometry {
    match len {
        1440 => IndexGeometry { slots: 100, items: 50 },
        8440 => IndexGeometry { slots: 100, items: 400 },
        _ => IndexGeometry {
            slots: 5000,
            items: 20_000,
        },
    }
}

fn check_index(dir: &Path, log: &Log<'_>, tally: &mut Tally) {
    let files = index_files(dir);
    let geometry = written_geometry(files[0].len());
    for file in &files {
        let filled = file[INDEX_HEADER_SIZE..].iter().any(|byte| *byte != 0);
        let expected = if filled {
            GeometryGuess::One(geometry)
        } else {
            GeometryGuess::Empty
        };
        assert_eq!(detect_index_geometry(file), expected, "{}", dir.display());
    }
    // Tags are keys since 5.4.0.
    let index_tags = dir.ends_with("551_mixed");
    let images = build_index(log, geometry, index_tags);
    tally.compare(
        || "number of index files".to_owned(),
        &images.len().to_be_bytes(),
        &files.len().to_be_bytes(),
    );
    for (number, (image, file)) in images.iter().zip(&files).enumerate() {
        tally.compare(|| format!("index file {number}"), &image.bytes, file);
        tally.index_files += 1;
    }
}

fn check_checkpoint(dir: &Path, tally: &mut Tally) {
    let bytes = fs::read(dir.join("checkpoint")).unwrap();
    tally.compare(|| "checkpoint".to_owned(), &Checkpoint::decode(&bytes).encode(), &bytes);
    tally.checkpoints += 1;
}

fn check_store(dir: &Path) -> Tally {
    let mut tally = Tally::default();
    let segments = segments(&dir.join("commitlog"));
    let log = check_log(&segments, &mut tally);
    check_entries(dir, &log, &mut tally);
    check_batch_entries(dir, &log, &mut tally);
    check_index(dir, &log, &mut tally);
    check_checkpoint(dir, &mut tally);
    tally
}

fn is_store(dir: &Path) -> bool {
    dir.join("commitlog").is_dir()
}

#[test]
fn every_byte_that_rocketmq_wrote_is_written_again() {
    let unpacked = tempfile::tempdir().unwrap();
    let mut stores: Vec<PathBuf> = list(&golden_dir())
        .into_iter()
        .map(|(_, path)| path)
        .filter(|path| is_store(path))
        .collect();
    stores.push(unpack_events(unpacked.path()));

    let mut total = Tally::default();
    for store in &stores {
        let tally = check_store(store);
        tally.print(&store.file_name().unwrap().to_string_lossy());
        total.add(tally);
    }
    total.print(&format!("{} stores", stores.len()));
    assert_eq!(total.differences, [""; 0]);
    assert_eq!(stores.len(), 14);
    assert!(total.records > 7865 && total.entries > 7865 && total.batch_entries > 0 && total.index_files > 30);
}
