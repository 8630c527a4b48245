//! Tests of the machine itself. It must be able to lose everything that a power cut may lose, and nothing else.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use mqstore::storage::{Access, Env, File, Step};

use super::{Failure, Fault, SimulatedEnv};

const STEP: Step = Step::LogRange;

fn path(name: &str) -> &Path {
    Path::new(name)
}

/// A machine with a durable file of `len` bytes of `byte` in it.
fn with_file(len: usize, byte: u8) -> (SimulatedEnv, Arc<dyn File>) {
    let env = SimulatedEnv::new();
    let file = env.create(path("/file")).unwrap();
    file.write_all_at(&vec![byte; len], 0).unwrap();
    file.sync(STEP).unwrap();
    env.sync_dir(path("/"), STEP).unwrap();
    (env, file)
}

/// Returns the contents that crashes leave of a file, over `seeds` seeds.
fn left(env: &SimulatedEnv, seeds: u64) -> BTreeSet<Vec<u8>> {
    let read = |seed| {
        env.crash(seed)
            .0
            .files(path("/"))
            .into_iter()
            .find(|(name, _)| name == path("/file"))
    };
    (0..seeds).filter_map(|seed| Some(read(seed)?.1)).collect()
}

fn names(env: &SimulatedEnv, dir: &str) -> Vec<String> {
    let entries = env.list(path(dir)).unwrap();
    entries.into_iter().map(|entry| entry.name.into_string().unwrap()).collect()
}

fn crashed_names(env: &SimulatedEnv, dir: &str) -> BTreeSet<Vec<String>> {
    (0..200).map(|seed| names(&env.crash(seed).0, dir)).collect()
}

fn fault(failure: Failure, number: u64, stays: bool) -> Fault {
    Fault { failure, number, stays }
}

#[test]
fn what_is_synced_survives_every_crash() {
    let (env, file) = with_file(5000, 1);
    assert_eq!(left(&env, 100), BTreeSet::from([vec![1; 5000]]));
    file.write_all_at(&[2; 3000], 1000).unwrap();
    file.sync(STEP).unwrap();
    let mut expected = vec![1; 5000];
    expected[1000..4000].fill(2);
    assert_eq!(left(&env, 100), BTreeSet::from([expected]));
}

#[test]
fn a_sector_without_a_sync_is_old_new_or_torn_and_its_neighbours_stay() {
    let (env, file) = with_file(1536, 1);
    let region = file.map(1536, Access::ReadWrite).unwrap();
    assert!(region.write(512, &[2; 512]));
    let left = left(&env, 1000);
    assert!(left.iter().all(|bytes| bytes[..512] == [1; 512] && bytes[1024..] == [1; 512]));
    let count = |wanted: fn(&[u8]) -> bool| left.iter().filter(|bytes| wanted(&bytes[512..1024])).count();
    assert_eq!(count(|sector| sector == [1; 512]), 1);
    assert_eq!(count(|sector| sector == [2; 512]), 1);
    assert!(count(|sector| sector[0] == 2 && sector[511] == 1) > 2);
    assert!(count(|sector| sector[0] == 1 && sector[511] == 2) > 2);
    assert!(count(|sector| sector.iter().any(|byte| *byte > 2)) > 5);
}

#[test]
fn a_byte_that_nobody_changes_is_what_it_was_even_in_a_torn_sector() {
    let (env, file) = with_file(512, 1);
    file.write_all_at(&[2; 100], 200).unwrap();
    for bytes in left(&env, 400) {
        assert!(bytes[..200] == [1; 200] && bytes[300..] == [1; 212]);
    }
}

#[test]
fn a_sync_of_a_range_covers_that_range_alone() {
    let (env, file) = with_file(4096, 1);
    file.write_all_at(&[2; 4096], 0).unwrap();
    file.sync_range(1000..2000, STEP).unwrap();
    let left = left(&env, 100);
    assert!(left.iter().all(|bytes| bytes[1000..2000] == [2; 1000]));
    assert!(
        left.iter()
            .any(|bytes| bytes[..1000] == [1; 1000] && bytes[2000..] == [1; 2096])
    );
}

