//! Tens of thousands of damaged stores, each made from one number, opened and asked everything.
//!
//! `MQSTORE_SEED=17 cargo test --test it -- twenty_thousand --nocapture` runs round 17 only and prints what was done to which store;
//! `MQSTORE_ROUNDS=5000000` makes more of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::{Recovery, StoreConfig};
use mqstore::read::MessageReader;
use mqstore::storage::{Env, RealEnv};
use tempfile::TempDir;

use super::bases::bases;
use super::draw::Draw;
use super::fields::Family;
use super::image::Image;
use super::mending::{Mended, is_sound, mend};
use super::mutator::{Base, Done, mutate};
use super::on_disk;
use super::questions::{Answers, ask_everything};
use super::truth::Truth;
use crate::child::on_core;
use crate::heap;

const ROUNDS: u64 = 20_000;
/// One of this many stores is on disk, with real mappings. Stores with links, pipes or sockets always are.
const ON_DISK: usize = 8;
const SLOWEST: Duration = Duration::from_secs(1);
/// A round that takes this long counts as a hang.
const HANGING: Duration = Duration::from_secs(120);
/// The memory that reading a store may take, in addition to a copy or two of its largest file.
const MOST_HEAP: usize = 3 << 20;

/// Fields of a record that no checksum of a broker covers: damage there is returned as it is. (The body's own checksum is
/// among them because it is not checked for an empty body.)
const UNPROTECTED: [&str; 14] = [
    "body CRC",
    "form",
    "born host",
    "born time",
    "flag",
    "prepared transaction offset",
    "properties",
    "queue id",
    "queue offset",
    "reconsume times",
    "store host",
    "store time",
    "sysFlag",
    "topic",
];

/// The results of all rounds.
#[derive(Default)]
struct Tally {
    rounds: u64,
    kinds: BTreeMap<&'static str, u64>,
    on_disk: u64,
    written: u64,
    written_with_links: u64,
    refused: u64,
    with_errors: u64,
    with_data: u64,
    messages: usize,
    most_heap: usize,
    slowest: Duration,
    undetected: BTreeSet<&'static str>,
    wrong: Vec<String>,
}

/// The result of one round.
struct Outcome {
    done: Vec<Done>,
    store: &'static str,
    on_disk: bool,
    has_links: bool,
    opened: bool,
    mended: Option<Mended>,
    messages: usize,
    errors: usize,
    heap: usize,
    took: Duration,
    undetected: BTreeSet<&'static str>,
    wrong: Vec<String>,
}

fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Events that happen to an open store on disk.
enum Then {
    Nothing,
    /// A file is cut short under its reader, and everything asked again.
    Cut(PathBuf, u64),
    /// It is opened for writing, and verify may promise that a writer can open it.
    Write(Recovery, bool),
}

/// Asks all questions, makes the change, and asks again.
fn read(env: &Arc<dyn Env>, root: &Path, then: Then, truth: &Truth, answers: &mut Answers<'_>) -> (bool, Option<Mended>) {
    let opened = MessageReader::open(env, root, StoreConfig::default()).map(Arc::new);
    let reader = answers.value(opened);
    if let Some(reader) = &reader {
        ask_everything(reader, answers);
    }
    let mended = match then {
        Then::Nothing => None,
        Then::Write(recovery, is_sound) => Some(mend(root, recovery, is_sound, truth, answers)),
        Then::Cut(path, len) => {
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(len).unwrap();
            if let Some(reader) = &reader {
                ask_everything(reader, answers);
            }
            None
        }
    };
    (reader.is_some(), mended)
}

/// The change. A store whose recorded sizes were damaged is not written to, because the sizes may fill the disk. Neither is one
/// of which a file has two names, because a write under one name changes the other.
fn then(draw: &mut Draw, image: &Image, root: &Path, done: &[Done]) -> Then {
    let files = image
        .files()
        .filter(|(path, bytes)| Family::of(path) != Family::Other && !bytes.is_empty());
    let files: Vec<_> = files.collect();
    let may_write = done.iter().all(|done| done.kind != "sizes") && !image.has_two_names();
    match draw.below(6) {
        0 | 1 if may_write => Then::Write(*draw.one(&[Recovery::Heal, Recovery::Salvage]), is_sound(root)),
        2 | 3 if !files.is_empty() => {
            let (path, bytes) = *draw.one(&files);
            Then::Cut(root.join(path), draw.below(bytes.len()) as u64)
        }
        _ => Then::Nothing,
    }
}

