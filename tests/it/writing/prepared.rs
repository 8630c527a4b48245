//! The prepared writer of one queue: its records, checks, waits and errors are those of an append.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{Message, PropertyList};
use mqstore::storage::Env;
use mqstore::store::{AppendResult, MessageStore, OpenMode, PutStatus, TopicRule, TopicWriter};
use proptest::prelude::*;

use super::{Place, SEGMENT, bodies, contents, message, open_in, small, soon};
use crate::counting_env::CountingEnv;

/// A topic of a V2 record.
const LONG: &str = "a topic of more than 127 bytes, which makes a record of the second version: its length takes two bytes there, \
                    and a broker before 5.1 does not read it";
const TOPICS: [&str; 3] = ["orders", "Aufträge", LONG];
const TAGS: [Option<&str>; 3] = [None, Some("paid"), Some("bezahlt ✓")];

/// The queue of a message and its tag, by their numbers, as a writer is prepared for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    topic: usize,
    queue_id: i32,
    tags: usize,
}

#[derive(Debug, Clone)]
struct Draft {
    kind: Kind,
    len: usize,
    keys: Vec<String>,
    /// False for an append without a prepared writer between those of writers.
    is_prepared: bool,
    /// The time that passes before it, in ms.
    pause: i64,
}

fn draft() -> impl Strategy<Value = Draft> {
    let kind = (0..TOPICS.len(), 0..2_i32, 0..TAGS.len()).prop_map(|(topic, queue_id, tags)| Kind { topic, queue_id, tags });
    let keys = prop::collection::vec(prop_oneof!["[a-zß]{1,12}", "[a-z]{60,150}"], 0..4);
    let len = prop_oneof![0..50_usize, 0..3000_usize];
    let fields = (kind, len, keys, prop::bool::weighted(0.7), -2000..2000_i64);
    fields.prop_map(|(kind, len, keys, is_prepared, pause)| Draft {
        kind,
        len,
        keys,
        is_prepared,
        pause,
    })
}

fn configs() -> impl Strategy<Value = StoreConfig> {
    (any::<bool>(), 0..3_u8).prop_map(|(enabled_append_prop_crc, mode)| StoreConfig {
        enabled_append_prop_crc,
        flush_disk_type: if mode == 2 {
            FlushDiskType::Sync
        } else {
            FlushDiskType::Async
        },
        transient_store_pool_enable: mode == 1,
        transient_store_pool_size: 2,
        transient_store_pool_buffer_size: 1 << 20,
        ..small()
    })
}

fn properties(tags: Option<&str>, keys: &[String]) -> Vec<u8> {
    let mut list = PropertyList::default();
    if let Some(tags) = tags {
        list.put_tags(tags).unwrap();
    }
    list.put_keys(keys).unwrap();
    list.encode().unwrap()
}

/// Appends as a producer does, without a prepared writer.
fn append(store: &MessageStore, env: &CountingEnv, kind: Kind, body: &[u8], keys: &[String]) -> Result<AppendResult, Error> {
    let message = Message {
        properties: properties(TAGS[kind.tags], keys).into(),
        born_time: env.now_ms(),
        ..message(TOPICS[kind.topic], kind.queue_id, body)
    };
    store.appender(None).of_producer().append(message)
}

/// A store, and the writers that were prepared for it.
struct Side {
    place: Place,
    env: CountingEnv,
    store: Arc<MessageStore>,
    writers: Vec<(Kind, TopicWriter)>,
}

impl Side {
    fn new(config: &StoreConfig) -> Self {
        let (place, env) = (Place::new(), CountingEnv::new());
        env.set_now(1_700_000_000_000);
        let store = Arc::new(open_in(&env, &place.store, config.clone(), OpenMode::New).unwrap());
        Self {
            place,
            env,
            store,
            writers: Vec::new(),
        }
    }

