//! `Watermark`: who is woken, in which order, and when no waiter is woken any more.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::error::Error;
use mqstore::watermark::{Wait, Watermark};

fn in_ms(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

/// Long enough for a thread to park.
fn settle() {
    thread::sleep(Duration::from_millis(30));
}

#[test]
fn what_is_reached_already_is_not_waited_for() {
    let mark = Watermark::new(10);
    assert!(matches!(mark.wait(10, None), Wait::Reached));
    assert!(matches!(mark.wait(-5, Some(Instant::now())), Wait::Reached));
    assert!(matches!(mark.wait(11, Some(Instant::now())), Wait::TimedOut));
    assert_eq!(mark.get(), 10);
}

#[test]
fn it_never_falls() {
    let mark = Watermark::new(10);
    mark.advance(5);
    assert_eq!(mark.get(), 10);
    mark.advance(20);
    mark.advance(15);
    assert_eq!(mark.get(), 20);
}

#[test]
fn a_deadline_ends_a_wait_and_leaves_no_trace() {
    let mark = Watermark::new(0);
    let started = Instant::now();
    assert!(matches!(mark.wait(1, Some(in_ms(30))), Wait::TimedOut));
    assert!(started.elapsed() >= Duration::from_millis(30));
    mark.advance(1);
    assert!(matches!(mark.wait(1, None), Wait::Reached));
    assert!(format!("{mark:?}").contains("bystanders: {}"), "{mark:?}");
}

#[test]
fn only_those_whose_offset_is_reached_are_woken() {
    let mark = Arc::new(Watermark::new(0));
    let (woken, is_woken) = channel();
    let threads: Vec<_> = [10, 20, 20, 30]
        .map(|target| {
            let (mark, woken) = (mark.clone(), woken.clone());
            thread::spawn(move || {
                assert!(matches!(mark.wait(target, None), Wait::Reached));
                woken.send(target).unwrap();
            })
        })
        .into_iter()
        .collect();
    settle();
    mark.advance(9);
    assert!(is_woken.recv_timeout(Duration::from_millis(30)).is_err());
    mark.advance(20);
    let mut first: Vec<i64> = (0..3)
        .map(|_| is_woken.recv_timeout(Duration::from_secs(10)).unwrap())
        .collect();
    first.sort_unstable();
    assert_eq!(first, [10, 20, 20]);
    assert!(is_woken.recv_timeout(Duration::from_millis(30)).is_err());
    mark.advance(i64::MAX);
    assert_eq!(is_woken.recv_timeout(Duration::from_secs(10)).unwrap(), 30);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn waiting_threads_are_ordered_by_offset_and_then_by_arrival() {
    let mark = Arc::new(Watermark::new(0));
    let mut threads = Vec::new();
    for target in [30, 10, 20, 10] {
        let waiting = mark.clone();
        threads.push(thread::spawn(move || waiting.wait(target, None)));
        while !format!("{mark:?}").contains(&format!("waiting: {}", threads.len())) {
            settle();
        }
    }
    // The next to be woken is first, so its printed place is, too.
    let printed = format!("{mark:?}");
    let places =
        ["(10, 2)", "(10, 4)", "(20, 3)", "(30, 1)"].map(|place| printed.find(place).unwrap_or_else(|| panic!("{printed}")));
    assert!(places.is_sorted(), "{printed}");
    mark.advance(30);
    for thread in threads {
        assert!(matches!(thread.join().unwrap(), Wait::Reached));
    }
}

#[test]
fn poison_reaches_all_present_and_later_waiters_with_its_first_cause() {
    let mark = Arc::new(Watermark::new(5));
    let waiting = {
        let mark = mark.clone();
        thread::spawn(move || mark.wait(6, None))
    };
    settle();
    mark.poison(Error::Closed);
    mark.poison(Error::not_found("later"));
    assert!(matches!(waiting.join().unwrap(), Wait::Poisoned(Error::Closed)));
    assert!(matches!(mark.wait(6, None), Wait::Poisoned(Error::Closed)));
    assert!(matches!(mark.wait(6, Some(Instant::now())), Wait::Poisoned(Error::Closed)));
    assert!(matches!(mark.poisoned(), Some(Error::Closed)));
    // What was reached stays reached, and a last advance still counts.
    assert!(matches!(mark.wait(5, None), Wait::Reached));
    mark.advance(6);
    assert!(matches!(mark.wait(6, None), Wait::Reached));
}

#[test]
fn a_stray_wake_of_a_thread_ends_no_wait() {
    let mark = Arc::new(Watermark::new(0));
    let waiting = {
        let mark = mark.clone();
        thread::spawn(move || {
            let outcome = mark.wait(1, None);
            (outcome, mark.get())
        })
    };
    settle();
    for _ in 0..100 {
        waiting.thread().unpark();
    }
    settle();
    assert!(!waiting.is_finished());
    mark.advance(1);
    assert!(matches!(waiting.join().unwrap(), (Wait::Reached, 1)));
}

/// Each raise may be the last. If a raise and a thread that starts to wait missed each other, the thread would sleep for ever.
#[test]
fn no_wake_is_lost_between_many_threads() {
    const ROUNDS: i64 = 3000;
    let marks = Arc::new([Watermark::new(0), Watermark::new(0)]);
    let other = {
        let marks = marks.clone();
        thread::spawn(move || {
            for round in 1..=ROUNDS {
                assert!(matches!(marks[0].wait(round, Some(in_ms(20_000))), Wait::Reached));
                marks[1].advance(round);
            }
        })
    };
    for round in 1..=ROUNDS {
        marks[0].advance(round);
        assert!(matches!(marks[1].wait(round, Some(in_ms(20_000))), Wait::Reached));
    }
    other.join().unwrap();
}

#[test]
fn many_who_wait_and_many_who_raise_all_come_through() {
    let mark = Arc::new(Watermark::new(0));
    let ticket = Arc::new(AtomicI64::new(0));
    let start = Arc::new(Barrier::new(64));
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..64)
        .map(|_| {
            let (mark, ticket, start, outcomes) = (mark.clone(), ticket.clone(), start.clone(), outcomes.clone());
            thread::spawn(move || {
                start.wait();
                for _ in 0..200 {
                    let own = ticket.fetch_add(1, Ordering::SeqCst) + 1;
                    mark.advance(own);
                    // At most 63 others hold smaller tickets, and each of them raises the mark, too.
                    let outcome = mark.wait(own - 63, Some(in_ms(20_000)));
                    outcomes.lock().unwrap().push(matches!(outcome, Wait::Reached));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let outcomes = outcomes.lock().unwrap();
    assert!(outcomes.len() == 64 * 200 && outcomes.iter().all(|reached| *reached));
    assert_eq!(mark.get(), 64 * 200);
}

#[test]
fn one_waiter_leads_after_the_other_until_nobody_waits() {
    let mark = Watermark::new(0);
    let order = Mutex::new(Vec::<i64>::new());
    let first = mark.wait_or_lead(1, None).unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> = [10, 20, 30, 20]
            .map(|target| {
                let (mark, order) = (&mark, &order);
                scope.spawn(move || {
                    while let Ok(leading) = mark.wait_or_lead(target, Some(in_ms(60_000))) {
                        order.lock().unwrap().push(target);
                        // Each leader gets ten further.
                        leading.finish(mark.get() + 10, Duration::ZERO);
                    }
                    assert!(mark.get() >= target);
                })
            })
            .into_iter()
            .collect();
        while mark.waiting() < 4 {
            thread::yield_now();
        }
        assert!(order.lock().unwrap().is_empty());
        drop(first);
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!((mark.get(), order.lock().unwrap().len(), mark.waiting()), (30, 3, 0));
}

#[test]
fn a_thread_that_only_waits_never_leads_and_does_not_keep_others_from_it() {
    let mark = Watermark::new(0);
    let first = mark.wait_or_lead(1, None).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| mark.wait(1, Some(in_ms(60_000))));
        while mark.waiting() < 1 {
            thread::yield_now();
        }
        let leads = scope.spawn(|| {
            let leading = mark.wait_or_lead(2, Some(in_ms(60_000))).unwrap();
            leading.finish(2, Duration::ZERO);
        });
        while mark.waiting() < 2 {
            thread::yield_now();
        }
        drop(first);
        leads.join().unwrap();
        assert!(matches!(waits.join().unwrap(), Wait::Reached));
    });
}

#[test]
fn a_leader_wanted_at_its_deadline_lets_the_next_one_lead() {
    for round in 0..200 {
        let mark = Watermark::new(0);
        let first = mark.wait_or_lead(1, None).unwrap();
        thread::scope(|scope| {
            // The first to be asked gives up at about the time at which it is asked.
            let gives_up = scope.spawn(|| {
                let deadline = Instant::now() + Duration::from_micros(300 + 2 * round);
                mark.wait_or_lead(1, Some(deadline)).map(drop)
            });
            let stays = scope.spawn(|| {
                let leading = mark.wait_or_lead(2, Some(in_ms(60_000)));
                leading.map(|leading| leading.finish(2, Duration::ZERO))
            });
            thread::sleep(Duration::from_micros(300));
            drop(first);
            let _ = gives_up.join().unwrap();
            assert!(stays.join().unwrap().is_ok());
        });
    }
}

/// Two threads wait when the first leader ends. It says how long the next one is to wait for as many.
fn two_waited_for(patience: Duration, work: impl FnOnce(&Watermark, Instant)) {
    let (mark, begun) = (Watermark::new(0), Instant::now());
    let first = mark.wait_or_lead(1, None).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                if let Ok(leading) = mark.wait_or_lead(1, Some(in_ms(60_000))) {
                    leading.finish(1, Duration::ZERO);
                }
                assert_eq!(mark.get(), 1);
            });
        }
        while mark.waiting() < 2 {
            thread::yield_now();
        }
        let ended = Instant::now();
        first.finish(0, patience);
        work(&mark, ended);
    });
    assert_eq!((mark.get(), mark.waiting()), (1, 0));
    assert!(begun.elapsed() < Duration::from_secs(30), "a thread was not woken");
}

