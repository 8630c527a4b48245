//! The start of a group: it is durable once a consumer has joined, and set once in each topic.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mqstore::broker::{Consumer, Start, Subscription, TopicSettings};
use mqstore::config::StoreConfig;
use mqstore::error::{Error, Result};
use mqstore::storage::Env;

use super::{Open, bodies, directory, subscription};
use crate::counting_env::CountingEnv;
use crate::writing::killed_at;

fn small() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        ..StoreConfig::default()
    }
}

fn join(open: &Open, start: &Start) -> Result<Consumer> {
    let both: Subscription = subscription(&["orders", "refunds"]);
    open.broker.consumer(Some("billing"), both, start)
}

/// Returns the bodies that a consumer finds, sorted.
fn found(consumer: &Consumer) -> Vec<String> {
    let mut found = bodies(&consumer.poll(99, Some(Instant::now())).unwrap());
    found.sort();
    found
}

/// A consumer joins a store with messages in `orders` and without `refunds`. Returns that store.
fn joined(path: &Path, start: &Start) -> Open {
    let open = Open::with(path, small());
    open.append("orders", 0, "a");
    open.append("orders", 0, "b");
    drop(join(&open, start).unwrap());
    open
}

/// Appends messages to both topics of a store, and returns what a consumer that joins again finds.
fn found_later(path: &Path, start: &Start) -> Vec<String> {
    let open = Open::with(path, small());
    open.append("orders", 0, "c");
    open.append("orders", 1, "d");
    open.append("refunds", 2, "e");
    let found = found(&join(&open, start).unwrap());
    open.close();
    found
}

#[test]
fn messages_after_the_start_of_a_group_are_given_after_a_kill() {
    for (start, expected) in [
        (Start::Latest, &["c", "d", "e"][..]),
        (Start::Time(i64::MAX), &["c", "d", "e"]),
        (Start::Earliest, &["a", "b", "c", "d", "e"]),
        (Start::Offsets([(("orders".to_owned(), 0), 1)].into()), &["b", "c", "d", "e"]),
    ] {
        let (_dir, path) = directory();
        let open = joined(&path, &start);
        let killed = killed_at(&path);
        assert_eq!(found_later(killed.path(), &start), expected, "killed, {start:?}");
        open.close();
        assert_eq!(found_later(&path, &start), expected, "closed, {start:?}");
    }
}

#[test]
fn a_later_start_of_a_group_counts_only_in_topics_that_are_new_to_it() {
    let (_dir, path) = directory();
    let open = Open::with(&path, small());
    open.append("orders", 0, "a");
    drop(join(&open, &Start::Earliest).unwrap());
    let killed = killed_at(&path);
    open.close();
    let open = Open::with(killed.path(), small());
    open.append("audit", 0, "b");
    let wider = subscription(&["orders", "audit"]);
    let consumer = open.broker.consumer(Some("billing"), wider, &Start::Latest).unwrap();
    assert_eq!(found(&consumer), ["a"]);
    open.close();
}

#[test]
fn a_start_that_could_not_be_written_is_written_by_the_next_join() {
    let (_dir, path) = directory();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let open = Open::in_env(&seam, &path, small());
    open.append("orders", 0, "a");
    env.before_changes(|change| {
        let is_full = change.starts_with("create ") && change.contains("consumerOffset");
        if is_full {
            return Err(io::Error::from_raw_os_error(28));
        }
        Ok(())
    });
    let refused = join(&open, &Start::Latest);
    assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
    env.heal();
    let consumer = join(&open, &Start::Latest).unwrap();
    let killed = killed_at(&path);
    drop(consumer);
    open.close();
    let open = Open::with(killed.path(), small());
    open.append("orders", 0, "b");
    assert_eq!(found(&join(&open, &Start::Latest).unwrap()), ["b"]);
    open.close();
}

#[test]
fn a_join_of_a_known_group_writes_nothing() {
    let (_dir, path) = directory();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let open = Open::in_env(&seam, &path, small());
    open.append("orders", 0, "a");
    drop(join(&open, &Start::Latest).unwrap());
    open.append("orders", 0, "b");
    let known = env.changes().len();
    assert_eq!(found(&join(&open, &Start::Latest).unwrap()), ["b"]);
    let changes = env.changes().split_off(known);
    assert!(changes.iter().all(|change| !change.contains("/config/")), "{changes:?}");
    open.close();
}

#[test]
fn a_topic_without_the_permission_to_read_has_no_consumers() {
    let (_dir, path) = directory();
    let open = Open::with(&path, small());
    let create = |perm| {
        let settings = TopicSettings {
            queues: 1,
            perm,
            order: false,
            message_type: None,
        };
        open.broker.topics().create("orders", &settings).unwrap();
    };
    create(2);
    open.append("orders", 0, "a");
    let refused = join(&open, &Start::Earliest);
    let expected = "perm of topic \"orders\" is 2, without the permission to read, 4";
    assert!(
        matches!(&refused, Err(Error::IllegalMessage { what, .. }) if what.contains(expected)),
        "{refused:?}"
    );
    create(4);
    assert_eq!(found(&join(&open, &Start::Earliest).unwrap()), ["a"]);
    open.close();
}
