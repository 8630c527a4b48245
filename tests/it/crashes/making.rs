//! Power cuts while files are made: small files are whole or missing, and segments that were used stay.

use std::sync::mpsc::channel;

use mqstore::format::Message;
use mqstore::storage::Step;
use mqstore::store::{MessageStore, OpenMode};

use super::examine::{dispatch_all, root};
use super::history::TINY;
use super::run::machine;
use crate::simulated_env::{Call, SimulatedEnv};

const SIZES: &str = "config/mqstore.json";
const STAMPS: &str = "checkpoint";

fn read(env: &SimulatedEnv, name: &str) -> Option<Vec<u8>> {
    let path = root().join(name);
    let files = env.files(path.parent().unwrap());
    files.into_iter().find(|(file, _)| *file == path).map(|(_, bytes)| bytes)
}

fn message() -> Message<'static> {
    Message {
        topic: "t".into(),
        ..Message::default()
    }
}

#[test]
fn a_power_cut_leaves_sizes_and_stamps_whole_or_absent_and_openable() {
    let mut cuts_without_sizes = 0;
    for seed in 0..10 {
        let env = machine();
        env.take_images(seed, 1);
        let mut stamps = vec![None];
        for mode in [OpenMode::New, OpenMode::Existing, OpenMode::Existing] {
            let store = MessageStore::open_stepped(&env.shared(), root(), TINY.config(), mode).unwrap();
            stamps.push(read(&env, STAMPS));
            env.set_now(env.now() + 1000);
            store.append(message()).unwrap();
            dispatch_all(&store).unwrap();
            store.close().unwrap();
            stamps.push(read(&env, STAMPS));
        }
        let whole = read(&env, SIZES);
        for image in env.taken() {
            let case = format!("seed {seed}, before call {}", image.call);
            let sizes = read(&image.env, SIZES);
            assert!(sizes.is_none() || sizes == whole, "{case}: {sizes:?}");
            assert!(stamps.contains(&read(&image.env, STAMPS)), "{case}");
            cuts_without_sizes += u32::from(sizes.is_none());
            let config = if sizes.is_none() { TINY.config() } else { TINY.recorded() };
            let store = MessageStore::open_stepped(&image.env.shared(), root(), config, OpenMode::Append);
            store.unwrap_or_else(|error| panic!("{case}: {error}")).close().unwrap();
            assert_eq!(read(&image.env, SIZES), whole, "{case}");
        }
    }
    assert!(cuts_without_sizes > 0);
}

#[test]
fn a_segment_made_just_before_a_kill_keeps_the_next_writers_messages() {
    let env = machine();
    let store = MessageStore::open_stepped(&env.shared(), root(), TINY.config(), OpenMode::New).unwrap();
    let (send, killed) = channel();
    let machine = env.clone();
    env.pause_before(Call::SyncDir(Step::SegmentRenamed), move || {
        send.send(machine.copy()).unwrap();
    });
    store.append(message()).unwrap();
    let env = killed.recv().unwrap();
    let store = MessageStore::open_stepped(&env.shared(), root(), TINY.recorded(), OpenMode::Existing).unwrap();
    let stored = store.append(message()).unwrap().appended.physical_offset;
    store.flush().unwrap();
    for seed in 0..20 {
        let (cut, _) = env.crash(seed);
        let store = MessageStore::open_stepped(&cut.shared(), root(), TINY.recorded(), OpenMode::Existing).unwrap();
        assert!(store.reader().message_at(stored).is_ok(), "seed {seed}");
    }
}
