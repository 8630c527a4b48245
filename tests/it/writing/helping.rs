//! The dispatcher and the threads that wait for it: who dispatches a message, and what an idle store does.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Place, message, put, small, soon, with};
use crate::child;

/// Returns the number of times that the dispatchers of this process have gone to sleep.
fn sleeps_of_dispatchers() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let sleeps = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let status = fs::read_to_string(task.join("status")).ok()?;
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        name.starts_with("mqstore-dispatc")
            .then(|| count.trim().parse::<u64>().unwrap())
    });
    sleeps.sum()
}

#[test]
#[ignore = "the program of a child process"]
fn child_leaves_a_store_idle() {
    if !child::is_child() {
        return;
    }
    let place = Place::new();
    let store = place.create();
    let offset = put(&store, "t", b"x");
    store.wait_dispatched(offset, Some(soon())).unwrap();
    thread::sleep(Duration::from_millis(300));
    let before = sleeps_of_dispatchers();
    assert!(before > 0);
    thread::sleep(Duration::from_millis(500));
    let sleeps = sleeps_of_dispatchers() - before;
    assert!(sleeps <= 2, "{sleeps}");
    store.close().unwrap();
}

#[test]
fn the_dispatcher_of_an_idle_store_sleeps_until_a_message_comes() {
    let done = child::run("writing::helping::child_leaves_a_store_idle");
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_waiter_dispatches_a_message_that_the_dispatcher_has_not_reached() {
    let give_up = soon();
    let is_helped = Arc::new(AtomicBool::new(false));
    let own = thread::current().id();
    while !is_helped.load(Ordering::SeqCst) {
        assert!(Instant::now() < give_up, "the dispatcher was always first");
        let place = Place::new();
        let (env, store) = place.create_counting(small());
        let seen = is_helped.clone();
        // The first message makes an index file.
        env.before_changes(move |change| {
            if change.starts_with("create ") && change.contains("/index/") && thread::current().id() == own {
                seen.store(true, Ordering::SeqCst);
            }
            Ok(())
        });
        let message = with(message("t", 0, b"x"), &[("KEYS", "k")]);
        let offset = store.append(message).unwrap().appended.physical_offset;
        store.wait_dispatched(offset, Some(soon())).unwrap();
        store.close().unwrap();
    }
}
