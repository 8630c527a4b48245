//! A rebuild and a repair that the power, or a failing call, ends at any place: each can be made again, and nothing is lost.

use mqstore::check::{RepairReport, RepairRequest, VerifyRequest, rebuild, repair, verify};
use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{Message, encode_properties};
use mqstore::read::MessageReader;
use mqstore::storage::Step;

use super::examine::root;
use super::model::{Checked, ensure, works};
use super::run::machine;
use super::scenes::{GEOMETRY, open};
use crate::queries::by_key;
use crate::simulated_env::{Failure, Fault, SimulatedEnv};

const MESSAGES: u8 = 24;
/// The message whose record is damaged for a repair.
const DAMAGED: u8 = 9;

fn message(n: u8) -> Message<'static> {
    Message {
        topic: "t".into(),
        body: vec![n; 300].into(),
        properties: encode_properties([("KEYS", &*format!("k{n}"))], true).unwrap().into(),
        ..Message::default()
    }
}

/// A closed store, all of it on disk, and where each message starts.
fn closed() -> (SimulatedEnv, Vec<i64>) {
    let env = machine();
    let store = open(&env, GEOMETRY.config()).unwrap();
    let append = |n| store.append(message(n)).unwrap().appended.physical_offset;
    let offsets = (0..MESSAGES).map(append).collect();
    store.close().unwrap();
    (env, offsets)
}

/// Changes every file below a directory of the store, durably.
fn edit(env: &SimulatedEnv, dir: &str, change: impl Fn(&mut Vec<u8>)) {
    for (path, mut bytes) in env.files(&root().join(dir)) {
        change(&mut bytes);
        env.put(&path, &bytes);
    }
}

/// The store with its derived files damaged in several ways: a rebuild can make all of them.
fn without_what_is_derived() -> Vec<SimulatedEnv> {
    let gone = |dirs: &[&str]| {
        let env = closed().0;
        for dir in dirs {
            for (path, _) in env.files(&root().join(dir)) {
                env.remove(&path);
            }
        }
        env
    };
    let flipped = closed().0;
    edit(&flipped, "consumequeue", |bytes| bytes[43] ^= 1);
    edit(&flipped, "index", |bytes| bytes[70] ^= 1);
    let checkpoint = closed().0;
    edit(&checkpoint, "consumequeue/t/0", |bytes| bytes[20..40].fill(0));
    checkpoint.put(&root().join("checkpoint"), &[0; 4096]);
    vec![gone(&["consumequeue"]), gone(&["consumequeue", "index"]), flipped, checkpoint]
}

/// A byte of the body of a record, of its queue id, and the second byte of its store time.
const IN_BODY: usize = 120;
const IN_QUEUE_ID: usize = 15;
const IN_STORE_TIME: usize = 58;

/// Flips the lowest bit of a byte of a record, given its physical offset, durably.
fn flip(env: &SimulatedEnv, record: i64, byte: usize) {
    let at = record as u64;
    let segment = root().join(format!("commitlog/{:020}", at / GEOMETRY.segment * GEOMETRY.segment));
    let (path, mut bytes) = env.files(root()).into_iter().find(|(path, _)| *path == segment).unwrap();
    bytes[(at % GEOMETRY.segment) as usize + byte] ^= 1;
    env.put(&path, &bytes);
}

/// The store with a flipped bit in a record inside its log, at this byte of the record.
fn with_a_damaged_record(byte: usize) -> SimulatedEnv {
    let (env, offsets) = closed();
    flip(&env, offsets[usize::from(DAMAGED)], byte);
    env
}

/// The store with a damaged record, and one after it that has an earlier store time: in a crashed store it would count as stale.
fn with_an_older_record_after_a_damaged_one() -> SimulatedEnv {
    let (env, offsets) = closed();
    flip(&env, offsets[usize::from(DAMAGED)], IN_BODY);
    flip(&env, offsets[usize::from(DAMAGED) + 1], IN_STORE_TIME);
    env
}

fn rebuilt(env: &SimulatedEnv) -> Result<RepairReport, Error> {
    rebuild(&env.shared(), root(), &GEOMETRY.recorded(), false, |_, _| Ok(()))
}

pub(super) fn repaired(env: &SimulatedEnv) -> Result<RepairReport, Error> {
    let request = RepairRequest {
        is_dry_run: false,
        into: None,
    };
    repair(&env.shared(), root(), &GEOMETRY.recorded(), request, |_, _| Ok(()))
}

/// Every message but `lost` is read by its queue offset and its key, and the files agree.
fn expect_whole(env: &SimulatedEnv, lost: Option<u8>) -> Checked {
    let check = "rebuilt files are whole";
    let reader = works(check, MessageReader::open(&env.shared(), root(), StoreConfig::default()))?;
    for n in (0..MESSAGES).filter(|n| Some(*n) != lost) {
        let found = works(check, reader.message_in_queue("t", 0, i64::from(n)))?;
        ensure(found.view().body()[0] == n, check, || format!("queue offset {n}"))?;
        let by_key = works(check, reader.query(&by_key("t", &format!("k{n}"))))?;
        ensure(by_key.hits.len() == 1, check, || format!("key k{n}: {by_key:?}"))?;
    }
    let report = works(check, verify(&env.shared(), &reader, VerifyRequest::default(), |_, _| Ok(())))?;
    ensure(report.is_ok(), check, || format!("{:?}", report.findings))
}

