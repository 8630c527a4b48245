//! A read in the writing process sees every append that returned before it, unless dispatching is blocked.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::format::Message;
use mqstore::interrupt::interruptible;
use mqstore::read::{
    Filled, HitBounds, OffsetResolver, OnDamage, Order, Picked, QueryBy, QueryRequest, QueueScan, Scan, ScanRequest, Transactions,
};
use mqstore::services::{Next, Service};
use mqstore::store::{Incoming, MessageStore};

use super::services::stepped;
use super::{Place, message, put, put_in_file, small, with};

/// The longest wait of a read for a dispatcher that makes no progress.
const PATIENCE: Duration = Duration::from_millis(100);
/// Of a test that expects a longer wait: a busy machine makes a thread wait, too.
const LONG: Duration = Duration::from_secs(2);
/// A wait that does not happen.
const HANG: Duration = Duration::from_secs(60);

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = work();
    (result, begin.elapsed())
}

/// Lets whoever asks to be asked end the call.
fn ending<T>(work: impl FnOnce() -> T) -> T {
    interruptible(
        || {
            Err(Error::Invalid {
                what: "enough".to_owned(),
            })
        },
        work,
    )
}

fn is_ended<T: std::fmt::Debug>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Invalid { what }) if what == "enough")
}

#[test]
fn the_first_read_after_an_append_to_a_new_topic_sees_it() {
    let place = Place::new();
    let store = place.create();
    for n in 0..200 {
        let topic = format!("t{n}");
        put(&store, &topic, b"x");
        assert!(store.catch_up(HANG).unwrap(), "{n}");
        assert_eq!(store.reader().queue_bounds(&topic, 0).unwrap(), 0..1, "{n}");
    }
}

#[test]
fn a_read_answers_after_100_ms_without_progress_of_the_dispatcher() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    let (free, stalled) = channel::<()>();
    let stalled = Arc::new(Mutex::new(stalled));
    put_in_file(&place, &store, "slow", b"x");
    assert!(store.catch_up(HANG).unwrap());
    let (stand, standing) = channel::<()>();
    env.before_changes(move |change| {
        if change.starts_with("write ") && change.contains("consumequeue/slow/0/") {
            let _ = stand.send(());
            let _ = stalled.lock().unwrap().recv();
        }
        Ok(())
    });
    put(&store, "slow", b"x");
    // Its entry is being written out: the dispatcher makes no progress.
    standing.recv().unwrap();
    put(&store, "late", b"x");
    let (is_current, waited) = timed(|| store.catch_up(PATIENCE).unwrap());
    assert!(!is_current && waited >= PATIENCE, "{waited:?}");
    assert_eq!(store.reader().queue_bounds("slow", 0).unwrap(), 0..2);
    assert!(!store.reader().has_topic("late").unwrap());
    env.heal();
    drop(free);
    store
        .wait_dispatched(store.reader().physical_bounds().end - 1, Some(super::soon()))
        .unwrap();
    put(&store, "t", b"x");
    assert!(store.catch_up(HANG).unwrap());
    store.close().unwrap();
}

#[test]
fn a_read_keeps_waiting_as_long_as_the_dispatcher_makes_progress() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    for _ in 0..20_000 {
        put(&store, "t", b"x");
    }
    let store = Arc::new(store);
    let dispatching = store.clone();
    let dispatch = move || {
        for _ in 0..5 {
            thread::sleep(LONG * 3 / 10);
            dispatching.step(Service::Dispatch, Instant::now()).unwrap();
        }
    };
    let ((is_current, dispatcher), waited) = timed(|| {
        let dispatcher = thread::spawn(dispatch);
        (store.catch_up(LONG).unwrap(), dispatcher)
    });
    assert!(is_current && waited > LONG, "{waited:?}");
    dispatcher.join().unwrap();
}

#[test]
fn a_read_keeps_waiting_while_calls_that_write_queues_out_return() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    for n in 0..24 {
        put_in_file(&place, &store, &format!("slow{n}"), b"x");
    }
    env.before_changes(|change| {
        if change.starts_with("write ") && change.contains("consumequeue") {
            thread::sleep(LONG / 20);
        }
        Ok(())
    });
    let (is_current, waited) = timed(|| {
        for n in 0..24 {
            put(&store, &format!("slow{n}"), b"x");
        }
        thread::sleep(Duration::from_millis(50));
        put(&store, "late", b"x");
        store.catch_up(LONG).unwrap()
    });
    assert!(is_current && waited > LONG, "{waited:?}");
    assert!(store.reader().has_topic("late").unwrap());
    env.heal();
    store.close().unwrap();
}

