//! Any damage of verify's table, alone and three at random together, of closed and killed stores, repaired in a copy and in place: the store
//! passes verify, and every message that was readable at its queue offset still is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

use mqstore::check::{FindingId, Severity, VerifyReport};
use mqstore::config::{Recovery, StoreConfig};
use mqstore::read::MessageReader;
use mqstore::services::{Next, Service};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use super::{env, repaired};
use crate::damage::bases::{append, message};
use crate::damage::image::Image;
use crate::golden::golden_dir;
use crate::simulated_env::Random;
use crate::verifying::table::{BROKER_STORE, MESSAGES, ROWS, Row, Store};
use crate::verifying::{copy, told, verified};

/// The messages that a reader gets from the queues: body by topic, queue id and queue offset.
pub(crate) type Readable = BTreeMap<(String, i32, i64), Vec<u8>>;

fn readable(root: &Path) -> Readable {
    let config = StoreConfig {
        recovery: Recovery::Salvage,
        ..StoreConfig::default()
    };
    let Ok(reader) = crate::reading::open_with(root, config) else {
        return Readable::new();
    };
    readable_of(&reader)
}

pub(crate) fn readable_of(reader: &MessageReader) -> Readable {
    let mut messages = Readable::new();
    for topic in reader.topics().unwrap() {
        for queue_id in reader.queue_ids(&topic).unwrap_or_default() {
            let bounds = reader.queue_bounds(&topic, queue_id).unwrap();
            for offset in bounds {
                if let Ok(message) = reader.message_in_queue(&topic, queue_id, offset) {
                    messages.insert((topic.clone(), queue_id, offset), message.view().body().to_vec());
                }
            }
        }
    }
    messages
}

/// Repairs the store at `root`, in a copy or in place, and returns what is wrong with the outcome.
fn failure(root: &Path, intact: &Readable, is_copy: bool) -> Option<String> {
    let before: Readable = readable(root)
        .into_iter()
        .filter(|(place, body)| intact.get(place) == Some(body))
        .collect();
    let into = root.with_extension("into");
    let source = Image::of(root);
    let report = match repaired(root, false, is_copy.then_some(&*into)) {
        Ok(report) => report,
        Err(error) => return Some(format!("refused: {error}")),
    };
    if is_copy && !source.files().eq(Image::of(root).files()) {
        return Some("the source is changed".to_owned());
    }
    let found = verified(&report.path);
    let after = readable(&report.path);
    let lost: Vec<_> = before
        .iter()
        .filter(|(place, body)| after.get(*place) != Some(body))
        .map(|(place, _)| place)
        .collect();
    let is_ok = match &report.refusal {
        Some(_) => !is_copy && is_for_a_copy(root, &into),
        None => found.is_ok() || (!is_copy && is_left_to_the_user(&found)),
    };
    let failure = (!is_ok || !lost.is_empty()).then(|| {
        format!(
            "refusal {:?}\nlost {lost:?} of {}\n{}\nbefore: {}",
            report.refusal.map(|refusal| refusal.to_string()),
            before.len(),
            told(&found),
            told(&report.found)
        )
    });
    let _ = fs::remove_dir_all(&into);
    failure
}

/// Returns true if nothing but the sizes of the index is left, which a repair in place cannot know and a copy records.
fn is_left_to_the_user(found: &VerifyReport) -> bool {
    let mut ids = found.findings.iter().filter(|finding| finding.severity != Severity::Note);
    ids.all(|finding| finding.id == FindingId::IndexSizesUnknown)
}

/// Returns true if only a copy can be repaired: it gets the segments that are missing from the log.
fn is_for_a_copy(root: &Path, into: &Path) -> bool {
    let planned = repaired(root, true, Some(into)).unwrap();
    planned.refusal.is_none() && planned.changes.iter().any(|change| change.action.name() == "fill")
}

/// The damages that are made: all but a kind of queues that is not read.
fn rows() -> Vec<&'static Row> {
    ROWS.iter().filter(|row| row.0 != FindingId::QueueNotRead).collect()
}

/// Makes a damage, if what it changes is there.
fn is_damaged(row: &Row, root: &Path) -> bool {
    catch_unwind(AssertUnwindSafe(|| row.2(&Store(root)))).is_ok()
}

/// Returns true if a row has put [`BROKER_STORE`] in the place of the store.
fn is_replaced(root: &Path) -> bool {
    !root.join("config/mqstore.json").exists()
}

/// Returns the messages of the damaged store at `root` before its damages: those of `intact`, unless it is another store.
fn undamaged(root: &Path, intact: &Readable) -> Readable {
    if is_replaced(root) {
        readable(&golden_dir().join(BROKER_STORE))
    } else {
        intact.clone()
    }
}

/// Makes the store of the table, closed, or as a process leaves it that is killed after a flush.
fn make(root: &Path, is_killed: bool) {
    if !is_killed {
        return append(root, OpenMode::New, 0..MESSAGES);
    }
    let live = root.with_extension("live");
    append(&live, OpenMode::New, 0..MESSAGES / 2);
    let store = MessageStore::open_stepped(&env(), &live, StoreConfig::default(), OpenMode::Append).unwrap();
    for n in MESSAGES / 2..MESSAGES {
        store.append(message(n)).unwrap();
    }
    store.flush().unwrap();
    while store.step(Service::Dispatch, Instant::now()).unwrap() == Next::Again {}
    copy(&live, root);
    store.close().unwrap();
    fs::remove_dir_all(&live).unwrap();
}

#[test]
fn a_repaired_copy_of_each_damage_passes_verify_and_keeps_offsets() {
    keeps_offsets_of_each_damage(false, true);
}

