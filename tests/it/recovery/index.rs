//! The index after a crash: whole files are kept, others are made again; no key is twice in it, and no key of a message is
//! missing.

use std::fs;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::Checkpoint;
use mqstore::read::MessageReader;
use mqstore::store::{MessageStore, OpenMode};

use super::{Crashed, hits, indexed, names, real};
use crate::counting_env::CountingEnv;

/// The index files in order.
fn files(store: &Crashed) -> Vec<std::path::PathBuf> {
    names(&store.at("index"))
        .into_iter()
        .map(|name| store.at("index").join(name))
        .collect()
}

#[test]
fn whole_index_files_are_kept_after_a_crash_and_nothing_is_put_twice() {
    let store = Crashed::new(1000, false);
    let before = super::contents(&store.at("index"));
    assert_eq!(before.len(), 3);
    store.recover();
    store.expect_messages(1000);
    assert!(super::contents(&store.at("index")) == before);
}

#[test]
fn a_torn_sector_anywhere_in_an_index_file_costs_no_key_and_doubles_none() {
    for file in 0..3 {
        let sectors = fs::read(&files(&Crashed::new(1000, false))[file]).unwrap().len() / 512;
        for sector in 0..=sectors {
            let store = Crashed::new(1000, false);
            let path = &files(&store)[file];
            super::edit(path, |bytes| {
                let end = bytes.len().min(sector * 512 + 512);
                bytes[sector * 512..end].fill(0);
            });
            store.recover();
            store.expect_messages(1000);
        }
    }
}

#[test]
fn an_index_that_lags_the_log_is_caught_up_after_any_exit() {
    for clean in [true, false] {
        for keep in [0, 1, 2] {
            let store = Crashed::new(1000, clean);
            for path in files(&store).into_iter().skip(keep) {
                fs::remove_file(path).unwrap();
            }
            let config = StoreConfig {
                max_hash_slot_num: Some(100),
                max_index_num: Some(400),
                ..StoreConfig::default()
            };
            MessageStore::open(&real(), store.path(), config, OpenMode::Existing)
                .unwrap()
                .close()
                .unwrap();
            store.expect_messages(1000);
        }
    }
}

#[test]
fn an_impossible_item_count_of_the_last_index_file_costs_no_key() {
    for clean in [true, false] {
        for count in [401, 1 << 20, i32::MAX] {
            let store = Crashed::new(1000, clean);
            super::edit(files(&store).last().unwrap(), |bytes| {
                bytes[36..40].copy_from_slice(&i32::to_be_bytes(count));
            });
            // With a loop over the count this takes minutes.
            store.recover();
            store.expect_messages(1000);
        }
    }
}