#[test]
fn the_thread_that_completes_a_group_leads_at_once() {
    two_waited_for(Duration::from_secs(60), |mark, ended| {
        settle();
        assert_eq!((mark.get(), mark.waiting()), (0, 2));
        mark.wait_or_lead(1, Some(in_ms(60_000))).unwrap().finish(1, Duration::ZERO);
        assert!(ended.elapsed() < Duration::from_secs(30));
    });
}

#[test]
fn a_group_that_is_not_complete_is_led_when_its_time_is_up() {
    two_waited_for(Duration::from_millis(30), |mark, ended| {
        assert!(matches!(mark.wait(1, Some(in_ms(60_000))), Wait::Reached));
        assert!(ended.elapsed() >= Duration::from_millis(30));
    });
}

#[test]
fn a_thread_that_only_waits_is_not_waited_for() {
    let mark = Watermark::new(0);
    let first = mark.wait_or_lead(1, None).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| mark.wait(2, Some(in_ms(60_000))));
        while mark.waiting() < 1 {
            thread::yield_now();
        }
        first.finish(1, Duration::from_secs(20));
        let begun = Instant::now();
        mark.wait_or_lead(2, None).unwrap().finish(2, Duration::ZERO);
        assert!(matches!(waits.join().unwrap(), Wait::Reached));
        assert!(begun.elapsed() < Duration::from_secs(10));
    });
}
