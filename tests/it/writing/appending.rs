//! Appending: what is written reads back, by us and by a second open.

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::read::QueryRequest;
use mqstore::store::OpenMode;

use super::{Place, bodies, message, open, with};

#[test]
fn what_is_appended_is_read_at_once_and_after_every_reopening() {
    let place = Place::new();
    let mut expected = Vec::new();
    for round in 0..3 {
        let store = if round == 0 { place.create() } else { place.reopen() };
        let mut last = 0;
        for n in 0..300 {
            let body = format!("round {round} body {n}").into_bytes();
            let keyed = with(message("orders", 0, &body), &[("KEYS", &format!("k{round}-{n}"))]);
            let result = store.append(keyed).unwrap();
            assert_eq!(result.appended.queue_offset, expected.len() as i64);
            let read = store.reader().message_at(result.appended.physical_offset).unwrap();
            assert_eq!(read.view().body(), body);
            last = result.appended.physical_offset;
            expected.push(body);
        }
        store.wait_dispatched(last, None).unwrap();
        assert_eq!(bodies(store.reader(), "orders", 0), expected);
        let request = QueryRequest {
            topic: "orders".to_owned(),
            key: format!("k{round}-77"),
            begin: i64::MIN,
            end: i64::MAX,
            limit: None,
        };
        assert_eq!(store.reader().query(&request).unwrap().messages.len(), 1);
        store.wait_durable(last, None).unwrap();
        store.close().unwrap();
        assert!(matches!(store.append(message("orders", 0, b"x")), Err(Error::Closed)));
        let reader = place.reader();
        assert!(reader.recovery().clean_exit);
        assert_eq!(reader.recovery().undispatched, 0);
        assert_eq!(bodies(&reader, "orders", 0), expected);
    }
}

#[test]
fn a_second_writer_is_refused_while_the_first_is_open() {
    let place = Place::new();
    let store = place.create();
    let second = || open(&place.store, StoreConfig::default(), OpenMode::Existing);
    assert!(matches!(second(), Err(Error::Locked { .. })));
    store.close().unwrap();
    second().unwrap();
}

#[test]
fn a_place_inside_a_record_holds_no_message() {
    let place = Place::new();
    let store = place.create();
    let done = store.append(message("t", 0, &[7; 500])).unwrap().appended;
    for at in 1..done.wrote_bytes {
        let inside = store.reader().message_at(done.physical_offset + i64::from(at));
        assert!(matches!(inside, Err(Error::NotFound { .. })), "{at}: {inside:?}");
    }
    store.close().unwrap();
}
