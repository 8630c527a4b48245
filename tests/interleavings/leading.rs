//! Threads that lead one after the other, and groups that wait until they are led.

use std::sync::Arc;
use std::time::Duration;

use loom::thread::{JoinHandle, spawn};

use crate::explore;
use crate::sync::{FOR_EVER, SOON, now};
use crate::watermark::{Leading, Wait, Watermark};

/// Waits for the target. Whenever the thread leads, it raises the watermark by one.
fn wait(mark: &Watermark, target: i64, patience: Duration) -> Wait {
    loop {
        match mark.wait_or_lead(target, Some(now() + patience)) {
            Ok(leading) => leading.finish(mark.get() + 1, SOON),
            Err(wait) => return wait,
        }
    }
}

/// A thread that waits for the target, and leads if it is to.
fn waits(mark: &Arc<Watermark>, target: i64, patience: Duration) -> JoinHandle<Wait> {
    let mark = mark.clone();
    spawn(move || wait(&mark, target, patience))
}

/// This thread leads, because no other one is there.
fn lead(mark: &Watermark) -> Leading<'_> {
    mark.wait_or_lead(1, None).unwrap()
}

fn all_reach(threads: impl IntoIterator<Item = JoinHandle<Wait>>) {
    for thread in threads {
        assert!(matches!(thread.join().unwrap(), Wait::Reached));
    }
}

#[test]
fn one_thread_leads_at_a_time_until_nobody_waits() {
    explore(2, || {
        let mark = Arc::new(Watermark::new(0));
        let others = [waits(&mark, 1, FOR_EVER), waits(&mark, 2, FOR_EVER)];
        assert!(matches!(wait(&mark, 3, FOR_EVER), Wait::Reached));
        all_reach(others);
        assert_eq!((mark.get(), mark.waiting()), (3, 0));
    });
}

#[test]
fn when_a_leader_ends_without_a_raise_a_thread_that_waits_leads() {
    explore(3, || {
        let mark = Arc::new(Watermark::new(0));
        let first = lead(&mark);
        let threads = [waits(&mark, 1, FOR_EVER), waits(&mark, 2, FOR_EVER)];
        drop(first);
        all_reach(threads);
    });
}

#[test]
fn a_leader_at_its_deadline_hands_over_the_lead() {
    explore(3, || {
        let mark = Arc::new(Watermark::new(0));
        let first = lead(&mark);
        let gives_up = waits(&mark, 1, SOON);
        let stays = waits(&mark, 2, FOR_EVER);
        drop(first);
        assert!(matches!(gives_up.join().unwrap(), Wait::Reached | Wait::TimedOut));
        all_reach([stays]);
        assert_eq!(mark.waiting(), 0);
    });
}

#[test]
fn a_leader_raced_by_another_raise_of_the_watermark_hands_over_the_lead() {
    explore(2, || {
        let mark = Arc::new(Watermark::new(0));
        let first = lead(&mark);
        let threads = [waits(&mark, 1, FOR_EVER), waits(&mark, 2, FOR_EVER)];
        drop(first);
        mark.advance(1);
        all_reach(threads);
    });
}

#[test]
fn a_thread_that_only_waits_is_not_asked_to_lead() {
    explore(3, || {
        let mark = Arc::new(Watermark::new(0));
        let first = lead(&mark);
        let only_waits = mark.clone();
        let only_waits = spawn(move || only_waits.wait(1, None));
        let leads = waits(&mark, 2, FOR_EVER);
        drop(first);
        all_reach([leads, only_waits]);
    });
}

#[test]
fn the_thread_that_completes_a_group_leads_and_wakes_all_of_it() {
    explore(2, || {
        let mark = Arc::new(Watermark::new(0));
        let first = lead(&mark);
        let others = [waits(&mark, 1, FOR_EVER), waits(&mark, 1, FOR_EVER)];
        first.finish(0, FOR_EVER);
        // It comes back, as it does whose append has returned.
        assert!(matches!(wait(&mark, 1, FOR_EVER), Wait::Reached));
        all_reach(others);
    });
}

#[test]
fn a_group_that_one_thread_does_not_come_to_is_led_a_moment_later() {
    explore(2, || {
        let mark = Arc::new(Watermark::new(0));
        let first = lead(&mark);
        let threads = [waits(&mark, 1, FOR_EVER), waits(&mark, 2, FOR_EVER)];
        first.finish(0, SOON);
        all_reach(threads);
    });
}

#[test]
fn when_the_thread_that_keeps_the_time_gives_up_another_one_keeps_it() {
    explore(2, || {
        let mark = Arc::new(Watermark::new(0));
        let first = lead(&mark);
        let gives_up = waits(&mark, 1, SOON);
        let stays = waits(&mark, 2, FOR_EVER);
        // Longer than the first one waits.
        first.finish(0, SOON * 3);
        assert!(matches!(gives_up.join().unwrap(), Wait::Reached | Wait::TimedOut));
        all_reach([stays]);
        assert_eq!(mark.waiting(), 0);
    });
}