#[test]
fn a_length_without_a_sync_is_the_old_or_the_new_one() {
    let (env, file) = with_file(100, 1);
    file.allocate(1000).unwrap();
    let lengths: BTreeSet<usize> = left(&env, 100).iter().map(Vec::len).collect();
    assert_eq!(lengths, BTreeSet::from([100, 1000]));
    file.sync(STEP).unwrap();
    assert_eq!(
        left(&env, 100).iter().map(Vec::len).collect::<BTreeSet<_>>(),
        BTreeSet::from([1000])
    );
}

#[test]
fn names_without_a_directory_sync_may_vanish_and_removed_ones_come_back() {
    let env = SimulatedEnv::new();
    env.create(path("/a")).unwrap().sync(STEP).unwrap();
    assert_eq!(crashed_names(&env, "/").len(), 2);
    env.sync_dir(path("/"), STEP).unwrap();
    assert_eq!(crashed_names(&env, "/"), BTreeSet::from([vec!["a".to_owned()]]));
    env.unlink(path("/a")).unwrap();
    assert_eq!(crashed_names(&env, "/").len(), 2);
    env.sync_dir(path("/"), STEP).unwrap();
    assert_eq!(crashed_names(&env, "/"), BTreeSet::from([vec![]]));
}

#[test]
fn a_directory_that_vanishes_takes_along_what_is_in_it() {
    let env = SimulatedEnv::new();
    env.create_dir(path("/dir")).unwrap();
    env.create(path("/dir/a")).unwrap();
    env.sync_dir(path("/dir"), STEP).unwrap();
    let found: BTreeSet<bool> = (0..50)
        .map(|seed| env.crash(seed).0.open(path("/dir/a"), Access::Read).is_ok())
        .collect();
    assert_eq!(found, BTreeSet::from([false, true]));
    env.sync_dir(path("/"), STEP).unwrap();
    assert!((0..50).all(|seed| env.crash(seed).0.open(path("/dir/a"), Access::Read).is_ok()));
}

#[test]
fn a_rename_leaves_either_name_or_across_directories_both_or_none() {
    let env = SimulatedEnv::new();
    env.create_dir(path("/dir")).unwrap();
    env.create(path("/a")).unwrap();
    env.sync_dir(path("/"), STEP).unwrap();
    env.rename(path("/a"), path("/b")).unwrap();
    let either = [vec!["a".to_owned(), "dir".to_owned()], vec!["b".to_owned(), "dir".to_owned()]];
    assert_eq!(crashed_names(&env, "/"), BTreeSet::from(either));
    env.sync_dir(path("/"), STEP).unwrap();
    env.rename(path("/b"), path("/dir/c")).unwrap();
    let there = |env: &SimulatedEnv, name| env.open(path(name), Access::Read).is_ok();
    let after = |seed| {
        let (env, _) = env.crash(seed);
        (there(&env, "/b"), there(&env, "/dir/c"))
    };
    assert_eq!((0..200).map(after).collect::<BTreeSet<_>>().len(), 4);
    env.sync_dir(path("/dir"), STEP).unwrap();
    assert_eq!(
        (0..200).map(after).collect::<BTreeSet<_>>(),
        BTreeSet::from([(false, true), (true, true)])
    );
}

#[test]
fn a_sync_of_everything_leaves_nothing_to_lose() {
    let (env, file) = with_file(10, 1);
    file.write_all_at(&[2; 100], 0).unwrap();
    env.create_dir(path("/dir")).unwrap();
    assert!(!env.is_durable(path("/")));
    env.file_system(path("/")).unwrap().sync(STEP).unwrap();
    assert!(env.is_durable(path("/")));
    assert_eq!(left(&env, 50), BTreeSet::from([vec![2; 100]]));
}

