//! The checkpoint: with any checkpoint the messages are the same; a good one saves reading.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use mqstore::config::StoreConfig;
use mqstore::format::{Checkpoint, Message};
use mqstore::read::MessageReader;
use mqstore::services::{Next, Service};
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};
use tempfile::TempDir;

use super::{Crashed, SEGMENT, real};
use crate::counting_env::CountingEnv;
use crate::store_writer::StoreWriter;

#[test]
fn a_stale_zero_absent_or_future_checkpoint_gives_the_same_messages() {
    let now = real().now_ms();
    let first = Crashed::new(1, false).last_store_time;
    let absent = None;
    for time in [
        absent,
        Some(0),
        Some(-1),
        Some(first),
        Some(first + 1000),
        Some(now + 1_000_000),
        Some(i64::MAX),
    ] {
        let store = Crashed::new(300, false);
        store.lose_entries(0, 20);
        if let Some(time) = time {
            store.stamp(time);
        }
        store.recover();
        store.expect_messages(300);
    }
    for bytes in [&[][..], &[0xff; 4096], &[0x7f; 10]] {
        let store = Crashed::new(300, false);
        fs::write(store.at("checkpoint"), bytes).unwrap();
        store.recover();
        store.expect_messages(300);
    }
}

#[test]
fn the_log_is_read_from_the_stamped_file_or_an_earlier_missing_part() {
    let probe = Crashed::new(600, false);
    let per_segment: Vec<i64> = (0..=probe.offsets[599] / SEGMENT).map(|n| n * SEGMENT).collect();
    let time_at = |segment: i64| {
        let number = probe.offsets.iter().position(|offset| *offset >= segment).unwrap();
        probe.last_store_time - (599 - number as i64) * 10
    };
    let complete = probe.offsets[599];
    for (n, segment) in per_segment.iter().enumerate() {
        for (off, expected) in [(2999, n.saturating_sub(1)), (3000, n), (3001, n)] {
            let store = Crashed::new(600, false);
            store.stamp(time_at(*segment) + off);
            let start = store.recover().scan_start;
            // Messages are 10 ms apart, a segment holds about a second of them: a margin of 3 s is three files and more.
            let by_time = per_segment
                .iter()
                .rev()
                .find(|start| time_at(**start) <= time_at(*segment) + off - 3000);
            assert_eq!(start, by_time.copied().unwrap_or(0).min(complete), "segment {n}, {off} ms");
            assert!(start <= per_segment[expected]);
        }
    }
    // The message that is missing in a queue is earlier than the position that the stamps give.
    let store = Crashed::new(600, false);
    store.stamp(store.last_store_time + 60_000);
    store.lose_entries(0, 100);
    store.lose_entries(1, 100);
    assert_eq!(store.recover().scan_start, store.offsets[200]);
    store.expect_messages(600);
}

#[test]
fn the_earlier_of_two_stamps_counts_and_a_future_one_is_ignored() {
    let probe = Crashed::new(600, false);
    let (last, now) = (probe.last_store_time, real().now_ms());
    let (first, future) = (last - 5990, now + 1_000_000);
    let layouts = [
        (first, last),
        (last, first),
        (last, last + 3000),
        (last + 3000, last),
        (last + 3000, last + 9000),
        (last + 9000, last + 3000),
        (first + 2999, last + 3000),
        (first + 3000, last + 3000),
        (last + 3000, first + 4500),
        (first + 4500, last + 3000),
        (first + 5500, first + 4000),
        (0, last + 3000),
        (last + 3000, 0),
        (-1, last + 3000),
        (i64::MIN, i64::MIN),
        (future, last + 3000),
        (last + 3000, future),
        (future, future + 1),
        (i64::MAX, first + 4000),
        (2999, 3000),
    ];
    for (physic, logics) in layouts {
        for dispatched in [600, 350, 20] {
            let store = Crashed::new(600, false);
            for queue in 0..2 {
                store.lose_entries(queue, dispatched / 2);
            }
            let stamps = Checkpoint {
                physic_msg_timestamp: physic,
                logics_msg_timestamp: logics,
                ..Checkpoint::default()
            };
            fs::write(store.at("checkpoint"), stamps.encode()).unwrap();
            // Of the file that 4.9.1 and 5.3.3 pick the first record was stored 3 s before both stamps.
            let counted = |stamp: i64| if stamp > now { 0 } else { stamp };
            let until = counted(physic).min(counted(logics)).saturating_sub(3000);
            let time_of = |number: usize| first + 10 * number as i64;
            let starts_segment = |number: &usize| probe.offsets[*number] % SEGMENT == 0;
            let by_time = (0..600).rev().filter(starts_segment).find(|number| time_of(*number) <= until);
            // The index continues with its last message.
            let expected = probe.offsets[by_time.unwrap_or(0).min(dispatched).min(599)];
            let found = store.recover().scan_start;
            assert_eq!(
                found, expected,
                "stamps {physic} and {logics}, {dispatched} messages in the queues"
            );
            store.expect_messages(600);
        }
    }
}

