//! The files that a reader touches: it changes nothing, reads no more than it needs, and keeps few mappings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::read::{
    Filled, GetRequest, HitBounds, MessageReader, OnDamage, Picked, QueryBy, QueryRequest, QueueScan, Scan, ScanRequest, Side,
    TagFilter, UsageBy,
};
use mqstore::storage::Env;
use tempfile::{tempdir, tempdir_in};

use crate::counting_env::CountingEnv;
use crate::heap;
use crate::queries::by_key;
use crate::store_writer::StoreWriter;

fn open(env: &CountingEnv, path: &Path) -> Arc<MessageReader> {
    let env: Arc<dyn Env> = Arc::new(env.clone());
    Arc::new(MessageReader::open(&env, path, StoreConfig::default()).unwrap())
}

fn files(dir: &Path, found: &mut BTreeMap<String, (SystemTime, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found);
        } else {
            let modified = entry.metadata().unwrap().modified().unwrap();
            found.insert(
                entry.path().display().to_string(),
                (modified, fs::read(entry.path()).unwrap()),
            );
        }
    }
}

/// Reads everything, by every call.
fn read_all(reader: &Arc<MessageReader>) -> usize {
    let mut count = 0;
    reader.usage(&[UsageBy::Tags], Errors::Raise).unwrap();
    reader.segments().unwrap();
    reader.index_files().unwrap();
    for answered in [
        reader.lag().map(drop),
        reader.topic_configs().map(drop),
        reader.delay_offsets().map(drop),
    ] {
        assert!(matches!(answered, Ok(()) | Err(Error::NotFound { .. })), "{answered:?}");
    }
    for topic in reader.topics().unwrap() {
        let Ok(queue_ids) = reader.queue_ids(&topic) else { continue };
        for queue_id in queue_ids {
            let bounds = reader.queue_bounds(&topic, queue_id).unwrap();
            for message in QueueScan::new(reader.clone(), topic.clone(), queue_id, bounds.clone()).unwrap() {
                let message = message.unwrap();
                let view = message.view();
                reader.message(&view.message_id().to_string(), false).unwrap();
                for key in view.keys() {
                    let request = QueryRequest {
                        topic: topic.clone(),
                        by: QueryBy::Key(key),
                        times: i64::MIN..i64::MAX,
                        limit: Some(64),
                        errors: Errors::Raise,
                    };
                    assert!(!reader.query(&request).unwrap().hits.is_empty());
                }
                count += 1;
            }
            let request = GetRequest {
                topic: topic.clone(),
                queue_id,
                offset: bounds.start,
                max_messages: 32,
                tags: TagFilter::default(),
                bounded: true,
                errors: Errors::Raise,
            };
            reader.get::<Error>(&request, |_| Ok(true)).unwrap();
            reader.offset_at(&topic, queue_id, 0, Side::Left).unwrap();
        }
    }
    count
}

#[test]
fn reading_golden_stores_opens_nothing_for_writing_and_changes_nothing() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut messages = 0;
    for store in fs::read_dir(&golden)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("commitlog").is_dir())
    {
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        files(&store, &mut before);
        let env = CountingEnv::new();
        messages += read_all(&open(&env, &store));
        files(&store, &mut after);
        assert_eq!(env.changes(), [""; 0], "{}", store.display());
        assert!(before == after, "{} changed", store.display());
    }
    assert!(messages > 800, "{messages} messages read");
}

#[test]
fn one_message_by_queue_offset_reads_twenty_bytes_of_its_queue() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 16, 1000, 100, 400);
    for n in 0..900_u32 {
        writer.put("orders", 0, &n.to_be_bytes(), &[]);
    }
    writer.finish(true);
    let env = CountingEnv::new();
    let reader = open(&env, dir.path());
    let queue = dir.path().join("consumequeue");
    let before = env.bytes_read_below(&queue);
    let message = reader.message_in_queue("orders", 0, 555).unwrap();
    assert_eq!(message.view().body(), 555_u32.to_be_bytes());
    assert_eq!(env.bytes_read_below(&queue) - before, 20);
}

