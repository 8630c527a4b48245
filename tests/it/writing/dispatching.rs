//! Dispatch: queue files and index files as RocketMQ writes them, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use mqstore::config::StoreConfig;
use mqstore::format::{
    CqUnit, DelayLevels, DispatchRequest, INDEX_HEADER_SIZE, ITEM_SIZE, IndexGeometry, IndexHeader, SLOT_SIZE, index_key_hash,
};
use mqstore::read::MessageReader;
use mqstore::services::Service;
use mqstore::store::OpenMode;

use super::services::stepped;
use super::{Place, SEGMENT, killed, message, open_in, put, small, soon, walk, with};
use crate::counting_env::CountingEnv;
use crate::queries::by_key;

/// The index files that the log gives, each built through `IndexHeader::admit`.
fn index_model(reader: &MessageReader, geometry: IndexGeometry) -> Vec<Vec<u8>> {
    let mut files: Vec<(IndexHeader, Vec<u8>)> = Vec::new();
    for stored in walk(reader, SEGMENT) {
        let view = stored.view();
        for key in DispatchRequest::of(&view).index_keys(false) {
            if files.last().is_none_or(|(header, _)| header.is_full(geometry)) {
                let header = IndexHeader::rolled_from(files.last().map(|(header, _)| header));
                files.push((header, vec![0; geometry.file_len() as usize]));
            }
            let (header, bytes) = files.last_mut().unwrap();
            let hash = index_key_hash(&view.topic(), &key);
            let slot_at = geometry.slot_position(geometry.slot_of(hash)) as usize;
            let previous = i32::from_be_bytes(bytes[slot_at..slot_at + SLOT_SIZE].try_into().unwrap());
            let number = header.index_count;
            let item = header
                .admit(geometry, previous, hash, view.physical_offset(), view.store_time())
                .unwrap();
            let item_at = geometry.item_position(number as u32) as usize;
            bytes[item_at..item_at + ITEM_SIZE].copy_from_slice(&item.encode());
            bytes[slot_at..slot_at + SLOT_SIZE].copy_from_slice(&number.to_be_bytes());
        }
    }
    let finish = |(header, mut bytes): (IndexHeader, Vec<u8>)| {
        bytes[..INDEX_HEADER_SIZE].copy_from_slice(&header.encode());
        bytes
    };
    files.into_iter().map(finish).collect()
}

#[test]
fn full_index_files_roll_with_the_header_of_the_one_before() {
    let place = Place::new();
    let (env, mut store) = place.create_counting(small());
    let mut now = 1_700_000_000_000;
    for n in 0..1000_i64 {
        // Time passes between files, too: the first item of a rolled file counts from the end of the one before.
        now += n * 37 % 5000;
        env.set_now(now);
        let keys = format!("k{n} Aa BB shared");
        let unique = format!("U{n}");
        let keyed = match n % 5 {
            0 => message("t", 0, b"x"),
            1 => with(message("t", 0, b"x"), &[("UNIQ_KEY", &unique)]),
            _ => with(message("t", 1, b"x"), &[("KEYS", &keys), ("UNIQ_KEY", &unique)]),
        };
        store.append(keyed).unwrap();
        // A reopening continues in the last file.
        if n == 333 || n == 700 {
            store.close().unwrap();
            drop(store);
            store = super::open_in(&env, &place.store, StoreConfig::default(), mqstore::store::OpenMode::Existing).unwrap();
        }
    }
    store.close().unwrap();
    let geometry = IndexGeometry { slots: 100, items: 400 };
    let model = index_model(&place.reader(), geometry);
    let names = place.names("index");
    assert_eq!((names.len(), model.len()), (9, 9));
    for (name, model) in names.iter().zip(model) {
        assert!(name.len() == 17 && name.bytes().all(|digit| digit.is_ascii_digit()), "{name}");
        assert!(
            fs::read(place.at("index").join(name)).unwrap() == model,
            "{name} differs from the model"
        );
    }
}

#[test]
fn index_files_of_one_moment_or_an_earlier_one_get_names_in_order() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        max_hash_slot_num: Some(2),
        max_index_num: Some(3),
        ..small()
    });
    env.set_now(1_700_000_000_000);
    for n in 0..10 {
        if n == 5 {
            env.set_now(1_600_000_000_000);
        }
        let keyed = with(message("t", 0, b"x"), &[("KEYS", &format!("k{n}"))]);
        let offset = store.append(keyed).unwrap().appended.physical_offset;
        store.wait_dispatched(offset, Some(soon())).unwrap();
    }
    store.close().unwrap();
    let names = place.names("index");
    assert_eq!(names.len(), 5);
    assert!(names.is_sorted() && names[0].starts_with("2023111"), "{names:?}");
    for name in names {
        let bytes = fs::read(place.at("index").join(name)).unwrap();
        assert_eq!(bytes[36..40], 3_i32.to_be_bytes(), "two keys in each");
    }
}