#[test]
fn only_what_the_checkpoint_does_not_cover_is_written_again() {
    let rewritten = |stamped: Option<i64>| {
        let store = Crashed::new(600, false);
        if let Some(number) = stamped {
            // A broker's margin.
            store.stamp(store.last_store_time - (599 - number) * 10 + 3000);
        }
        let (env, opened) = store.open_counting();
        opened.unwrap().close().unwrap();
        let is_rewrite = |change: &String| change.starts_with("sync LogRewritten ");
        let segments = env.changes().into_iter().filter(is_rewrite).count();
        // From the end of the message with the stamp on.
        let segment = |number: i64| store.offsets[number as usize] / SEGMENT;
        let covered = match stamped {
            None => 0,
            Some(599) => segment(599) + 1,
            Some(number) => segment(number),
        };
        assert_eq!(segments as i64, segment(599) + 1 - covered);
    };
    rewritten(None);
    for number in [0, 1, 250, 598, 599] {
        rewritten(Some(number));
    }
}

#[test]
fn six_hundred_segments_open_by_heads_and_the_part_past_the_checkpoint() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let mut writer = StoreWriter::new(dir.path(), 4096, 100_000, 100, 2402);
    while writer.put("orders", 0, &[b'x'; 800], &[("KEYS", "k")]) < 600 * 4096 {}
    writer.finish(false);
    let read = |env: &CountingEnv, start: i64| env.bytes_read(&dir.path().join("commitlog").join(format!("{start:020}")));
    // A broker's stamps. A reader uses only them, because it puts nothing into the index.
    let stamps = Checkpoint {
        physic_msg_timestamp: writer.last_store_time,
        logics_msg_timestamp: writer.last_store_time,
        ..Checkpoint::default()
    };
    fs::write(dir.path().join("checkpoint"), stamps.encode()).unwrap();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let reader = MessageReader::open(&seam, dir.path(), StoreConfig::default()).unwrap();
    let scan_start = reader.recovery().scan_start;
    // 3 s are 300 messages of 10 ms, four to a segment.
    let past_checkpoint = 601 * 4096 - scan_start;
    assert!((70 * 4096..80 * 4096).contains(&past_checkpoint), "{past_checkpoint}");
    // Before it, only the times of the segments' first records are read, and the record where the scan starts.
    for start in (0..scan_start).step_by(4096) {
        assert!(read(&env, start) <= 100, "{} bytes of {start}", read(&env, start));
    }
    // A writer also uses the index. It reads no more if a stamp covers the index; it compares each item of a later file with its
    // record.
    let copied = TempDir::new_in("/dev/shm").unwrap();
    super::copy(dir.path(), copied.path());
    let indexed = Checkpoint {
        index_msg_timestamp: writer.last_store_time,
        ..stamps
    };
    fs::write(copied.path().join("checkpoint"), indexed.encode()).unwrap();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let store = MessageStore::open(&seam, copied.path(), StoreConfig::default(), OpenMode::Existing).unwrap();
    assert_eq!(store.reader().recovery().scan_start, scan_start);
    for start in (0..scan_start).step_by(4096) {
        let read = env.bytes_read(&copied.path().join("commitlog").join(format!("{start:020}")));
        assert!(read <= 100, "{read} bytes of {start}");
    }
    store.close().unwrap();
    // Our stamps: the last message is read, and nothing before it.
    let last = reader.recovery().last_offset;
    let ours = Checkpoint {
        keys_stamp: writer.last_store_time,
        keys_dispatched: reader.recovery().log_end,
        index_items: reader.queue_bounds("orders", 0).unwrap().end,
        logics_physical_offset: last,
        queue_entries: reader.queue_bounds("orders", 0).unwrap().end,
        ..indexed
    };
    fs::write(dir.path().join("checkpoint"), ours.encode()).unwrap();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let store = MessageStore::open(&seam, dir.path(), StoreConfig::default(), OpenMode::Existing).unwrap();
    assert!(store.reader().recovery().scan_start > last);
    store.close().unwrap();
    for start in (0..600 * 4096).step_by(4096) {
        assert_eq!(read(&env, start), 0, "{start}");
    }

    // Stamps that cover nothing: every head is read, and then everything.
    fs::write(dir.path().join("abort"), "").unwrap();
    fs::write(dir.path().join("checkpoint"), Checkpoint::default().encode()).unwrap();
    let store = MessageStore::open(&real(), dir.path(), StoreConfig::default(), OpenMode::Existing).unwrap();
    assert_eq!(store.reader().recovery().scan_start, 0);
    store.close().unwrap();
}