#[test]
fn a_read_waits_for_a_dispatcher_that_syncs_however_long_that_takes() {
    // New queue files; a full index file; for the checkpoint the log, the file system and the checkpoint itself.
    for slow in ["QueueFiles", "IndexFile", "LogRange", "Checkpoint"] {
        let place = Place::new();
        let (env, store) = place.create_counting(StoreConfig {
            checkpoint_interval: 1000,
            ..small()
        });
        let ((told, begun), (wait, waits)) = (channel::<()>(), channel::<Instant>());
        let (told, waits) = (Mutex::new(Some(told)), Mutex::new(waits));
        env.before_changes(move |change| {
            if change.contains(slow) && told.lock().unwrap().take().is_some() {
                // It lasts until long after the read has begun to wait.
                let since = waits.lock().unwrap().recv().unwrap();
                thread::sleep((since + PATIENCE * 5).saturating_duration_since(Instant::now()));
            }
            Ok(())
        });
        for _ in 0..420 {
            store.append(with(message("t", 0, b"x"), &[("KEYS", "k")])).unwrap();
        }
        // The sender is dropped when the sync begins.
        assert_eq!(begun.recv_timeout(HANG), Err(RecvTimeoutError::Disconnected));
        put(&store, "late", b"x");
        let (is_current, waited) = timed(|| {
            wait.send(Instant::now()).unwrap();
            store.catch_up(PATIENCE).unwrap()
        });
        assert!(is_current && waited > PATIENCE * 2, "{slow}: {waited:?}");
        assert!(store.reader().has_topic("late").unwrap());
        store.close().unwrap();
    }
}

#[test]
fn no_read_waits_for_a_dispatcher_that_waits_for_descriptors() {
    let place = Place::new();
    let (env, store) = stepped(&place);
    let now = Instant::now();
    env.before_changes(|change| {
        if change.contains("consumequeue") {
            return Err(io::Error::from_raw_os_error(24));
        }
        Ok(())
    });
    put(&store, "t", b"x");
    store.step(Service::Dispatch, now).unwrap();
    store.step(Service::Dispatch, now + Duration::from_millis(20)).unwrap();
    put(&store, "t", b"y");
    let (is_current, waited) = timed(|| store.catch_up(2 * HANG).unwrap());
    assert!(!is_current && waited < HANG, "{waited:?}");
    env.heal();
    store.step(Service::Dispatch, now + Duration::from_secs(1)).unwrap();
    assert!(store.catch_up(HANG).unwrap());
}

#[test]
fn no_read_waits_for_a_dispatcher_that_has_failed_or_was_closed() {
    let place = Place::new();
    let (env, store) = stepped(&place);
    env.before_changes(|change| {
        if change.contains("index") {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    });
    store.append(with(message("t", 0, b"x"), &[("KEYS", "k")])).unwrap();
    store.step(Service::Dispatch, Instant::now()).unwrap_err();
    let (is_current, waited) = timed(|| store.catch_up(2 * HANG).unwrap());
    assert!(!is_current && waited < HANG, "{waited:?}");

    let place = Place::new();
    let (_, store) = stepped(&place);
    put(&store, "t", b"x");
    store.close().unwrap();
    assert!(store.catch_up(HANG).unwrap());
}

#[test]
fn a_query_of_an_undispatched_store_is_complete() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    store.append(with(message("t", 0, b"x"), &[("KEYS", "k")])).unwrap();
    assert!(!store.catch_up(PATIENCE).unwrap());
    let result = store.reader().query(&query("k")).unwrap();
    assert_eq!((result.hits.len(), result.complete), (1, true));
    assert_eq!(result.covers, store.reader().physical_bounds());
    assert_eq!(
        store
            .reader()
            .resolve_keys(&[("t", "k")], &HitBounds::default(), Errors::Raise)
            .unwrap()
            .of(0)
            .len(),
        1
    );
}

fn query(key: &str) -> QueryRequest {
    QueryRequest {
        topic: "t".to_owned(),
        by: QueryBy::Key(key.to_owned()),
        times: i64::MIN..i64::MAX,
        limit: None,
        errors: Errors::Raise,
    }
}

#[test]
fn a_waiter_for_the_dispatcher_checks_for_interrupts() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    put(&store, "t", b"x");
    let (outcome, waited) = timed(|| ending(|| store.catch_up(2 * HANG)));
    assert!(is_ended(&outcome) && waited < HANG, "{outcome:?} {waited:?}");
}

/// Runs a call again and again until it was asked to end, which is no later than 100 ms after it began if its loops ask.
fn ends(call: &str, mut work: impl FnMut() -> Result<(), Error>) {
    let (outcome, waited) = timed(|| {
        ending(|| {
            for _ in 0..1_000_000 {
                work()?;
            }
            Ok(())
        })
    });
    assert!(is_ended(&outcome) && waited < HANG, "{call}: {outcome:?} {waited:?}");
}