#[test]
fn after_a_kill_everything_is_seen_and_no_more_of_it_durable() {
    let (env, file) = with_file(512, 1);
    let region = file.map(512, Access::ReadWrite).unwrap();
    assert!(region.write(0, &[2; 512]));
    let lock = env.lock(path("/lock")).unwrap();
    let after = env.kill();
    assert_eq!(after.files(path("/file"))[0].1, [2; 512]);
    assert!(after.lock(path("/lock")).is_ok());
    assert!(left(&after, 50).contains(&vec![1; 512]));
    // Calls of the killed process have no effect.
    assert!(region.write(0, &[3; 512]));
    assert!(file.sync(STEP).is_err() && env.list(path("/")).is_err());
    assert_eq!(after.files(path("/file"))[0].1, [2; 512]);
    drop(lock);
}

#[test]
fn bytes_of_a_failed_sync_are_seen_and_not_durable_until_written_again() {
    let (env, file) = with_file(1024, 1);
    file.write_all_at(&[2; 1024], 0).unwrap();
    env.set_fault(Some(fault(Failure::Device, 0, false)));
    assert!(file.sync(STEP).is_err());
    file.sync(STEP).unwrap();
    assert_eq!(env.synced_again().as_deref(), Some(path("/file")));
    assert_eq!(env.files(path("/file"))[0].1, [2; 1024]);
    assert!(left(&env, 50).contains(&vec![1; 1024]));
    // One byte makes its block dirty, and the other block stays lost, also for the next process.
    let env = env.kill();
    let file = env.open(path("/file"), Access::ReadWrite).unwrap();
    file.write_all_at(&[2], 100).unwrap();
    file.sync(STEP).unwrap();
    let after = left(&env, 50);
    assert!(after.iter().all(|bytes| bytes[..512] == [2; 512]));
    assert!(after.iter().any(|bytes| bytes[512..] == [1; 512]));
    // Zeros over zeros are a write, too.
    file.zero(0..1024).unwrap();
    env.set_fault(Some(fault(Failure::Device, 0, false)));
    assert!(file.sync(STEP).is_err());
    assert!(left(&env, 50).contains(&[[2; 512], [1; 512]].concat()));
    file.zero(0..1024).unwrap();
    file.sync(STEP).unwrap();
    assert_eq!(left(&env, 50), BTreeSet::from([vec![0; 1024]]));
}

#[test]
fn names_whose_sync_failed_are_durable_after_the_next_directory_sync() {
    let env = SimulatedEnv::new();
    env.create(path("/a")).unwrap();
    env.set_fault(Some(fault(Failure::Device, 0, false)));
    assert!(env.sync_dir(path("/"), STEP).is_err());
    assert_eq!(names(&env, "/"), ["a"]);
    assert_eq!(crashed_names(&env, "/").len(), 2);
    env.sync_dir(path("/"), STEP).unwrap();
    assert_eq!(crashed_names(&env, "/"), BTreeSet::from([vec!["a".to_owned()]]));
}

#[test]
fn the_call_that_is_to_fail_fails_once_or_for_good() {
    let (env, file) = with_file(10, 1);
    env.set_fault(Some(fault(Failure::Device, 1, false)));
    let errors = |_| file.write_at(&[2], 0).is_err();
    assert_eq!([0, 1, 2, 3].map(errors), [false, true, false, false]);
    env.set_fault(Some(fault(Failure::Full, 1, true)));
    assert_eq!([0, 1, 2].map(errors), [false, true, true]);
    assert_eq!(env.concerned(), 3);
    assert_eq!(env.create(path("/b")).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(file.sync(STEP).is_ok() && file.read_at(&mut [0], 0).is_ok());
    env.set_fault(Some(fault(Failure::Short, 0, true)));
    assert_eq!(file.write_at(&[3; 10], 0).unwrap(), 5);
    assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 5);
}

