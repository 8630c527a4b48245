//! A disk that is full for a while, at an open or under derived files: the store works again, and nothing is written
//! twice.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::read::MessageReader;
use mqstore::services::{Next, Service};
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};

use super::services::stepped;
use super::{Place, bodies, message, open, open_in, put, small, tree, with};
use crate::counting_env::CountingEnv;
use crate::store_writer::StoreWriter;

const WRITE_OUT: Duration = Duration::from_millis(10);
const RETRY: Duration = Duration::from_millis(100);

/// Fails changes whose text starts and continues so, as on a full disk.
fn fill_up(env: &CountingEnv, start: &'static str, place: &'static str) {
    env.before_changes(move |change| {
        if change.starts_with(start) && change.contains(place) && !change.contains("directory") {
            Err(io::Error::from_raw_os_error(28))
        } else {
            Ok(())
        }
    });
}

/// A step of the dispatcher; when it wants the next one.
fn step(store: &MessageStore, now: Instant) -> Option<Instant> {
    match store.step(Service::Dispatch, now).unwrap() {
        Next::Idle { until } => until,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_queue_whose_first_message_waits_for_the_index_gets_its_file_once() {
    let place = Place::new();
    let (env, store) = stepped(&place);
    fill_up(&env, "allocate ", "/index/");
    store.append(with(message("t", 0, b"x"), &[("KEYS", "k")])).unwrap();
    let mut now = Instant::now();
    for _ in 0..3 {
        assert_eq!(step(&store, now), Some(now + RETRY));
        now += RETRY;
    }
    env.heal();
    step(&store, now);
    assert_eq!(step(&store, now + WRITE_OUT), None);
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0), [b"x"]);
}

#[test]
fn a_written_queue_is_not_written_again_after_another_found_no_room() {
    let place = Place::new();
    let (env, store) = stepped(&place);
    let mut now = Instant::now();
    // One entry less than a file has room for.
    for _ in 0..49 {
        put(&store, "a", b"x");
    }
    step(&store, now);
    now += WRITE_OUT;
    step(&store, now);
    fill_up(&env, "create ", "/consumequeue/b");
    put(&store, "a", b"x");
    put(&store, "b", b"x");
    step(&store, now);
    now += WRITE_OUT;
    for _ in 0..3 {
        assert_eq!(step(&store, now), Some(now + RETRY));
        // This queue needs a new file now, and waits with the other.
        put(&store, "a", b"x");
        now += RETRY;
    }
    env.heal();
    step(&store, now);
    // New entries wait as long as any entry.
    assert_eq!(step(&store, now + WRITE_OUT), None);
    store.close().unwrap();
    let reader = place.reader();
    assert_eq!((bodies(&reader, "a", 0).len(), bodies(&reader, "b", 0).len()), (53, 1));
}

#[test]
fn an_index_file_that_cannot_be_made_leaves_nothing_after_any_retries() {
    for call in ["allocate ", "write ", "open for writing ", "map for writing "] {
        let place = Place::new();
        let (env, store) = stepped(&place);
        fill_up(&env, call, "/index/");
        store.append(with(message("t", 0, b"x"), &[("KEYS", "k")])).unwrap();
        let mut now = Instant::now();
        for _ in 0..20 {
            assert_eq!(step(&store, now), Some(now + RETRY), "{call}");
            now += RETRY;
            assert_eq!(place.names("index"), [""; 0], "{call}");
        }
        let tries = env
            .changes()
            .iter()
            .filter(|change| change.starts_with("create ") && change.contains("/index/"))
            .count();
        assert_eq!(tries, 20, "{call}");
        env.heal();
        step(&store, now);
        step(&store, now + WRITE_OUT);
        store.close().unwrap();
        assert_eq!(place.names("index").len(), 1, "{call}");
    }
}

#[test]
fn an_index_that_finds_the_disk_full_at_a_roll_syncs_its_directory_once() {
    let place = Place::new();
    let (env, store) = stepped(&place);
    let keyed = || store.append(with(message("t", 0, b"x"), &[("KEYS", "k")])).unwrap();
    keyed();
    let mut now = Instant::now();
    step(&store, now);
    fill_up(&env, "allocate ", "/index/");
    while store.reader().physical_bounds().end < 200_000 {
        keyed();
    }
    let before = env.changes().len();
    for _ in 0..20 {
        assert_eq!(step(&store, now), Some(now + RETRY));
        now += RETRY;
    }
    assert_eq!(place.names("index").len(), 1);
    let count = |call: &str| {
        let changes = env.changes().split_off(before);
        let of_index = changes.iter().filter(|change| change.contains("/index"));
        of_index.filter(|change| change.starts_with(call)).count()
    };
    assert_eq!(
        (count("allocate "), count("sync ")),
        (20, 2),
        "the full file, and the directory"
    );
    env.heal();
    step(&store, now);
    store.close().unwrap();
    assert!(place.names("index").len() > 1);
}

