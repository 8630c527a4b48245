//! Opening for writing: what is made and locked, in which order, and what is refused unchanged.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use mqstore::config::{Geometry, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{Checkpoint, CqUnit, Message, encode_lock_file};
use mqstore::read::MessageReader;
use mqstore::store::{MessageStore, OpenMode};

use super::{Place, bodies, io_error, message, names, open, open_in, put, small, tree};
use crate::child;
use crate::counting_env::CountingEnv;
use crate::store_writer::StoreWriter;

#[test]
fn a_directory_that_is_no_store_is_refused_and_left_as_it_was() {
    let place = Place::new();
    fs::create_dir(&place.store).unwrap();
    for mode in [OpenMode::Existing, OpenMode::Append, OpenMode::New] {
        fs::write(place.at("letter.txt"), "dear reader").unwrap();
        let refused = open(&place.store, small(), mode).unwrap_err();
        let expected = if mode == OpenMode::New {
            matches!(refused, Error::Exists { .. })
        } else {
            matches!(refused, Error::NotAStore { .. })
        };
        assert!(expected, "{mode:?}: {refused}");
        assert_eq!(names(&place.store), ["letter.txt"], "{mode:?}");
    }
    let missing = place.at("missing");
    assert!(matches!(
        open(&missing, small(), OpenMode::Existing),
        Err(Error::NoSuchDirectory { .. })
    ));
    assert!(!missing.exists());
    let file = place.at("letter.txt");
    for mode in [OpenMode::Existing, OpenMode::Append, OpenMode::New] {
        assert!(open(&file, small(), mode).is_err());
    }
    assert_eq!(fs::read(&file).unwrap(), b"dear reader");
}

#[test]
fn an_empty_or_only_locked_directory_becomes_a_store() {
    for mode in [OpenMode::Append, OpenMode::New] {
        let place = Place::new();
        fs::create_dir(&place.store).unwrap();
        assert!(matches!(
            open(&place.store, small(), OpenMode::Existing),
            Err(Error::NotAStore { .. })
        ));
        fs::write(place.at("lock"), "").unwrap();
        open(&place.store, small(), mode).unwrap().close().unwrap();
        let expected = ["checkpoint", "commitlog", "config", "consumequeue", "index", "lock"];
        assert_eq!(names(&place.store), expected);
        assert_eq!(fs::read(place.at("lock")).unwrap(), encode_lock_file(0));
    }
}

#[test]
#[ignore = "the program of a child process"]
fn child_makes_a_store_in_its_working_directory() {
    if !child::is_child() {
        return;
    }
    let store = open(Path::new("store"), small(), OpenMode::New).unwrap();
    put(&store, "t", b"x");
    store.close().unwrap();
    child::wait_for_parent();
}

#[test]
fn a_relative_path_of_one_name_makes_a_store() {
    let dir = tempfile::tempdir().unwrap();
    drop(child::run_until_ready(
        "writing::opening::child_makes_a_store_in_its_working_directory",
        dir.path(),
    ));
    assert_eq!(bodies(&super::reader(&dir.path().join("store")), "t", 0), [b"x"]);
}

#[test]
fn of_two_that_make_the_same_new_store_one_is_refused() {
    let place = Place::new();
    let env = CountingEnv::new();
    let (path, done) = (place.store.clone(), AtomicBool::new(false));
    // The other writer comes and goes between the first look at the directory and the lock.
    env.before_changes(move |change| {
        if change.starts_with("lock ") && !done.swap(true, Ordering::SeqCst) {
            open(&path, small(), OpenMode::Append).unwrap().close().unwrap();
        }
        Ok(())
    });
    assert!(matches!(
        open_in(&env, &place.store, small(), OpenMode::New),
        Err(Error::Exists { .. })
    ));
    place.reopen().close().unwrap();
}

