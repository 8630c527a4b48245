//! Threads that wait for a watermark, and threads that raise or poison it.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{JoinHandle, spawn};

use crate::error::Error;
use crate::explore;
use crate::sync::{SOON, now};
use crate::watermark::{Wait, Watermark};

/// A thread that waits for the target.
fn waits(mark: &Arc<Watermark>, target: i64) -> JoinHandle<Wait> {
    let mark = mark.clone();
    spawn(move || mark.wait(target, None))
}

fn all_reach(threads: Vec<JoinHandle<Wait>>) {
    for thread in threads {
        assert!(matches!(thread.join().unwrap(), Wait::Reached));
    }
}

/// A thread waits for each target. This thread raises the watermark to each value.
fn wait_and_raise(targets: &[i64], values: &[i64]) {
    let mark = Arc::new(Watermark::new(0));
    let threads = targets.iter().map(|target| waits(&mark, *target)).collect();
    for value in values {
        mark.advance(*value);
    }
    all_reach(threads);
    assert_eq!(mark.waiting(), 0);
}

#[test]
fn a_thread_that_waits_misses_no_raise() {
    explore(9, || wait_and_raise(&[1], &[1]));
}

#[test]
fn a_thread_that_waits_for_more_than_the_first_raise_gets_the_second() {
    explore(9, || wait_and_raise(&[2], &[1, 2]));
}

#[test]
fn two_threads_that_wait_for_the_same_value_are_both_woken() {
    explore(3, || wait_and_raise(&[1, 1], &[1]));
}

#[test]
fn two_threads_that_wait_for_different_values_are_both_woken() {
    explore(3, || wait_and_raise(&[2, 1], &[1, 2]));
}

#[test]
fn three_threads_that_wait_are_all_woken() {
    explore(2, || wait_and_raise(&[1, 2, 1], &[2]));
}

#[test]
fn of_two_threads_that_raise_each_wakes_who_waits_for_its_value() {
    explore(2, || {
        let mark = Arc::new(Watermark::new(0));
        let threads = [1, 2].map(|target| waits(&mark, target)).into();
        let raises = mark.clone();
        let raises = spawn(move || raises.advance(1));
        mark.advance(2);
        all_reach(threads);
        raises.join().unwrap();
        assert_eq!((mark.get(), mark.waiting()), (2, 0));
    });
}

#[test]
fn a_poison_wakes_every_thread_that_waits() {
    explore(3, || {
        let mark = Arc::new(Watermark::new(0));
        let threads = [1, 2].map(|target| waits(&mark, target));
        mark.poison(Error::Closed);
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Wait::Poisoned(Error::Closed)));
        }
        assert_eq!(mark.waiting(), 0);
    });
}

#[test]
fn what_is_reached_before_a_poison_is_reached() {
    explore(3, || {
        let mark = Arc::new(Watermark::new(0));
        let [reached, lost] = [1, 2].map(|target| waits(&mark, target));
        mark.advance(1);
        mark.poison(Error::Closed);
        assert!(matches!(reached.join().unwrap(), Wait::Reached));
        assert!(matches!(lost.join().unwrap(), Wait::Poisoned(Error::Closed)));
    });
}

#[test]
fn a_timed_out_thread_is_not_counted_and_delays_no_other_wake() {
    explore(3, || {
        let mark = Arc::new(Watermark::new(0));
        let stays = waits(&mark, 1);
        let gives_up = mark.clone();
        let gives_up = spawn(move || gives_up.wait(1, Some(now() + SOON)));
        mark.advance(1);
        all_reach(vec![stays]);
        assert!(matches!(gives_up.join().unwrap(), Wait::Reached | Wait::TimedOut));
        assert_eq!(mark.waiting(), 0);
    });
}

#[test]
fn who_sees_a_value_sees_what_was_written_before_the_raise() {
    explore(9, || {
        let (mark, written) = (Arc::new(Watermark::new(0)), Arc::new(AtomicUsize::new(0)));
        let (raises, writes) = (mark.clone(), written.clone());
        let raises = spawn(move || {
            writes.store(1, Ordering::Relaxed);
            raises.advance(1);
        });
        assert!(mark.get() < 1 || written.load(Ordering::Relaxed) == 1);
        assert!(matches!(mark.wait(1, None), Wait::Reached));
        assert_eq!(written.load(Ordering::Relaxed), 1);
        raises.join().unwrap();
    });
}