fn round(seed: u64, bases: &[(Base, Truth)]) -> Outcome {
    let mut draw = Draw::new(seed);
    let (base, truth) = draw.one(bases);
    let (image, done) = mutate(&mut draw, base);
    let is_on_disk = image.needs_disk() || draw.once_in(ON_DISK);
    let dir = is_on_disk.then(scratch);
    let root = dir.as_ref().map_or(Path::new("/store"), TempDir::path);
    let env: Arc<dyn Env> = if is_on_disk {
        on_disk::write(&image, root);
        Arc::new(RealEnv::new())
    } else {
        image.env(root)
    };
    let then = if is_on_disk {
        then(&mut draw, &image, root, &done)
    } else {
        Then::Nothing
    };
    // One damage leaves the queues or the head of the record, and either identifies the records in a body.
    let truth = &if done.len() > 1 { truth.with_carried() } else { truth.clone() };
    let mut answers = Answers::new(root, truth);
    let before = on_core();
    let (ended, heap) = heap::most_while(|| catch_unwind(AssertUnwindSafe(|| read(&env, root, then, truth, &mut answers))));
    let took = on_core().saturating_sub(before);
    if ended.is_err() {
        answers.wrong.push("a panic".to_owned());
    }
    let largest = image.files().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
    if heap > MOST_HEAP + 2 * largest {
        answers.wrong.push(format!("{heap} bytes of memory"));
    }
    Outcome {
        done,
        store: base.name,
        on_disk: is_on_disk,
        has_links: image.needs_disk(),
        opened: ended.as_ref().is_ok_and(|(opened, _)| *opened),
        mended: ended.ok().and_then(|(_, mended)| mended),
        messages: answers.messages,
        errors: answers.errors,
        heap,
        took,
        undetected: answers.undetected,
        wrong: answers.wrong,
    }
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        let changes: Vec<&str> = outcome.done.iter().map(|done| &*done.what).collect();
        for done in &outcome.done {
            *self.kinds.entry(done.kind).or_default() += 1;
        }
        self.rounds += 1;
        self.on_disk += u64::from(outcome.on_disk);
        self.written += u64::from(outcome.mended == Some(Mended::Written));
        self.written_with_links += u64::from(outcome.has_links && outcome.mended == Some(Mended::Written));
        self.refused += u64::from(outcome.mended == Some(Mended::Refused));
        self.with_errors += u64::from(outcome.errors > 0);
        self.with_data += u64::from(outcome.opened && outcome.messages > 0);
        self.messages += outcome.messages;
        self.most_heap = self.most_heap.max(outcome.heap);
        self.slowest = self.slowest.max(outcome.took);
        self.undetected.extend(outcome.undetected);
        for wrong in outcome.wrong.iter().take(3) {
            let changes = changes.join("; ");
            self.wrong
                .push(format!("seed {seed}, {}: {wrong}\n    after {changes}", outcome.store));
        }
    }
}

/// Runs the rounds on every core.
fn run(seeds: std::ops::Range<u64>, bases: &[(Base, Truth)]) -> Tally {
    let next = AtomicU64::new(seeds.start);
    let tally = Mutex::new(Tally::default());
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let running: Vec<Mutex<Option<(u64, Instant)>>> = (0..cores).map(|_| Mutex::default()).collect();
    thread::scope(|scope| {
        for place in &running {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    *place.lock().unwrap() = Some((seed, Instant::now()));
                    let mut outcome = round(seed, bases);
                    if outcome.took > SLOWEST {
                        outcome.wrong.push(format!("took {:?}", outcome.took));
                    }
                    tally.lock().unwrap().add(seed, outcome);
                }
                *place.lock().unwrap() = None;
            });
        }
        scope.spawn(|| watch(&running));
    });
    tally.into_inner().unwrap()
}

/// Ends the process, naming the seed, when a round does not end.
fn watch(running: &[Mutex<Option<(u64, Instant)>>]) {
    loop {
        thread::sleep(Duration::from_millis(20));
        let now: Vec<_> = running.iter().filter_map(|place| *place.lock().unwrap()).collect();
        if now.is_empty() {
            return;
        }
        for (seed, since) in now {
            if since.elapsed() > HANGING {
                println!("seed {seed} does not end");
                std::process::exit(101);
            }
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn twenty_thousand_damaged_stores_end_in_data_or_a_typed_error() {
    static BASES: LazyLock<Vec<(Base, Truth)>> = LazyLock::new(|| {
        bases()
            .into_iter()
            .map(|base| (Truth::of(&base), base))
            .map(|(truth, base)| (base, truth))
            .collect()
    });
    if let Some(seed) = number("MQSTORE_SEED") {
        let outcome = round(seed, &BASES);
        println!("seed {seed} damages {}:", outcome.store);
        for done in &outcome.done {
            println!("  {}: {}", done.kind, done.what);
        }
        println!(
            "{} messages, {} errors, {} bytes of memory, {:?}",
            outcome.messages, outcome.errors, outcome.heap, outcome.took
        );
        assert_eq!(outcome.wrong, [""; 0]);
        return;
    }
    let rounds = number("MQSTORE_ROUNDS").unwrap_or(ROUNDS);
    let started = Instant::now();
    let tally = run(0..rounds, &BASES);
    println!(
        "{rounds} damaged stores ({} on disk, {} written to, {} of these with links or pipes, {} refused a writer), {} with errors, {} with data, {} messages, at most {} bytes of memory, the slowest {:?}, \
         all in {:?}",
        tally.on_disk,
        tally.written,
        tally.written_with_links,
        tally.refused,
        tally.with_errors,
        tally.with_data,
        tally.messages,
        tally.most_heap,
        tally.slowest,
        started.elapsed()
    );
    println!("damage: {:?}", tally.kinds);
    println!("changed without a word: {:?}", tally.undetected);
    assert!(BASES.iter().any(|(_, truth)| truth.carried() > 60), "bodies hold records");
    let wrong: Vec<&String> = tally.wrong.iter().take(20).collect();
    assert!(
        wrong.is_empty(),
        "{} answers\n{}",
        tally.wrong.len(),
        wrong.iter().map(|text| text.as_str()).collect::<Vec<_>>().join("\n")
    );
    let unexpected: Vec<_> = tally.undetected.iter().filter(|field| !UNPROTECTED.contains(field)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?} came out changed");
    assert_eq!(tally.rounds, rounds, "every round was made");
    assert!(
        tally.with_errors > rounds / 4
            && tally.with_data > rounds / 4
            && tally.written > rounds / 100
            && tally.written_with_links > rounds / 1000
    );
}