#[test]
fn an_open_that_fails_before_it_wrote_leaves_the_store_clean() {
    let place = Place::new();
    let store = place.create();
    put(&store, "t", b"x");
    store.close().unwrap();
    for failing in ["create", "write"] {
        let env = CountingEnv::new();
        env.before_changes(move |change| {
            if change.starts_with(failing) {
                Err(io_error())
            } else {
                Ok(())
            }
        });
        let refused = open_in(&env, &place.store, StoreConfig::default(), OpenMode::Existing);
        assert!(refused.is_err(), "{failing}");
        assert_eq!(bodies(&place.reader(), "t", 0), [b"x"]);
        assert!(place.reader().recovery().clean_exit, "{failing}");
    }
    place.reopen().close().unwrap();
}

#[test]
fn sizes_are_recorded_once() {
    let place = Place::new();
    place.create().close().unwrap();
    let record = fs::read_to_string(place.at("config/mqstore.json")).unwrap();
    let sizes: serde_json::Value = serde_json::from_str(&record).unwrap();
    let expected = serde_json::json!({
        "mapped_file_size_commit_log": 16384, "mapped_file_size_consume_queue": 1000,
        "max_hash_slot_num": 100, "max_index_num": 400,
    });
    assert_eq!(sizes, expected);
    let env = CountingEnv::new();
    open_in(&env, &place.store, StoreConfig::default(), OpenMode::Append)
        .unwrap()
        .close()
        .unwrap();
    let config: Vec<_> = env
        .changes()
        .into_iter()
        .filter(|change| change.contains("/config/") && change.contains(".json"))
        .collect();
    assert_eq!(config, [""; 0]);
}

#[test]
fn a_damaged_size_record_is_ignored_if_all_sizes_are_given_and_rewritten() {
    for damaged in ["{", "{\"mapped_file_size_commit_log\": -5}"] {
        let place = Place::new();
        let store = place.create();
        put(&store, "t", b"x");
        store.close().unwrap();
        fs::write(place.at("config/mqstore.json"), damaged).unwrap();
        assert!(matches!(refuse(&place, StoreConfig::default()), Error::Corrupt { .. }));
        MessageReader::open(&super::real(), &place.store, small()).unwrap();
        open(&place.store, small(), OpenMode::Existing).unwrap().close().unwrap();
        let sizes_of_small = StoreConfig {
            os_page_cache_busy_time_out_mills: StoreConfig::default().os_page_cache_busy_time_out_mills,
            ..small()
        };
        assert_eq!(place.reader().config(), &sizes_of_small);
    }
}

/// A clean store of 200 messages in 2 queues, and the physical offsets of all.
fn written(place: &Place) -> Vec<i64> {
    let mut writer = StoreWriter::small(&place.store);
    let offsets = (0..200_i32)
        .map(|n| writer.put("orders", n % 2, format!("body {n}").as_bytes(), &[("KEYS", &format!("k{n}"))]))
        .collect();
    writer.finish(true);
    let stamps = Checkpoint {
        physic_msg_timestamp: writer.last_store_time,
        logics_msg_timestamp: writer.last_store_time,
        master_flushed_offset: 77,
        confirm_phy_offset: 88,
        ..Checkpoint::default()
    };
    fs::write(place.at("checkpoint"), stamps.encode()).unwrap();
    offsets
}

/// Opens for writing, expects damage as the answer, and nothing changed.
fn refuse(place: &Place, config: StoreConfig) -> Error {
    fs::write(place.at("lock"), "lock").unwrap();
    let before = tree(&place.store);
    let refused = open(&place.store, config, OpenMode::Existing).unwrap_err();
    assert!(tree(&place.store) == before, "changed, although refused: {refused}");
    refused
}

#[test]
fn a_clean_store_whose_queues_point_past_its_log_is_refused_untouched() {
    let place = Place::new();
    written(&place);
    let queue = place.at("consumequeue/orders/0/00000000000000002000");
    let mut bytes = fs::read(&queue).unwrap_or_else(|_| vec![0; 1000]);
    let ahead = CqUnit {
        physical_offset: 1 << 20,
        size: 100,
        tags_code: 0,
    };
    bytes[..20].copy_from_slice(&ahead.encode());
    fs::write(&queue, bytes).unwrap();
    assert!(matches!(refuse(&place, StoreConfig::default()), Error::Corrupt { .. }));
}

