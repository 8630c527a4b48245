//! The page cache drops what was flushed long ago, a step at a time.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::services::{Next, Service};
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};

use super::services::stepped_with;
use super::{Place, SEGMENT, bodies, io_error, put, small};
use crate::counting_env::CountingEnv;

/// The ways in which bytes reach the log.
fn modes() -> [StoreConfig; 3] {
    let nothing_cached = || StoreConfig {
        access_message_in_memory_max_ratio: 0,
        ..small()
    };
    [
        nothing_cached(),
        StoreConfig {
            transient_store_pool_enable: true,
            transient_store_pool_buffer_size: 4096,
            ..nothing_cached()
        },
        StoreConfig {
            flush_disk_type: FlushDiskType::Sync,
            ..nothing_cached()
        },
    ]
}

/// Three full segments and a part of the fourth, flushed.
fn fill(store: &MessageStore) -> usize {
    let mut count = 0;
    while store.appended_offset() < 3 * SEGMENT as i64 {
        put(store, "t", &[b'x'; 500]);
        store.commit().unwrap();
        count += 1;
    }
    store.flush().unwrap();
    count
}

fn dispatch(store: &MessageStore) {
    while store.dispatched_offset() < store.appended_offset() {
        store.step(Service::Dispatch, Instant::now()).unwrap();
    }
}

/// Steps until the flusher waits; gives the number of steps.
fn flush(store: &MessageStore, now: Instant) -> usize {
    let mut steps = 1;
    while store.step(Service::Flush, now).unwrap() == Next::Again {
        steps += 1;
    }
    steps
}

fn drops(env: &CountingEnv) -> usize {
    env.calls().get("drop").copied().unwrap_or(0)
}

#[test]
fn what_is_flushed_and_dispatched_is_dropped_from_memory_once_a_step_each() {
    for config in modes() {
        let place = Place::new();
        let (env, store) = stepped_with(&place, config);
        let dropped = Arc::new(Mutex::new(Vec::new()));
        let seen = dropped.clone();
        env.before_looks(move |call| {
            let segment = call.strip_prefix("drop ").and_then(|path| path.rsplit('/').next());
            seen.lock().unwrap().extend(segment.map(|name| name.parse::<u64>().unwrap()));
            Ok(())
        });
        let now = Instant::now();
        let count = fill(&store);
        assert_eq!((flush(&store, now), drops(&env)), (1, 0), "the dispatcher reads it once more");
        dispatch(&store);
        assert_eq!((flush(&store, now), flush(&store, now)), (4, 1));
        assert_eq!(*dropped.lock().unwrap(), [0, SEGMENT, 2 * SEGMENT]);
        assert_eq!(bodies(store.reader(), "t", 0).len(), count);
        store.close().unwrap();
        assert_eq!(drops(&env), 3);
    }
}

#[test]
fn the_last_bytes_stay_as_many_as_the_ratio_of_memory() {
    for (ratio, dropped) in [(0, 3), (1, 2), (2, 1), (3, 0), (100, 0)] {
        let place = Place::new();
        let env = CountingEnv::new();
        env.set_memory(100 * SEGMENT);
        let seam: Arc<dyn Env> = Arc::new(env.clone());
        let config = StoreConfig {
            access_message_in_memory_max_ratio: ratio,
            ..small()
        };
        let store = MessageStore::open_stepped(&seam, &place.store, config, OpenMode::New).unwrap();
        fill(&store);
        dispatch(&store);
        assert_eq!((flush(&store, Instant::now()), drops(&env)), (1 + dropped, dropped));
    }
}

#[test]
fn what_cannot_be_dropped_costs_no_message_and_is_not_tried_again() {
    for refused in ["open", "drop"] {
        for config in modes() {
            let place = Place::new();
            let (env, store) = stepped_with(&place, config);
            let count = fill(&store);
            dispatch(&store);
            env.before_looks(move |call| if call.starts_with(refused) { Err(io_error()) } else { Ok(()) });
            assert_eq!(flush(&store, Instant::now()), 4);
            env.heal();
            assert_eq!(flush(&store, Instant::now()), 1);
            put(&store, "t", b"later");
            store.flush().unwrap();
            dispatch(&store);
            assert_eq!(bodies(store.reader(), "t", 0).len(), count + 1);
            store.close().unwrap();
        }
    }
}
