//! Verify after SIGKILL at any call: no errors.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqstore::check::{Severity, VerifyRequest};
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::format::{INDEX_HEADER_SIZE, IndexHeader, Message, encode_properties};
use mqstore::services::{Next, Service};
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};

use super::{told, verified_by};
use crate::simulated_env::{Random, SimulatedEnv};

const ROOT: &str = "/data/store";

/// Sizes small enough that a few messages fill a segment, a queue file and an index file.
fn config(random: &mut Random) -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(4096),
        mapped_file_size_consume_queue: Some(random.pick(&[40, 100])),
        max_hash_slot_num: Some(random.pick(&[3, 10])),
        max_index_num: Some(random.pick(&[3, 7, 30])),
        checkpoint_interval: random.pick(&[1500, 64 << 20]),
        flush_disk_type: random.pick(&[FlushDiskType::Async, FlushDiskType::Async, FlushDiskType::Sync]),
        sigbus_guard: false,
        ..StoreConfig::default()
    }
}

fn message(number: u64, random: &mut Random) -> Message<'static> {
    let properties = [
        ("KEYS", &*format!("k{number} every{}", number % 3)),
        ("UNIQ_KEY", &*format!("U{number}")),
    ];
    Message {
        topic: random.pick(&["a", "b"]).into(),
        queue_id: random.pick(&[0, 0, 1]),
        body: vec![7; random.pick(&[0, 30, 300, 2500])].into(),
        properties: encode_properties(properties, true).unwrap().into(),
        ..Message::default()
    }
}

/// Opens, appends, works, closes and is killed at random. Returns every image of a kill that was taken.
fn images(seed: u64) -> Vec<(SimulatedEnv, u64)> {
    let mut random = Random::new(seed);
    let config = config(&mut random);
    let mut env = SimulatedEnv::new();
    env.make_dir(Path::new("/data"));
    let mut taken = Vec::new();
    let mut now = Instant::now();
    let mut number = 0;
    for _ in 0..4 {
        env.take_kills(random.next(), 3);
        let store = MessageStore::open_stepped(&env.shared(), Path::new(ROOT), config.clone(), OpenMode::Append).unwrap();
        for _ in 0..random.below(14) {
            match random.below(5) {
                0..=2 => {
                    env.set_now(env.now() + 50);
                    store.append(message(number, &mut random)).unwrap();
                    number += 1;
                }
                3 => {
                    now += Duration::from_millis(random.below(700));
                    let service = random.pick(&[Service::Dispatch, Service::Dispatch, Service::Flush]);
                    let before = index_files(&env);
                    // One step: items and entries of a part of the messages.
                    if store.step(service, now).unwrap() == Next::Again && random.one_in(2) {
                        let _ = store.step(service, now).unwrap();
                    }
                    taken.extend(without_header(&env, &before).map(|image| (image, env.count())));
                }
                _ => drop(store.flush().unwrap()),
            }
        }
        let is_killed = random.one_in(2);
        if is_killed {
            let killed = env.kill();
            drop(store);
            taken.extend(env.taken().into_iter().map(|image| (image.env, image.call)));
            taken.push((killed.copy(), u64::MAX));
            env = killed;
        } else {
            store.close().unwrap();
            taken.extend(env.taken().into_iter().map(|image| (image.env, image.call)));
        }
    }
    taken
}

fn index_files(env: &SimulatedEnv) -> Vec<(PathBuf, Vec<u8>)> {
    env.files(&Path::new(ROOT).join("index"))
}

/// Builds the image of a kill after the items of a step were put and before the header counts them: no call comes between them.
fn without_header(env: &SimulatedEnv, before: &[(PathBuf, Vec<u8>)]) -> Option<SimulatedEnv> {
    let after = index_files(env);
    let (path, bytes) = after.last()?;
    let older = before.iter().find(|(known, _)| known == path);
    let header = match (older, after.iter().rev().nth(1)) {
        (Some((_, bytes)), _) => IndexHeader::decode(bytes.first_chunk()?),
        (None, Some((_, last))) => IndexHeader::rolled_from(Some(&IndexHeader::decode(last.first_chunk()?))),
        (None, None) => IndexHeader::rolled_from(None),
    };
    let mut uncounted = bytes.clone();
    uncounted[..INDEX_HEADER_SIZE].copy_from_slice(&header.encode());
    let image = env.copy();
    image.put(path, &uncounted);
    Some(image)
}

fn errors(env: &Arc<dyn Env>) -> Option<String> {
    match verified_by(env, Path::new(ROOT), VerifyRequest::default()) {
        // A kill before there is a log leaves no store.
        Err(mqstore::error::Error::NotAStore { .. } | mqstore::error::Error::NoSuchDirectory { .. }) => None,
        Err(error) => Some(error.to_string()),
        Ok(report) => {
            let is_error = |finding: &mqstore::check::Finding| finding.severity == Severity::Error;
            report.findings.iter().any(is_error).then(|| told(&report))
        }
    }
}

#[test]
fn verify_reports_no_error_after_a_kill_at_any_call() {
    let (mut wrong, mut count) = (String::new(), 0);
    for seed in 0..60 {
        for (image, call) in images(seed) {
            count += 1;
            if let Some(what) = errors(&image.shared()) {
                let _ = writeln!(wrong, "--- seed {seed}, before call {call}: {what}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count > 1000, "{count}");
}
