//! The allocator of segments: threads that ask for a segment, the thread that answers, and the end of the store.
//!
//! Its lock around the refusal, and its count of requests, are those of std: no other thread runs between their calls and the next
//! call of a watermark.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loom::thread::{JoinHandle, spawn};

use crate::allocate::SegmentAllocator;
use crate::error::{Error, Result};
use crate::explore;
use crate::sync::{FOR_EVER, SOON};
use mqstore::storage::RealEnv;

/// An allocator whose segments are not made, but counted.
struct Served {
    allocator: SegmentAllocator,
    made: AtomicUsize,
    make: fn() -> Result<()>,
}

impl Served {
    fn new(make: fn() -> Result<()>) -> Arc<Self> {
        let allocator = SegmentAllocator::new(Arc::new(RealEnv::new()), PathBuf::new(), 4096);
        let made = AtomicUsize::new(0);
        Arc::new(Self { allocator, made, make })
    }

    /// Answers as `services::AllocateMappedFile` does, until the given number of requests is answered, or until the end.
    fn answer(&self, requests: i64) {
        loop {
            self.allocator.answer(|| {
                self.made.fetch_add(1, Ordering::Relaxed);
                (self.make)()
            });
            let (asked, next) = self.allocator.awaited();
            if next > requests || asked.poisoned().is_some() {
                return;
            }
            asked.wait(next, None);
        }
    }

    /// A thread that asks for a segment and waits for the answer. The answer comes from a try that began after the request.
    fn ask(self: &Arc<Self>, patience: Duration) -> JoinHandle<Result<()>> {
        let served = self.clone();
        spawn(move || {
            let before = served.made.load(Ordering::Relaxed);
            let answer = served.allocator.wait(served.allocator.ask(), patience, 0);
            assert!(
                answer.is_err() || served.made.load(Ordering::Relaxed) > before,
                "an answer without a try"
            );
            answer
        })
    }
}

#[test]
fn a_request_is_answered() {
    explore(3, || {
        let served = Served::new(|| Ok(()));
        let request = served.ask(FOR_EVER);
        served.answer(1);
        assert!(request.join().unwrap().is_ok());
    });
}

#[test]
fn two_requests_are_both_answered_by_tries_that_began_after_them() {
    explore(2, || {
        let served = Served::new(|| Ok(()));
        let requests = [served.ask(FOR_EVER), served.ask(FOR_EVER)];
        served.answer(2);
        assert!(requests.into_iter().all(|request| request.join().unwrap().is_ok()));
    });
}

#[test]
fn the_reason_why_there_is_no_segment_reaches_the_thread_that_asked() {
    explore(3, || {
        let served = Served::new(|| Err(Error::Closed));
        let request = served.ask(FOR_EVER);
        served.answer(1);
        assert!(matches!(request.join().unwrap(), Err(Error::Closed)));
    });
}

#[test]
fn a_request_that_races_with_the_end_is_answered_or_gets_its_cause() {
    explore(2, || {
        let served = Served::new(|| Ok(()));
        let request = served.ask(FOR_EVER);
        let answers = served.clone();
        let answers = spawn(move || answers.answer(1));
        served.allocator.end(&Error::Closed);
        assert!(matches!(request.join().unwrap(), Ok(()) | Err(Error::Closed)));
        answers.join().unwrap();
    });
}

#[test]
fn the_end_ends_the_thread_that_answers() {
    explore(9, || {
        let served = Served::new(|| Ok(()));
        let answers = served.clone();
        let answers = spawn(move || answers.answer(1));
        served.allocator.end(&Error::Closed);
        answers.join().unwrap();
    });
}

#[test]
fn a_thread_whose_patience_ends_leaves_the_next_request_to_be_answered() {
    explore(2, || {
        let served = Served::new(|| Ok(()));
        let gives_up = served.ask(SOON);
        let stays = served.ask(FOR_EVER);
        served.answer(2);
        assert!(matches!(gives_up.join().unwrap(), Ok(()) | Err(Error::Io { .. })));
        assert!(stays.join().unwrap().is_ok());
    });
}
