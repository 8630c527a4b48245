//! Broker stores whose clock was set back, damaged near that place: records that are older than those before the damage stay.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mqstore::check::{RepairRequest, repair};
use mqstore::config::StoreConfig;
use mqstore::format::{Message, PREPARED};
use mqstore::read::MessageReader;
use mqstore::storage::Env;
use tempfile::{TempDir, tempdir_in};

use super::repaired;
use crate::counting_env::CountingEnv;
use crate::store_writer::StoreWriter;
use crate::verifying::table::edit;
use crate::verifying::{copy, verified};

const MESSAGES: usize = 40;
/// The clock is set back before this message.
const SET_BACK: usize = 20;
const SEGMENT: &str = "commitlog/00000000000000000000";

/// A closed store of a broker, and where its messages and its log end.
fn store() -> (TempDir, Vec<i64>) {
    let dir = tempdir_in("/dev/shm").unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let mut offsets = Vec::new();
    for n in 0..MESSAGES {
        if n == SET_BACK {
            writer.last_store_time -= 30_000;
        }
        offsets.push(writer.append(Message {
            topic: "orders".into(),
            body: vec![n as u8; 100].into(),
            ..Message::default()
        }));
    }
    writer.finish(true);
    offsets.push(writer.end());
    (dir, offsets)
}

fn expect_others(root: &Path, offsets: &[i64], lost: usize, case: &str) {
    let reader = MessageReader::open(&crate::repairing::env(), root, StoreConfig::default()).unwrap();
    for n in (0..MESSAGES).filter(|n| *n != lost) {
        let message = reader.message_in_queue("orders", 0, n as i64);
        assert_eq!(message.unwrap().view().physical_offset(), offsets[n], "{case}: message {n}");
    }
    assert_eq!(reader.physical_bounds().end, offsets[MESSAGES], "{case}");
}

#[test]
fn repair_keeps_records_that_are_older_than_those_before_the_damage() {
    let (store, offsets) = store();
    for damaged in [SET_BACK - 1, SET_BACK, SET_BACK + 5] {
        for byte in [4, 140] {
            let case = format!("record {damaged}, byte {byte}");
            let dir = tempdir_in("/dev/shm").unwrap();
            copy(store.path(), dir.path());
            edit(&dir.path().join(SEGMENT), |bytes| {
                bytes[offsets[damaged] as usize + byte] ^= 1;
            });
            let report = repaired(dir.path(), false, None).unwrap();
            let [lost] = report.lost.as_slice() else {
                panic!("{case}: {:?}", report.lost)
            };
            assert_eq!(*lost, offsets[damaged]..offsets[damaged + 1], "{case}");
            expect_others(dir.path(), &offsets, damaged, &case);
            assert!(verified(dir.path()).is_ok(), "{case}");
        }
    }
}

#[test]
fn repair_keeps_older_half_messages_before_a_record_with_an_entry() {
    let dir = tempdir_in("/dev/shm").unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let first = writer.put("orders", 0, &[b'x'; 100], &[]);
    let damaged = writer.put("orders", 0, &[b'x'; 100], &[]);
    writer.last_store_time -= 30_000;
    let half = writer.append_without_entry(Message {
        topic: "orders".into(),
        body: vec![b'h'; 100].into(),
        sys_flag: PREPARED,
        ..Message::default()
    });
    let last = writer.put("orders", 0, &[b'x'; 100], &[]);
    writer.finish(true);
    edit(&dir.path().join(SEGMENT), |bytes| bytes[damaged as usize + 4] ^= 1);
    let report = repaired(dir.path(), false, None).unwrap();
    assert_eq!(
        report.lost.as_slice(),
        std::slice::from_ref(&(damaged..half)),
        "{first} {last}"
    );
}

#[test]
fn a_repair_that_fails_at_any_call_keeps_older_records_when_made_again() {
    let (store, offsets) = store();
    let damaged = SET_BACK - 1;
    for failing in (0..).step_by(2) {
        let dir = tempdir_in("/dev/shm").unwrap();
        copy(store.path(), dir.path());
        edit(&dir.path().join(SEGMENT), |bytes| bytes[offsets[damaged] as usize + 4] ^= 1);
        let counting = Arc::new(CountingEnv::default());
        let env: Arc<dyn Env> = Arc::clone(&counting) as Arc<dyn Env>;
        let changes = AtomicUsize::new(0);
        counting.before_changes(move |_| {
            // A process that was killed makes no later change.
            if changes.fetch_add(1, Ordering::Relaxed) >= failing {
                return Err(std::io::Error::from_raw_os_error(5));
            }
            Ok(())
        });
        let request = RepairRequest {
            is_dry_run: false,
            into: None,
        };
        let first = repair(&env, dir.path(), &StoreConfig::default(), request, |_, _| Ok(()));
        if first.is_err() {
            repaired(dir.path(), false, None).unwrap();
        }
        expect_others(dir.path(), &offsets, damaged, &format!("change {failing}: {first:?}"));
        if first.is_ok() {
            assert!(failing > 10, "{failing}");
            break;
        }
    }
}

#[test]
fn repair_reports_as_lost_what_no_whole_record_follows() {
    let (store, offsets) = store();
    for damaged in [1, 3] {
        for is_copy in [false, true] {
            let dir = tempdir_in("/dev/shm").unwrap();
            let (root, into) = (dir.path().join("store"), dir.path().join("into"));
            copy(store.path(), &root);
            for start in &offsets[MESSAGES - damaged..MESSAGES] {
                edit(&root.join(SEGMENT), |bytes| bytes[*start as usize + 140] ^= 1);
            }
            let into = is_copy.then_some(into.as_path());
            let expected = offsets[MESSAGES - damaged]..offsets[MESSAGES];
            for is_dry_run in [true, false] {
                let report = repaired(&root, is_dry_run, into).unwrap();
                assert_eq!(
                    report.lost.as_slice(),
                    std::slice::from_ref(&expected),
                    "{damaged} records, dry run {is_dry_run}"
                );
            }
            assert_eq!(fs::metadata(root.join(SEGMENT)).unwrap().len(), 16384);
        }
    }
}
