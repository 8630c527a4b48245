//! Trimming of a store that no writer has open: only files are removed, and everything else stays as it is.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mqstore::broker::{NeededBy, TrimReport, TrimRequest, trim_closed};
use mqstore::check::Severity;
use mqstore::config::StoreConfig;
use mqstore::error::{Error, Result};
use mqstore::read::MessageReader;
use mqstore::storage::Env;
use mqstore::store::{OpenMode, TrimTo};

use super::trimming::fill;
use super::{Place, SEGMENT, contents, io_error, killed, message, open, reader, real, small, with};
use crate::counting_env::CountingEnv;
use crate::verifying::verified;

/// The physical offset up to which the tests trim.
const UNTIL: i64 = 3 * SEGMENT as i64;

fn trim_in(env: &Arc<dyn Env>, store: &Path, is_forced: bool, is_dry_run: bool) -> Result<TrimReport> {
    let request = TrimRequest {
        to: TrimTo::Offset(UNTIL),
        is_forced,
        is_dry_run,
    };
    trim_closed(env, store, &StoreConfig::default(), request)
}

fn trim(store: &Path) -> Result<TrimReport> {
    trim_in(&real(), store, false, false)
}

/// Makes a store with six segments of messages in two queues and closes it. Returns the number of messages.
fn closed(place: &Place) -> i64 {
    let store = place.create();
    let count = fill(&store, 6);
    store.close().unwrap();
    count
}

/// The store has the messages from `UNTIL` on, and its queues continue.
fn expect_trimmed(store: &Path, count: i64) {
    let reader = reader(store);
    assert_eq!(reader.physical_bounds().start, UNTIL);
    let bounds = reader.queue_bounds("orders", 0).unwrap();
    assert!(bounds.start > 0 && bounds.end == (count + 1) / 2, "{bounds:?}");
    for offset in bounds.clone() {
        reader.message_in_queue("orders", 0, offset).unwrap();
    }
    let findings = verified(store).findings;
    assert!(
        findings.iter().all(|finding| finding.severity != Severity::Error),
        "{findings:?}"
    );
    let store = open(store, small(), OpenMode::Existing).unwrap();
    let next = store.append(message("orders", 0, b"next")).unwrap();
    assert_eq!(next.appended.queue_offset, bounds.end);
    store.close().unwrap();
}

#[test]
fn a_trim_of_a_crashed_store_removes_files_and_changes_no_other() {
    let place = Place::new();
    let count = closed(&place);
    fs::write(place.at("abort"), b"").unwrap();
    let crashed = killed(&place);
    let before = contents(crashed.path());
    let dry = trim_in(&real(), crashed.path(), false, true).unwrap();
    assert_eq!(contents(crashed.path()), before);
    let report = trim(crashed.path()).unwrap();
    assert_eq!(report.trimmed.segments, dry.trimmed.segments);
    assert_eq!((report.trimmed.segments.len(), report.trimmed.bytes), (3, UNTIL as u64));
    let names = |files: &[(std::path::PathBuf, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>();
    let after = contents(crashed.path());
    for (name, bytes) in &after {
        let is_note = name.ends_with("mqstore-trim.json");
        assert!(
            is_note || before.contains(&(name.clone(), bytes.clone())),
            "{name:?} has changed"
        );
    }
    let gone: BTreeSet<_> = names(&before).difference(&names(&after)).cloned().collect();
    let is_removable = |name: &std::path::PathBuf| ["commitlog", "consumequeue", "index"].iter().any(|dir| name.starts_with(dir));
    assert!(gone.iter().all(is_removable), "{gone:?}");
    expect_trimmed(crashed.path(), count);
}

#[test]
fn a_trim_beside_a_writer_is_refused_and_its_dry_run_is_not() {
    let place = Place::new();
    let store = place.create();
    fill(&store, 6);
    store.flush().unwrap();
    assert!(matches!(trim(&place.store), Err(Error::Locked { .. })));
    assert_eq!(place.names("commitlog").first().unwrap(), &format!("{:020}", 0));
    assert!(trim_in(&real(), &place.store, false, true).is_ok());
    store.close().unwrap();
}

#[test]
fn a_trim_needs_no_free_space() {
    let place = Place::new();
    let count = closed(&place);
    let env = CountingEnv::new();
    // Not even the space of the removed segments becomes free: a snapshot of the file system keeps it.
    env.before_changes(|change| {
        let frees = ["unlink", "sync", "lock"].iter().any(|what| change.starts_with(what));
        if frees {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(28))
        }
    });
    let report = trim_in(&(Arc::new(env) as Arc<dyn Env>), &place.store, false, false).unwrap();
    assert_eq!(report.trimmed.segments.len(), 3);
    assert!(report.trimmed.refused.is_none());
    expect_trimmed(&place.store, count);
}

#[test]
fn a_trim_that_fails_at_any_call_is_completed_by_the_next() {
    for call in 0.. {
        let place = Place::new();
        let count = closed(&place);
        let env = CountingEnv::new();
        let calls = Arc::new(AtomicI64::new(0));
        let counted = calls.clone();
        env.before_changes(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
            done if done == call => Err(io_error()),
            _ => Ok(()),
        });
        let _ = trim_in(&(Arc::new(env) as Arc<dyn Env>), &place.store, false, false);
        let bounds = reader(&place.store).queue_bounds("orders", 0).unwrap();
        assert_eq!(bounds.end, (count + 1) / 2, "call {call}");
        assert!(verified(&place.store).is_ok(), "call {call}");
        trim(&place.store).unwrap();
        expect_trimmed(&place.store, count);
        if calls.load(Ordering::SeqCst) <= call {
            assert!(call > 5, "{call} calls");
            return;
        }
    }
}

