//! Many keys and ids at once are found as they are one by one, in one index file or in many, whole or damaged.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqstore::config::Errors;
use mqstore::format::{INDEX_HEADER_SIZE, ITEM_SIZE, IndexGeometry, IndexHeader, IndexItem, property};
use mqstore::log::LogFiles;
use mqstore::read::{HitBounds, MessageReader, OffsetResolver, resolve_ids};
use mqstore::storage::{Access, Advice, Env, MappedFile, RealEnv};
use tempfile::{TempDir, tempdir};

use crate::reading::open;
use crate::store_writer::StoreWriter;

/// A file has 400 items and a message three keys, so the keys of the last message of a file continue in the next file. Otherwise a reader
/// also reads the log between the two files, and finds the last keys there.
const GEOMETRY: IndexGeometry = IndexGeometry { slots: 100, items: 401 };
/// They have three keys each, and fill seven index files and a part of another one.
const MESSAGES: i64 = 1000;

/// A store, and where its messages lie by topic and key.
struct Store {
    dir: TempDir,
    by_key: BTreeMap<(&'static str, String), Vec<i64>>,
}

impl Store {
    fn new() -> Self {
        let dir = tempdir().unwrap();
        let mut writer = StoreWriter::new(dir.path(), 16384, 50, GEOMETRY.slots, GEOMETRY.items);
        let mut by_key: BTreeMap<_, Vec<i64>> = BTreeMap::new();
        for n in 0..MESSAGES {
            let topic = if n % 3 == 0 { "orders" } else { "bills" };
            let (unique, keys) = (format!("u{n}"), format!("hot{} k{}", n % 5, n % 700));
            let offset = writer.put(topic, 0, b"x", &[(property::KEYS, &keys), (property::UNIQ_KEY, &unique)]);
            for key in keys.split(' ').chain([&*unique]) {
                by_key.entry((topic, key.to_owned())).or_default().push(offset);
            }
        }
        writer.finish(true);
        Self { dir, by_key }
    }

    fn index_files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.dir.path().join("index")).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    /// All keys there are, and as many that are not there.
    fn expect_all_keys(&self, reader: &MessageReader, what: &str) {
        let mut wanted: Vec<(&str, &str)> = self.by_key.keys().map(|(topic, key)| (*topic, key.as_str())).collect();
        let absent: Vec<String> = (0..wanted.len()).map(|n| format!("none{n}")).collect();
        wanted.extend(absent.iter().map(|key| ("orders", key.as_str())));
        let hits = reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Raise).unwrap();
        assert_eq!(hits.iter().len(), wanted.len());
        for ((topic, key), hits) in wanted.iter().zip(hits.iter()) {
            let found: Vec<i64> = hits.iter().map(|hit| hit.physical_offset).collect();
            let expected = self.by_key.get(&(*topic, (*key).to_owned()));
            assert_eq!(found, expected.cloned().unwrap_or_default(), "{what}: {topic} {key}");
        }
    }

    /// Looks for each key alone: no other key of the same call meets the damage that hides it.
    fn expect_each_key(&self, reader: &MessageReader, what: &str) {
        for ((topic, key), expected) in &self.by_key {
            let hits = reader
                .resolve_keys(&[(*topic, key.as_str())], &HitBounds::default(), Errors::Raise)
                .unwrap();
            let found: Vec<i64> = hits.of(0).iter().map(|hit| hit.physical_offset).collect();
            assert_eq!(&found, expected, "{what}: {topic} {key}");
        }
    }
}

fn change_item(path: &Path, number: u32, change: impl FnOnce(&mut IndexItem)) {
    let mut image = fs::read(path).unwrap();
    let at = GEOMETRY.item_position(number) as usize;
    let bytes = &mut image[at..at + ITEM_SIZE];
    let mut item = IndexItem::decode((&*bytes).try_into().unwrap());
    change(&mut item);
    bytes.copy_from_slice(&item.encode());
    fs::write(path, image).unwrap();
}