    fn writer(&mut self, kind: Kind) -> &TopicWriter {
        let known = self.writers.iter().position(|(known, _)| *known == kind);
        let at = known.unwrap_or_else(|| {
            let writer = self.store.writer(TOPICS[kind.topic], kind.queue_id, TAGS[kind.tags]).unwrap();
            self.writers.push((kind, writer));
            self.writers.len() - 1
        });
        &self.writers[at].1
    }

    /// Every file of log, queues and index after the close. The name of an index file is the time at which it was made.
    fn close(self) -> Vec<(PathBuf, Vec<u8>)> {
        self.store.close().unwrap();
        let files = contents(&self.place.store).into_iter();
        let named = |(path, bytes): (PathBuf, _)| {
            let name = if path.starts_with("index") { "index".into() } else { path };
            (name, bytes)
        };
        let dirs = ["commitlog", "consumequeue", "index"];
        let of_messages = files.filter(|(path, _)| dirs.iter().any(|dir| path.starts_with(dir)));
        of_messages.map(named).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The topics, tags and keys, the second version, the checksum of the whole record, and each write mode, over several segments.
    #[test]
    fn a_prepared_writer_writes_the_records_of_append(
        config in configs(),
        drafts in prop::collection::vec(draft(), 1..60),
    ) {
        let (mut prepared, plain) = (Side::new(&config), Side::new(&config));
        let mut now = 1_700_000_000_000;
        for (number, Draft { kind, len, keys, is_prepared, pause }) in drafts.into_iter().enumerate() {
            now += pause;
            prepared.env.set_now(now);
            plain.env.set_now(now);
            let body = vec![number as u8; len];
            let expected = append(&plain.store, &plain.env, kind, &body, &keys).unwrap();
            let done = if is_prepared {
                prepared.writer(kind).append(&body, &keys).unwrap()
            } else {
                append(&prepared.store, &prepared.env, kind, &body, &keys).unwrap()
            };
            prop_assert_eq!(done, expected);
        }
        prop_assert_eq!(prepared.store.stats().log.topics, plain.store.stats().log.topics);
        prop_assert_eq!(prepared.store.highest_queue_ids(), plain.store.highest_queue_ids());
        let (prepared, plain) = (prepared.close(), plain.close());
        prop_assert_eq!(prepared.len(), plain.len());
        for ((path, bytes), (expected_path, expected)) in prepared.iter().zip(&plain) {
            prop_assert_eq!(path, expected_path);
            prop_assert!(bytes == expected, "{} differs", path.display());
        }
    }
}

#[test]
fn a_prepared_writer_refuses_what_append_refuses_with_the_same_error() {
    let side = Side::new(&small());
    let store = &side.store;
    let refused = |topic: &str, queue_id: i32| {
        let expected = store.append(message(topic, queue_id, b"")).unwrap_err();
        let error = store.writer(topic, queue_id, None).unwrap_err();
        assert_eq!(error.to_string(), expected.to_string());
        assert!(matches!(error, Error::IllegalMessage { .. }), "{error}");
    };
    for topic in ["", ".", "a/b", "a\tb", &"x".repeat(256)] {
        refused(topic, 0);
    }
    refused("t", -1);
    refused("t", 65_536);
    store.writer("t", 0, Some("a\u{1}b")).unwrap_err();
    let writer = store.writer("t", 0, Some("paid")).unwrap();
    let expect = |body: &[u8], keys: &[String]| {
        let message = Message {
            properties: properties(Some("paid"), keys).into(),
            ..message("t", 0, body)
        };
        let expected = store.append(message).unwrap_err();
        for error in [
            writer.append(body, keys).unwrap_err(),
            writer.try_append(body, keys).unwrap_err(),
        ] {
            assert_eq!(error.to_string(), expected.to_string());
        }
    };
    let too_long = small().max_message_size + 1;
    expect(&vec![b'x'; too_long], &[]);
    expect(&[b'x'; 16_384], &[]);
    expect(b"x", &["k".repeat(20_000)]);
    for key in ["", "two words", "line\n"] {
        let error = writer.append(b"x", &[key]).unwrap_err();
        assert!(error.to_string().contains("a key has at least one character"), "{error}");
    }
    let error = writer.append(b"x", &["k".repeat(32_760)]).unwrap_err();
    assert!(error.to_string().contains("the properties take"), "{error}");
    assert_eq!(store.appended_offset(), 0);
    store.close().unwrap();
    assert!(matches!(writer.append::<&str>(b"x", &[]), Err(Error::Closed)));
    assert!(matches!(writer.try_append::<&str>(b"x", &[]), Err(Error::Closed)));
}

#[test]
fn the_settings_of_a_topic_bind_each_append_of_a_prepared_writer() {
    let side = Side::new(&small());
    let store = &side.store;
    let writer = store.writer("t", 3, None).unwrap();
    let append = || writer.append::<&str>(b"x", &[]);
    append().unwrap();
    let set = |perm, queues| {
        store
            .topics()
            .set([("t".to_owned(), TopicRule::new(perm, queues, queues, None))]);
    };
    for (perm, queues, said) in [(4, 8, "without the permission to write"), (6, 3, "has 3 queues")] {
        set(perm, queues);
        let (error, prepared) = (append().unwrap_err(), store.writer("t", 3, None).unwrap_err());
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.to_string(), prepared.to_string());
    }
    set(6, 4);
    append().unwrap();
    assert_eq!(store.stats().log.topics["t"].times, 2);
    store.close().unwrap();
}

