//! Cases that no history on one thread reaches: a store closed while it rolls, and a store with damage inside.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::{FlushDiskType, Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::Message;
use mqstore::read::MessageReader;
use mqstore::storage::Step;
use mqstore::store::{MessageStore, OpenMode, TrimTo};

use super::examine::{dispatch_all, root};
use super::files::Files;
use super::history::Geometry;
use super::model::{Checked, Violation, ensure, works};
use super::run::machine;
use crate::simulated_env::{Call, Failure, Fault, SimulatedEnv};

pub(super) const GEOMETRY: Geometry = Geometry {
    segment: 4096,
    queue_file: 100,
    slots: 3,
    items: 10,
    stamped_every: 64 << 20,
    flush_disk_type: FlushDiskType::Async,
    buffers: 0,
    is_warmed: false,
};

pub(super) fn message(len: usize) -> Message<'static> {
    in_topic("t", len)
}

fn in_topic(topic: &'static str, len: usize) -> Message<'static> {
    Message {
        topic: topic.into(),
        body: vec![b'x'; len].into(),
        ..Message::default()
    }
}

pub(super) fn open(env: &SimulatedEnv, config: StoreConfig) -> Result<MessageStore, Error> {
    MessageStore::open_stepped(&env.shared(), root(), config, OpenMode::Append)
}

/// One thread has made the next segment when another closes the store: the segment is removed, durably.
pub(super) fn closed_while_it_rolls(without: Option<Step>, seed: u64) -> Checked {
    let check = "a store that was closed while it rolled opens";
    let env = machine();
    env.leave_out(without);
    let stamped = Geometry {
        stamped_every: 1,
        ..GEOMETRY
    };
    let store = works(check, open(&env, stamped.config()))?;
    works(check, store.append(message(3000)))?;
    works(check, store.flush())?;
    // After a stamp, the one of the close does not sync the whole file system, and so not the removal.
    works(check, dispatch_all(&store))?;
    let (made, is_made) = channel();
    let (go, may_go) = channel::<()>();
    env.pause_before(Call::SyncDir(Step::SegmentRenamed), move || {
        let _ = made.send(());
        let _ = may_go.recv();
    });
    let closed = thread::scope(|scope| {
        let rolling = scope.spawn(|| store.append(message(3000)));
        is_made.recv().unwrap();
        let closing = scope.spawn(|| store.close());
        // Nothing is appended once the close has begun.
        let is_closing = || matches!(store.wait_durable(i64::MAX / 2, Some(Instant::now())), Err(Error::Closed));
        while !is_closing() {
            thread::sleep(Duration::from_millis(1));
        }
        drop(go);
        assert!(matches!(rolling.join().unwrap(), Err(Error::Closed)));
        closing.join().unwrap()
    });
    works(check, closed)?;
    let (cut, _) = env.crash(seed);
    let segments = |env: &SimulatedEnv| env.files(&root().join("commitlog")).len();
    ensure(segments(&cut) == 1, "a segment that was removed stays away", || {
        format!("{} segments", segments(&cut))
    })?;
    works(check, open(&cut, GEOMETRY.recorded()))?;
    Ok(())
}

/// The power goes while recovery removes several segments past the end of the log: no hole is left.
pub(super) fn cut_by_segments(without: Option<Step>, seed: u64) -> Checked {
    let check = "a store whose segments are being cut opens";
    let env = machine();
    let store = works(check, open(&env, GEOMETRY.config()))?;
    for _ in 0..5 {
        works(check, store.append(message(3000)))?;
    }
    let env = env.kill();
    env.put(
        &root().join("commitlog/00000000000000004096"),
        &[0; GEOMETRY.segment as usize],
    );
    env.leave_out(without);
    env.take_images(seed, 1);
    works(check, open(&env, GEOMETRY.recorded()))?;
    for image in env.taken() {
        works(check, open(&image.env, GEOMETRY.recorded()))?;
    }
    Ok(())
}

/// The power goes while a writer trims its log: no hole is left, and each message that comes back is in its queue.
pub(super) fn cut_while_it_trims(without: Option<Step>, seed: u64) -> Checked {
    cut_while_it_trims_with(without, seed, None).map(drop)
}

/// Cuts the power while a writer trims its log, and a call of the trim finds no room. Returns true if the trim made that call.
fn cut_while_it_trims_with(without: Option<Step>, seed: u64, fault: Option<Fault>) -> Result<bool, Violation> {
    let check = "a store that was being trimmed opens";
    let env = machine();
    let store = works(check, open(&env, GEOMETRY.config()))?;
    // All messages of this queue expire: they fill the first segment.
    for _ in 0..2 {
        works(check, store.append(in_topic("old", 1500)))?;
    }
    for _ in 0..16 {
        works(check, store.append(message(1500)))?;
    }
    works(check, dispatch_all(&store))?;
    works(check, store.flush())?;
    env.leave_out(without);
    env.take_images(seed, 1);
    env.set_fault(fault);
    let trimmed = store.trim(TrimTo::Offset(6 * GEOMETRY.segment as i64), i64::MAX);
    let has_failed = fault.is_some_and(|fault| env.concerned() > fault.number);
    if !has_failed {
        works(check, trimmed)?;
    }
    for image in env.taken() {
        let store = works(check, open(&image.env, GEOMETRY.recorded()))?;
        let old = works(check, store.reader().queue_bounds("old", 0))?;
        ensure(
            old.end == 2,
            "a queue whose messages have expired keeps its largest offset",
            || format!("{old:?}"),
        )?;
        let reader = store.reader();
        let first = works(check, reader.message_at(reader.physical_bounds().start))?;
        let (offset, bounds) = (first.view().queue_offset(), works(check, reader.queue_bounds("t", 0))?);
        ensure(
            bounds == (offset..16),
            "a trimmed log and its queue start at the same message",
            || format!("the log starts at queue offset {offset}, the queue has {bounds:?}"),
        )?;
    }
    Ok(has_failed)
}

/// The power goes after `abort` is removed and before that is durable: a store that looks closed has the stamp of its close.
pub(super) fn cut_before_the_close_ends(without: Option<Step>, seed: u64) -> Checked {
    let check = "a closed store has its stamp";
    let env = machine();
    env.leave_out(without);
    let store = works(check, open(&env, GEOMETRY.config()))?;
    let stored = works(check, store.append(message(100)))?;
    let (send, cuts) = channel();
    let machine = env.clone();
    env.pause_before(Call::SyncDir(Step::AbortRemoved), move || {
        for number in 0..20 {
            let _ = send.send(machine.crash(20 * seed + number).0);
        }
    });
    works(check, store.close())?;
    for cut in cuts {
        let files = Files::of(&cut, root());
        let stamp = files.checkpoint().physic_msg_timestamp;
        let is_stamped = files.get("abort").is_some() || stamp == stored.appended.store_time;
        ensure(is_stamped, check, || format!("it stamps {stamp}"))?;
    }
    Ok(())
}

/// A message inside the log is damaged. The store is salvaged, and the power goes again.
pub(super) fn salvaged_twice(without: Option<Step>, seed: u64) -> Checked {
    let check = "what was salvaged survives the next power cut";
    let env = machine();
    let store = works(check, open(&env, GEOMETRY.config()))?;
    let offsets: Result<Vec<i64>, Error> = (0..6)
        .map(|n| Ok(store.append(message(100 + n))?.appended.physical_offset))
        .collect();
    let offsets = works(check, offsets)?;
    works(check, store.close())?;
    let segment = root().join("commitlog/00000000000000000000");
    let mut log = Files::of(&env, root()).log();
    log[offsets[2] as usize + 90] ^= 1;
    env.put(&segment, &log);
    env.leave_out(without);
    let salvage = StoreConfig {
        recovery: Recovery::Salvage,
        ..GEOMETRY.recorded()
    };
    let store = works(check, open(&env, salvage))?;
    let (cut, _) = env.crash(seed);
    let reader = works(check, MessageReader::open(&cut.shared(), root(), GEOMETRY.recorded()))?;
    for offset in offsets.iter().filter(|offset| **offset != offsets[2]) {
        let found = reader.message_at(*offset).is_ok();
        ensure(found, check, || format!("the message at {offset} is gone"))?;
    }
    env.stop();
    drop(store);
    Ok(())
}

/// The last flushed message is damaged. The store is salvaged, so the log ends before the mark of what was flushed, and the power goes at
/// each call: the store opens as soon as it is salvaged, and before that it is refused as damaged.
pub(super) fn salvaged_below_the_mark(without: Option<Step>, seed: u64) -> Checked {
    let check = "a store that was salvaged below its mark opens";
    let env = machine();
    let store = works(check, open(&env, GEOMETRY.config()))?;
    works(check, store.append(message(100)))?;
    let last = works(check, store.append(message(100)))?.appended.physical_offset;
    works(check, store.flush())?;
    let env = env.kill();
    let mut log = Files::of(&env, root()).log();
    log[last as usize + 90] ^= 1;
    env.put(
        &root().join("commitlog/00000000000000000000"),
        &log[..GEOMETRY.segment as usize],
    );
    env.leave_out(without);
    env.take_images(seed, 1);
    let salvage = StoreConfig {
        recovery: Recovery::Salvage,
        ..GEOMETRY.recorded()
    };
    let store = works(check, open(&env, salvage.clone()))?;
    for image in env.taken() {
        works(check, open(&image.env, salvage.clone()))?;
    }
    let stored = works(check, store.append(message(50)))?.appended;
    ensure(stored.physical_offset == last, check, || format!("{stored:?}"))?;
    let (cut, _) = env.crash(seed);
    let reopened = works(check, open(&cut, GEOMETRY.recorded()))?;
    cut.stop();
    drop(reopened);
    works(check, store.flush())?;
    let (cut, _) = env.crash(seed);
    let reopened = works(check, open(&cut, GEOMETRY.recorded()))?;
    let found = reopened.reader().message_at(last).is_ok();
    ensure(found, check, || "the message after the salvage is gone".to_owned())
}

#[test]
fn a_store_that_is_closed_while_it_rolls_opens_after_a_power_cut() {
    for seed in 0..50 {
        closed_while_it_rolls(None, seed).unwrap();
    }
}

#[test]
fn a_store_whose_segments_are_being_cut_opens_after_a_power_cut() {
    for seed in 0..50 {
        cut_by_segments(None, seed).unwrap();
    }
}

#[test]
fn a_store_that_looks_closed_has_the_stamp_of_its_close() {
    for seed in 0..50 {
        cut_before_the_close_ends(None, seed).unwrap();
    }
}

#[test]
fn a_log_that_is_being_trimmed_has_no_hole_after_a_power_cut() {
    for seed in 0..20 {
        cut_while_it_trims(None, seed).unwrap();
    }
    for step in [Step::LogExpired, Step::ConfigFile, Step::ConfigRenamed] {
        let mut without = (0..20).map(|seed| cut_while_it_trims(Some(step), seed));
        assert!(without.any(|checked| checked.is_err()), "{step:?}");
    }
}

#[test]
fn a_log_that_is_trimmed_on_a_full_disk_has_no_hole_after_a_power_cut() {
    let fault = |number| Fault {
        failure: Failure::Full,
        number,
        stays: false,
    };
    for seed in 0..20 {
        let failed = (0..).take_while(|number| cut_while_it_trims_with(None, seed, Some(fault(*number))).unwrap());
        let failed = failed.count();
        assert!(failed > 4, "{failed}");
    }
}

#[test]
fn a_store_that_was_salvaged_below_its_mark_opens_after_a_power_cut() {
    for seed in 0..50 {
        salvaged_below_the_mark(None, seed).unwrap();
    }
}

#[test]
fn what_was_salvaged_survives_the_next_power_cut() {
    for seed in 0..50 {
        salvaged_twice(None, seed).unwrap();
    }
}
