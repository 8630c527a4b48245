//! The mark of what was flushed: its value at every crash, and its effect on an open.

use std::path::PathBuf;

use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{FlushedMark, encode_lock_file};
use mqstore::read::MessageReader;
use mqstore::recovery::Missing;
use mqstore::remedy::Remedy;
use mqstore::storage::Step;
use mqstore::store::MessageStore;

use super::examine::{dispatch_all, root};
use super::files::Files;
use super::run::machine;
use super::scenes::{GEOMETRY, message, open};
use crate::simulated_env::{Call, Failure, Fault, SimulatedEnv};

/// Of the messages of [`killed`], how many are flushed.
const FLUSHED: usize = 4;

fn mark(env: &SimulatedEnv) -> FlushedMark {
    Files::of(env, root()).mark().unwrap()
}

fn mark_path() -> PathBuf {
    root().join("config/mqstore.flushed")
}

fn append(store: &MessageStore, len: usize) -> i64 {
    store.append(message(len)).unwrap().appended.physical_offset
}

/// A store of six messages, of which four are flushed, after the death of its process; and where each message starts.
fn killed() -> (SimulatedEnv, Vec<i64>) {
    let env = machine();
    let store = open(&env, GEOMETRY.config()).unwrap();
    let mut offsets: Vec<i64> = (0..FLUSHED).map(|n| append(&store, 100 + n)).collect();
    let flushed = store.flush().unwrap();
    offsets.extend((0..2).map(|n| append(&store, 200 + n)));
    assert_eq!(flushed, offsets[FLUSHED]);
    (env.kill(), offsets)
}

fn flip(env: &SimulatedEnv, at: usize) {
    let mut log = Files::of(env, root()).log();
    log[at] ^= 1;
    put_log(env, &log);
}

fn put_log(env: &SimulatedEnv, log: &[u8]) {
    for (number, segment) in log.chunks(GEOMETRY.segment as usize).enumerate() {
        let name = format!("commitlog/{:020}", number as u64 * GEOMETRY.segment);
        env.put(&root().join(name), segment);
    }
}

/// Opens for writing, with the default `recovery="heal"`, and says where the log ends.
fn heal(env: &SimulatedEnv) -> Result<i64, Error> {
    let store = open(env, GEOMETRY.recorded())?;
    let end = store.reader().recovery().log_end;
    env.stop();
    drop(store);
    Ok(end)
}

fn reader(env: &SimulatedEnv) -> MessageReader {
    MessageReader::open(&env.shared(), root(), GEOMETRY.recorded()).unwrap()
}

/// The reason of a refusal at this offset. Nothing is changed.
fn refused_at(env: &SimulatedEnv, offset: i64) -> String {
    let before = Files::of(env, root());
    let refused = heal(env).unwrap_err();
    assert_eq!(before.difference(&Files::of(env, root())), None);
    match refused {
        Error::Corrupt {
            path,
            offset: at,
            reason,
            remedy,
        } => {
            assert_eq!(path, root().join("commitlog/00000000000000000000"));
            assert_eq!((at, remedy), (offset as u64, Some(Remedy::SalvageOrRead)), "{reason}");
            reason
        }
        other => panic!("{other}"),
    }
}

fn salvage() -> StoreConfig {
    StoreConfig {
        recovery: Recovery::Salvage,
        ..GEOMETRY.recorded()
    }
}

/// Positions in a record that recovery checks: length, magic, checksum of the body, physical offset, body.
const CHECKED: [usize; 6] = [3, 4, 11, 30, 90, 150];