#[test]
fn keys_of_many_index_files_are_found_each_time_they_are_looked_for() {
    let store = Store::new();
    assert_eq!(store.index_files().len(), 8);
    let reader = open(store.dir.path());
    // A few keys, for which no filter is made, then so many that each file gets one, then again.
    for key in ["k0", "hot1", "none"] {
        let hits = reader
            .resolve_keys(&[("orders", key)], &HitBounds::default(), Errors::Raise)
            .unwrap();
        let expected = store.by_key.get(&("orders", key.to_owned())).map_or(0, Vec::len);
        assert_eq!(hits.of(0).len(), expected, "{key}");
    }
    for round in 0..3 {
        store.expect_all_keys(&reader, &format!("round {round}"));
    }
}

#[test]
fn an_item_that_its_own_hash_hides_is_found_all_the_same() {
    for number in [1, 57, 400] {
        let store = Store::new();
        change_item(&store.index_files()[2], number, |item| item.key_hash ^= 1);
        let reader = open(store.dir.path());
        for round in 0..2 {
            store.expect_all_keys(&reader, &format!("item {number}, round {round}"));
        }
        store.expect_each_key(&reader, &format!("item {number}"));
    }
}

#[test]
fn a_broken_chain_makes_the_keys_of_its_stretch_be_looked_for_in_the_log() {
    let store = Store::new();
    for file in &store.index_files()[1..4] {
        change_item(file, 300, |item| item.previous = 399);
    }
    store.expect_all_keys(&open(store.dir.path()), "links that rise");
    let store = Store::new();
    let path = &store.index_files()[3];
    let header = IndexHeader::decode(fs::read(path).unwrap()[..INDEX_HEADER_SIZE].try_into().unwrap());
    // Inside the range of the file, where no record starts.
    change_item(path, 200, |item| item.physical_offset = header.begin_physical_offset + 1);
    store.expect_all_keys(&open(store.dir.path()), "an offset inside a record");
}

/// The newest hits of each key before a physical offset, at most `limit`.
fn expect_newest(store: &Store, reader: &MessageReader, bounds: &HitBounds, what: &str) {
    let wanted: Vec<(&str, &str)> = store.by_key.keys().map(|(topic, key)| (*topic, key.as_str())).collect();
    let hits = reader.resolve_keys(&wanted, bounds, Errors::Raise).unwrap();
    for (known, hits) in store.by_key.values().zip(hits.iter()) {
        let known = known.iter().copied().filter(|offset| bounds.physical.contains(offset));
        let mut expected: Vec<i64> = known.rev().take(bounds.limit.unwrap_or(usize::MAX)).collect();
        expected.reverse();
        let found: Vec<i64> = hits.iter().map(|hit| hit.physical_offset).collect();
        assert_eq!(found, expected, "{what}: {bounds:?}");
    }
}

#[test]
fn a_limit_gives_the_newest_hits_of_each_key_between_two_log_offsets() {
    let store = Store::new();
    let offsets: Vec<i64> = store.by_key.values().flatten().copied().collect();
    let middle = (offsets.iter().min().unwrap() + offsets.iter().max().unwrap()) / 2;
    for what in ["an index", "an index with a broken chain", "no index"] {
        match what {
            "an index with a broken chain" => change_item(&store.index_files()[4], 300, |item| item.previous = 399),
            "no index" => fs::remove_dir_all(store.dir.path().join("index")).unwrap(),
            _ => {}
        }
        let reader = open(store.dir.path());
        for limit in [Some(0), Some(1), Some(2), Some(7), None] {
            for physical in [0..middle, 0..i64::MAX, middle..i64::MAX, middle..middle + 1000, 0..0] {
                expect_newest(&store, &reader, &HitBounds { physical, limit }, what);
            }
        }
    }
}