#[test]
fn an_allocation_that_fails_has_taken_room() {
    let env = SimulatedEnv::new();
    let file = env.create(path("/a")).unwrap();
    env.set_fault(Some(fault(Failure::Full, 0, false)));
    assert!(file.allocate(1000).is_err());
    assert_eq!(file.len().unwrap(), 500);
}

#[test]
fn a_step_that_is_left_out_says_ok_and_makes_nothing_durable() {
    let (env, file) = with_file(10, 1);
    env.leave_out(Some(STEP));
    file.write_all_at(&[2; 10], 0).unwrap();
    env.create(path("/b")).unwrap();
    file.sync(STEP).unwrap();
    env.sync_dir(path("/"), STEP).unwrap();
    env.file_system(path("/")).unwrap().sync(STEP).unwrap();
    assert!(!env.is_durable(path("/")) && left(&env, 50).contains(&vec![1; 10]));
    file.sync(Step::Checkpoint).unwrap();
    assert_eq!(left(&env, 50), BTreeSet::from([vec![2; 10]]));
}

#[test]
fn a_slow_sync_covers_earlier_writes_and_no_concurrent_ones() {
    let (env, file) = with_file(1024, 1);
    file.write_all_at(&[2; 512], 0).unwrap();
    let other = file.clone();
    env.stall(&[Step::Checkpoint], move |env| {
        env.set_now(env.now() - 5000);
        other.write_all_at(&[2; 512], 512).unwrap();
        assert!(left(env, 50).iter().all(|bytes| bytes[..512] == [2; 512]));
    });
    let before = env.now();
    file.sync(STEP).unwrap();
    assert_eq!(env.now(), before);
    file.sync(Step::Checkpoint).unwrap();
    assert_eq!(env.now(), before - 5000);
    let rests: BTreeSet<bool> = left(&env, 50).iter().map(|bytes| bytes[512..] == [2; 512]).collect();
    assert_eq!(rests, BTreeSet::from([false, true]));
    env.stall(&[STEP], |_| panic!("it was ended"));
    env.end_stall();
    file.sync(STEP).unwrap();
    assert!(env.is_durable(path("/")));
}

#[test]
fn one_holder_at_a_time_has_the_lock() {
    let env = SimulatedEnv::new();
    let lock = env.lock(path("/lock")).unwrap();
    assert_eq!(env.lock(path("/lock")).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(lock);
    assert!(env.lock(path("/lock")).is_ok());
}

#[test]
fn the_same_seed_leaves_the_same_bytes_and_says_the_same() {
    let (env, file) = with_file(4096, 1);
    env.log_calls();
    file.write_all_at(&[2; 4096], 0).unwrap();
    env.create(path("/b")).unwrap();
    for seed in 0..20 {
        let ((one, report), (other, again)) = (env.crash(seed), env.crash(seed));
        assert_eq!(one.files(path("/")), other.files(path("/")));
        assert_eq!(report.lines, again.lines);
    }
    assert!((0..20).map(|seed| env.crash(seed).1.lines).collect::<BTreeSet<_>>().len() > 10);
    assert_eq!(env.take_log(), ["Write /file", "Create /b"]);
}

#[test]
fn images_are_taken_before_the_calls_that_change_something() {
    let (env, file) = with_file(512, 1);
    env.take_images(7, 1);
    file.write_all_at(&[2; 512], 0).unwrap();
    file.read_at(&mut [0], 0).unwrap();
    file.sync(STEP).unwrap();
    file.sync(STEP).unwrap();
    let taken = env.taken();
    assert_eq!(taken.len(), 3);
    assert_eq!(taken[0].env.files(path("/file"))[0].1, [1; 512]);
    assert_eq!(taken[2].env.files(path("/file"))[0].1, [2; 512]);
    // The seed of an image leaves the same image again.
    let (again, _) = env.crash(taken[2].seed);
    assert_eq!(again.files(path("/")), taken[2].env.files(path("/")));
    assert!(taken[1].call < taken[2].call && env.taken().is_empty());
}