#[test]
fn keys_that_the_header_does_not_count_when_a_writer_dies_are_put_again() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    let append = |numbers: std::ops::Range<i32>| {
        for n in numbers {
            let keys = format!("k{n} Aa BB shared");
            store.append(with(message("t", 0, b"x"), &[("KEYS", &keys)])).unwrap();
        }
        store.step(Service::Dispatch, Instant::now()).unwrap();
    };
    append(0..5);
    let [name] = &place.names("index")[..] else { panic!() };
    let index = place.at("index").join(name);
    let header = fs::read(&index).unwrap()[..INDEX_HEADER_SIZE].to_vec();
    append(5..60);
    let died = killed(&place);
    let mut bytes = fs::read(&index).unwrap();
    bytes[..INDEX_HEADER_SIZE].copy_from_slice(&header);
    fs::write(died.path().join("index").join(name), bytes).unwrap();
    let found = |reader: &MessageReader| {
        let hits = |key: &str| reader.query(&by_key("t", key)).unwrap().hits.len();
        (hits("Aa"), hits("k3"), hits("k59"))
    };
    assert_eq!(found(&super::reader(died.path())), (60, 1, 1));
    let writer = super::open(died.path(), StoreConfig::default(), OpenMode::Existing).unwrap();
    writer.close().unwrap();
    let reader = super::reader(died.path());
    assert_eq!(found(&reader), (60, 1, 1));
    let geometry = IndexGeometry { slots: 100, items: 400 };
    let model = index_model(&reader, geometry);
    assert!(fs::read(died.path().join("index").join(name)).unwrap() == model[0]);
}

/// Returns the expected content of the queue files, by topic and queue.
fn queue_model(reader: &MessageReader) -> BTreeMap<(String, i32), Vec<u8>> {
    let mut queues: BTreeMap<(String, i32), Vec<u8>> = BTreeMap::new();
    for stored in walk(reader, SEGMENT) {
        let view = stored.view();
        let unit = CqUnit {
            physical_offset: view.physical_offset(),
            size: view.size() as i32,
            tags_code: DispatchRequest::of(&view).tags_code(&DelayLevels::default()),
        };
        let queue = queues.entry((view.topic().into_owned(), view.queue_id())).or_default();
        assert_eq!(queue.len() as i64, view.queue_offset() * 20);
        queue.extend(unit.encode());
    }
    queues
}

#[test]
fn queue_files_hold_an_entry_a_message_and_nothing_else() {
    let place = Place::new();
    let store = place.create();
    for n in 0..500 {
        let tag = format!("tag{}", n % 7);
        let topic = format!("t{}", n % 3);
        store
            .append(with(message(&topic, n % 2, &vec![1; n as usize]), &[("TAGS", &tag)]))
            .unwrap();
    }
    store.close().unwrap();
    for ((topic, queue_id), mut model) in queue_model(&place.reader()) {
        let dir = format!("consumequeue/{topic}/{queue_id}");
        let names = place.names(&dir);
        model.resize(names.len() * 1000, 0);
        let expected: Vec<_> = (0..names.len()).map(|n| format!("{:020}", n * 1000)).collect();
        assert_eq!(names, expected);
        let files = names.iter().flat_map(|name| fs::read(place.at(&dir).join(name)).unwrap());
        assert!(files.eq(model), "{dir}");
        // Nothing else lies beside the queues.
        assert!(
            place
                .names(&format!("consumequeue/{topic}"))
                .iter()
                .all(|name| name.parse::<i32>().is_ok())
        );
    }
}

#[test]
fn a_queue_file_that_its_entries_fill_exactly_has_no_successor_yet() {
    let place = Place::new();
    let store = place.create();
    for _ in 0..50 {
        put(&store, "t", b"x");
    }
    store.close().unwrap();
    assert_eq!(place.names("consumequeue/t/0"), ["00000000000000000000"]);
    let store = place.reopen();
    assert_eq!(store.append(message("t", 0, b"x")).unwrap().appended.queue_offset, 50);
    store.close().unwrap();
    assert_eq!(
        place.names("consumequeue/t/0"),
        ["00000000000000000000", "00000000000000001000"]
    );
}

#[test]
fn entry_number_300_001_opens_the_second_file_of_a_broker_s_queue() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        mapped_file_size_commit_log: Some(64 << 20),
        mapped_file_size_consume_queue: None,
        ..small()
    });
    let mut done = Vec::new();
    for _ in 0..30 {
        let messages = (0..10_000).map(|_| message("t", 0, b"")).collect();
        store.appender(None).append_all(messages, &mut done).unwrap();
    }
    let last = done.last().unwrap().appended;
    assert_eq!(last.queue_offset, 299_999);
    store.wait_dispatched(last.physical_offset, Some(soon())).unwrap();
    store.close().unwrap();
    assert_eq!(place.names("consumequeue/t/0"), ["00000000000000000000"]);
    let store = place.reopen();
    let next = store.append(message("t", 0, b"next")).unwrap().appended;
    assert_eq!(next.queue_offset, 300_000);
    store.close().unwrap();
    let names = place.names("consumequeue/t/0");
    assert_eq!(names, ["00000000000000000000", "00000000000006000000"]);
    let second = fs::read(place.at("consumequeue/t/0").join(&names[1])).unwrap();
    assert_eq!(second.len(), 6_000_000);
    let unit = CqUnit::decode(second[..20].try_into().unwrap());
    assert_eq!((unit.physical_offset, unit.size), (next.physical_offset, next.wrote_bytes));
    assert!(second[20..].iter().all(|byte| *byte == 0));
    let reader = place.reader();
    assert_eq!(reader.message_in_queue("t", 0, 300_000).unwrap().view().body(), b"next");
    assert_eq!(reader.queue_bounds("t", 0).unwrap(), 0..300_001);
}

