//! Batches: one segment, one hold of the lock, and the bytes that brokers store.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{BatchUnit, Host, Message, encode_properties, encode_unit};
use mqstore::read::{MessageReader, QueueScan};
use mqstore::store::MessageStore;

use super::{Place, SEGMENT, append_producer_batch, append_together, bodies, message, put, small};

fn unit(flag: i32, body: &[u8], properties: &[u8]) -> Vec<u8> {
    encode_unit(&BatchUnit { flag, body, properties }).unwrap()
}

/// A batch of messages of `size` bytes each.
pub(super) fn batch(bodies: &[usize]) -> Message<'static> {
    let units: Vec<u8> = bodies.iter().flat_map(|len| unit(0, &vec![b'b'; *len], b"")).collect();
    Message {
        topic: "t".into(),
        body: units.into(),
        ..Message::default()
    }
}

fn illegal(store: &MessageStore, common: &Message<'_>) -> String {
    let before = store.reader().physical_bounds();
    let refused = append_producer_batch(store, common, None);
    assert_eq!(store.reader().physical_bounds(), before);
    match refused {
        Err(Error::IllegalMessage { what, status }) => {
            assert_eq!(status, "MESSAGE_ILLEGAL");
            what
        }
        other => panic!("{other:?}"),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.as_chunks::<2>().0.iter();
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The two golden vectors of batches: a batch body, and what 5.3.3 stores for it at queue offsets 5 and 6, physical offset 1000.
#[test]
fn a_producer_batch_is_stored_as_brokers_store_it() {
    let body = hex(
        "0000002a00000000000000000000000000000002623000125741495401747275 6502544147530154300200000020000000000000000000000007000000026231
         00085441475301543102",
    );
    let stored_by_533 = hex(
        "00000080daa320a730cb2b760000000000000000000000000000000500000000 000003e8000000000000018bcfe5687b7f0000010000d4310000018bcfe56be8
         0a01020300002a9f00000000000000000000000000000002623006546f706963 43001d574149540174727565025441475301543002434c555354455201633102
         00000076daa320a747cc1be00000000000000007000000000000000600000000 00000468000000000000018bcfe5687b7f0000010000d4310000018bcfe56be8
         0a01020300002a9f00000000000000000000000000000002623106546f706963 4300135441475301543102434c555354455201633102",
    );
    let common = Message {
        topic: "TopicC".into(),
        born_time: 1_700_000_000_123,
        born_host: "127.0.0.1:54321".parse::<Host>().unwrap(),
        store_host: "10.1.2.3:10911".parse::<Host>().unwrap(),
        prepared_transaction_offset: 77,
        body: body.into(),
        ..Message::default()
    };
    let properties = encode_properties([("CLUSTER", "c1")], true).unwrap();
    for batch_properties in [Some(properties.as_slice()), None] {
        let place = Place::new();
        let (env, store) = place.create_counting(small());
        env.set_now(1_700_000_001_000);
        for _ in 0..5 {
            put(&store, "TopicC", b"");
        }
        // So far: five records; one more brings the end to 1,000.
        let end = store.reader().physical_bounds().end as usize;
        let mut filler = message("o", 0, b"");
        filler.body = vec![0; 1000 - end - filler.encoded_len()].into();
        store.append(filler).unwrap();
        let done = append_producer_batch(&store, &common, batch_properties).unwrap();
        let stored: Vec<u8> = done
            .iter()
            .flat_map(|done| {
                let stored = store.reader().message_at(done.appended.physical_offset).unwrap();
                stored.view().bytes().to_vec()
            })
            .collect();
        assert_eq!(done.iter().map(|done| done.appended.queue_offset).collect::<Vec<_>>(), [5, 6]);
        if batch_properties.is_some() {
            assert_eq!(stored, stored_by_533);
        } else {
            let views: Vec<_> = done
                .iter()
                .map(|done| store.reader().message_at(done.appended.physical_offset).unwrap())
                .collect();
            let properties = views.iter().map(|stored| stored.view().properties().bytes().to_vec());
            assert_eq!(
                properties.collect::<Vec<_>>(),
                [b"WAIT\x01true\x02TAGS\x01T0\x02".to_vec(), b"TAGS\x01T1\x02".to_vec()]
            );
            assert_eq!(stored.len(), stored_by_533.len() - 2 * properties_len());
        }
        store.close().unwrap();
        assert_eq!(bodies(&place.reader(), "TopicC", 0)[5..], [b"b0", b"b1"]);
    }
}

fn properties_len() -> usize {
    "CLUSTER.c1.".len()
}

#[test]
fn a_producer_batch_goes_into_one_segment_as_a_whole() {
    let place = Place::new();
    let store = place.create();
    put(&store, "t", &[0; 9000]);
    // The first two would fit where the third does not.
    let done = append_producer_batch(&store, &batch(&[3000, 3000, 3000]), None).unwrap();
    assert_eq!(done[0].appended.physical_offset, SEGMENT as i64);
    for pair in done.windows(2) {
        let (left, right) = (pair[0].appended, pair[1].appended);
        assert_eq!(right.physical_offset, left.physical_offset + i64::from(left.wrote_bytes));
        assert_eq!(right.queue_offset, left.queue_offset + 1);
        assert_eq!(right.store_time, left.store_time);
    }
    let small = put(&store, "t", b"small");
    assert!(small > 2 * SEGMENT as i64 - 8000 && small < 2 * SEGMENT as i64);
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 5);
}

#[test]
fn a_producer_batch_may_fill_a_segment_but_for_eight_bytes_and_no_more() {
    let place = Place::new();
    let store = place.create();
    let own = message("t", 0, b"").encoded_len();
    let room = SEGMENT as usize - 8 - 2 * own;
    for last in [99, 100] {
        let done = append_producer_batch(&store, &batch(&[room - 100, last]), None).unwrap();
        assert_eq!(done.len(), 2);
    }
    let what = illegal(&store, &batch(&[room - 99, 100]));
    assert!(what.starts_with("the batch takes 16377 bytes"), "{what}");
    append_producer_batch(&store, &batch(&[100, 100]), None).unwrap();
    store.close().unwrap();
    assert_eq!(place.names("commitlog").len(), 3);
}

#[test]
fn what_is_no_producer_batch_is_refused() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        max_message_size: 1000,
        ..small()
    });
    let with_body = |body: Vec<u8>| Message {
        body: body.into(),
        ..batch(&[])
    };
    assert!(illegal(&store, &batch(&[])).contains("no message"));
    illegal(&store, &with_body(b"rubbish".to_vec()));
    let cut = unit(0, b"body", b"");
    illegal(&store, &with_body(cut[..cut.len() - 1].to_vec()));
    // The limit of a body holds for that of the whole batch.
    illegal(&store, &batch(&[478, 479]));
    for last in [477, 478] {
        append_producer_batch(&store, &batch(&[478, last]), None).unwrap();
    }
    for sys_flag in [0x4, 0x8, 0xC] {
        let common = Message { sys_flag, ..batch(&[1]) };
        assert!(illegal(&store, &common).contains("transaction"));
    }
    let delayed = encode_properties([("DELAY", "2")], true).unwrap();
    let units = [unit(0, b"a", b""), unit(0, b"b", &delayed)].concat();
    assert!(illegal(&store, &with_body(units)).starts_with("message 1: "));
    assert!(matches!(
        append_producer_batch(&store, &batch(&[1]), Some(&delayed)),
        Err(Error::IllegalMessage { .. })
    ));
    store.close().unwrap();
}