/// A store without threads in which 4 KiB of messages make a stamp.
fn stamping(dir: &TempDir) -> MessageStore {
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(65536),
        checkpoint_interval: 4096,
        ..StoreConfig::default()
    };
    MessageStore::open_stepped(&real(), dir.path(), config, OpenMode::Append).unwrap()
}

fn message(body: usize) -> Message<'static> {
    Message {
        topic: "orders".into(),
        body: vec![b'x'; body].into(),
        ..Message::default()
    }
}

fn stamps(dir: &TempDir) -> Checkpoint {
    Checkpoint::decode(&fs::read(dir.path().join("checkpoint")).unwrap_or_default())
}

#[test]
fn a_running_store_stamps_its_checkpoint_at_each_byte_interval() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let store = stamping(&dir);
    let mut lag = 0;
    for _ in 0..50 {
        let done = store.append(message(500)).unwrap().appended;
        while store.step(Service::Dispatch, Instant::now()).unwrap() == Next::Again {}
        let stamped = stamps(&dir);
        let end = done.physical_offset + i64::from(done.wrote_bytes);
        lag = lag.max(end - stamped.keys_dispatched);
        assert!(stamped.keys_dispatched <= store.flushed_offset());
        if stamped.keys_dispatched > 0 {
            let last = store.reader().message_at(stamped.logics_physical_offset).unwrap();
            assert_eq!(stamped.physic_msg_timestamp, last.view().store_time());
            assert_eq!(stamped.logics_msg_timestamp, last.view().store_time());
            assert_eq!(
                stamped.logics_physical_offset + i64::from(last.view().size()),
                stamped.keys_dispatched
            );
        }
    }
    assert!((2000..4096).contains(&lag), "{lag}");
}

#[test]
fn no_message_gets_a_store_time_that_the_checkpoint_already_covers() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let env = CountingEnv::new();
    env.set_now(1_700_000_000_000);
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let config = || StoreConfig {
        checkpoint_interval: 4096,
        ..StoreConfig::default()
    };
    let mut last = 0;
    for _ in 0..2 {
        let store = MessageStore::open_stepped(&seam, dir.path(), config(), OpenMode::Append).unwrap();
        for _ in 0..20 {
            let done = store.append(message(500)).unwrap().appended;
            let stamped = stamps(&dir).physic_msg_timestamp;
            assert!(
                done.store_time > stamped && done.store_time >= last,
                "{} and {stamped}",
                done.store_time
            );
            last = done.store_time;
            while store.step(Service::Dispatch, Instant::now()).unwrap() == Next::Again {}
        }
        store.close().unwrap();
    }
    assert!(last > 1_700_000_000_000);
}

#[test]
fn store_times_do_not_fall_where_the_clock_is_behind_the_whole_log() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let mut last = 0;
    // The clock of a machine without a battery begins in 1970.
    for now in [1_700_000_000_000, 5000] {
        env.set_now(now);
        for _ in 0..2 {
            let store = MessageStore::open(&seam, dir.path(), StoreConfig::default(), OpenMode::Append).unwrap();
            let done = store.append(message(500)).unwrap().appended;
            assert!(done.store_time >= last, "{} after {last}", done.store_time);
            last = done.store_time;
            store.close().unwrap();
        }
    }
}

#[test]
fn after_a_close_the_stamps_are_those_of_the_last_message() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let store = stamping(&dir);
    let done = store.append(message(10)).unwrap().appended;
    store.close().unwrap();
    let stamped = stamps(&dir);
    assert_eq!(
        (stamped.physic_msg_timestamp, stamped.logics_msg_timestamp),
        (done.store_time, done.store_time)
    );
    assert_eq!(
        (stamped.index_msg_timestamp, stamped.logics_physical_offset),
        (0, done.physical_offset)
    );
}
