//! A loop that can be interrupted asks its caller often enough, and looks at the clock seldom.

use std::cell::Cell;
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mqstore::interrupt::{check, interruptible};

/// Runs a loop with turns of this length for this long; gives the longest time between two questions.
fn longest_silence(turn: Duration, total: Duration) -> Duration {
    let (last, longest) = (Rc::new(Cell::new(Instant::now())), Rc::new(Cell::new(Duration::ZERO)));
    let ask = {
        let (last, longest) = (last.clone(), longest.clone());
        move || {
            longest.set(longest.get().max(last.replace(Instant::now()).elapsed()));
            Ok(())
        }
    };
    interruptible(ask, || {
        let end = Instant::now() + total;
        while Instant::now() < end {
            check().unwrap();
            if !turn.is_zero() {
                sleep(turn);
            }
        }
    });
    longest.get().max(last.get().elapsed())
}

#[test]
fn a_caller_is_asked_again_and_again_whether_the_turns_of_a_loop_are_short_or_long() {
    for turn in [0, 1, 10, 30] {
        let silence = longest_silence(Duration::from_millis(turn), Duration::from_millis(1500));
        // Asked every 50 ms. A busy machine may let a thread wait for much longer than a turn.
        assert!(silence < Duration::from_millis(1200), "turns of {turn} ms: {silence:?}");
    }
}

#[test]
fn nobody_is_asked_outside_of_an_interruptible_call() {
    let asked = Rc::new(Cell::new(0));
    let count = asked.clone();
    interruptible(
        move || {
            count.set(count.get() + 1);
            Ok(())
        },
        || {},
    );
    for _ in 0..10_000 {
        check().unwrap();
    }
    assert_eq!(asked.get(), 0);
}
