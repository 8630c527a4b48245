//! A directory of mapped files beside a process that removes files and makes them again, against a set of names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mqstore::format::segment_name;
use mqstore::storage::{MappedFileQueue, MappingPool, RealEnv};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::counting_env::CountingEnv;

const SIZE: u64 = 4096;
const FILES: u64 = 6;

/// One operation on the file of a number, or on all files.
#[derive(Debug, Clone)]
enum Step {
    Remove(u64),
    /// Makes the file, with new contents if it is there.
    Make(u64),
    /// Retention: removes the first files up to this one.
    Expire(u64),
    Find(u64),
    Open(u64),
    ReadByName(u64),
    Written(u64),
    ListAgain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..FILES).prop_map(Step::Remove),
        4 => (0..FILES).prop_map(Step::Make),
        1 => (0..FILES).prop_map(Step::Expire),
        3 => (0..FILES).prop_map(Step::Find),
        1 => (0..FILES).prop_map(Step::Open),
        1 => (0..FILES).prop_map(Step::ReadByName),
        1 => (0..FILES).prop_map(Step::Written),
        3 => Just(Step::ListAgain),
    ];
    prop::collection::vec(step, 1..60)
}

fn load(dir: &Path) -> MappedFileQueue {
    MappedFileQueue::load(Arc::new(RealEnv::new()), dir, Some(SIZE), Arc::new(MappingPool::new(100))).unwrap()
}

/// The model of the directory: the number of each file, and the byte that fills it.
struct Directory {
    dir: TempDir,
    files: BTreeMap<u64, u8>,
    made: u8,
}

impl Directory {
    fn new(files: impl IntoIterator<Item = u64>) -> Self {
        let mut directory = Self {
            dir: TempDir::new().unwrap(),
            files: BTreeMap::new(),
            made: 0,
        };
        files.into_iter().for_each(|number| directory.make(number));
        directory
    }

    fn make(&mut self, number: u64) {
        self.remove(number);
        self.made += 1;
        let path = self.dir.path().join(segment_name(number * SIZE));
        fs::write(path, vec![self.made; SIZE as usize]).unwrap();
        self.files.insert(number, self.made);
    }

    fn remove(&mut self, number: u64) {
        if self.files.remove(&number).is_some() {
            fs::remove_file(self.dir.path().join(segment_name(number * SIZE))).unwrap();
        }
    }

    fn has_expired(&self, number: u64) -> bool {
        self.files.keys().next().is_none_or(|first| number < *first)
    }
}

/// The numbers of the files that the queue counts as expired.
fn expired(queue: &MappedFileQueue) -> BTreeSet<u64> {
    (0..FILES).filter(|number| queue.is_removed(number * SIZE)).collect()
}

fn first_byte(queue: &MappedFileQueue, number: u64) -> Option<u8> {
    let found = queue.find(number * SIZE).unwrap();
    found.and_then(|file| file.bytes(0..1).map(|bytes| bytes[0]))
}

/// Looks for the byte of a file by one of the calls, each of which returns `None` or nothing where the file is missing.
fn look(queue: &MappedFileQueue, step: &Step) -> Option<(u64, Option<u8>)> {
    let mut byte = [0];
    Some(match step {
        Step::Find(number) => (*number, first_byte(queue, *number)),
        Step::Open(number) => {
            let opened = queue.open(number * SIZE).unwrap();
            (*number, opened.map(|file| file.read(0, &mut byte).map(|_| byte[0]).unwrap()))
        }
        Step::ReadByName(number) => {
            let read = queue.read_reopened(number * SIZE, &mut byte).unwrap();
            (*number, read.map(|_| byte[0]))
        }
        Step::Written(number) => {
            let written = queue.written(number * SIZE, 0..SIZE).unwrap();
            (*number, (!written.is_empty()).then_some(0))
        }
        _ => return None,
    })
}

/// Checks the result of a read: the file as it is, former contents that were mapped, or nothing where the file is missing or was made
/// after the last listing.
fn expect_look(directory: &Directory, number: u64, found: Option<u8>, is_listed: bool, is_mapped: bool) {
    match (found, directory.files.get(&number)) {
        (Some(found), Some(there)) => assert!(found == 0 || found == *there || is_mapped, "file {number} shows {found}"),
        (Some(found), None) => assert!(is_mapped, "file {number} is missing and shows {found}"),
        (None, Some(_)) => assert!(!is_listed, "file {number} is there and was not found"),
        (None, None) => {}
    }
}