#[test]
fn batches_of_many_threads_are_stored_whole() {
    let place = Place::new();
    let store = Arc::new(place.create());
    let barrier = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16_i32)
        .map(|thread| {
            let (store, barrier) = (store.clone(), barrier.clone());
            thread::spawn(move || {
                barrier.wait();
                for n in 0..20_u8 {
                    let units: Vec<u8> = (0..10_u8).flat_map(|place| unit(thread, &[n, place], b"")).collect();
                    let common = Message {
                        topic: "t".into(),
                        body: units.into(),
                        ..Message::default()
                    };
                    append_producer_batch(&store, &common, None).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    store.close().unwrap();
    let reader = place.reader();
    let scan = QueueScan::new(reader.clone(), "t".to_owned(), 0, 0..i64::MAX).unwrap();
    let messages: Vec<_> = scan.map(|message| message.unwrap()).collect();
    assert_eq!(messages.len(), 16 * 20 * 10);
    for batch in messages.chunks(10) {
        let (flag, number) = (batch[0].view().flag(), batch[0].view().body()[0]);
        for (place, message) in batch.iter().enumerate() {
            assert_eq!(
                (message.view().flag(), message.view().body()),
                (flag, [number, place as u8].as_slice())
            );
        }
    }
}

/// The number of clock reads shows the number of times that the lock was taken.
fn holds(
    reader: &MessageReader,
    store: &MessageStore,
    env: &crate::counting_env::CountingEnv,
    messages: Vec<Message<'_>>,
) -> usize {
    let (clock, count) = (Arc::new(AtomicUsize::new(0)), messages.len());
    let counter = clock.clone();
    env.before_changes(move |change| {
        counter.fetch_add(usize::from(change == "clock"), Ordering::SeqCst);
        Ok(())
    });
    let before = reader.physical_bounds().end;
    let mut done = Vec::new();
    store.appender(None).append_all(messages, &mut done).unwrap();
    env.heal();
    assert_eq!((done.len(), done[0].appended.physical_offset), (count, before));
    clock.load(Ordering::SeqCst)
}

#[test]
fn many_messages_share_a_look_at_the_clock() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        mapped_file_size_commit_log: Some(4 << 20),
        ..small()
    });
    put(&store, "t", b"");
    let body = vec![1; 1000 - message("t", 0, b"").encoded_len()];
    let messages = || (0..1000).map(|_| message("t", 0, &body)).collect();
    // A million bytes, 256 KiB to a hold of the lock.
    assert_eq!(holds(store.reader(), &store, &env, messages()), 4);
    store.close().unwrap();
}

#[test]
fn messages_appended_together_share_one_segment_and_one_lock_hold() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        ..small()
    });
    put(&store, "t", &vec![0; 600_000]);
    let clock = Arc::new(AtomicUsize::new(0));
    let counter = clock.clone();
    env.before_changes(move |change| {
        counter.fetch_add(usize::from(change == "clock"), Ordering::SeqCst);
        Ok(())
    });
    // More than one stretch of a batch that is not kept together; the first ones would fit where the others do not.
    let body = vec![1; 1000];
    let messages: Vec<_> = (0..800).map(|n| message(["t", "u"][n % 2], 0, &body)).collect();
    let done = append_together(&store, messages).unwrap();
    env.heal();
    // Once where the segment is full, and once in the next one.
    assert!(clock.load(Ordering::SeqCst) <= 2, "{clock:?}");
    assert_eq!(done[0].appended.physical_offset, 1 << 20);
    for pair in done.windows(2) {
        let (left, right) = (pair[0].appended, pair[1].appended);
        assert_eq!(right.physical_offset, left.physical_offset + i64::from(left.wrote_bytes));
        assert_eq!(right.store_time, left.store_time);
    }
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 401);
    assert_eq!(bodies(&place.reader(), "u", 0).len(), 400);
}

#[test]
fn of_messages_appended_together_that_cannot_be_all_stored_none_is() {
    let place = Place::new();
    let store = place.create();
    put(&store, "t", b"first");
    let before = store.reader().physical_bounds();
    let own = message("t", 0, b"").encoded_len();
    let room = SEGMENT as usize - 8 - 2 * own;
    let (left, right) = (vec![0; room - 100], vec![0; 101]);
    match append_together(&store, vec![message("t", 0, &left), message("t", 0, &right)]) {
        Err(Error::IllegalMessage { what, .. }) => assert!(what.starts_with("the batch takes 16377 bytes"), "{what}"),
        other => panic!("{other:?}"),
    }
    match append_together(&store, vec![message("t", 0, b"good"), message("t", -1, b"bad")]) {
        Err(Error::IllegalMessage { what, .. }) => assert!(what.starts_with("message 1: queue_id is -1"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(append_together(&store, Vec::<Message<'_>>::new()).unwrap(), []);
    assert_eq!(store.reader().physical_bounds(), before);
    let done = append_together(&store, vec![message("t", 0, &left), message("t", 0, &right[1..])]).unwrap();
    assert_eq!(done[0].appended.physical_offset, SEGMENT as i64);
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 3);
}