#[test]
fn a_clean_store_whose_log_ends_before_its_checkpoint_is_refused() {
    let place = Place::new();
    let offsets = written(&place);
    // The queues are gone, so only the log and the checkpoint show it. A record in the middle of the last segment is damaged.
    fs::remove_dir_all(place.at("consumequeue")).unwrap();
    let damaged = offsets[190] as u64;
    let segment = place
        .at("commitlog")
        .join(format!("{:020}", damaged / super::SEGMENT * super::SEGMENT));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[(damaged % super::SEGMENT) as usize + 90] ^= 1;
    fs::write(&segment, bytes).unwrap();
    assert!(matches!(refuse(&place, StoreConfig::default()), Error::Corrupt { .. }));
}

#[test]
fn a_clean_store_with_a_segment_past_its_end_is_refused_untouched() {
    let place = Place::new();
    written(&place);
    let past = place.names("commitlog").len() as u64 * super::SEGMENT;
    fs::write(
        place.at("commitlog").join(format!("{past:020}")),
        vec![0; super::SEGMENT as usize],
    )
    .unwrap();
    assert!(matches!(refuse(&place, StoreConfig::default()), Error::Corrupt { .. }));
}

#[test]
fn a_last_file_that_is_too_short_is_refused_untouched() {
    for file in ["commitlog", "consumequeue/orders/0"] {
        let place = Place::new();
        written(&place);
        let last = place.at(file).join(place.names(file).pop().unwrap());
        let bytes = fs::read(&last).unwrap();
        fs::write(&last, &bytes[..bytes.len() - 20]).unwrap();
        assert!(
            matches!(refuse(&place, StoreConfig::default()), Error::Corrupt { .. }),
            "{file}"
        );
    }
}

#[test]
fn sizes_that_the_files_contradict_are_refused_untouched() {
    let place = Place::new();
    written(&place);
    let wrong = [
        StoreConfig {
            mapped_file_size_commit_log: Some(8192),
            ..StoreConfig::default()
        },
        StoreConfig {
            mapped_file_size_consume_queue: Some(2000),
            ..StoreConfig::default()
        },
        StoreConfig {
            max_hash_slot_num: Some(100),
            max_index_num: Some(500),
            ..StoreConfig::default()
        },
    ];
    for config in wrong {
        refuse(&place, config);
    }
}

#[test]
fn a_brokers_geometry_is_refused_for_other_sizes_and_taken_for_equal_ones() {
    let broker = StoreConfig {
        geometry: Geometry::Broker,
        ..StoreConfig::default()
    };
    let made = Place::new();
    made.create().close().unwrap();
    let copied = Place::new();
    written(&copied);
    for place in [&made, &copied] {
        let refused = refuse(place, broker.clone());
        assert!(
            matches!(&refused, Error::Invalid { what } if what.contains("of a broker) 1073741824") && what.contains("it is 16384 in this store")),
            "{refused}"
        );
        let given = StoreConfig {
            geometry: Geometry::Broker,
            ..small()
        };
        open(&place.store, given, OpenMode::Existing).unwrap().close().unwrap();
    }
    let place = Place::new();
    for mode in [OpenMode::New, OpenMode::Existing] {
        let store = open(&place.store, broker.clone(), mode).unwrap();
        assert_eq!(store.config().mapped_file_size_commit_log, Some(1 << 30));
        store.close().unwrap();
    }
}

#[test]
fn unrecorded_settings_of_a_brokers_store_are_the_brokers_defaults() {
    let sizes = |store: &MessageStore| {
        let config = store.config();
        (
            config.mapped_file_size_commit_log,
            config.max_hash_slot_num,
            config.max_index_num,
        )
    };
    let place = Place::new();
    let mut writer = StoreWriter::small(&place.store);
    writer.put("orders", 0, b"without a key", &[]);
    writer.finish(true);
    fs::remove_dir_all(place.at("index")).unwrap();
    for _ in 0..2 {
        let store = place.reopen();
        assert_eq!(sizes(&store), (Some(super::SEGMENT), Some(5_000_000), Some(20_000_000)));
        store.close().unwrap();
    }
    // If its maker died while making it, no broker comes back to it.
    let place = Place::new();
    fs::create_dir_all(place.at("commitlog")).unwrap();
    let store = place.reopen();
    assert_eq!(sizes(&store), (Some(64 << 20), Some(125_000), Some(500_000)));
    store.close().unwrap();
}