#[test]
fn a_list_of_the_segments_reads_the_head_of_each() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 16, 300_000, 100, 400);
    for _ in 0..900 {
        writer.put("orders", 0, &[7; 1000], &[]);
    }
    writer.finish(true);
    let env = CountingEnv::new();
    let reader = open(&env, dir.path());
    let log = dir.path().join("commitlog");
    let before = env.bytes_read_below(&log);
    let segments = reader.segments().unwrap();
    assert!(segments.len() > 10 && segments.iter().all(|segment| segment.first_store_time.is_some()));
    let read = env.bytes_read_below(&log) - before;
    assert!(
        read <= 100 * segments.len() as u64,
        "{read} bytes of {} segments",
        segments.len()
    );
    reader.usage(&[], Errors::Raise).unwrap();
    assert!(env.bytes_read_below(&log) - before > 900_000);
}

/// Returns the number of messages of a scan.
fn scanned(reader: &Arc<MessageReader>, request: ScanRequest) -> usize {
    let mut scan = Scan::new(reader.clone(), request, OnDamage::new(Errors::Raise)).unwrap();
    let mut count = 0;
    let mut take = |_: Picked<'_>| {
        count += 1;
        Ok(true)
    };
    while !matches!(scan.fill(&mut take).unwrap(), Filled::End) {}
    count
}

#[test]
fn a_scan_of_a_stretch_does_not_read_the_segment_before_it() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 20, 300_000, 100, 400);
    for _ in 0..900 {
        writer.put("orders", 0, &[7; 1000], &[]);
    }
    writer.finish(true);
    let env = CountingEnv::new();
    let reader = open(&env, dir.path());
    let before = env.bytes_read_below(&dir.path().join("commitlog"));
    let request = ScanRequest {
        physical: 800_000..810_000,
        ..ScanRequest::default()
    };
    assert!((8..=10).contains(&scanned(&reader, request)));
    let read = env.bytes_read_below(&dir.path().join("commitlog")) - before;
    assert!(read < 300_000, "{read} bytes");
}

#[test]
fn a_scan_of_a_topic_in_a_stretch_reads_the_entries_of_that_stretch() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 16 << 20, 300_000, 100, 400);
    for _ in 0..5000 {
        writer.put("rare", 0, b"x", &[]);
        writer.put("usual", 0, &[7; 2000], &[]);
    }
    writer.finish(true);
    // Without settings the topic may have had more queues, and the entries of whole segments are counted.
    let settings = r#"{"topicConfigTable":{"rare":{"topicName":"rare","readQueueNums":1,"writeQueueNums":1}}}"#;
    fs::create_dir_all(dir.path().join("config")).unwrap();
    fs::write(dir.path().join("config/topics.json"), settings).unwrap();
    let env = CountingEnv::new();
    let reader = open(&env, dir.path());
    let queue = dir.path().join("consumequeue/rare");
    let before = env.bytes_read_below(&queue);
    let last = reader.physical_bounds().end;
    let request = ScanRequest {
        topics: Some(vec!["rare".to_owned()]),
        physical: last - 100_000..last,
        ..ScanRequest::default()
    };
    assert!((40..=50).contains(&scanned(&reader, request)));
    let read = env.bytes_read_below(&queue) - before;
    assert!(read < 10_000, "{read} bytes of 100,000");
}

#[test]
fn opening_a_clean_store_reads_only_its_ends() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 16, 300_000, 100, 400);
    for _ in 0..900 {
        writer.put("orders", 0, &[7; 1000], &[("KEYS", "k")]);
    }
    writer.finish(true);
    let env = CountingEnv::new();
    open(&env, dir.path());
    assert!(env.bytes_read_below(&dir.path().join("commitlog")) < 10_000);
    assert!(env.bytes_read_below(&dir.path().join("consumequeue")) < 200_000);
    assert_eq!(
        env.bytes_read_below(&dir.path().join("index")),
        40 * fs::read_dir(dir.path().join("index")).unwrap().count() as u64
    );
}