#[test]
fn damage_below_a_killed_writers_mark_is_refused_and_read_as_incomplete() {
    let (killed, offsets) = killed();
    for (n, at) in (0..FLUSHED).flat_map(|n| CHECKED.map(|at| (n, at))) {
        let env = killed.copy();
        flip(&env, offsets[n] as usize + at);
        let reason = refused_at(&env.copy(), offsets[n]);
        let mark = format!("config/mqstore.flushed says that it was on disk up to {}", offsets[FLUSHED]);
        assert!(reason.contains(&mark), "{reason}");
        let reader = reader(&env);
        let Missing { what, remedy, .. } = reader.recovery().missing.as_ref().unwrap();
        assert!(what.contains(&mark), "{what}");
        assert!(
            matches!(remedy, Some(Remedy::SkipOrSalvage | Remedy::SalvagePastEnd)),
            "{remedy:?}: {what}"
        );
        for offset in &offsets[..n] {
            reader.message_at(*offset).unwrap();
        }
        let salvaged = open(&env, salvage()).unwrap();
        for (_, offset) in offsets.iter().enumerate().filter(|(kept, _)| *kept != n) {
            salvaged.reader().message_at(*offset).unwrap();
        }
        // What replaces the lost message is durable, too.
        let end = salvaged.reader().recovery().log_end;
        assert_eq!(heal(&env.crash(at as u64).0).unwrap(), end);
    }
}

/// Returns true if a reader warns only that the next writer removes whole messages.
fn says_what_follows(env: &SimulatedEnv) -> bool {
    let reader = reader(env);
    let Some(missing) = &reader.recovery().missing else {
        return false;
    };
    assert!(
        missing.what.contains("the next start of a writer removes them"),
        "{missing:?}"
    );
    assert_eq!(missing.remedy, Some(Remedy::SalvagePastEnd));
    true
}

#[test]
fn damage_above_the_mark_of_a_killed_writer_is_a_torn_end() {
    let (killed, offsets) = killed();
    for (n, at) in (FLUSHED..offsets.len()).flat_map(|n| CHECKED.map(|at| (n, at))) {
        let env = killed.copy();
        flip(&env, offsets[n] as usize + at);
        assert_eq!(says_what_follows(&env), offsets.get(n + 1).is_some());
        assert_eq!(heal(&env).unwrap(), offsets[n]);
        assert_eq!(mark(&env).flushed, offsets[n]);
    }
    assert!(heal(&killed).unwrap() > offsets[5]);
}

#[test]
fn a_mark_that_is_missing_torn_or_of_another_history_says_nothing() {
    let (killed, offsets) = killed();
    flip(&killed, offsets[1] as usize + 90);
    let whole = mark(&killed);
    let bytes = whole.encode();
    let mut others = vec![
        None,
        Some(Vec::new()),
        Some(bytes[..511].to_vec()),
        Some([&bytes[..], &[0]].concat()),
    ];
    for at in [0, 4, 7, 8, 15, 23, 27, 28, 511] {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1;
        others.push(Some(flipped));
    }
    let own_from = whole.own_from + 1;
    others.push(Some(FlushedMark { own_from, ..whole }.encode().to_vec()));
    refused_at(&killed.copy(), offsets[1]);
    for other in others {
        let env = killed.copy();
        match &other {
            Some(bytes) => env.put(&mark_path(), bytes),
            None => env.remove(&mark_path()),
        }
        assert!(says_what_follows(&env));
        assert_eq!(heal(&env).unwrap(), offsets[1], "{other:?}");
        // It is written again.
        let flushed = offsets[1];
        assert_eq!(mark(&env), FlushedMark { flushed, ..whole });
    }
    killed.put(&root().join("lock"), &encode_lock_file(offsets[1]));
    assert_eq!(heal(&killed).unwrap(), offsets[1]);
}

#[test]
fn a_broker_that_starts_ends_what_the_mark_says() {
    for kept in 0..3 {
        let (env, offsets) = killed();
        let mut log = Files::of(&env, root()).log();
        log[offsets[kept] as usize..].fill(0);
        put_log(&env, &log);
        env.put(&root().join("lock"), b"lock");
        env.take_images(kept as u64, 1);
        let store = open(&env, GEOMETRY.recorded()).unwrap();
        let images = env.taken();
        assert!(images.len() > 10);
        // Whatever is durable of the new claim and of the new mark, the old mark is not believed.
        for image in images {
            assert_eq!(heal(&image.env).unwrap(), offsets[kept]);
        }
        let expected = FlushedMark {
            flushed: offsets[kept],
            own_from: offsets[kept],
            is_sync: false,
        };
        assert_eq!(mark(&env), expected);
        append(&store, 10);
        assert!(heal(&env.crash(0).0).is_ok());
        let flushed = store.flush().unwrap();
        assert_eq!(mark(&env).flushed, flushed);
    }
}

