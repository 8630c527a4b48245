//! Another process opens the store while a repair or a rebuild is planned.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mqstore::check::{RepairRequest, rebuild, repair};
use mqstore::config::StoreConfig;
use mqstore::error::{Error, Result};
use mqstore::format::Message;
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir_in;

use super::env;
use crate::counting_env::CountingEnv;

fn config() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(4096),
        ..StoreConfig::default()
    }
}

/// Appends messages that fill more than a segment.
fn append(store: &MessageStore) {
    for _ in 0..9 {
        let message = Message {
            topic: "orders".into(),
            body: vec![b'x'; 500].into(),
            ..Message::default()
        };
        store.append(message).unwrap();
    }
}

/// Runs `call` on a store without queues, once for each of its look-ups, before which another writer opens the store, appends, and leaves it open. Returns how
/// many look-ups there are.
fn beside_a_writer_at_each_look(call: impl Fn(&Arc<dyn Env>, &Path) -> Result<()>) -> usize {
    for before in 1.. {
        let dir = tempdir_in("/dev/shm").unwrap();
        let root = dir.path().join("store");
        let store = MessageStore::open(&env(), &root, config(), OpenMode::New).unwrap();
        append(&store);
        store.close().unwrap();
        fs::remove_dir_all(root.join("consumequeue")).unwrap();
        let counting = CountingEnv::new();
        let (looks, path, writers) = (AtomicUsize::new(0), root.clone(), Arc::new(Mutex::new(Vec::new())));
        let opened = Arc::clone(&writers);
        counting.before_looks(move |_| {
            if looks.fetch_add(1, Ordering::Relaxed) + 1 == before
                && let Ok(store) = MessageStore::open(&env(), &path, StoreConfig::default(), OpenMode::Existing)
            {
                append(&store);
                opened.lock().unwrap().push(store);
            }
            Ok(())
        });
        let counted: Arc<dyn Env> = Arc::new(counting.clone());
        let outcome = call(&counted, &root);
        assert!(
            matches!(outcome, Ok(()) | Err(Error::Locked { .. })),
            "look {before}: {outcome:?}"
        );
        let looked: usize = counting.calls().values().sum();
        if looked < before {
            return before;
        }
    }
    unreachable!("each run makes some look-ups")
}

#[test]
fn writer_that_appends_at_any_look_of_a_rebuild_is_no_damage() {
    let looks =
        beside_a_writer_at_each_look(|env, root| rebuild(env, root, &StoreConfig::default(), false, |_, _| Ok(())).map(drop));
    assert!(looks > 20, "{looks}");
}

#[test]
fn writer_that_appends_at_any_look_of_a_repair_is_no_damage() {
    let request = RepairRequest {
        is_dry_run: false,
        into: None,
    };
    let looks = beside_a_writer_at_each_look(|env, root| {
        let report = repair(env, root, &StoreConfig::default(), request, |_, _| Ok(()))?;
        report.refusal.map_or(Ok(()), Err)
    });
    assert!(looks > 20, "{looks}");
}