#[test]
fn a_log_without_an_index_is_walked_once_for_all_keys() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 16, 300_000, 100, 400);
    let offsets: Vec<i64> = (0..900)
        .map(|n| writer.put("orders", 0, &[7; 1000], &[("KEYS", &format!("k{n}"))]))
        .collect();
    writer.finish(true);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    let env = CountingEnv::new();
    let reader = open(&env, dir.path());
    let log = dir.path().join("commitlog");
    let find = |number: usize, end: i64| {
        let before = env.bytes_read_below(&log);
        let bounds = HitBounds {
            physical: 0..end,
            limit: None,
        };
        let hits = reader
            .resolve_keys(&[("orders", &format!("k{number}"))], &bounds, Errors::Raise)
            .unwrap();
        let found: Vec<i64> = hits.of(0).iter().map(|hit| hit.physical_offset).collect();
        (found, env.bytes_read_below(&log) - before)
    };
    let half = offsets[450] as u64;
    let (found, first) = find(7, offsets[450]);
    assert_eq!(found, [offsets[7]]);
    assert!(first >= half, "{first} bytes");
    // What comes after that, and nothing of what was walked.
    let (found, read) = find(700, i64::MAX);
    assert_eq!(found, [offsets[700]]);
    assert!(read < first + (1 << 17), "{read} bytes, and {first} for the first half");
    for number in [0, 449, 450, 451, 899] {
        let (found, read) = find(number, i64::MAX);
        assert_eq!(found, [offsets[number]]);
        assert!(read < 10_000, "{read} bytes");
    }
    assert_eq!(find(700, offsets[450]).0, [] as [i64; 0]);
}

#[test]
fn a_walk_continues_without_a_copy_of_the_keys_before_it() {
    const MESSAGES: usize = 150;
    const KEYS: usize = 16_000;
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 24, 300, 100, 1 << 22);
    let keys = vec!["k"; KEYS].join(" ");
    let offsets: Vec<i64> = (0..MESSAGES)
        .map(|n| writer.put("orders", 0, b"", &[("UNIQ_KEY", &format!("u{n}")), ("KEYS", &keys)]))
        .collect();
    writer.finish(true);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    let env = CountingEnv::new();
    let reader = open(&env, dir.path());
    let find = |number: usize, end: i64| {
        let bounds = HitBounds {
            physical: 0..end,
            limit: None,
        };
        let key = format!("u{number}");
        let hits = reader.resolve_keys(&[("orders", &key)], &bounds, Errors::Raise).unwrap();
        let found: Vec<i64> = hits.of(0).iter().map(|hit| hit.physical_offset).collect();
        assert_eq!(found, [offsets[number]]);
    };
    // The keys of 100 messages are kept, and then those of 50 more, each key in 16 bytes. What grows has room for twice as many, and sorting
    // takes half as much again.
    find(7, offsets[100]);
    let ((), most) = heap::most_while(|| find(149, i64::MAX));
    assert!(most < 50 * KEYS * 16 * 5 / 2, "{most} bytes");
    let log = dir.path().join("commitlog");
    let before = env.bytes_read_below(&log);
    for number in [0, 99, 100, 149] {
        find(number, i64::MAX);
    }
    let read = env.bytes_read_below(&log) - before;
    assert!(read < 1 << 20, "{read} bytes: what was walked is walked again");
}

#[test]
fn a_query_with_a_limit_that_walks_the_log_holds_few_messages() {
    const MESSAGES: usize = 2000;
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 24, 3000, 100, 4000);
    let offsets: Vec<i64> = (0..MESSAGES)
        .map(|_| writer.put("orders", 0, &[b'x'; 1000], &[("KEYS", "k")]))
        .collect();
    writer.finish(true);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    let reader = open(&CountingEnv::new(), dir.path());
    let request = QueryRequest {
        limit: Some(2),
        ..by_key("orders", "k")
    };
    let (found, most) = heap::most_while(|| reader.query(&request).unwrap());
    let found: Vec<i64> = found.hits.iter().map(|hit| hit.physical_offset).collect();
    assert_eq!(found, offsets[MESSAGES - 2..]);
    assert!(most < MESSAGES * 100, "{most} bytes");
}