#[test]
fn a_salvage_below_the_mark_is_durable_after_the_next_open() {
    let (killed, offsets) = killed();
    flip(&killed, offsets[1] as usize + 90);
    for seed in 0..20 {
        let env = killed.copy();
        let machine = env.clone();
        env.pause_before(Call::Sync(Step::LogRewritten), move || {
            machine.set_fault(Some(fault(Failure::Device, 0)));
        });
        assert!(open(&env, salvage()).is_err());
        // The salvage records are in memory only, where they look whole.
        let env = env.kill();
        let end = heal(&env.copy()).unwrap();
        assert!(end > offsets[5]);
        drop(open(&env, GEOMETRY.recorded()).unwrap());
        assert_eq!(heal(&env.crash(seed).0).unwrap(), end);
    }
}

#[test]
fn what_a_salvage_wrote_below_the_mark_is_on_disk_before_its_stamps() {
    let env = machine();
    let store = open(&env, GEOMETRY.config()).unwrap();
    let offsets: Vec<i64> = (0..6).map(|_| append(&store, 1500)).collect();
    // The mark is in a later segment than the damage.
    assert!(store.flush().unwrap() > 2 * GEOMETRY.segment as i64);
    store.close().unwrap();
    flip(&env, offsets[1] as usize + 90);
    let mut stamped = 0;
    for seed in 0..20 {
        let env = env.copy();
        env.take_images(seed, 1);
        let salvaged = open(&env, salvage()).unwrap();
        let end = salvaged.reader().recovery().log_end;
        for image in env.taken() {
            // The stamps of a salvaged store are not ours, and do not refuse it.
            if !Files::of(&image.env, root()).checkpoint().is_ours() {
                stamped += 1;
                assert_eq!(heal(&image.env).unwrap(), end);
            }
        }
    }
    assert!(stamped > 50, "{stamped}");
}

#[test]
fn a_copy_whose_mark_is_past_its_log_is_incomplete_and_not_writable() {
    let env = machine();
    let store = open(&env, GEOMETRY.config()).unwrap();
    append(&store, 100);
    store.flush().unwrap();
    let copied = Files::of(&env, root()).log();
    let later = append(&store, 100);
    store.flush().unwrap();
    let env = env.kill();
    put_log(&env, &copied);
    let reader = reader(&env);
    let missing = reader.recovery().missing.as_ref().unwrap();
    assert!(
        missing.what.contains("a copy made while the store was written"),
        "{missing:?}"
    );
    assert_eq!(reader.recovery().log_end, later);
    assert!(refused_at(&env, later).contains("a copy made while the store was written"));
}

#[test]
fn after_the_death_of_a_process_the_mark_is_what_was_flushed() {
    let mut env = machine();
    let mut store = open(&env, GEOMETRY.config()).unwrap();
    assert_eq!(mark(&env).flushed, 0);
    for n in 0..12 {
        append(&store, 100 * n);
        let flushed = store.flush().unwrap();
        append(&store, 50);
        let killed = env.kill();
        assert_eq!(mark(&killed).flushed, flushed);
        let reopened = open(&killed, GEOMETRY.recorded()).unwrap();
        let report = reopened.reader().recovery();
        assert!(report.log_end > flushed && report.missing.is_none());
        assert_eq!(mark(&killed).flushed, report.log_end);
        (env, store) = (killed, reopened);
    }
    store.close().unwrap();
    let closed = Files::of(&env, root());
    let store = open(&env, GEOMETRY.recorded()).unwrap();
    assert_eq!(closed.difference(&Files::of(&env, root())), None);
    store.close().unwrap();
    assert!(env.is_durable(root()));
}

