//! The gate at which the threads of a group commit sleep: no wake is lost, and nobody stays at an open gate. `tests/interleavings` has a
//! model of it in its place.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sync::Gate;

#[path = "../../src/sync.rs"]
#[allow(dead_code, unused_imports, reason = "the tests need the gate alone")]
mod sync;

/// Only a thread that was not woken sleeps for this long.
const LONG: Duration = Duration::from_secs(20);

/// The event that ends the sleep of a thread.
const WAKES: [fn(&Gate); 3] = [Gate::wake_one, Gate::wake_all, Gate::open];

#[test]
fn a_wake_between_the_look_and_the_sleep_ends_the_wait() {
    for wake in WAKES {
        let gate = Gate::default();
        let (seen, begun) = (gate.seen(), Instant::now());
        wake(&gate);
        gate.wait(seen, Some(LONG));
        assert!(begun.elapsed() < LONG / 2);
    }
}

#[test]
fn only_an_open_gate_says_that_it_is_open_and_it_stays_so() {
    for (wake, is_open) in WAKES.into_iter().zip([false, false, true]) {
        let gate = Gate::default();
        let seen = gate.seen();
        wake(&gate);
        let after = gate.seen();
        assert_eq!([seen, after].map(|seen| gate.wait(seen, Some(Duration::ZERO))), [is_open; 2]);
    }
}

#[test]
fn every_thread_that_sleeps_is_woken_at_once() {
    for wake in [Gate::wake_all, Gate::open] {
        let (gate, coming) = (Gate::default(), AtomicUsize::new(0));
        let begun = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let seen = gate.seen();
                    coming.fetch_add(1, Ordering::SeqCst);
                    gate.wait(seen, Some(LONG));
                });
            }
            while coming.load(Ordering::SeqCst) < 4 {
                thread::yield_now();
            }
            // They sleep by now; a thread that does not yet is not a failure.
            thread::sleep(Duration::from_millis(100));
            wake(&gate);
        });
        assert!(begun.elapsed() < LONG / 2);
    }
}