#[test]
fn a_prepared_writer_that_appends_nothing_makes_no_topic_and_no_queue() {
    let side = Side::new(&small());
    let store = &side.store;
    drop(store.writer("unused", 5, None).unwrap());
    let writer = store.writer("used", 7, None).unwrap();
    store.append(message("used", 2, b"x")).unwrap();
    assert_eq!(
        store.highest_queue_ids().into_iter().collect::<Vec<_>>(),
        [("used".to_owned(), 2)]
    );
    writer.append::<&str>(b"x", &[]).unwrap();
    assert_eq!(
        store.highest_queue_ids().into_iter().collect::<Vec<_>>(),
        [("used".to_owned(), 7)]
    );
    let topics: Vec<_> = store.stats().log.topics.into_keys().collect();
    assert_eq!(topics, ["used"]);
    let place = side.place.names("consumequeue");
    store.close().unwrap();
    assert!(!place.contains(&"unused".to_owned()));
    assert_eq!(side.place.names("consumequeue"), ["used"]);
}

#[test]
fn a_prepared_writer_with_sync_flush_waits_for_durability() {
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        ..small()
    };
    let side = Side::new(&config);
    let writer = side.store.writer("t", 0, None).unwrap();
    assert_eq!(writer.try_append::<&str>(b"waits", &[]).unwrap(), None);
    assert_eq!(side.store.appended_offset(), 0);
    let done = writer.append::<&str>(b"x", &[]).unwrap();
    assert_eq!(done.status, PutStatus::PutOk);
    assert_eq!(side.store.flushed_offset(), done.appended.end());
    side.store.close().unwrap();
}

/// A store without threads, so that only appends read its clock.
fn stepped(place: &Place, env: &CountingEnv) -> Arc<MessageStore> {
    let shared: Arc<dyn Env> = Arc::new(env.clone());
    Arc::new(MessageStore::open_stepped(&shared, &place.store, small(), OpenMode::New).unwrap())
}

/// A body so large that a segment has space for one such message.
const LARGE: [u8; (SEGMENT / 2) as usize] = [b'x'; (SEGMENT / 2) as usize];

