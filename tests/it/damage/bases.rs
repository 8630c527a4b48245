//! The intact stores that are damaged: of brokers, and our own of the smallest sizes.

use std::path::Path;
use std::sync::Arc;

use mqstore::config::StoreConfig;
use mqstore::format::{Message, encode_properties};
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use super::image::Image;
use super::mutator::Base;
use crate::counting_env::CountingEnv;
use crate::golden::golden_dir;

/// Stores of a broker, each with a store that looks like an older copy of it.
const GOLDEN: [(&str, &str); 7] = [
    ("491_multifile", "491_crash_image"),
    ("491_crash_image", "491_indexroll"),
    ("498_basic_clean", "491_basic_clean"),
    ("533_basic_clean", "533_crcprop"),
    ("533_v2_record", "533_basic_clean"),
    ("533_batchcq", "533_basic_clean"),
    ("491_delay_delivered", "491_basic_clean"),
];

const START: i64 = 1_750_000_000_000;

/// Segments of a page, five entries in a queue file, ten slots and twenty items in an index file.
pub(crate) fn tiny() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(4096),
        mapped_file_size_consume_queue: Some(100),
        max_hash_slot_num: Some(10),
        max_index_num: Some(20),
        ..StoreConfig::default()
    }
}

/// Message `n` of our own stores.
pub(crate) fn message(n: usize) -> Message<'static> {
    let properties = [
        ("KEYS", &*format!("k{n} every{}", n % 7)),
        ("TAGS", ["red", "green"][n % 2]),
        ("UNIQ_KEY", &*format!("U{n}")),
    ];
    Message {
        topic: ["orders", "payments"][n % 3 / 2].into(),
        queue_id: (n % 5 / 4) as i32,
        body: format!("body {n} ").repeat(1 + n % 13).into_bytes().into(),
        properties: encode_properties(properties, true).unwrap().into(),
        ..Message::default()
    }
}

/// Appends messages to the store at `root`, at fixed times, and closes it.
pub(crate) fn append(root: &Path, mode: OpenMode, numbers: std::ops::Range<usize>) {
    let counting = CountingEnv::new();
    counting.set_now(START + numbers.start as i64);
    let env: Arc<dyn Env> = Arc::new(counting.clone());
    let store = MessageStore::open(&env, root, tiny(), mode).unwrap();
    for n in numbers {
        counting.set_now(START + n as i64 * 100);
        store.append(message(n)).unwrap();
    }
    store.close().unwrap();
}

/// Appends messages of which most have one to three whole records in their bodies, each of which names its own place in the log. The
/// offset of a message follows from the end of the last one, unless the segment ends first.
fn append_carriers(root: &Path, mode: OpenMode, numbers: std::ops::Range<usize>) {
    let counting = CountingEnv::new();
    let env: Arc<dyn Env> = Arc::new(counting.clone());
    counting.set_now(START + numbers.start as i64 * 100);
    let store = MessageStore::open(&env, root, tiny(), mode).unwrap();
    let mut place = store.reader().physical_bounds().end;
    for n in numbers {
        counting.set_now(START + n as i64 * 100);
        let mut body = message(n).body.into_owned();
        for record in 0..n % 4 {
            let carried = Message {
                // A record has 88 bytes before its body.
                physical_offset: place + 88 + body.len() as i64,
                store_time: START + (n * 1000) as i64,
                queue_offset: record as i64,
                ..message(n + record)
            };
            body.extend(carried.encode().unwrap());
        }
        let message = Message {
            body: body.into(),
            ..message(n)
        };
        let appended = store.append(message).unwrap().appended;
        place = appended.end();
    }
    store.close().unwrap();
}

/// A store of ours whose messages carry records.
fn carriers() -> Base {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append_carriers(&root, OpenMode::New, 0..30);
    let older = Image::of(&root);
    append_carriers(&root, OpenMode::Existing, 30..70);
    Base {
        name: "carriers",
        image: Image::of(&root),
        older,
    }
}

fn our_own() -> Base {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..40);
    let older = Image::of(&root);
    append(&root, OpenMode::Existing, 40..110);
    Base {
        name: "our own",
        image: Image::of(&root),
        older,
    }
}

pub(super) fn bases() -> Vec<Base> {
    let golden = |name: &str| Image::of(&golden_dir().join(name));
    let mut bases: Vec<Base> = GOLDEN
        .iter()
        .map(|(name, older)| Base {
            name,
            image: golden(name),
            older: golden(older),
        })
        .collect();
    bases.push(our_own());
    bases.push(carriers());
    bases
}
