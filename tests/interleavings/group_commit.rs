//! Group commit: threads append and wait until that is flushed, and one of them syncs for all. The steps are those of
//! `CommitLog::flush` and `CommitLog::wait_flushed`, over the same watermarks and without files.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loom::sync::Mutex;
use loom::thread::{JoinHandle, spawn};

use crate::error::Error;
use crate::explore;
use crate::sync::{FOR_EVER, SOON, now};
use crate::watermark::{Leading, Wait, Watermark};

/// A log whose messages have one byte each.
struct Log {
    appended: Watermark,
    flushed: Watermark,
    appending: Mutex<()>,
    syncs: AtomicUsize,
    sync: fn() -> Result<(), Error>,
}

impl Log {
    fn new(sync: fn() -> Result<(), Error>) -> Arc<Self> {
        Arc::new(Self {
            appended: Watermark::new(0),
            flushed: Watermark::new(0),
            appending: Mutex::new(()),
            syncs: AtomicUsize::new(0),
            sync,
        })
    }

    fn append(&self) -> i64 {
        let _appending = self.appending.lock();
        let end = self.appended.get() + 1;
        self.appended.advance(end);
        end
    }

    fn sync(&self, leading: Leading<'_>) {
        let target = self.appended.get();
        self.syncs.fetch_add(1, Ordering::Relaxed);
        match (self.sync)() {
            Ok(()) => leading.finish(target, SOON),
            Err(cause) => [&self.appended, &self.flushed]
                .iter()
                .for_each(|mark| mark.poison(cause.clone())),
        }
    }

    fn append_and_wait(&self, patience: Duration) -> Wait {
        let end = self.append();
        let deadline = now() + patience;
        loop {
            match self.flushed.wait_or_lead(end, Some(deadline)) {
                Ok(leading) => self.sync(leading),
                Err(wait) => {
                    let is_flushed = self.flushed.get() >= end;
                    assert!(is_flushed || !matches!(wait, Wait::Reached), "acknowledged and not flushed");
                    return wait;
                }
            }
        }
    }
}

fn appends(log: &Arc<Log>, patience: Duration) -> JoinHandle<Wait> {
    let log = log.clone();
    spawn(move || log.append_and_wait(patience))
}

/// The number of threads that append one message each; this thread is one of them.
fn commit(threads: usize, log: &Arc<Log>) -> Vec<Wait> {
    let others: Vec<_> = (1..threads).map(|_| appends(log, FOR_EVER)).collect();
    let own = log.append_and_wait(FOR_EVER);
    let others = others.into_iter().map(|other| other.join().unwrap());
    let outcomes = others.chain([own]).collect();
    assert!(log.syncs.load(Ordering::Relaxed) <= threads);
    assert_eq!(log.flushed.waiting(), 0);
    outcomes
}

fn all_are_flushed(threads: usize, log: &Arc<Log>) {
    assert!(commit(threads, log).iter().all(|wait| matches!(wait, Wait::Reached)));
    assert_eq!(log.flushed.get(), log.appended.get());
}

#[test]
fn two_threads_that_append_are_acknowledged_by_at_most_two_syncs() {
    explore(3, || all_are_flushed(2, &Log::new(|| Ok(()))));
}

#[test]
fn three_threads_that_append_are_acknowledged_by_at_most_three_syncs() {
    explore(2, || all_are_flushed(3, &Log::new(|| Ok(()))));
}

#[test]
fn threads_that_append_again_and_again_are_acknowledged_each_time() {
    explore(2, || {
        let log = Log::new(|| Ok(()));
        let other = log.clone();
        let other = spawn(move || [0; 2].map(|_| other.append_and_wait(FOR_EVER)));
        let own = [0; 2].map(|_| log.append_and_wait(FOR_EVER));
        let outcomes = own.into_iter().chain(other.join().unwrap());
        assert!(outcomes.into_iter().all(|wait| matches!(wait, Wait::Reached)));
        assert!(log.syncs.load(Ordering::Relaxed) <= 4 && log.flushed.waiting() == 0);
    });
}

#[test]
fn a_failed_sync_is_reported_to_every_thread_that_waits() {
    explore(3, || {
        let outcomes = commit(2, &Log::new(|| Err(Error::Closed)));
        assert!(outcomes.iter().all(|wait| matches!(wait, Wait::Poisoned(Error::Closed))));
    });
}

#[test]
fn a_thread_that_gives_up_leaves_no_other_without_a_sync() {
    explore(2, || {
        let log = Log::new(|| Ok(()));
        let gives_up = appends(&log, SOON);
        let stays = appends(&log, FOR_EVER);
        assert!(matches!(log.append_and_wait(FOR_EVER), Wait::Reached));
        assert!(matches!(stays.join().unwrap(), Wait::Reached));
        assert!(matches!(gives_up.join().unwrap(), Wait::Reached | Wait::TimedOut));
    });
}