fn run(steps: &[Step]) {
    let mut directory = Directory::new(0..3);
    let queue = load(directory.dir.path());
    let mut known: BTreeSet<u64> = (0..3).collect();
    let mut mapped = BTreeSet::new();
    for step in steps {
        let (before, removals) = (expired(&queue), queue.removals());
        match step {
            Step::Remove(number) => directory.remove(*number),
            Step::Make(number) => directory.make(*number),
            Step::Expire(number) => (0..=*number).for_each(|number| directory.remove(number)),
            Step::ListAgain => {
                queue.list_again().unwrap();
                let starts: Vec<u64> = queue.starts().iter().map(|start| start / SIZE).collect();
                assert!(starts.iter().eq(directory.files.keys()), "{starts:?}");
                let gone = known.iter().filter(|number| directory.has_expired(**number));
                assert!(expired(&queue).iter().eq(gone.clone()), "{:?}", expired(&queue));
                known = directory.files.keys().chain(gone).copied().collect();
                queue.forget_mappings(0);
                mapped.clear();
                for number in 0..FILES {
                    assert_eq!(first_byte(&queue, number), directory.files.get(&number).copied());
                }
                mapped.extend(directory.files.keys().copied());
            }
            looked => {
                let is_listed = |number: u64| known.contains(&number) && !before.contains(&number);
                let (number, found) = look(&queue, looked).unwrap();
                expect_look(&directory, number, found, is_listed(number), mapped.contains(&number));
                if found.is_some() {
                    mapped.insert(number);
                } else if is_listed(number) {
                    // The directory was listed.
                    known.retain(|known| directory.files.contains_key(known) || directory.has_expired(*known));
                }
            }
        }
        let now = expired(&queue);
        for number in now.difference(&before) {
            assert!(directory.has_expired(*number), "file {number} counts as expired");
        }
        assert!(now.is_subset(&before) == (queue.removals() == removals));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn files_removed_and_made_again_are_those_of_the_directory(steps in steps()) {
        run(&steps);
    }
}

#[test]
fn a_file_made_again_after_it_was_missed_is_listed_and_has_not_expired() {
    let mut directory = Directory::new(0..3);
    let queue = load(directory.dir.path());
    directory.remove(2);
    assert_eq!(
        (first_byte(&queue, 2), queue.is_removed(2 * SIZE), queue.removals()),
        (None, false, 0)
    );
    assert_eq!((queue.first_offset(), queue.end_offset()), (Some(0), Some(2 * SIZE)));
    directory.make(2);
    queue.list_again().unwrap();
    assert_eq!(first_byte(&queue, 2), Some(directory.files[&2]));
    assert_eq!((queue.first_offset(), queue.end_offset()), (Some(0), Some(3 * SIZE)));
}

#[test]
fn a_file_made_again_while_it_is_missed_is_found_at_once() {
    let mut directory = Directory::new(0..3);
    let path = directory.dir.path().join(segment_name(2 * SIZE));
    let env = CountingEnv::new();
    let queue = MappedFileQueue::load(
        Arc::new(env.clone()),
        directory.dir.path(),
        Some(SIZE),
        Arc::new(MappingPool::new(100)),
    )
    .unwrap();
    directory.remove(2);
    let list = format!("list {}", directory.dir.path().display());
    env.before_looks(move |call| {
        if call == list {
            fs::write(&path, vec![9; SIZE as usize])?;
        }
        Ok(())
    });
    assert_eq!((first_byte(&queue, 2), queue.removals()), (Some(9), 0));
}

#[test]
fn files_that_expire_while_the_directory_is_listed_leave_no_hole() {
    let mut directory = Directory::new(0..5);
    let env = CountingEnv::new();
    let queue = MappedFileQueue::load(
        Arc::new(env.clone()),
        directory.dir.path(),
        Some(SIZE),
        Arc::new(MappingPool::new(100)),
    )
    .unwrap();
    // The first listing meets file 0 before it is removed, and file 1 after that.
    directory.remove(1);
    let (list, first) = (
        format!("list {}", directory.dir.path().display()),
        directory.dir.path().join(segment_name(0)),
    );
    let listings = AtomicUsize::new(0);
    env.before_looks(move |call| {
        if call == list && listings.fetch_add(1, Ordering::Relaxed) == 1 {
            fs::remove_file(&first)?;
        }
        Ok(())
    });
    assert_eq!(first_byte(&queue, 1), None);
    assert_eq!((expired(&queue), queue.removals()), (BTreeSet::from([0, 1]), 1));
    assert_eq!((queue.first_offset(), first_byte(&queue, 2)), (Some(2 * SIZE), Some(3)));
}

#[test]
fn a_file_missing_between_others_has_not_expired() {
    let mut directory = Directory::new(0..5);
    let queue = load(directory.dir.path());
    directory.remove(2);
    assert_eq!(first_byte(&queue, 2), None);
    assert_eq!((expired(&queue), queue.removals()), (BTreeSet::new(), 0));
    assert_eq!(queue.starts(), [0, 1, 3, 4].map(|number| number * SIZE));
}