#[test]
fn an_index_ahead_of_the_log_is_cut_to_it() {
    for kept in [1, 399, 400, 700, 999] {
        let store = Crashed::new(1000, false);
        store.damage(kept);
        store.recover();
        store.expect_messages(kept as i32);
        assert_eq!(hits(&store.reader(), &format!("k{kept}")), [0; 0]);
        for path in files(&store) {
            let bytes = fs::read(path).unwrap();
            let count = i32::from_be_bytes(bytes[36..40].try_into().unwrap()) as usize;
            assert!(bytes[40 + 400 + count * 20..].iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn the_keys_of_one_message_that_two_files_share_are_put_once() {
    // Of the last of eight messages the files before the last have one key, and of nine both or none.
    for messages in [8, 9] {
        share_keys(messages);
    }
}

/// `messages` messages of two keys each, in files of three keys: with any number of the files left, the keys are the same.
fn share_keys(messages: u8) {
    let dir = tempfile::TempDir::new_in("/dev/shm").unwrap();
    let config = StoreConfig {
        max_hash_slot_num: Some(3),
        max_index_num: Some(4),
        ..StoreConfig::default()
    };
    let open = || MessageStore::open(&real(), dir.path(), config.clone(), OpenMode::Append).unwrap();
    let store = open();
    for n in 0..messages {
        let keys = format!("a{n} b{n}");
        store
            .append(mqstore::format::Message {
                topic: "orders".into(),
                body: vec![n].into(),
                properties: mqstore::format::encode_properties([("KEYS", &*keys)], true).unwrap().into(),
                ..Default::default()
            })
            .unwrap();
    }
    store.close().unwrap();
    let complete = indexed(dir.path());
    assert_eq!(complete.values().sum::<usize>(), 2 * usize::from(messages));
    for keep in 0..6 {
        for name in names(&dir.path().join("index")).into_iter().skip(keep) {
            fs::remove_file(dir.path().join("index").join(name)).unwrap();
        }
        fs::write(dir.path().join("abort"), "").unwrap();
        open().close().unwrap();
        assert!(indexed(dir.path()).values().eq(complete.values()), "{keep} kept");
        let reader = mqstore::read::MessageReader::open(&real(), dir.path(), config.clone()).unwrap();
        for n in 0..messages {
            assert_eq!(
                (hits(&reader, &format!("a{n}")).len(), hits(&reader, &format!("b{n}")).len()),
                (1, 1)
            );
        }
    }
}

#[test]
fn a_tail_without_keys_is_read_for_keys_once_until_another_process_writes() {
    let dir = tempfile::TempDir::new_in("/dev/shm").unwrap();
    let mut writer = crate::store_writer::StoreWriter::small(dir.path());
    writer.put("orders", 0, b"keyed", &[("KEYS", "k")]);
    for _ in 0..300 {
        writer.put("orders", 0, b"keyless", &[]);
    }
    writer.finish(true);
    let read = || {
        let env = CountingEnv::new();
        let seam: std::sync::Arc<dyn mqstore::storage::Env> = std::sync::Arc::new(env.clone());
        let store = MessageStore::open(&seam, dir.path(), StoreConfig::default(), OpenMode::Existing).unwrap();
        let scan_start = store.reader().recovery().scan_start;
        store.close().unwrap();
        scan_start
    };
    assert_eq!(read(), 0);
    let end = read();
    assert!(end > 300 * 91, "{end}");
    // A broker has stamped since.
    let path = dir.path().join("checkpoint");
    let mut stamps = Checkpoint::decode(&fs::read(&path).unwrap());
    stamps.physic_msg_timestamp -= 1;
    fs::write(&path, stamps.encode()).unwrap();
    assert_eq!(read(), 0);
    assert_eq!(read(), end);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    assert_eq!(read(), 0);
    assert_eq!(indexed(dir.path()).values().sum::<usize>(), 1);
}

#[test]
fn a_shortened_index_file_is_skipped_by_readers_and_rebuilt_by_writers() {
    let config = StoreConfig {
        max_hash_slot_num: Some(100),
        max_index_num: Some(400),
        ..StoreConfig::default()
    };
    for (clean, messages) in [(true, 1000), (true, 100), (false, 1000), (false, 100)] {
        let count = files(&Crashed::new(messages, clean)).len();
        for (file, len) in (0..count).flat_map(|file| [0, 39, 40, 100, 1000, 8000, 8439].map(|len| (file, len))) {
            let case = format!("clean {clean}, {messages} messages, file {file} has {len} bytes");
            let store = Crashed::new(messages, clean);
            super::edit(&files(&store)[file], |bytes| bytes.truncate(len));
            let reader = MessageReader::open(&real(), store.path(), config.clone()).unwrap();
            let is_ambiguous = clean && count == 1 && len == 8000;
            for n in (0..messages).step_by(50).filter(|_| !is_ambiguous) {
                assert_eq!(hits(&reader, &format!("k{n}")), [store.offsets[n as usize]], "{case}, k{n}");
            }
            let open = || MessageStore::open(&real(), store.path(), config.clone(), OpenMode::Existing);
            let mut opened = open();
            if is_ambiguous {
                // Whole as a file of fewer items: only the options show that it was cut short, and they may be wrong.
                assert!(
                    matches!(opened, Err(Error::Invalid { what }) if what.contains("remove the file")),
                    "{case}"
                );
                fs::remove_file(&files(&store)[0]).unwrap();
                opened = open();
            }
            opened.unwrap_or_else(|error| panic!("{case}: {error}")).close().unwrap();
            store.expect_messages(messages);
            let lens = files(&store)
                .iter()
                .map(|path| fs::metadata(path).unwrap().len())
                .collect::<Vec<_>>();
            assert!(lens.iter().all(|len| *len == 8440), "{case}: {lens:?}");
        }
    }
}

#[test]
fn whole_index_files_of_another_geometry_are_no_files_cut_short() {
    let store = Crashed::new(1000, true);
    let before = super::contents(store.path());
    let config = StoreConfig {
        max_hash_slot_num: Some(1000),
        max_index_num: Some(400),
        ..StoreConfig::default()
    };
    let refused = MessageStore::open(&real(), store.path(), config, OpenMode::Existing).unwrap_err();
    assert!(
        matches!(&refused, Error::Invalid { what } if what.contains("8440 bytes")),
        "{refused}"
    );
    let mut after = super::contents(store.path());
    after.retain(|path, _| before.contains_key(path));
    assert!(after == before);
}