/// The segment of the damaged record is in the log as it was, or in a backup.
fn expect_kept(env: &SimulatedEnv, damaged: &SimulatedEnv) -> Checked {
    let log = damaged.files(&root().join("commitlog"));
    let files = env.files(root());
    for (path, bytes) in &log {
        let is_kept = files
            .iter()
            .any(|(kept, found)| kept.file_name() == path.file_name() && found == bytes);
        // The last segment is whole: only zeros follow its records.
        let is_damaged = bytes.len() as u64 == GEOMETRY.segment && log.last().is_none_or(|(last, _)| last != path);
        ensure(is_kept || !is_damaged, "the bytes before a repair are kept", || {
            path.display().to_string()
        })?;
    }
    Ok(())
}

/// The power goes at each call of a repair that salvages: the damaged segment is as it was, or whole in a backup.
pub(super) fn salvaged_with_a_backup(without: Option<Step>, seed: u64) -> Checked {
    repaired_with_a_backup(&with_a_damaged_record(IN_BODY), Some(DAMAGED), without, seed)
}

/// The power goes at each call of a repair of a closed store: the records after the damage are kept, though one of them is older.
pub(super) fn salvaged_with_an_older_record(without: Option<Step>, seed: u64) -> Checked {
    repaired_with_a_backup(&with_an_older_record_after_a_damaged_one(), Some(DAMAGED), without, seed)
}

/// Repairs a damaged store, and again from the image of a power cut at each call.
fn repaired_with_a_backup(damaged: &SimulatedEnv, lost: Option<u8>, without: Option<Step>, seed: u64) -> Checked {
    let check = "a damaged store is repaired";
    let env = damaged.copy();
    env.leave_out(without);
    env.take_images(seed, 1);
    let report = works(check, repaired(&env))?;
    ensure(
        report.lost.len() == lost.iter().len() && report.left.is_empty(),
        check,
        || format!("{report:?}"),
    )?;
    for image in env.taken() {
        expect_kept(&image.env, damaged)?;
        works(check, repaired(&image.env))?;
        expect_kept(&image.env, damaged)?;
        expect_whole(&image.env, lost)?;
    }
    Ok(())
}

#[test]
fn a_repair_after_a_power_cut_keeps_damaged_bytes_and_is_repeatable() {
    for seed in 0..3 {
        salvaged_with_a_backup(None, seed).unwrap();
    }
}

#[test]
fn a_repair_of_a_closed_store_that_a_power_cut_ends_keeps_older_records() {
    for seed in 0..8 {
        salvaged_with_an_older_record(None, seed).unwrap();
    }
}

#[test]
fn a_correction_after_a_power_cut_keeps_damaged_bytes_and_is_repeatable() {
    for seed in 0..3 {
        repaired_with_a_backup(&with_a_damaged_record(IN_QUEUE_ID), None, None, seed).unwrap();
    }
}

#[test]
fn a_queue_file_that_proves_a_correction_is_set_aside_after_it() {
    for seed in 0..3 {
        let damaged = with_a_damaged_record(IN_QUEUE_ID);
        let (path, mut bytes) = damaged.files(&root().join("consumequeue/t/0")).swap_remove(0);
        bytes.push(0);
        damaged.put(&path, &bytes);
        repaired_with_a_backup(&damaged, None, None, seed).unwrap();
    }
}

#[test]
fn an_interrupted_rebuild_is_repeatable_and_every_message_stays_readable() {
    for (number, damaged) in without_what_is_derived().into_iter().enumerate() {
        for seed in 0..2 {
            let env = damaged.copy();
            env.take_images(seed, 1);
            rebuilt(&env).unwrap();
            expect_whole(&env, None).unwrap();
            for image in env.taken() {
                let place = format!("store {number}, seed {seed}, before call {}", image.call);
                let reader = MessageReader::open(&image.env.shared(), root(), StoreConfig::default()).unwrap();
                assert_eq!(reader.physical_bounds(), 0..reader.recovery().log_end, "{place}");
                drop(reader);
                rebuilt(&image.env).unwrap_or_else(|error| panic!("{place}: {error}"));
                let whole = expect_whole(&image.env, None);
                whole.unwrap_or_else(|violation| panic!("{place}: {violation}"));
            }
        }
    }
}

#[test]
fn a_rebuild_of_which_a_call_failed_can_be_made_again_and_is_durable_then() {
    for (store, damaged) in without_what_is_derived().into_iter().enumerate() {
        for number in 0.. {
            let env = damaged.copy();
            env.set_fault(Some(Fault {
                failure: Failure::Device,
                number,
                stays: false,
            }));
            let outcome = rebuilt(&env);
            let is_over = env.concerned() <= number;
            env.set_fault(None);
            let place = format!("store {store}, call {number}: {outcome:?}");
            rebuilt(&env).unwrap_or_else(|error| panic!("{place}: {error}"));
            let (cut, _) = env.crash(number);
            for env in [env, cut] {
                let whole = expect_whole(&env, None);
                whole.unwrap_or_else(|violation| panic!("{place}: {violation}"));
            }
            if is_over {
                break;
            }
        }
    }
}