/// One call fails, once.
fn fault(failure: Failure, number: u64) -> Fault {
    Fault {
        failure,
        number,
        stays: false,
    }
}

/// Every byte below the mark is on the disk of a machine whose power goes now, and is as it was appended.
fn assert_covered(env: &SimulatedEnv, seed: u64, appended: &[u8]) -> i64 {
    let (cut, _) = env.crash(seed);
    let Some(mark) = Files::of(&cut, root()).mark() else {
        return 0;
    };
    let flushed = mark.flushed as usize;
    let log = Files::of(&cut, root()).log();
    assert!(
        log.len() >= flushed && log[..flushed] == appended[..flushed],
        "seed {seed}: {mark:?}"
    );
    mark.flushed
}

#[test]
fn the_mark_is_never_above_what_is_on_disk_at_any_power_cut() {
    let mut highest = 0;
    for seed in 0..40 {
        let env = machine();
        env.take_images(seed, 1);
        let store = open(&env, GEOMETRY.config()).unwrap();
        for n in 0..12 {
            append(&store, 40 * n + seed as usize);
            if n % 3 == seed as usize % 3 {
                store.flush().unwrap();
            }
        }
        dispatch_all(&store).unwrap();
        store.close().unwrap();
        let appended = Files::of(&env, root()).log();
        for image in env.taken() {
            highest = assert_covered(&image.env, image.seed, &appended).max(highest);
        }
    }
    assert!(highest > 2000);
}

#[test]
fn a_sync_of_the_log_that_fails_leaves_the_mark_where_it_was() {
    for seed in 0..40 {
        let env = machine();
        let store = open(&env, GEOMETRY.config()).unwrap();
        append(&store, 1000);
        let flushed = store.flush().unwrap();
        append(&store, 2000);
        let appended = Files::of(&env, root()).log();
        env.set_fault(Some(fault(Failure::Device, 0)));
        assert!(matches!(store.flush(), Err(Error::Poisoned { .. })));
        assert_eq!(mark(&env).flushed, flushed);
        assert_covered(&env, seed, &appended);
    }
}

#[test]
fn a_mark_that_cannot_be_written_stays_and_no_append_or_flush_fails() {
    // The first call of a flush syncs the log, and the second one writes the mark.
    let faults = [
        (Failure::Device, 1),
        (Failure::Full, 0),
        (Failure::ReadOnly, 0),
        (Failure::TooLarge, 0),
    ];
    for (failure, number) in faults {
        let env = machine();
        let store = open(&env, GEOMETRY.config()).unwrap();
        append(&store, 100);
        let before = store.flush().unwrap();
        for _ in 0..3 {
            append(&store, 100);
            env.set_fault(Some(fault(failure, number)));
            assert!(store.flush().unwrap() > before);
            assert_eq!(env.concerned(), number + 1, "{failure:?}");
            env.set_fault(None);
            // A write that failed may have written all of the new mark.
            let left = mark(&env).flushed;
            assert!((before..=store.flushed_offset()).contains(&left), "{failure:?}: {left}");
        }
        // It continues with the next flush.
        append(&store, 100);
        let flushed = store.flush().unwrap();
        assert_eq!(mark(&env).flushed, flushed);
        store.close().unwrap();
        assert_eq!(reader(&env).recovery().missing, None);
    }
}

#[test]
fn a_mark_that_cannot_be_synced_fails_the_stamp_and_the_close() {
    let env = machine();
    let store = open(&env, GEOMETRY.config()).unwrap();
    append(&store, 100);
    let machine = env.clone();
    env.pause_before(Call::Sync(Step::FlushedMark), move || {
        machine.set_fault(Some(fault(Failure::Device, 0)));
    });
    let failed = store.close().unwrap_err();
    assert!(failed.to_string().contains("mqstore.flushed"), "{failed}");
    assert_eq!(Files::of(&env, root()).checkpoint().physic_msg_timestamp, 0);
    assert!(heal(&env.kill()).is_ok());
}