#[test]
fn a_log_that_would_begin_without_a_record_is_not_trimmed() {
    let place = Place::new();
    closed(&place);
    let first = place.at("commitlog").join(format!("{UNTIL:020}"));
    let mut bytes = fs::read(&first).unwrap();
    bytes[4..8].fill(7);
    fs::write(&first, bytes).unwrap();
    for is_dry_run in [true, false] {
        let refused = trim_in(&real(), &place.store, false, is_dry_run).unwrap_err();
        assert!(
            matches!(&refused, Error::Corrupt { path, offset: 0, .. } if *path == first),
            "{refused}"
        );
    }
    assert_eq!(place.names("commitlog").first().unwrap(), &format!("{:020}", 0));
}

#[test]
fn a_trim_keeps_messages_that_are_in_no_queue_file() {
    let place = Place::new();
    closed(&place);
    fs::remove_dir_all(place.at("consumequeue")).unwrap();
    fs::write(place.at("abort"), b"").unwrap();
    let report = trim(&place.store).unwrap();
    assert_eq!(report.trimmed.segments, []);
    assert!(report.trimmed.refused.is_some());
    place.reopen().close().unwrap();
    assert_eq!(trim(&place.store).unwrap().trimmed.segments.len(), 3);
}

#[test]
fn a_trim_of_a_closed_store_waits_for_groups_and_always_for_delays() {
    let place = Place::new();
    closed(&place);
    let config = place.at("config");
    fs::write(
        config.join("consumerOffset.json"),
        r#"{"offsetTable":{"orders@billing":{0:5,1:6}}}"#,
    )
    .unwrap();
    let kept = trim(&place.store).unwrap();
    assert_eq!((kept.trimmed.segments.len(), kept.holds.len(), kept.stored), (0, 2, None));
    assert!(kept.holds.iter().all(|hold| hold.by == NeededBy::Group("billing".to_owned())));
    let forced = trim_in(&real(), &place.store, true, false).unwrap();
    assert_eq!((forced.trimmed.segments.len(), forced.unread.len()), (3, kept.holds.len()));
    let reader = MessageReader::open(&real(), &place.store, StoreConfig::default()).unwrap();
    for (unread, hold) in forced.unread.iter().zip(&kept.holds) {
        let first = reader.queue_bounds(&hold.topic, hold.queue_id).unwrap().start;
        assert_eq!((unread.queue_id, unread.messages), (hold.queue_id, first - hold.queue_offset));
    }
    assert!(forced.stored.is_some_and(|stored| stored.start <= stored.end));

    let place = Place::new();
    let store = place.create();
    store
        .append(with(message("orders", 0, b"later"), &[("DELAY", "18")]))
        .unwrap();
    fill(&store, 6);
    store.close().unwrap();
    let forced = trim_in(&real(), &place.store, true, false).unwrap();
    assert_eq!(forced.trimmed.segments, []);
    assert_eq!(
        forced.holds.iter().map(|hold| &hold.by).collect::<Vec<_>>(),
        [&NeededBy::Delay]
    );
}