#[test]
fn a_repaired_copy_of_each_damage_of_a_killed_store_keeps_offsets() {
    keeps_offsets_of_each_damage(true, true);
}

#[test]
fn a_repair_in_place_of_each_damage_passes_verify_and_keeps_offsets() {
    keeps_offsets_of_each_damage(false, false);
}

#[test]
fn a_repair_in_place_of_each_damage_of_a_killed_store_keeps_offsets() {
    keeps_offsets_of_each_damage(true, false);
}

fn keeps_offsets_of_each_damage(is_killed: bool, is_copy: bool) {
    let mut wrong = String::new();
    on_each_damage(is_killed, |row, root, intact| {
        if let Some(failure) = failure(root, intact, is_copy) {
            let _ = writeln!(wrong, "--- {row}: {failure}\n");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

/// The damages that a killed store does not take: they change entries that are not in its queue files yet.
const LEFT_OUT_OF_KILLED: [FindingId; 7] = [
    FindingId::LogDuplicateQueueOffset,
    FindingId::LogEarlierTopic,
    FindingId::QueueNotDispatched,
    FindingId::QueueNotRecovered,
    FindingId::QueueMessageLost,
    FindingId::QueueEntryPastEnd,
    FindingId::QueueHole,
];

/// Damages copies of a closed or killed store in one way each, and hands each over with the name of the row.
fn on_each_damage(is_killed: bool, mut take: impl FnMut(&str, &Path, &Readable)) {
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    make(&intact, is_killed);
    let messages = readable(&intact);
    let mut left_out = Vec::new();
    for (number, row) in rows().into_iter().enumerate() {
        let root = dir.path().join("damaged");
        copy(&intact, &root);
        if is_damaged(row, &root) {
            let name = format!("row {number}, {}", row.0.facts().name);
            take(&name, &root, &undamaged(&root, &messages));
        } else {
            left_out.push(row.0);
        }
        fs::remove_dir_all(&root).unwrap();
    }
    assert_eq!(left_out, if is_killed { LEFT_OUT_OF_KILLED.as_slice() } else { &[] });
}

/// Damages `usual` closed and killed stores in turns, or as many as `DAMAGE_SEEDS` says, in three ways each, at random, and hands each over
/// with its seed and the names of the damages.
pub(crate) fn on_three_damages(usual: u64, mut take: impl FnMut(u64, &str, &Path, &Readable)) {
    let seeds: u64 = std::env::var("DAMAGE_SEEDS").map_or(usual, |seeds| seeds.parse().unwrap());
    let dir = tempdir().unwrap();
    let intact = ["closed", "killed"].map(|name| dir.path().join(name));
    make(&intact[0], false);
    make(&intact[1], true);
    let messages = intact.each_ref().map(|root| readable(root));
    let mut kinds = BTreeSet::new();
    for seed in 0..seeds {
        let root = dir.path().join("damaged");
        let base = usize::from(seed % 2 == 1);
        copy(&intact[base], &root);
        let names = damage_in_three_ways(&root, seed);
        take(seed, &names.join(" + "), &root, &undamaged(&root, &messages[base]));
        kinds.extend(names);
        fs::remove_dir_all(&root).unwrap();
    }
    let is_made = |id: &FindingId| *id != FindingId::IndexSizesUnknown;
    let all: BTreeSet<_> = rows()
        .iter()
        .map(|row| row.0)
        .filter(is_made)
        .map(|id| id.facts().name)
        .collect();
    assert!(seeds < 300 || kinds == all, "{:?} were not made", all.difference(&kinds));
}

/// Makes three damages at random, and returns their names.
fn damage_in_three_ways(root: &Path, seed: u64) -> Vec<&'static str> {
    let (rows, mut rng) = (rows(), Random::new(seed));
    let before = root.with_extension("before");
    let mut names = Vec::new();
    while names.len() < 3 {
        let row = rows[rng.index(rows.len())];
        copy(root, &before);
        let is_done = is_damaged(row, root);
        // A store of a broker has other sizes than the damages are made for.
        if is_done && !is_replaced(root) {
            names.push(row.0.facts().name);
        } else {
            // A damage may need a file that an earlier one has removed: another one is made.
            fs::remove_dir_all(root).unwrap();
            copy(&before, root);
        }
        fs::remove_dir_all(&before).unwrap();
    }
    names
}

#[test]
fn a_repaired_copy_of_three_damages_passes_verify_and_keeps_offsets() {
    keeps_offsets_of_three_damages(true);
}

#[test]
fn a_repair_in_place_of_three_damages_passes_verify_and_keeps_offsets() {
    keeps_offsets_of_three_damages(false);
}

fn keeps_offsets_of_three_damages(is_copy: bool) {
    let mut wrong = String::new();
    on_three_damages(60, |seed, names, root, intact| {
        if let Some(failure) = failure(root, intact, is_copy) {
            let _ = writeln!(wrong, "--- seed {seed}, {names}: {failure}\n");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

/// tests/interop runs it: RocketMQ opens the copies that it puts into the directory `REPAIRED_STORES`.
#[test]
#[ignore = "a child of tests/interop"]
fn puts_repaired_copies_of_any_damage_into_a_directory() {
    let Some(into) = std::env::var_os("REPAIRED_STORES") else {
        return;
    };
    let put = |root: &Path, name: String| {
        repaired(root, false, Some(&Path::new(&into).join(name))).unwrap();
    };
    for (base, is_killed) in [("closed", false), ("killed", true)] {
        on_each_damage(is_killed, |row, root, _| put(root, format!("{row}, {base}")));
    }
    on_three_damages(12, |seed, _, root, _| put(root, format!("seed {seed}")));
}