#[test]
fn many_new_queues_share_few_syncs_and_get_entries_before_names() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    let messages: Vec<_> = (0..1000)
        .map(|n| message(&format!("t{}", n % 100), n / 100, b"x").into_owned())
        .collect();
    let mut done = Vec::new();
    store.appender(None).append_all(messages, &mut done).unwrap();
    store.close().unwrap();
    let changes = env.changes();
    let syncs = changes.iter().filter(|change| change.contains(" QueueFiles ")).count();
    assert!(syncs < 200, "{syncs} syncs for 1,000 new queues");
    // Between a new file's last write and its rename there is a sync of it or of everything.
    let mut unsynced = Vec::new();
    let mut renamed = 0;
    for change in &changes {
        let (what, path) = change.rsplit_once(' ').unwrap();
        match what {
            "write" if path.contains("/mqstore-new-") && path.contains("/consumequeue/") => unsynced.push(path.to_owned()),
            "sync QueueFiles" => unsynced.retain(|file| file != path),
            "sync everything QueueFiles" => unsynced.clear(),
            "rename" if path.contains("/consumequeue/") => {
                let mut parts = path.rsplit('/');
                let (name, queue, topic) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
                let staged = format!("/{topic}/mqstore-new-{queue}-{name}");
                assert!(!unsynced.iter().any(|file| file.ends_with(&staged)), "{path} before its sync");
                renamed += 1;
            }
            _ => {}
        }
    }
    assert_eq!(renamed, 1000);
}

#[test]
fn entries_are_written_out_together_and_soon() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    let writes = Arc::new(AtomicUsize::new(0));
    let counter = writes.clone();
    put(&store, "t", b"first");
    let file = place.at("consumequeue/t/0/00000000000000000000");
    while !file.exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    env.before_changes(move |change| {
        counter.fetch_add(
            usize::from(change.starts_with("write") && change.contains("/consumequeue/")),
            Ordering::SeqCst,
        );
        Ok(())
    });
    let messages = (0..40).map(|_| message("t", 0, b"x")).collect::<Vec<_>>();
    store.appender(None).append_all(messages, &mut Vec::new()).unwrap();
    let started = std::time::Instant::now();
    while fs::read(&file).unwrap()[40 * 20..41 * 20] == [0; 20] {
        assert!(
            started.elapsed() < std::time::Duration::from_secs(60),
            "an entry stays in memory"
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(writes.load(Ordering::SeqCst) <= 4, "{writes:?} writes for 40 entries");
    store.close().unwrap();
}

#[test]
fn what_is_dispatched_again_for_the_index_writes_no_queue() {
    let place = Place::new();
    let store = place.create();
    let mut last = 0;
    for n in 0..200 {
        let keyed = with(message("t", n % 3, b"x"), &[("KEYS", &format!("k{n}"))]);
        last = store.append(keyed).unwrap().appended.physical_offset;
    }
    store.close().unwrap();
    let index = || -> Vec<_> {
        place
            .names("index")
            .iter()
            .map(|name| fs::read(place.at("index").join(name)).unwrap())
            .collect()
    };
    let complete = index();
    fs::remove_dir_all(place.at("index")).unwrap();
    let env = CountingEnv::new();
    let store = open_in(&env, &place.store, small(), OpenMode::Existing).unwrap();
    store.wait_dispatched(last, Some(soon())).unwrap();
    store.close().unwrap();
    assert_eq!(index(), complete);
    let mut changes = env.changes();
    changes.retain(|change| change.contains("/consumequeue/") && !change.starts_with("sync"));
    assert_eq!(changes, [""; 0]);
}

#[test]
fn a_message_counts_as_dispatched_only_once_its_keys_are_in_the_index() {
    let place = Place::new();
    let (env, store) = stepped(&place);
    let store = Arc::new(store);
    let (writer, found) = (store.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = found.clone();
    // The first message makes an index file.
    env.before_changes(move |change| {
        if change.starts_with("create ") && change.contains("/index/") {
            seen.lock().unwrap().push(writer.dispatched_offset());
        }
        Ok(())
    });
    let offset = store.append(with(message("t", 0, b"x"), &[("KEYS", "k")])).unwrap();
    store.step(Service::Dispatch, Instant::now()).unwrap();
    assert_eq!(*found.lock().unwrap(), [0]);
    assert!(store.dispatched_offset() > offset.appended.physical_offset);
    env.heal();
    store.close().unwrap();
}