#[test]
fn the_last_index_file_of_a_broker_gets_every_block_before_it_is_written() {
    let place = Place::new();
    let keyed = || with(message("t", 0, b"x"), &[("KEYS", "k")]);
    let store = place.create_with(StoreConfig {
        max_index_num: Some(50_000),
        ..small()
    });
    store.append(keyed()).unwrap();
    store.close().unwrap();
    let index = place.at("index").join(place.names("index").pop().unwrap());
    let bytes = fs::read(&index).unwrap();
    let sparse = fs::File::create(&index).unwrap();
    sparse.write_all_at(&bytes[..4096], 0).unwrap();
    sparse.set_len(bytes.len() as u64).unwrap();
    let is_whole = || fs::metadata(&index).unwrap().blocks() * 512 >= bytes.len() as u64;
    assert!(!is_whole());

    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let store = MessageStore::open_stepped(&seam, &place.store, StoreConfig::default(), OpenMode::Existing).unwrap();
    fill_up(&env, "allocate ", "/index/");
    store.append(keyed()).unwrap();
    let now = Instant::now();
    assert_eq!(step(&store, now), Some(now + RETRY));
    env.heal();
    step(&store, now + RETRY);
    assert!(is_whole());
    store.close().unwrap();
}

/// The files that may take the room of a disk.
pub(super) const TAKES_ROOM: [&str; 6] = ["create ", "create directory ", "write ", "allocate ", "zero ", "rename "];

/// A store that crashed: its queues miss entries, its end is torn, and its log has damage inside for a salvage.
pub(super) fn crashed(place: &Place) {
    let mut writer = StoreWriter::small(&place.store);
    let mut put = |n: i32| writer.put("orders", n % 2, &[b'x'; 300], &[("KEYS", &format!("k{n}"))]);
    let offsets: Vec<i64> = (0..60).map(&mut put).collect();
    writer.finish(false);
    let segment = fs::OpenOptions::new()
        .write(true)
        .open(place.at("commitlog/00000000000000000000"))
        .unwrap();
    segment.write_all_at(b"rubbish", offsets[3] as u64).unwrap();
    let end = place.names("commitlog").pop().unwrap();
    let last = fs::OpenOptions::new()
        .write(true)
        .open(place.at("commitlog").join(&end))
        .unwrap();
    last.write_all_at(b"torn", offsets[59] as u64 - end.parse::<u64>().unwrap())
        .unwrap();
    fs::remove_dir_all(place.at("consumequeue/orders/1")).unwrap();
}

/// Messages that are read from both queues.
pub(super) fn count(reader: &MessageReader) -> usize {
    let of_queue = |queue| {
        let bounds = reader.queue_bounds("orders", queue).unwrap();
        bounds
            .filter(|offset| reader.message_in_queue("orders", queue, *offset).is_ok())
            .count()
    };
    (0..2).map(of_queue).sum()
}

#[test]
fn a_full_disk_at_any_step_of_an_open_is_reported_and_costs_nothing() {
    let config = || StoreConfig {
        recovery: Recovery::Salvage,
        ..small()
    };
    for is_new in [true, false] {
        let mut refused = 0;
        for number in 0.. {
            let errno = [28, 122][number % 2];
            let place = Place::new();
            if !is_new {
                crashed(&place);
            }
            let env = CountingEnv::new();
            let changes = AtomicUsize::new(0);
            env.before_changes(move |change| {
                let takes_room = TAKES_ROOM.iter().any(|what| change.starts_with(what));
                if takes_room && changes.fetch_add(1, Ordering::SeqCst) >= number {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                Ok(())
            });
            match open_in(&env, &place.store, config(), OpenMode::Append) {
                Err(Error::DiskFull { .. }) => refused += 1,
                Err(other) => panic!("change {number}: {other}"),
                Ok(store) => {
                    env.heal();
                    store.close().unwrap();
                    break;
                }
            }
            if place.store.exists() {
                let half_made = tree(&place.store).into_iter().map(|(path, _)| path);
                let half_made: Vec<_> = half_made
                    .filter(|path| path.to_string_lossy().contains("mqstore-new-"))
                    .collect();
                assert!(half_made.is_empty(), "change {number}: {half_made:?}");
            }
            let store = open(&place.store, config(), OpenMode::Append).unwrap();
            assert_eq!(count(store.reader()), if is_new { 0 } else { 58 }, "change {number}");
            put(&store, "orders", b"x");
            store.close().unwrap();
        }
        assert!(refused > if is_new { 8 } else { 15 }, "{refused}");
    }
}
