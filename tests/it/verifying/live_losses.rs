//! Queues that lose entries or files while their writer runs: what it has dispatched before is lost, and what it has not is late.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqstore::check::{FindingId, Severity, VerifyRequest, verify};
use mqstore::config::StoreConfig;
use mqstore::format::{Checkpoint, Message};
use mqstore::read::MessageReader;
use mqstore::services::Service;
use mqstore::storage::{Env, Lock, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::{TempDir, tempdir};

use super::{told, verified};
use crate::damage::bases::{append, message, tiny};
use crate::store_writer::StoreWriter;

/// Messages in each of two queues of `orders`, and then in `payments`.
const MESSAGES: usize = 20;

/// The files of a broker that runs, and its lock.
fn live_broker() -> (TempDir, Lock) {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 16384, 500, 10, 20);
    for n in 0..2 * MESSAGES {
        writer.put("orders", (n % 2) as i32, &[7; 200], &[]);
    }
    for _ in 0..MESSAGES {
        writer.put("payments", 0, &[7; 200], &[]);
    }
    writer.finish(false);
    let lock = dir.path().join("lock");
    fs::write(&lock, "lock").unwrap();
    let held = RealEnv::new().lock(&lock).unwrap();
    (dir, held)
}

/// Zeroes the entries of a queue from this queue offset on.
fn lose_tail(root: &Path, queue: &str, from: usize) {
    let path = root.join("consumequeue").join(queue).join("00000000000000000000");
    let mut bytes = fs::read(&path).unwrap();
    bytes[from * 20..].fill(0);
    fs::write(path, bytes).unwrap();
}

/// The findings about messages without an entry: severity and number of each kind.
fn found(root: &Path) -> Vec<(FindingId, Severity, u64)> {
    let report = verified(root);
    let is_about_entries = |id| {
        let ids = [
            FindingId::QueueEntryMissing,
            FindingId::QueueNotDispatched,
            FindingId::QueueTopicMissing,
        ];
        ids.contains(&id)
    };
    let of_entries = report.findings.iter().filter(|finding| is_about_entries(finding.id));
    let found: Vec<_> = of_entries
        .map(|finding| (finding.id, finding.severity, finding.count))
        .collect();
    let has_error = found.iter().any(|(_, severity, _)| *severity == Severity::Error);
    assert!(!(has_error && report.is_ok()), "{}", told(&report));
    found
}

fn is_note((_, severity, _): &(FindingId, Severity, u64)) -> bool {
    *severity == Severity::Note
}

#[test]
fn a_tail_that_a_live_broker_s_queue_has_lost_is_an_error() {
    let (dir, _held) = live_broker();
    assert_eq!(found(dir.path()), []);
    lose_tail(dir.path(), "orders/0", 15);
    assert_eq!(found(dir.path()), [(FindingId::QueueEntryMissing, Severity::Error, 5)]);
}

#[test]
fn a_queue_directory_that_a_live_broker_has_lost_is_an_error() {
    let (dir, _held) = live_broker();
    fs::remove_dir_all(dir.path().join("consumequeue/orders/1")).unwrap();
    let lost = MESSAGES as u64;
    assert_eq!(found(dir.path()), [(FindingId::QueueEntryMissing, Severity::Error, lost)]);
}

#[test]
fn a_topic_that_a_live_broker_has_lost_is_an_error_unless_deleted() {
    let (dir, _held) = live_broker();
    fs::remove_dir_all(dir.path().join("consumequeue/orders")).unwrap();
    let lost = 2 * MESSAGES as u64;
    assert_eq!(found(dir.path()), [(FindingId::QueueTopicMissing, Severity::Error, lost)]);
    fs::create_dir_all(dir.path().join("config")).unwrap();
    let settings = r#"{"topicConfigTable":{"payments":{"topicName":"payments"}}}"#;
    fs::write(dir.path().join("config/topics.json"), settings).unwrap();
    assert_eq!(found(dir.path()), [(FindingId::QueueTopicMissing, Severity::Note, lost)]);
}

