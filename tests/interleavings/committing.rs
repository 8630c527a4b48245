//! The transient store pool: threads that append to it and wait for room, the committer, and a thread that flushes.
//!
//! Real are the ring (`TransientStorePool`), all of `src/log/commit_log/commit.rs`, which says when there is room and commits, and the
//! watermarks. Models are the memory of the ring (`memory.rs`), and the log around them (`pooled_log.rs`): the append lock, the file, and
//! the steps of an append, of the committer, and of a flush.
//!
//! Each byte is made of its offset, so whoever looks at the file knows what it must hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loom::thread::{JoinHandle, spawn};

use crate::error::{Error, Result};
use crate::explore;
use crate::pooled_log::CommitLog;
use crate::sync::{FOR_EVER, SOON};

fn appends(log: &Arc<CommitLog>, lens: &'static [u64]) -> JoinHandle<Result<()>> {
    let log = log.clone();
    spawn(move || lens.iter().try_for_each(|len| log.append(*len)))
}

fn commits(log: &Arc<CommitLog>) -> JoinHandle<()> {
    let log = log.clone();
    spawn(move || log.run_committer())
}

/// Ends the log as a close does, after `appended` bytes.
fn close(log: &CommitLog, committer: Option<JoinHandle<()>>, len: i64) {
    log.stop();
    if let Some(committer) = committer {
        committer.join().unwrap();
    }
    assert!(log.flush().is_ok());
    assert_eq!((log.watermarks.appended.get(), log.watermarks.flushed.get()), (len, len));
    assert_eq!(log.watermarks.committed.waiting(), 0);
}

/// With a committer this thread appends, and so does another one if there is more than one list of messages.
fn append_all(buffers: usize, patience: Option<Duration>, own: &'static [u64], other: Option<&'static [u64]>) {
    let log = CommitLog::new(buffers, patience, || Ok(()));
    let committer = patience.map(|_| commits(&log));
    let other_appends = other.map(|lens| appends(&log, lens));
    assert!(own.iter().all(|len| log.append(*len).is_ok()));
    if let Some(appends) = other_appends {
        assert!(appends.join().unwrap().is_ok());
    }
    log.expect_committed();
    let len: u64 = own.iter().chain(other.unwrap_or_default()).sum();
    close(&log, committer, len as i64);
}

#[test]
fn an_append_that_waits_for_room_overwrites_no_pending_byte() {
    explore(2, || append_all(1, Some(FOR_EVER), &[2, 1, 2], None));
}

#[test]
fn a_message_ending_at_the_end_of_the_ring_waits_only_as_long_as_needed() {
    explore(2, || append_all(2, Some(FOR_EVER), &[3, 2, 3], None));
}

#[test]
fn two_threads_that_wait_for_room_both_get_it() {
    explore(1, || append_all(1, Some(FOR_EVER), &[2, 1], Some(&[1])));
}

#[test]
fn without_a_commit_thread_two_threads_without_room_commit_themselves() {
    explore(2, || append_all(1, None, &[2, 1], Some(&[1, 2])));
}

#[test]
fn a_message_that_is_larger_than_the_ring_comes_after_all_that_waits() {
    explore(1, || append_all(1, Some(FOR_EVER), &[1, 3], Some(&[1])));
}

#[test]
fn a_flush_beside_the_committer_makes_durable_what_was_appended() {
    explore(2, || {
        let log = CommitLog::new(1, Some(FOR_EVER), || Ok(()));
        let committer = commits(&log);
        let appends = appends(&log, &[2, 1]);
        assert!(log.flush().is_ok());
        log.expect_committed();
        assert!(appends.join().unwrap().is_ok());
        close(&log, Some(committer), 3);
    });
}

#[test]
fn an_append_that_times_out_stores_nothing_and_leaves_its_room() {
    explore(2, || {
        let log = CommitLog::new(1, Some(SOON), || Ok(()));
        let committer = commits(&log);
        assert!(log.append(2).is_ok());
        let len = match log.append(1) {
            Ok(()) => 3,
            Err(Error::PoolFull { .. }) => 2,
            Err(other) => panic!("{other}"),
        };
        assert!(log.commit().is_ok());
        assert!(log.append(1).is_ok());
        close(&log, Some(committer), len + 1);
    });
}

#[test]
fn a_failed_commit_is_reported_to_every_thread_that_waits_for_room() {
    explore(2, || {
        let log = CommitLog::new(1, Some(FOR_EVER), || Err(Error::Closed));
        let committer = commits(&log);
        let other = appends(&log, &[2]);
        let own = log.append(2);
        // The ring has room for one of them.
        let outcomes = [own, other.join().unwrap()];
        let refused = outcomes.iter().filter(|outcome| outcome.is_err());
        assert_eq!(refused.count(), 1);
        committer.join().unwrap();
        assert_eq!(log.watermarks.committed.get(), 0);
    });
}

#[test]
fn of_two_committing_threads_the_second_writes_nothing_after_a_failure() {
    static WRITES: AtomicUsize = AtomicUsize::new(0);
    explore(2, || {
        WRITES.store(0, Ordering::SeqCst);
        let log = CommitLog::new(1, Some(FOR_EVER), || {
            WRITES.fetch_add(1, Ordering::SeqCst);
            Err(Error::Closed)
        });
        assert!(log.append(1).is_ok());
        let other = log.clone();
        let other = spawn(move || other.commit());
        assert!(log.commit().is_err());
        assert!(other.join().unwrap().is_err());
        assert_eq!(WRITES.load(Ordering::SeqCst), 1);
    });
}