#[test]
fn a_query_holds_the_places_of_messages_and_not_their_bodies() {
    const MESSAGES: usize = 2000;
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 24, 3000, 100, 4000);
    for _ in 0..MESSAGES {
        writer.put("orders", 0, &[b'x'; 10_000], &[("KEYS", "k")]);
    }
    writer.finish(true);
    for has_index in [true, false] {
        let reader = open(&CountingEnv::new(), dir.path());
        let (found, most) = heap::most_while(|| reader.query(&by_key("orders", "k")).unwrap());
        assert_eq!((found.hits.len(), found.complete), (MESSAGES, true));
        assert!(
            most < MESSAGES * 200,
            "{} bytes a message, index: {has_index}",
            most / MESSAGES
        );
        drop(fs::remove_dir_all(dir.path().join("index")));
    }
}

#[test]
fn the_keys_of_a_walk_that_fit_are_kept_where_there_is_no_room_for_all() {
    // More keys than are kept, which is 2^24.
    const MESSAGES: usize = 1100;
    const KEYS: usize = 16_000;
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 24, 300_000, 0, 0);
    let keys = vec!["k"; KEYS].join(" ");
    let mut put = |n| writer.put("orders", 0, b"", &[("UNIQ_KEY", &format!("u{n}")), ("KEYS", &keys)]);
    let offsets: Vec<i64> = (0..MESSAGES).map(&mut put).collect();
    writer.finish(true);
    let env = CountingEnv::new();
    let reader = open(&env, dir.path());
    let read_to_find = |number: usize| {
        let before = env.bytes_read_below(&dir.path().join("commitlog"));
        let key = format!("u{number}");
        let hits = reader
            .resolve_keys(&[("orders", &key)], &HitBounds::default(), Errors::Raise)
            .unwrap();
        let found: Vec<i64> = hits.of(0).iter().map(|hit| hit.physical_offset).collect();
        assert_eq!(found, [offsets[number]]);
        env.bytes_read_below(&dir.path().join("commitlog")) - before
    };
    let all = read_to_find(0);
    // What did not fit, and little more.
    let rest = all * (MESSAGES - (1 << 24) / (KEYS + 1)) as u64 / MESSAGES as u64;
    for number in [0, 1040, MESSAGES - 1] {
        let read = read_to_find(number);
        assert!(read < rest + (1 << 19), "u{number}: {read} bytes, {rest} did not fit");
    }
}