#[test]
fn messages_after_the_last_dispatched_one_are_late_and_not_lost() {
    let (dir, _held) = live_broker();
    lose_tail(dir.path(), "payments/0", 15);
    assert_eq!(found(dir.path()), [(FindingId::QueueNotDispatched, Severity::Note, 5)]);
    // A topic that its first message has just made.
    fs::remove_dir_all(dir.path().join("consumequeue/payments")).unwrap();
    let late = MESSAGES as u64;
    assert_eq!(found(dir.path()), [(FindingId::QueueTopicMissing, Severity::Note, late)]);
}

#[test]
fn an_entry_that_leads_to_no_message_of_its_queue_shows_no_loss() {
    let (dir, _held) = live_broker();
    let path = dir.path().join("consumequeue/orders/0/00000000000000000000");
    let mut bytes = fs::read(&path).unwrap();
    let payments = fs::read(dir.path().join("consumequeue/payments/0/00000000000000000000")).unwrap();
    bytes[20 * MESSAGES..20 * (MESSAGES + 1)].copy_from_slice(&payments[380..400]);
    fs::write(path, bytes).unwrap();
    lose_tail(dir.path(), "payments/0", 0);
    let late: Vec<_> = found(dir.path()).into_iter().filter(is_note).collect();
    assert_eq!(late, [(FindingId::QueueNotDispatched, Severity::Note, MESSAGES as u64)]);
}

#[test]
fn only_what_our_stamp_covers_is_lost_beside_our_writer() {
    let dir = tempdir().unwrap();
    append(dir.path(), OpenMode::New, 0..24);
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open_stepped(&env, dir.path(), tiny(), OpenMode::Existing).unwrap();
    let of_topic = |topic: &str| -> u64 {
        let ids = store.reader().queue_ids(topic).unwrap();
        let bounds = ids.into_iter().map(|id| store.reader().queue_bounds(topic, id).unwrap());
        bounds.map(|bounds| (bounds.end - bounds.start).unsigned_abs()).sum()
    };
    let stamped = of_topic("payments");
    for n in 24..48 {
        let topic = if n % 2 == 0 { "new" } else { "orders" };
        let appended = Message {
            topic: topic.into(),
            ..message(n)
        };
        store.append(appended).unwrap();
    }
    // The entries are in memory only; and then in the files of some queues.
    store.step(Service::Dispatch, Instant::now()).unwrap();
    assert!(of_topic("new") == 12 && stamped > 0);
    assert!(found(dir.path()).iter().all(is_note), "{:?}", found(dir.path()));
    store
        .step(Service::Dispatch, Instant::now() + Duration::from_secs(1))
        .unwrap();
    fs::remove_dir_all(dir.path().join("consumequeue/new")).unwrap();
    assert!(!found(dir.path()).is_empty());
    assert!(found(dir.path()).iter().all(is_note), "{:?}", found(dir.path()));
    fs::remove_dir_all(dir.path().join("consumequeue/payments")).unwrap();
    let lost: Vec<_> = found(dir.path()).into_iter().filter(|finding| !is_note(finding)).collect();
    assert_eq!(lost, [(FindingId::QueueTopicMissing, Severity::Error, stamped)]);
    // The stamp of another history of the log covers nothing.
    let stamp = Checkpoint {
        physic_msg_timestamp: 1,
        logics_msg_timestamp: 1,
        keys_stamp: 1,
        ..Checkpoint::decode(&fs::read(dir.path().join("checkpoint")).unwrap())
    };
    fs::write(dir.path().join("checkpoint"), stamp.encode()).unwrap();
    assert!(found(dir.path()).iter().all(is_note), "{:?}", found(dir.path()));
    drop(store);
}

#[test]
fn a_loss_that_one_look_sees_and_the_next_does_not_is_no_finding() {
    let (dir, _held) = live_broker();
    let path = dir.path().join("consumequeue/orders/0/00000000000000000000");
    let whole = fs::read(&path).unwrap();
    lose_tail(dir.path(), "orders/0", 15);
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let reader = MessageReader::open(&env, dir.path(), StoreConfig::default()).unwrap();
    let mut looks = 0;
    let report = verify(&env, &reader, VerifyRequest::default(), |done, all| {
        if done == all {
            looks += 1;
            fs::write(&path, &whole).unwrap();
        }
        Ok(())
    });
    let report = report.unwrap();
    assert!(report.is_ok() && looks > 1, "{looks}: {}", told(&report));
}
