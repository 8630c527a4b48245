//! Appends whose caller waits later, or not at all.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Instant;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::services::Service;
use mqstore::store::PutStatus;

use super::services::stepped_with;
use super::{Place, io_error, message, small, soon};

#[test]
fn an_append_without_waiting_asks_for_the_sync_that_its_caller_waits_for() {
    let place = Place::new();
    let (_, store) = stepped_with(&place, small());
    let flushed = store.flushed();
    store.append(message("t", 0, b"first")).unwrap();
    store.flush().unwrap();
    for durable in [Some(true), None] {
        let appender = store.appender(durable).without_waiting();
        let Some(one) = appender.checked(&mut message("t", 0, b"x")).unwrap().try_append().unwrap() else {
            panic!("it waits");
        };
        let two = appender.append(message("t", 0, b"x")).unwrap();
        assert_eq!((one.status, two.status), (PutStatus::PutOk, PutStatus::PutOk));
        let offset = two.appended.physical_offset;
        assert!(flushed.wait(offset, Some(Instant::now())).unwrap() <= one.appended.physical_offset);
        store.step(Service::Flush, Instant::now()).unwrap();
        let is_asked_for = durable == Some(true);
        assert_eq!(store.flushed_offset() == store.appended_offset(), is_asked_for);
        assert_eq!(flushed.wait(offset, Some(Instant::now())).unwrap() > offset, is_asked_for);
    }
    let last = store.appended_offset() - 1;
    store.close().unwrap();
    assert!(flushed.wait(last, None).unwrap() > last);
}

#[test]
fn one_sync_is_for_everything_that_was_appended_before_it() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        // One segment: a flush is one sync.
        mapped_file_size_commit_log: Some(1 << 20),
        ..small()
    });
    let appender = store.appender(Some(true)).without_waiting();
    let (all_appended, is_all_appended) = channel::<()>();
    let is_all_appended = Mutex::new(is_all_appended);
    env.before_changes(move |change| {
        if change.starts_with("sync LogRange") {
            let _ = is_all_appended.lock().unwrap().recv();
        }
        Ok(())
    });
    let before = env.changes().len();
    let offsets: Vec<_> = (0..1000)
        .map(|_| appender.append(message("t", 0, b"x")).unwrap().appended.physical_offset)
        .collect();
    drop(all_appended);
    for offset in offsets {
        assert!(store.flushed().wait(offset, Some(soon())).unwrap() > offset);
    }
    let syncs = env
        .changes()
        .iter()
        .skip(before)
        .filter(|change| change.starts_with("sync LogRange"))
        .count();
    // One may have begun while they were appended.
    assert!((1..=2).contains(&syncs), "{syncs} syncs for 1,000 messages");
    store.close().unwrap();
}

#[test]
fn a_message_that_cannot_become_durable_says_so_to_whoever_waits_for_it() {
    let place = Place::new();
    let (env, store) = stepped_with(&place, small());
    env.before_changes(|change| {
        if change.starts_with("sync LogRange") {
            return Err(io_error());
        }
        Ok::<_, io::Error>(())
    });
    let appended = store
        .appender(Some(true))
        .without_waiting()
        .append(message("t", 0, b"x"))
        .unwrap()
        .appended;
    store.step(Service::Flush, Instant::now()).unwrap_err();
    match store.flushed().wait(appended.physical_offset, None) {
        Err(Error::NotDurable { physical_offset, cause }) => {
            assert_eq!(physical_offset, appended.physical_offset);
            assert!(matches!(*cause, Error::Poisoned { flushed: 0, .. }));
        }
        other => panic!("{other:?}"),
    }
    env.heal();
    store.close().unwrap_err();
}