#[test]
fn a_limit_finds_hits_before_records_with_a_colliding_key() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 20, 50, GEOMETRY.slots, 5000);
    // "Aa" and "BB" have one hash in Java.
    let offsets: Vec<i64> = (0..3)
        .map(|_| writer.put("orders", 0, b"x", &[(property::KEYS, "Aa Aa")]))
        .collect();
    for _ in 0..100 {
        writer.put("orders", 0, b"x", &[(property::KEYS, "BB")]);
    }
    writer.finish(true);
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(dir.path().join("index")).unwrap();
        }
        let reader = open(dir.path());
        for round in 0..2 {
            let bounds = HitBounds {
                limit: Some(2),
                ..HitBounds::default()
            };
            let hits = reader
                .resolve_keys(&[("orders", "Aa"), ("orders", "BB")], &bounds, Errors::Raise)
                .unwrap();
            let found: Vec<i64> = hits.of(0).iter().map(|hit| hit.physical_offset).collect();
            assert_eq!(found, offsets[1..], "with an index: {with_index}, round {round}");
            assert_eq!(hits.of(1).len(), 2);
        }
    }
}

/// Asks for the newest message with each key. The first round may walk the log, and the next one has what that has left in memory.
fn expect_newest_of_each(store: &Path, keys: &[&str], newest: &[i64]) {
    let reader = open(store);
    let bounds = HitBounds {
        limit: Some(1),
        ..HitBounds::default()
    };
    let wanted: Vec<_> = keys.iter().map(|key| ("orders", *key)).collect();
    for round in 0..2 {
        let hits = reader.resolve_keys(&wanted, &bounds, Errors::Raise).unwrap();
        let found: Vec<i64> = hits.all().iter().map(|hit| hit.physical_offset).collect();
        assert_eq!(found, newest, "round {round}");
    }
}

#[test]
fn a_limit_gives_the_newest_hit_where_its_index_item_names_a_wrong_place() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 20, 50, GEOMETRY.slots, GEOMETRY.items);
    // "Aa" and "BB" have one hash in Java, so that more than the first item of the chain is looked at.
    let mut put = |key: &str| writer.put("orders", 0, b"x", &[(property::KEYS, key)]);
    put("Aa");
    put("Aa");
    let newest = put("Aa");
    put("BB");
    writer.finish(true);
    let index = fs::read_dir(dir.path().join("index"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    change_item(&index, 3, |item| item.physical_offset += 1);
    expect_newest_of_each(dir.path(), &["Aa"], &[newest]);
}

#[test]
fn a_limit_keeps_a_shared_hit_despite_a_wrong_item_of_the_older_file() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 20, 50, GEOMETRY.slots, GEOMETRY.items);
    let mut put = |keys: &str| writer.put("orders", 0, b"x", &[(property::KEYS, keys)]);
    for n in 1..GEOMETRY.items - 2 {
        put(&format!("k{n}"));
    }
    let misplaced = put("misplaced");
    // The first file has its first key, the second file the other one.
    let shared = put("last first");
    writer.finish(true);
    let files = fs::read_dir(dir.path().join("index")).unwrap();
    let first = files.map(|file| file.unwrap().path()).min().unwrap();
    change_item(&first, GEOMETRY.items - 2, |item| item.physical_offset += 1);
    expect_newest_of_each(dir.path(), &["misplaced", "first"], &[misplaced, shared]);
}

#[test]
fn a_limit_gives_the_newest_hits_of_a_walk_whose_keys_are_kept_in_parts() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 24, 300, 100, 1 << 22);
    let mut put = |keys: &str| writer.put("orders", 0, b"", &[(property::KEYS, keys)]);
    put("Aa");
    // The keys of a part.
    let keys = vec!["k"; 16_000].join(" ");
    for _ in 0..132 {
        put(&keys);
    }
    let newest = put("Aa");
    // Of the same hash.
    put("BB");
    writer.finish(true);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    expect_newest_of_each(dir.path(), &["Aa"], &[newest]);
}

