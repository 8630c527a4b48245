//! Many threads: offsets without a gap, bytes that never change, a store time that never falls.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::read::{MessageReader, QueueScan};

use super::{Place, SEGMENT, message, open_in, put, small, soon, walk};
use crate::counting_env::CountingEnv;

const THREADS: i32 = 64;

/// Set when it is dropped, also by a panic, so that the other threads end and the test does not hang.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn sixty_four_threads_and_a_hundred_topics_leave_no_gap() {
    let place = Place::new();
    let store = place.create();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for n in 0..100 {
                    let topic = format!("topic{}", (thread + n) % 100);
                    let body = format!("{thread}-{n}");
                    store.append(message(&topic, n % 3, body.as_bytes())).unwrap();
                }
            });
        }
    });
    store.close().unwrap();
    let reader = place.reader();
    assert_eq!(reader.recovery().undispatched, 0);
    // The log has no gap, and every record names its own offset.
    let log = walk(&reader, SEGMENT);
    assert_eq!(log.len(), THREADS as usize * 100);
    let mut queues: BTreeMap<(String, i32), i64> = BTreeMap::new();
    let mut last = 0;
    for stored in &log {
        let view = stored.view();
        let next = queues.entry((view.topic().into_owned(), view.queue_id())).or_default();
        assert_eq!(view.queue_offset(), *next, "log order is queue order");
        *next += 1;
        assert!(view.store_time() >= last);
        last = view.store_time();
    }
    assert_eq!(reader.topics().unwrap().len(), 100);
    for ((topic, queue_id), count) in queues {
        assert_eq!(reader.queue_bounds(&topic, queue_id).unwrap(), 0..count);
        let scan = QueueScan::new(reader.clone(), topic, queue_id, 0..i64::MAX).unwrap();
        let offsets: Vec<i64> = scan.map(|message| message.unwrap().view().queue_offset()).collect();
        assert_eq!(offsets, (0..count).collect::<Vec<_>>());
    }
}

#[test]
fn store_time_never_falls_when_the_clock_steps_back_or_the_store_reopens() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    env.set_now(1_700_000_100_000);
    put(&store, "t", b"x");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..50 {
                    put(&store, "t", b"x");
                }
            });
        }
        for _ in 0..20 {
            for step in [7, -10_000, 5000] {
                env.set_now(store.reader().physical_bounds().end % 1000 + 1_700_000_100_000 + step);
                thread::sleep(Duration::from_micros(200));
            }
        }
    });
    env.set_now(1_700_000_000_000);
    let high = store.append(message("t", 0, b"x")).unwrap().appended.store_time;
    assert!(high >= 1_700_000_100_000, "a step back keeps the time of the last message");
    store.close().unwrap();
    let env = CountingEnv::new();
    env.set_now(1_600_000_000_000);
    let store = open_in(&env, &place.store, StoreConfig::default(), mqstore::store::OpenMode::Existing).unwrap();
    assert_eq!(
        store.append(message("t", 0, b"x")).unwrap().appended.store_time,
        high + 1,
        "the checkpoint covers the one before"
    );
    store.close().unwrap();
    let log = walk(&place.reader(), SEGMENT);
    let times: Vec<i64> = log.iter().map(|stored| stored.view().store_time()).collect();
    assert!(times.is_sorted());
    assert_eq!(times.len(), THREADS as usize * 50 + 3);
}

/// The bytes of the log below `end`, hashed.
fn hash_below(place: &Place, end: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    for start in (0..end).step_by(SEGMENT as usize) {
        let bytes = fs::read(place.at("commitlog").join(format!("{start:020}"))).unwrap();
        assert_eq!(bytes.len(), SEGMENT as usize);
        hasher.write(&bytes[..(end - start).min(SEGMENT) as usize]);
    }
    hasher.finish()
}