#[test]
fn a_prepared_append_is_stored_when_called_unless_it_waits() {
    let (place, env) = (Place::new(), CountingEnv::new());
    let store = stepped(&place, &env);
    let writer = store.writer("t", 0, None).unwrap();
    writer.append::<&str>(b"x", &[]).unwrap();
    let (clock, readings) = (env.clone(), AtomicI64::new(0));
    env.before_changes(move |change| {
        if change == "clock" {
            clock.set_now(1_900_000_000_000 + readings.fetch_add(1, Ordering::SeqCst));
        }
        Ok(())
    });
    writer.append::<&str>(b"x", &[]).unwrap();
    writer.append::<&str>(&LARGE, &[]).unwrap();
    // This one waits for the next segment.
    writer.append::<&str>(&LARGE, &[]).unwrap();
    assert_eq!(
        writer.try_append::<&str>(b"x", &[]).unwrap().unwrap().appended.queue_offset,
        4
    );
    env.heal();
    store.close().unwrap();
    let reader = place.reader();
    let times = (1..5).map(|offset| {
        let message = reader.message_in_queue("t", 0, offset).unwrap();
        let view = message.view();
        (view.born_time() - 1_900_000_000_000, view.store_time() - view.born_time())
    });
    assert_eq!(times.collect::<Vec<_>>(), [(0, 0), (1, 0), (2, 1), (4, 0)]);
}

#[test]
fn an_append_of_a_prepared_writer_over_500_ms_is_a_slow_put_counted_once() {
    let (place, env) = (Place::new(), CountingEnv::new());
    let store = stepped(&place, &env);
    let writer = store.writer("t", 0, None).unwrap();
    writer.append::<&str>(&LARGE, &[]).unwrap();
    let (clock, readings) = (env.clone(), AtomicI64::new(0));
    env.set_monotonic(1000);
    env.before_changes(move |change| {
        if change == "clock" {
            // The second reading is under the lock, after the wait for a segment.
            clock.set_monotonic(1000 + 501 * readings.fetch_add(1, Ordering::SeqCst));
        }
        Ok(())
    });
    writer.append::<&str>(&LARGE, &[]).unwrap();
    env.heal();
    assert_eq!(store.stats().log.slow_puts, 1);
    assert_eq!(store.take_slow_puts(), [Duration::from_millis(501)]);
    assert!(store.take_slow_puts().is_empty());
    store.close().unwrap();
}

#[test]
fn prepared_writers_and_appends_of_one_queue_take_each_offset_once() {
    const EACH: i64 = 300;
    let side = Side::new(&small());
    let store = &side.store;
    let shared = store.writer("t", 1, None).unwrap();
    let offsets = |put: &(dyn Fn(usize) -> AppendResult + Sync)| -> Vec<i64> {
        (0..EACH).map(|number| put(number as usize).appended.queue_offset).collect()
    };
    let mut taken: Vec<i64> = thread::scope(|scope| {
        let prepared = |_| scope.spawn(|| offsets(&|number| shared.append(&[b'x'; 20], &[number.to_string()]).unwrap()));
        let mut threads: Vec<_> = (0..2).map(prepared).collect();
        threads.push(scope.spawn(|| offsets(&|_| store.writer("t", 1, None).unwrap().append::<&str>(b"y", &[]).unwrap())));
        threads.push(scope.spawn(|| offsets(&|_| store.append(message("t", 1, b"z")).unwrap())));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    taken.sort_unstable();
    assert_eq!(taken, (0..4 * EACH).collect::<Vec<_>>());
    store.wait_dispatched(store.appended_offset() - 1, Some(soon())).unwrap();
    store.close().unwrap();
    assert_eq!(bodies(&side.place.reader(), "t", 1).len(), 4 * EACH as usize);
    // A queue of an earlier open continues where it ended.
    let store = Arc::new(side.place.reopen());
    let done = store.writer("t", 1, None).unwrap().append::<&str>(b"x", &[]).unwrap();
    assert_eq!(done.appended.queue_offset, 4 * EACH);
    store.close().unwrap();
}