#[test]
fn the_loops_of_long_calls_check_for_interrupts() {
    let place = Place::new();
    let store = place.create();
    for _ in 0..100 {
        store.append(with(message("t", 0, b"x"), &[("KEYS", "k")])).unwrap();
    }
    assert!(store.catch_up(HANG).unwrap());
    let reader = store.reader();
    let request = mqstore::read::GetRequest {
        topic: "t".to_owned(),
        queue_id: 0,
        offset: 0,
        max_messages: 100,
        tags: mqstore::read::TagFilter::parse("none"),
        bounded: false,
        errors: Errors::Raise,
    };
    let scan = || QueueScan::new(reader.clone(), "t".to_owned(), 0, 0..i64::MAX).unwrap();
    ends("query", || reader.query(&query("k")).map(drop));
    ends("a query that walks", || {
        let by = QueryBy::Tag("none".to_owned());
        reader.query(&QueryRequest { by, ..query("") }).map(drop)
    });
    ends("resolve_keys", || {
        reader
            .resolve_keys(&[("t", "k")], &HitBounds::default(), Errors::Raise)
            .map(drop)
    });
    ends("OffsetResolver", || OffsetResolver::new(reader).position("t", 0, 5).map(drop));
    ends("get", || reader.get(&request, |_| Ok::<_, Error>(true)).map(drop));
    ends("a scan", || scan().try_for_each(|read| read.map(drop)));
    ends("a scan backward", || scan().rev().try_for_each(|read| read.map(drop)));
    ends("message", || match reader.message("none", true) {
        Err(Error::NotFound { .. }) => Ok(()),
        found => found.map(drop),
    });
    ends("offset_at", || {
        reader.offset_at("t", 0, 1, mqstore::read::Side::Left).map(drop)
    });
    store.close().unwrap();
}

#[test]
fn a_scan_that_was_ended_continues_with_the_message_that_comes_next() {
    let place = Place::new();
    let store = place.create();
    for _ in 0..100 {
        put(&store, "t", b"x");
    }
    assert!(store.catch_up(HANG).unwrap());
    for is_backward in [false, true] {
        let mut scan = QueueScan::new(store.reader().clone(), "t".to_owned(), 0, 0..100).unwrap();
        let mut next = || if is_backward { scan.next_back() } else { scan.next() };
        // The scan is asked to end once it has given a message, however late the machine runs it.
        let has_begun = Rc::new(Cell::new(false));
        let is_asked = has_begun.clone();
        let ask = move || if is_asked.get() { Err(Error::Closed) } else { Ok(()) };
        let before = interruptible(ask, || {
            let read = std::iter::from_fn(|| {
                thread::sleep(Duration::from_millis(2));
                next()
            });
            read.take_while(Result::is_ok).inspect(|_| has_begun.set(true)).count()
        });
        let after = std::iter::from_fn(&mut next).map(Result::unwrap).count();
        assert!(before > 0 && after > 0 && before + after == 100, "{before} {after}");
    }
    store.close().unwrap();
}

#[test]
fn a_batch_that_is_ended_says_what_it_has_stored() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    let rows = |count: usize| -> Vec<Incoming<'static>> {
        let row = |_| {
            Incoming::Sent(Message {
                topic: "t".into(),
                body: vec![7; 200].into(),
                ..Message::default()
            })
        };
        (0..count).map(row).collect()
    };
    let end = |store: &MessageStore| store.reader().physical_bounds().end;
    let mut count = 1000;
    loop {
        let (before, mut done) = (end(&store), Vec::new());
        let outcome = ending(|| store.appender(None).append_all(rows(count), &mut done));
        let stored: i64 = done.iter().map(|result| i64::from(result.appended.wrote_bytes)).sum();
        let places = done
            .windows(2)
            .all(|pair| pair[0].appended.physical_offset < pair[1].appended.physical_offset);
        assert!(places && end(&store) >= before + stored, "{count}");
        if outcome.is_ok() {
            assert_eq!(done.len(), count);
            count *= 2;
            continue;
        }
        assert!(is_ended(&outcome) && done.len() < count, "{outcome:?}");
        break;
    }
    store.close().unwrap();
}

#[test]
fn a_scan_covers_queued_messages_and_a_later_scan_gives_the_rest() {
    for order in [Order::Log, Order::Queue] {
        let place = Place::new();
        let (_, store) = stepped(&place);
        let scan = |from: i64, transactions: Transactions| {
            let request = ScanRequest {
                physical: from..i64::MAX,
                transactions,
                order,
                ..ScanRequest::default()
            };
            let mut scan = Scan::new(store.reader().clone(), request, OnDamage::new(Errors::Raise)).unwrap();
            let mut found = Vec::new();
            let take = |picked: Picked<'_>| {
                found.push(picked.view.physical_offset());
                Ok(true)
            };
            assert!(matches!(scan.fill(take).unwrap(), Filled::End));
            assert!(scan.is_complete());
            (found, scan.covers())
        };
        let append = || put(&store, "orders", b"x");
        let dispatch = || while store.step(Service::Dispatch, Instant::now()).unwrap() == Next::Again {};
        let first = append();
        dispatch();
        let second = append();
        let (found, covers) = scan(0, Transactions::Committed);
        assert_eq!((found, covers), (vec![first], 0..second));
        let (found, covers) = scan(0, Transactions::All);
        assert_eq!((found, covers.end), (vec![first, second], store.appended_offset()));
        dispatch();
        let (found, covers) = scan(second, Transactions::Committed);
        assert_eq!((found, covers), (vec![second], second..store.appended_offset()));
    }
}