#[test]
fn no_byte_below_the_appended_end_ever_changes() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        flush_interval_commit_log: 1,
        ..small()
    });
    let (done, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut seen: Vec<(u64, u64)> = Vec::new();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, looks, done) = (&store, &looks, &done);
                scope.spawn(move || {
                    for n in 0..40_usize {
                        // The checking thread may have failed.
                        while looks.load(Ordering::SeqCst) < n / 4 && !done.load(Ordering::SeqCst) {
                            thread::yield_now();
                        }
                        let body = vec![thread as u8; n * 7 % 500];
                        store
                            .append(message(&format!("t{}", (thread as usize * 40 + n) % 100), 0, &body))
                            .unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let _over = Over(&done);
            for writer in writers {
                writer.join().unwrap();
            }
        });
        let _over = Over(&done);
        let deadline = soon();
        while !done.load(Ordering::SeqCst) {
            assert!(Instant::now() < deadline, "the writers hang");
            let end = store.reader().physical_bounds().end as u64;
            // A check counts only if there is something new. The writers wait for it after every few messages.
            if seen.last().map_or(0, |(last, _)| *last) != end {
                seen.push((end, hash_below(&place, end)));
                looks.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let check = |when: &str| {
        for (end, hash) in &seen {
            assert_eq!(hash_below(&place, *end), *hash, "{when}: bytes below {end} changed");
        }
    };
    check("appended");
    store.close().unwrap();
    check("closed");
    put(&place.reopen(), "t0", b"more");
    check("appended again");
    assert!(seen.len() >= 9, "{} looks", seen.len());
}

/// Follows a queue while it grows, and checks that every message is whole and in its place.
fn follow(reader: &MessageReader, topic: &str, done: &AtomicBool, read: &AtomicI64) {
    let mut next = 0;
    loop {
        let is_last = done.load(Ordering::SeqCst);
        let max = reader.queue_bounds(topic, 0).unwrap().end;
        for offset in next..max {
            let stored = reader.message_in_queue(topic, 0, offset).unwrap();
            let view = stored.view();
            assert_eq!((view.topic().as_ref(), view.queue_offset()), (topic, offset));
            assert!(view.body().iter().all(|byte| *byte == view.body()[0]), "a torn body");
            stored.intact().unwrap();
            read.fetch_add(1, Ordering::SeqCst);
        }
        next = max;
        if is_last {
            return;
        }
    }
}

#[test]
fn a_thousand_rolls_leave_equal_segments_and_readers_see_whole_messages() {
    const SEGMENT: u64 = 4096;
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        mapped_file_size_commit_log: Some(SEGMENT),
        flush_interval_commit_log: 1_000_000,
        ..small()
    });
    let (done, read) = (AtomicBool::new(false), AtomicI64::new(0));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u8)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    // Four to a segment, so that every thread rolls.
                    let mut last = 0;
                    for n in 0..1000_u32 {
                        let body = vec![(n % 251) as u8 + 1; 850];
                        last = put(store, &format!("t{thread}"), &body);
                    }
                    store.wait_dispatched(last, Some(soon())).unwrap();
                })
            })
            .collect();
        for thread in 0..4 {
            let (store, done, read) = (&store, &done, &read);
            scope.spawn(move || follow(store.reader(), &format!("t{thread}"), done, read));
        }
        // Another process finds a store that is open, and every message in it is whole.
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let other = place.reader();
                assert!(!other.recovery().clean_exit);
                for stored in walk(&other, SEGMENT) {
                    assert!(stored.view().body().iter().all(|byte| *byte == stored.view().body()[0]));
                }
            }
        });
        let _over = Over(&done);
        for writer in writers {
            writer.join().unwrap();
        }
    });
    assert_eq!(read.into_inner(), 4000);
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    let open = open.filter(|path| path.starts_with(&place.store)).count();
    assert!(open < 100, "{open} descriptors for segments that no sync has covered");
    // The mapping pool bounds the files mapped for reading.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let written = maps
        .lines()
        .filter(|line| line.contains("rw-s") && line.contains(place.store.to_str().unwrap()))
        .count();
    assert!(written < 100, "{written} segments are mapped for writing");
    store.close().unwrap();
    let names = place.names("commitlog");
    assert_eq!(names.len(), 1000);
    for (n, name) in names.iter().enumerate() {
        assert_eq!(*name, format!("{:020}", n as u64 * SEGMENT));
        assert_eq!(fs::metadata(place.at("commitlog").join(name)).unwrap().len(), SEGMENT);
    }
    let log = walk(&place.reader(), SEGMENT);
    assert_eq!(log.len(), 4000);
}
