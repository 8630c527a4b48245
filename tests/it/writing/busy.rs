//! Appends while another one stalls under the lock.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::store::MessageStore;

use super::{Place, append_together, bodies, message, put, small};
use crate::counting_env::CountingEnv;

/// An append of another thread stalls under the lock, from now on by the clock, until the sender is dropped.
fn stall_an_append(env: &CountingEnv, store: &Arc<MessageStore>) -> (Sender<()>, thread::JoinHandle<()>) {
    let (begun, is_begun) = channel();
    let (go, may_go): (_, Receiver<()>) = channel();
    let once = Mutex::new(Some((begun, may_go)));
    env.before_changes(move |change| {
        let stall = if change == "clock" {
            once.lock().unwrap().take()
        } else {
            None
        };
        if let Some((begun, may_go)) = stall {
            begun.send(()).unwrap();
            let _ = may_go.recv();
        }
        Ok(())
    });
    let stalled = store.clone();
    let stalled = thread::spawn(move || {
        put(&stalled, "t", b"stalled");
    });
    is_begun.recv().unwrap();
    (go, stalled)
}

/// Appends one message.
type Append = fn(&MessageStore) -> Result<(), Error>;

/// Every way to append a message.
fn appends() -> [(&'static str, Append); 4] {
    [
        ("one", |store| store.append(message("t", 0, b"new")).map(drop)),
        ("at once", |store| {
            let mut new = message("t", 0, b"new");
            store.appender(None).checked(&mut new)?.try_append().map(drop)
        }),
        ("all", |store| {
            store
                .appender(None)
                .append_all(vec![message("t", 0, b"new")], &mut Vec::new())
        }),
        ("together", |store| {
            append_together(store, vec![message("t", 0, b"new")]).map(drop)
        }),
    ]
}

#[test]
fn appends_fail_at_once_while_the_lock_is_held_over_a_second() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        os_page_cache_busy_time_out_mills: StoreConfig::default().os_page_cache_busy_time_out_mills,
        ..small()
    });
    put(&store, "t", b"first");
    let store = Arc::new(store);
    env.set_monotonic(5000);
    let (go, stalled) = stall_an_append(&env, &store);
    env.set_monotonic(6001);
    let end = store.appended_offset();
    for (how, append) in appends() {
        let refused = append(&store).unwrap_err();
        assert!(
            matches!(refused, Error::Busy { limit: 1000, held } if held == Duration::from_millis(1001)),
            "{how}: {refused:?}"
        );
        assert_eq!(refused.put_status(), Some("OS_PAGE_CACHE_BUSY"));
        assert!(
            refused.to_string().contains("os_page_cache_busy_time_out_mills (1000)"),
            "{refused}"
        );
    }
    // The message is looked at first.
    let illegal = store.append(message("t", -1, b"x")).unwrap_err();
    assert_eq!(illegal.put_status(), Some("MESSAGE_ILLEGAL"));
    assert_eq!(store.appended_offset(), end);
    drop(go);
    stalled.join().unwrap();
    for (_, append) in appends() {
        append(&store).unwrap();
    }
    store.close().unwrap();
    let stored = bodies(&place.reader(), "t", 0);
    assert_eq!(stored, [b"first".as_slice(), b"stalled", b"new", b"new", b"new", b"new"]);
}

/// `RocketMQ` takes a hold of 10,000,000 ms for a clock that has jumped.
#[test]
fn an_append_waits_for_a_lock_holder_for_at_most_the_configured_time() {
    for (limit, held) in [(1000, 1000), (1000, 10_000_000), (70, 70)] {
        let place = Place::new();
        let (env, store) = place.create_counting(StoreConfig {
            os_page_cache_busy_time_out_mills: limit,
            ..small()
        });
        put(&store, "t", b"first");
        let store = Arc::new(store);
        env.set_monotonic(5000);
        let (go, stalled) = stall_an_append(&env, &store);
        env.set_monotonic(5000 + held);
        let looked = env.measured();
        let waits = store.clone();
        let waits = thread::spawn(move || waits.append(message("t", 0, b"x")).map(drop));
        while env.measured() == looked {
            thread::yield_now();
        }
        env.set_monotonic(5000 + if held == 10_000_000 { 9_999_999 } else { held + 1 });
        assert!(
            matches!(store.append(message("t", 0, b"x")), Err(Error::Busy { .. })),
            "{held}"
        );
        drop(go);
        stalled.join().unwrap();
        waits.join().unwrap().unwrap();
        store.close().unwrap();
    }
}