#[test]
fn what_was_walked_gives_the_same_again() {
    let store = Store::new();
    fs::remove_dir_all(store.dir.path().join("index")).unwrap();
    let reader = open(store.dir.path());
    for round in 0..3 {
        store.expect_all_keys(&reader, &format!("round {round}"));
    }
    // Neither a walk looks at bodies, nor what it leaves in memory.
    let first = fs::read_dir(store.dir.path().join("commitlog"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .min()
        .unwrap();
    let mut image = fs::read(&first).unwrap();
    let body = image.windows(2).position(|bytes| bytes == b"x\x06").unwrap();
    image[body] = b'y';
    fs::write(&first, image).unwrap();
    let reader = open(store.dir.path());
    for round in 0..2 {
        store.expect_all_keys(&reader, &format!("a damaged body, round {round}"));
    }
}

#[test]
fn ids_are_found_as_one_by_one() {
    let store = Store::new();
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(store.dir.path().join("index")).unwrap();
        }
        let reader = open(store.dir.path());
        let last = store.by_key.values().flatten().max().unwrap();
        let mut ids: Vec<String> = (0..MESSAGES).rev().map(|n| format!("u{n}")).collect();
        ids.extend([0, *last, 1, 1 << 40].map(|offset: i64| format!("0A00000100002A9F{offset:016X}")));
        ids.extend(["none", "", "k0", "u7"].map(str::to_owned));
        let given: Vec<&str> = ids.iter().map(String::as_str).collect();
        let found = resolve_ids(&reader, &given, Errors::Raise).unwrap();
        for (id, found) in ids.iter().zip(found) {
            let message = reader.message(id, true).ok();
            let expected = message.map(|message| (message.view().physical_offset(), message.view().size() as i32));
            let found = found.map(|position| (position.physical_offset, position.store_size));
            assert_eq!(found, expected, "{id:?}, with an index: {with_index}");
        }
    }
}

#[test]
fn offsets_of_more_queues_than_files_are_kept_for_are_found() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 16384, 2, 100, 400);
    let places: Vec<(i32, i64, i64)> = (0..2000)
        .map(|n| {
            let (queue_id, queue_offset) = (n % 400, i64::from(n / 400));
            (queue_id, queue_offset, writer.put("orders", queue_id, b"x", &[]))
        })
        .collect();
    writer.finish(true);
    let reader = open(dir.path());
    let mut resolver = OffsetResolver::new(&reader);
    for (queue_id, queue_offset, physical) in places.iter().chain(places.iter().rev()) {
        let position = resolver.position("orders", *queue_id, *queue_offset).unwrap();
        assert_eq!(position.map(|position| position.physical_offset), Some(*physical));
    }
    for (queue_id, queue_offset) in [(400, 0), (0, 5), (0, -1), (-1, 0), (0, i64::MAX), (0, i64::MIN)] {
        assert_eq!(resolver.position("orders", queue_id, queue_offset).unwrap(), None);
    }
    assert_eq!(resolver.position("none", 0, 0).unwrap(), None);
}

/// Drops a file from the page cache; `false` if it stays there, as one on a tmpfs does.
fn drop_cached(path: &Path) -> bool {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    let env = RealEnv::new();
    let opened = env.open(path, Access::Read).unwrap();
    opened.advise(0..file.metadata().unwrap().len(), Advice::DontNeed).unwrap();
    !map(path).is_cached(0..1)
}

fn map(path: &Path) -> Arc<MappedFile> {
    let len = fs::metadata(path).unwrap().len();
    MappedFile::open(&RealEnv::new(), path.to_owned(), 0, len).unwrap()
}

#[test]
fn records_that_are_not_in_memory_are_read_from_disk_together() {
    let store = Store::new();
    let log = store.dir.path().join("commitlog");
    let mut files: Vec<PathBuf> = fs::read_dir(&log).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    if !files.iter().all(|path| drop_cached(path)) {
        return;
    }
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let records = LogFiles::load(env, &log, None).unwrap();
    let segment = records.segment_size() as i64;
    let wanted = [1, 3, 4].map(|number| number * segment);
    records.read_ahead(&wanted).unwrap();
    let begun = Instant::now();
    while ![1, 3, 4].iter().all(|number: &usize| map(&files[*number]).is_cached(0..1)) {
        assert!(begun.elapsed() < Duration::from_secs(10), "nothing is read");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!map(&files[6]).is_cached(0..1), "what is not wanted is not read");
    // What is outside of the log, and no record at all, is passed over.
    records.read_ahead(&[]).unwrap();
    records.read_ahead(&[-1, segment / 2, i64::MAX]).unwrap();
}