#[test]
fn opening_reads_nothing_of_a_segment_where_nothing_was_written() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        mapped_file_size_commit_log: Some(64 << 20),
        ..small()
    });
    put(&store, "t", b"x");
    store.close().unwrap();
    // Sparse, as a broker makes it: not every file system distinguishes allocated blocks from written ones.
    let segment = fs::OpenOptions::new()
        .write(true)
        .open(place.at("commitlog/00000000000000000000"))
        .unwrap();
    for len in [4096, 64 << 20] {
        segment.set_len(len).unwrap();
    }
    let env = CountingEnv::new();
    let store = open_in(&env, &place.store, StoreConfig::default(), OpenMode::Existing).unwrap();
    let read = env.bytes_read_below(&place.at("commitlog"));
    assert!(read < 1 << 20, "{read} bytes read");
    store.close().unwrap();
}

#[test]
fn a_store_whose_queues_are_a_database_is_refused_untouched() {
    let place = Place::new();
    written(&place);
    fs::remove_dir_all(place.at("consumequeue")).unwrap();
    fs::create_dir(place.at("consumequeue")).unwrap();
    fs::write(place.at("consumequeue/CURRENT"), "MANIFEST-000005\n").unwrap();
    assert!(matches!(refuse(&place, StoreConfig::default()), Error::Unsupported { .. }));
}

#[test]
fn what_else_a_broker_keeps_in_its_checkpoint_stays() {
    let place = Place::new();
    written(&place);
    place.reopen().close().unwrap();
    let checkpoint = Checkpoint::decode(&fs::read(place.at("checkpoint")).unwrap());
    assert_eq!((checkpoint.master_flushed_offset, checkpoint.confirm_phy_offset), (77, 88));
}

#[test]
fn an_entry_that_was_zeroed_is_written_again_and_those_after_it_stay() {
    let place = Place::new();
    let mut writer = StoreWriter::small(&place.store);
    for n in 0..40_u8 {
        writer.put("orders", 0, &[n], &[]);
    }
    writer.put("other", 0, b"last", &[]);
    writer.finish(true);
    let change = |topic: &str, at: usize, new: &[u8]| {
        let queue = place.at("consumequeue").join(topic).join("0/00000000000000000000");
        let mut bytes = fs::read(&queue).unwrap();
        bytes[at..at + new.len()].copy_from_slice(new);
        fs::write(&queue, bytes).unwrap();
    };
    change("orders", 20, &[0; 20]);
    // The very last entry has a wrong size, so the log is read from its start.
    change("other", 8, &[0, 0, 1]);
    let expected: Vec<Vec<u8>> = (0..40).map(|n| vec![n]).collect();
    assert_eq!(bodies(&place.reader(), "orders", 0), expected);
    let store = place.reopen();
    assert_eq!(bodies(store.reader(), "orders", 0), expected);
    let next = store.append(message("orders", 0, b"next")).unwrap().appended;
    assert_eq!(next.queue_offset, 40);
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "orders", 0).len(), 41);
}

#[test]
fn the_last_segment_of_a_broker_gets_every_block_before_it_is_written() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let mut writer = StoreWriter::new(&store, 1 << 20, 50, 100, 400);
    writer.append(Message {
        topic: "orders".into(),
        ..Message::default()
    });
    writer.finish(true);
    let segment = store.join("commitlog/00000000000000000000");
    let bytes = fs::read(&segment).unwrap();
    let sparse = fs::File::create(&segment).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &bytes[..4096], 0).unwrap();
    sparse.set_len(1 << 20).unwrap();
    assert!(fs::metadata(&segment).unwrap().blocks() * 512 < 1 << 20);
    let store = open(&store, StoreConfig::default(), OpenMode::Existing).unwrap();
    assert!(fs::metadata(&segment).unwrap().blocks() * 512 >= 1 << 20);
    store.close().unwrap();
}
