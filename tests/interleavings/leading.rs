//! Threads that lead one after the other, and a leader that gathers followers.

use std::sync::Arc;
use std::time::Duration;

use loom::thread::{JoinHandle, spawn};

use crate::explore;
use crate::sync::{FOR_EVER, LeadersLock, SOON, now};
use crate::watermark::{Wait, Watermark};

/// A watermark whose leader holds the lock, as the thread does that syncs the log.
struct Led {
    mark: Watermark,
    lock: LeadersLock,
}

/// Leads while it lives, and then hands over.
struct Leading<'a>(&'a Led);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.lock.unlock();
        self.0.mark.hand_over();
    }
}

impl Led {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            mark: Watermark::new(0),
            lock: LeadersLock::default(),
        })
    }

    fn lead(&self) -> Option<Leading<'_>> {
        self.lock.try_lock().then(|| Leading(self))
    }

    /// Waits for the target. Whenever it leads, it raises the watermark by one.
    fn wait(&self, target: i64, patience: Duration) -> Wait {
        loop {
            match self.mark.wait_or_lead(target, Some(now() + patience), || self.lead()) {
                Ok(_leading) => self.mark.advance(self.mark.get() + 1),
                Err(wait) => return wait,
            }
        }
    }
}

/// A thread that waits for the target, and leads if it is to.
fn waits(led: &Arc<Led>, target: i64, patience: Duration) -> JoinHandle<Wait> {
    let led = led.clone();
    spawn(move || led.wait(target, patience))
}

#[test]
fn one_thread_leads_at_a_time_until_nobody_waits() {
    explore(2, || {
        let led = Led::new();
        let others = [waits(&led, 1, FOR_EVER), waits(&led, 2, FOR_EVER)];
        assert!(matches!(led.wait(3, FOR_EVER), Wait::Reached));
        for other in others {
            assert!(matches!(other.join().unwrap(), Wait::Reached));
        }
        // A thread may lead once more when another one has just raised the watermark to its target.
        assert!(led.mark.get() >= 3 && led.mark.waiting() == 0);
    });
}

#[test]
fn when_a_leader_ends_without_a_raise_a_thread_that_waits_leads() {
    explore(3, || {
        let led = Led::new();
        let first = led.lead().unwrap();
        let threads = [waits(&led, 1, FOR_EVER), waits(&led, 2, FOR_EVER)];
        drop(first);
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Wait::Reached));
        }
    });
}

#[test]
fn a_thread_that_is_to_lead_just_when_its_deadline_comes_lets_the_next_one_lead() {
    explore(3, || {
        let led = Led::new();
        let first = led.lead().unwrap();
        let gives_up = waits(&led, 1, SOON);
        let stays = waits(&led, 2, FOR_EVER);
        drop(first);
        assert!(matches!(gives_up.join().unwrap(), Wait::Reached | Wait::TimedOut));
        assert!(matches!(stays.join().unwrap(), Wait::Reached));
        assert_eq!(led.mark.waiting(), 0);
    });
}

#[test]
fn a_thread_that_is_to_lead_just_when_its_value_is_reached_lets_the_next_one_lead() {
    explore(2, || {
        let led = Led::new();
        assert!(led.lock.try_lock());
        let leads = led.clone();
        let leads = spawn(move || {
            let leading = Leading(&leads);
            leading.0.mark.advance(1);
        });
        let reaches = waits(&led, 1, FOR_EVER);
        assert!(matches!(led.wait(2, FOR_EVER), Wait::Reached));
        assert!(matches!(reaches.join().unwrap(), Wait::Reached));
        leads.join().unwrap();
    });
}

#[test]
fn a_thread_that_only_waits_is_not_asked_to_lead() {
    explore(3, || {
        let led = Led::new();
        let first = led.lead().unwrap();
        let only_waits = led.clone();
        let only_waits = spawn(move || only_waits.mark.wait(1, None));
        let leads = waits(&led, 2, FOR_EVER);
        drop(first);
        assert!(matches!(leads.join().unwrap(), Wait::Reached));
        assert!(matches!(only_waits.join().unwrap(), Wait::Reached));
    });
}

/// A follower that waits for the watermark to reach 1.
fn follows(mark: &Arc<Watermark>, patience: Duration) -> JoinHandle<Wait> {
    let mark = mark.clone();
    spawn(move || mark.wait(1, Some(now() + patience)))
}

#[test]
fn a_leader_that_gathers_is_woken_by_the_last_follower_that_it_wants() {
    explore(2, || {
        let mark = Arc::new(Watermark::new(0));
        let followers = [follows(&mark, FOR_EVER), follows(&mark, FOR_EVER)];
        assert_eq!(mark.gather(2, now() + FOR_EVER), 2);
        mark.advance(1);
        for follower in followers {
            assert!(matches!(follower.join().unwrap(), Wait::Reached));
        }
    });
}

#[test]
fn a_leader_that_gathers_goes_on_without_a_follower_that_does_not_come() {
    explore(9, || {
        let mark = Arc::new(Watermark::new(0));
        let follower = follows(&mark, FOR_EVER);
        assert!(mark.gather(2, now() + SOON) <= 1);
        mark.advance(1);
        assert!(matches!(follower.join().unwrap(), Wait::Reached));
    });
}

#[test]
fn a_leader_that_gathers_is_woken_by_a_follower_that_comes_after_one_that_left() {
    explore(2, || {
        let mark = Arc::new(Watermark::new(0));
        let leaves = follows(&mark, SOON);
        let stays = follows(&mark, FOR_EVER);
        assert!(mark.gather(1, now() + FOR_EVER) >= 1);
        mark.advance(1);
        assert!(matches!(leaves.join().unwrap(), Wait::Reached | Wait::TimedOut));
        assert!(matches!(stays.join().unwrap(), Wait::Reached));
    });
}