#[test]
fn a_segment_that_was_made_ahead_is_not_read() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 20, 1000, 100, 400);
    for _ in 0..10 {
        writer.put("orders", 0, &[7; 1000], &[]);
    }
    writer.finish(false);
    let log = dir.path().join("commitlog");
    fs::File::create(log.join("00000000000001048576"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let env = CountingEnv::new();
    assert_eq!(open(&env, dir.path()).recovery().bytes_cut, 0);
    assert!(env.bytes_read_below(&log.join("00000000000001048576")) < 10_000);
}

#[test]
fn ten_thousand_queues_stay_within_few_mappings() {
    // On tmpfs if there is one: a disk takes half a minute to make ten thousand files.
    let dir = tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 20, 10, 100, 400);
    for n in 0..10_000 {
        writer.put("orders", n, b"x", &[]);
    }
    writer.finish(true);
    let reader = open(&CountingEnv::new(), dir.path());
    for n in 0..10_000 {
        assert_eq!(reader.message_in_queue("orders", n, 0).unwrap().view().queue_id(), n);
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps
        .lines()
        .filter(|line| line.contains(dir.path().to_str().unwrap()))
        .count();
    assert!((1..4000).contains(&mapped), "{mapped} mappings");
    // Tests that run at the same time have files of their own.
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    assert!(open.filter(|path| path.starts_with(dir.path())).count() < 1000);
}

#[test]
fn rocksdb_and_batch_queues_are_refused_by_queue_and_read_every_other_way() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/533_batchcq");
    let reader = open(&CountingEnv::new(), &golden);
    assert_eq!(reader.topics().unwrap(), ["TopicQ"]);
    assert!(matches!(reader.queue_ids("TopicQ"), Err(Error::Unsupported { .. })));
    assert_eq!(reader.message_at(0).unwrap().view().topic(), "TopicQ");

    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let at = writer.put("orders", 3, b"x", &[("KEYS", "k"), ("UNIQ_KEY", "u")]);
    writer.finish(true);
    fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    fs::create_dir(dir.path().join("consumequeue")).unwrap();
    fs::write(dir.path().join("consumequeue/CURRENT"), "MANIFEST-000005\n").unwrap();
    for index in [true, false] {
        if !index {
            fs::remove_dir_all(dir.path().join("index")).unwrap();
        }
        let reader = open(&CountingEnv::new(), dir.path());
        assert_eq!(reader.topics().unwrap(), ["orders"]);
        let Err(Error::Unsupported { path, what, .. }) = reader.queue_ids("orders") else {
            panic!("RocksDB queues were read")
        };
        assert!(path.ends_with("consumequeue") && what.contains("RocksDB"), "{what}");
        assert!(matches!(reader.queue_bounds("orders", 3), Err(Error::Unsupported { .. })));
        assert_eq!(reader.message_at(at).unwrap().view().body(), b"x");
        assert_eq!(reader.message("u", true).unwrap().view().physical_offset(), at);
        let request = by_key("orders", "k");
        assert_eq!(reader.query(&request).unwrap().hits.len(), 1);
    }
}

#[test]
fn a_topic_named_like_a_file_of_rocksdb_is_a_topic() {
    for topic in ["CURRENT", "MANIFEST-000005", "IDENTITY"] {
        let dir = tempdir().unwrap();
        let mut writer = StoreWriter::small(dir.path());
        writer.put("CURRENT", 0, b"x", &[]);
        writer.put(topic, 1, b"y", &[]);
        writer.finish(true);
        // The directories of the topics are there, and their queues are gone.
        for name in ["CURRENT", topic] {
            fs::remove_dir_all(dir.path().join("consumequeue").join(name)).unwrap_or_default();
            fs::create_dir(dir.path().join("consumequeue").join(name)).unwrap_or_default();
        }
        let reader = open(&CountingEnv::new(), dir.path());
        assert!(reader.has_topic(topic).unwrap());
        assert_eq!(reader.message_in_queue(topic, 1, 0).unwrap().view().body(), b"y");
    }
}

/// Bytes of a file's mappings that are in memory.
fn resident(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines();
    let mut sum = 0;
    while let Some(line) = lines.next() {
        if line.ends_with(path.to_str().unwrap()) {
            let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
            sum += rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
        }
    }
    sum
}

#[test]
fn a_sparse_index_file_is_read_only_where_something_was_written() {
    // The first is larger than any that a broker can map, the second is not.
    for (len, written) in [(8_u64 << 30, 4096), (0x7fff_ffe4, 4096), (0x7fff_ffe4, 40)] {
        let dir = tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap();
        let mut writer = StoreWriter::small(dir.path());
        let at = writer.put("orders", 0, b"x", &[("KEYS", "k")]);
        writer.finish(true);
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        fs::create_dir(dir.path().join("index")).unwrap();
        let path = dir.path().join("index/20260101000000000");
        let mut bytes = vec![0; written];
        (bytes[35], bytes[39]) = (1, 3);
        if written > 43 {
            bytes[43] = 2;
        }
        fs::write(&path, bytes).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len).unwrap();
        let reader = open(&CountingEnv::new(), dir.path());
        let request = by_key("orders", "k");
        let found = reader.query(&request).unwrap();
        assert!(found.complete && found.hits[0].physical_offset == at);
        let resident = resident(&path);
        assert!(resident < 1 << 20, "{resident} bytes of {len} were read");
        if len > i32::MAX as u64 {
            assert_eq!(resident, 0, "it is not an index file");
        }
    }
}
