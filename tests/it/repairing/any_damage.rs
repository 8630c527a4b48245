//! Any damage of verify's table, alone and three at random together, of closed and killed stores, repaired in a copy: the copy passes verify, and every message that was
//! readable at its queue offset still is.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

use mqstore::check::FindingId;
use mqstore::config::{Recovery, StoreConfig};
use mqstore::read::MessageReader;
use mqstore::services::{Next, Service};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use super::{env, repaired};
use crate::damage::bases::{append, message};
use crate::damage::image::Image;
use crate::simulated_env::Random;
use crate::verifying::table::{MESSAGES, ROWS, Row, Store};
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

/// Repairs the store at `root` in a copy, and returns what is wrong with the copy.
fn failure(root: &Path, intact: &Readable) -> Option<String> {
    let before: Readable = readable(root)
        .into_iter()
        .filter(|(place, body)| intact.get(place) == Some(body))
        .collect();
    let into = root.with_extension("into");
    let source = Image::of(root);
    let report = match repaired(root, false, Some(&into)) {
        Ok(report) => report,
        Err(error) => return Some(format!("refused: {error}")),
    };
    let repaired = if into.exists() { &into } else { root };
    if !source.files().eq(Image::of(root).files()) {
        return Some("the source is changed".to_owned());
    }
    let found = verified(repaired);
    let after = readable(repaired);
    let lost: Vec<_> = before
        .iter()
        .filter(|(place, body)| after.get(*place) != Some(body))
        .map(|(place, _)| place)
        .collect();
    let refusal = report.refusal.as_ref().map(ToString::to_string);
    let failure = (!found.is_ok() || !lost.is_empty() || refusal.is_some()).then(|| {
        format!(
            "refusal {refusal:?}\nlost {lost:?} of {}\n{}\nbefore: {}",
            before.len(),
            told(&found),
            told(&report.found)
        )
    });
    let _ = fs::remove_dir_all(&into);
    failure
}

/// The damages that are made to the store of the table, and not by putting another store in its place.
fn rows() -> Vec<&'static Row> {
    let is_of_table = |row: &&Row| !matches!(row.0, FindingId::QueueNotRead | FindingId::IndexSizesUnknown);
    ROWS.iter().filter(is_of_table).collect()
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
    keeps_offsets_of_each_damage(false);
}

#[test]
fn a_repaired_copy_of_each_damage_of_a_killed_store_keeps_offsets() {
    keeps_offsets_of_each_damage(true);
}

fn keeps_offsets_of_each_damage(is_killed: bool) {
    let mut wrong = String::new();
    on_each_damage(is_killed, |row, root, intact| {
        if let Some(failure) = failure(root, intact) {
            let _ = writeln!(wrong, "--- {row}: {failure}\n");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

/// Damages copies of a closed or killed store in one way each, and hands each over with the name of the row.
fn on_each_damage(is_killed: bool, mut take: impl FnMut(&str, &Path, &Readable)) {
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    make(&intact, is_killed);
    let messages = readable(&intact);
    for (number, row) in rows().into_iter().enumerate() {
        let root = dir.path().join("damaged");
        copy(&intact, &root);
        // Some entries of a killed store are not in its queue files yet.
        let is_done = catch_unwind(AssertUnwindSafe(|| row.2(&Store(&root)))).is_ok();
        assert!(is_done || is_killed, "row {number}");
        if is_done {
            take(&format!("row {number}, {}", row.0.facts().name), &root, &messages);
        }
        fs::remove_dir_all(&root).unwrap();
    }
}

/// Damages closed and killed stores in turns, in three ways each, at random, and hands each over with its seed and the names of the damages. `DAMAGE_SEEDS` says
/// how many.
pub(crate) fn on_three_damages(mut take: impl FnMut(u64, &str, &Path, &Readable)) {
    let rows = rows();
    let seeds: u64 = std::env::var("DAMAGE_SEEDS").map_or(40, |seeds| seeds.parse().unwrap());
    let dir = tempdir().unwrap();
    let intact = ["closed", "killed"].map(|name| dir.path().join(name));
    make(&intact[0], false);
    make(&intact[1], true);
    let messages = intact.each_ref().map(|root| readable(root));
    for seed in 0..seeds {
        let root = dir.path().join("damaged");
        let base = usize::from(seed % 2 == 1);
        copy(&intact[base], &root);
        let mut rng = Random::new(seed);
        let names: Vec<_> = (0..3)
            .map(|_| {
                let row = rows[rng.index(rows.len())];
                // A damage may need a file that an earlier one has removed: then it is left out.
                let before = root.with_extension("before");
                copy(&root, &before);
                let is_done = catch_unwind(AssertUnwindSafe(|| row.2(&Store(&root)))).is_ok();
                // Some rows put a broker's store in the place of this one.
                if !is_done || !root.join("config/mqstore.json").exists() {
                    fs::remove_dir_all(&root).unwrap();
                    copy(&before, &root);
                }
                fs::remove_dir_all(&before).unwrap();
                row.0.facts().name
            })
            .collect();
        take(seed, &names.join(" + "), &root, &messages[base]);
        fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn a_repaired_copy_of_three_damages_passes_verify_and_keeps_offsets() {
    let mut wrong = String::new();
    on_three_damages(|seed, names, root, intact| {
        if let Some(failure) = failure(root, intact) {
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
    on_three_damages(|seed, _, root, _| put(root, format!("seed {seed}")));
}
