//! Stores whose log, or its end, is missing while queues, index or checkpoint still name its messages.

use std::fs;

use mqstore::check::{FindingId, Fix, Severity};
use mqstore::config::Recovery;
use mqstore::error::Error;
use mqstore::format::CqUnit;
use mqstore::remedy::Remedy;
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use super::{Crashed, SEGMENT, contents, edit, names, real};
use crate::damage::bases::{append, tiny};
use crate::verifying::{told, verified};

type Loss = fn(&Crashed);

fn remove_segments(store: &Crashed, from: usize) {
    for name in names(&store.at("commitlog")).split_off(from) {
        fs::remove_file(store.at("commitlog").join(name)).unwrap();
    }
}

/// Every way in which the end of a log goes missing, or all of it.
const LOSSES: [(&str, Loss); 6] = [
    ("no segment", |store| remove_segments(store, 0)),
    ("an empty first segment", |store| {
        remove_segments(store, 1);
        edit(&store.segment(0).0, Vec::clear);
    }),
    ("a first segment of zeros", |store| {
        remove_segments(store, 1);
        edit(&store.segment(0).0, |bytes| bytes.fill(0));
    }),
    ("no last segment", |store| remove_segments(store, 2)),
    ("an empty last segment", |store| {
        edit(&store.segment(2 * SEGMENT).0, Vec::clear);
    }),
    ("only the first segment", |store| remove_segments(store, 1)),
];

fn lost(clean: bool, loss: Loss) -> Crashed {
    let store = Crashed::new(300, clean);
    assert_eq!(names(&store.at("commitlog")).len(), 3);
    loss(&store);
    store
}

#[test]
fn a_log_without_its_end_is_incomplete_and_is_refused_untouched() {
    for (name, loss) in LOSSES {
        for clean in [true, false] {
            let store = lost(clean, loss);
            let missing = store.reader().recovery().missing.clone();
            assert!(missing.is_some(), "{name}, clean {clean}");
            store.refused_at();
            let refused = store.open().unwrap_err();
            assert_eq!(
                refused.remedy(),
                Some(Remedy::SalvageOrRead),
                "{name}, clean {clean}: {refused}"
            );
        }
    }
}

#[test]
fn verify_reports_a_missing_end_and_no_repair_truncates_the_queues() {
    for (name, loss) in LOSSES {
        for clean in [true, false] {
            let store = lost(clean, loss);
            let report = verified(store.path());
            let error = report.findings.iter().find(|finding| finding.severity == Severity::Error);
            assert!(error.is_some(), "{name}, clean {clean}: {}", told(&report));
            let derived = || ["consumequeue", "index"].map(|dir| contents(&store.at(dir)));
            let before = derived();
            crate::repairing::repaired(store.path(), false, None).unwrap();
            assert!(derived() == before, "{name}, clean {clean}: repair");
            assert!(
                crate::repairing::rebuilt(store.path(), false).is_err(),
                "{name}, clean {clean}"
            );
            assert!(derived() == before, "{name}, clean {clean}: rebuild");
        }
    }
}

#[test]
fn queues_index_or_checkpoint_alone_show_that_a_log_is_gone() {
    let files = ["consumequeue", "index", "checkpoint"];
    for kept in files {
        for clean in [true, false] {
            let store = Crashed::new(300, clean);
            store.stamp(store.last_store_time);
            for gone in files.iter().filter(|name| **name != kept) {
                let path = store.at(gone);
                fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).unwrap();
            }
            remove_segments(&store, 0);
            assert!(store.reader().recovery().missing.is_some(), "{kept}, clean {clean}");
            store.refused_at();
            let report = verified(store.path());
            assert!(!report.is_ok(), "{kept}, clean {clean}: {}", told(&report));
        }
    }
}

#[test]
fn a_salvage_of_a_log_without_its_end_keeps_the_rest_and_opens_again() {
    for (name, loss) in LOSSES {
        let store = lost(false, loss);
        store.stamp(store.last_store_time);
        let whole = store.reader_with(Recovery::Salvage).physical_bounds().end;
        let kept = store.offsets.iter().filter(|offset| **offset < whole).count();
        store.open_with(Recovery::Salvage).unwrap().close().unwrap();
        store.expect_messages(kept as i32);
        assert_eq!(store.reader().recovery().missing, None, "{name}");
        store.recover();
        fs::write(store.at("abort"), "").unwrap();
        store.recover();
    }
}

#[test]
fn one_entry_past_the_last_segment_is_damage_and_not_a_missing_log() {
    let store = Crashed::new(299, false);
    let last = names(&store.at("consumequeue/orders/1")).pop().unwrap();
    edit(&store.at("consumequeue/orders/1").join(last), |bytes| {
        let at = 49 * 20 - 20;
        bytes[at..at + 8].copy_from_slice(&(1_i64 << 40).to_be_bytes());
    });
    assert_eq!(store.reader().recovery().missing, None);
    store.recover();
    store.expect_messages(299);
}

#[test]
fn entries_into_a_log_of_zeros_are_errors_that_ask_for_the_missing_part() {
    let store = lost(false, LOSSES[2].1);
    let report = verified(store.path());
    let finding = report
        .findings
        .iter()
        .find(|finding| finding.id == FindingId::QueueEntryPastEnd)
        .unwrap();
    assert!(
        finding.remedy == Fix::PutBack || (finding.remedy == Fix::Rebuild && finding.names_missing_part()),
        "{finding:?}"
    );
}

#[test]
fn torn_entries_of_one_queue_do_not_keep_a_whole_log_from_being_rebuilt() {
    let store = Crashed::new(299, true);
    let last = names(&store.at("consumequeue/orders/1")).pop().unwrap();
    edit(&store.at("consumequeue/orders/1").join(last), |bytes| {
        let unit = CqUnit {
            physical_offset: 1 << 30,
            size: 200,
            tags_code: 0,
        };
        let free = bytes
            .chunks(20)
            .position(|entry| entry.iter().all(|byte| *byte == 0))
            .unwrap();
        for entry in bytes.chunks_mut(20).skip(free).take(2) {
            entry.copy_from_slice(&unit.encode());
        }
    });
    store.refused_at();
    crate::repairing::rebuilt(store.path(), false).unwrap();
    store.expect_messages(299);
}

#[test]
fn a_brokers_stamp_alone_does_not_show_that_a_log_of_zeros_lost_messages() {
    let store = Crashed::new(1, false);
    for derived in ["consumequeue", "index"] {
        fs::remove_dir_all(store.at(derived)).unwrap();
    }
    edit(&store.segment(0).0, |bytes| bytes.fill(0));
    store.stamp(store.last_store_time);
    assert_eq!(store.reader().recovery().missing, None);
    store.recover();
}

#[test]
fn queue_entries_show_a_missing_end_of_our_own_log_without_mark_and_stamp() {
    let dir = tempdir().unwrap();
    append(dir.path(), OpenMode::New, 0..60);
    fs::write(dir.path().join("abort"), "").unwrap();
    for gone in ["checkpoint", "config/mqstore.flushed"] {
        fs::remove_file(dir.path().join(gone)).unwrap();
    }
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    let last = names(&dir.path().join("commitlog")).pop().unwrap();
    fs::remove_file(dir.path().join("commitlog").join(last)).unwrap();
    assert!(crate::reading::open(dir.path()).recovery().missing.is_some());
    let before = contents(dir.path());
    let opened = MessageStore::open(&real(), dir.path(), tiny(), OpenMode::Existing);
    assert!(matches!(opened, Err(Error::Corrupt { .. })));
    assert_eq!(contents(dir.path()), before);
}
