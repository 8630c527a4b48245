//! A store whose files come from a lower layer of overlayfs, as in a container: the first write gives a file new pages, which no
//! earlier mapping shows.

use mqstore::config::{Errors, FlushDiskType};
use mqstore::format::{Message, encode_properties};
use mqstore::read::{QueryBy, QueryRequest, QueueScan};
use mqstore::store::{MessageStore, OpenMode};

use super::examine::{dispatch_all, root};
use super::history::Geometry;
use super::run::machine;
use crate::simulated_env::SimulatedEnv;

/// Every file of the first writer has room for what the second one appends.
const ROOMY: Geometry = Geometry {
    segment: 65_536,
    queue_file: 4000,
    slots: 8,
    items: 200,
    stamped_every: 64 << 20,
    flush_disk_type: FlushDiskType::Async,
    buffers: 0,
    is_warmed: false,
};

const TOPIC: &str = "orders";
const BODIES: [&[u8]; 4] = [b"first", b"second", b"third", b"fourth"];

fn message(body: &'static [u8]) -> Message<'static> {
    Message {
        topic: TOPIC.into(),
        properties: encode_properties([("KEYS", str::from_utf8(body).unwrap())], true)
            .unwrap()
            .into(),
        body: body.into(),
        ..Message::default()
    }
}

fn open(env: &SimulatedEnv, mode: OpenMode) -> MessageStore {
    MessageStore::open_stepped(&env.shared(), root(), ROOMY.config(), mode).unwrap()
}

fn expect_to_read(store: &MessageStore, bodies: &[&'static [u8]], case: &str) {
    let reader = store.reader();
    let by_offset = QueueScan::new(reader.clone(), TOPIC.to_owned(), 0, 0..i64::MAX).unwrap();
    let found: Vec<_> = by_offset.map(|read| read.unwrap().view().body().to_vec()).collect();
    assert_eq!(found, bodies, "{case}, by offset");
    for body in bodies {
        let key = str::from_utf8(body).unwrap();
        let request = QueryRequest {
            topic: TOPIC.to_owned(),
            by: QueryBy::Key(key.to_owned()),
            times: 0..i64::MAX,
            limit: None,
            errors: Errors::Raise,
        };
        let found = reader.query(&request).unwrap();
        let hits = found.hits.iter().map(|hit| reader.message_at(hit.physical_offset).unwrap());
        let read: Vec<_> = hits.map(|message| message.view().body().to_vec()).collect();
        assert_eq!(
            (read, found.complete),
            (vec![body.to_vec()], true),
            "{case}, by the key {key}"
        );
    }
}

#[test]
fn a_store_whose_files_lie_in_a_lower_layer_reads_what_it_writes() {
    let (first, second) = BODIES.split_at(2);
    for was_closed in [true, false] {
        let case = format!("closed: {was_closed}");
        let lower = machine();
        let store = open(&lower, OpenMode::New);
        for body in first {
            store.append(message(body)).unwrap();
        }
        dispatch_all(&store).unwrap();
        if was_closed {
            store.close().unwrap();
        }
        let container = lower.kill();
        let store = open(&container, OpenMode::Existing);
        expect_to_read(&store, first, &case);
        for (number, body) in second.iter().enumerate() {
            store.append(message(body)).unwrap();
            dispatch_all(&store).unwrap();
            expect_to_read(&store, &BODIES[..=first.len() + number], &case);
        }
        store.close().unwrap();
    }
}
