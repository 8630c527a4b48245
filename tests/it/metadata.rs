//! Damage of the small files beside a whole log: it costs no message, or the store is refused and stays as it is.
//!
//! Every byte of every small file (every fourth of those that only a broker reads) is changed, and every operation is tried on the result. `MQSTORE_EVERY_BIT=1` changes every bit.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use mqstore::check::{RepairRequest, VerifyRequest, rebuild, repair, verify};
use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::{Error, Result};
use mqstore::format::{
    CHECKPOINT_FIELDS_SIZE, Checkpoint, DelayLevels, DispatchRequest, FlushedMark, Message, encode_lock_file, is_salvage_record,
    own_from,
};
use mqstore::log::LogFiles;
use mqstore::read::MessageReader;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::TempDir;

use crate::damage::bases::{append, tiny};
use crate::damage::image::Image;
use crate::golden::golden_dir;
use crate::queries::by_key;

const LOG: &str = "commitlog";
/// Files that only a broker writes.
const OF_A_BROKER: [&str; 3] = ["config/consumerOffset.json", "config/delayOffset.json", "config/topics.json"];

/// An operation on a store whose small files are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read(Recovery),
    Write(OpenMode, Recovery),
    Verify,
    Repair,
    Rebuild,
}

const OPERATIONS: [Operation; 8] = [
    Operation::Write(OpenMode::Existing, Recovery::Heal),
    Operation::Read(Recovery::Heal),
    Operation::Read(Recovery::Salvage),
    Operation::Write(OpenMode::Append, Recovery::Heal),
    Operation::Write(OpenMode::Existing, Recovery::Salvage),
    Operation::Verify,
    Operation::Repair,
    Operation::Rebuild,
];

/// A message and where it is found.
#[derive(Debug, Clone, PartialEq)]
struct Known {
    topic: String,
    queue_id: i32,
    /// `None` for a message that is in no queue.
    queue_offset: Option<i64>,
    physical_offset: i64,
    keys: Vec<String>,
}

/// A store whose log is whole.
struct Base {
    name: &'static str,
    image: Image,
    messages: Vec<Known>,
    log_end: i64,
}

fn real() -> Arc<dyn Env> {
    Arc::new(RealEnv::new())
}

fn scratch() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap()
}

fn put(image: &Image, root: &Path) {
    for directory in image.directories() {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (name, bytes) in image.files() {
        fs::write(root.join(name), bytes).unwrap();
    }
}

impl Base {
    fn of(name: &'static str, image: Image) -> Self {
        let dir = scratch();
        put(&image, dir.path());
        let log = LogFiles::load(real(), &dir.path().join(LOG), None).unwrap();
        let mut scan = log.scan(log.first_offset(), log.files_end(), mqstore::format::Check::Whole);
        let mut messages = Vec::new();
        for message in scan.by_ref() {
            let message = message.unwrap();
            let view = message.view();
            assert!(!is_salvage_record(&view), "{name}");
            let request = DispatchRequest::of(&view);
            let is_queued = request.unit(&DelayLevels::default()).is_some();
            messages.push(Known {
                topic: view.topic().into_owned(),
                queue_id: view.queue_id(),
                queue_offset: is_queued.then(|| view.queue_offset()),
                physical_offset: view.physical_offset(),
                keys: request.index_keys(false).map(Into::into).collect(),
            });
        }
        let log_end = scan.position();
        assert!(messages.len() > 5, "{name}");
        Self {
            name,
            image,
            messages,
            log_end,
        }
    }

    /// The files that are damaged: all but log, queues and index.
    fn small_files(&self) -> Vec<PathBuf> {
        let is_small = |path: &&Path| {
            ![LOG, "consumequeue", "batchconsumequeue", "index"]
                .iter()
                .any(|dir| path.starts_with(dir))
        };
        self.image
            .files()
            .map(|(path, _)| path)
            .filter(is_small)
            .map(Path::to_owned)
            .collect()
    }

    /// Returns the first difference from the whole store: in its log, in its messages, in their keys, in the files of a broker.
    fn missing(&self, root: &Path, damaged: &Image) -> Option<String> {
        for (path, bytes) in self.image.files().filter(|(path, _)| path.starts_with(LOG)) {
            let start: i64 = path.file_name()?.to_str()?.parse().ok()?;
            // A segment without a record, made ahead, may go.
            let Some(written) = usize::try_from(self.log_end - start).ok().filter(|written| *written > 0) else {
                continue;
            };
            let written = written.min(bytes.len());
            match fs::read(root.join(path)) {
                Ok(now) if now.get(..written) == Some(&bytes[..written]) => {}
                Ok(_) => return Some(format!("{} has other bytes", path.display())),
                Err(error) => return Some(format!("{}: {error}", path.display())),
            }
        }
        // A repair sets a file aside that a broker cannot read.
        let now = Image::of(root);
        for path in OF_A_BROKER.iter().map(Path::new) {
            let is_kept = |bytes: &[u8]| {
                let mut copies = now.files().filter(|(copy, _)| copy.file_name() == path.file_name());
                let is_replaced = now.file(path).is_some_and(|now| now != bytes);
                !is_replaced && copies.any(|(_, copy)| copy == bytes)
            };
            if damaged.file(path).is_some_and(|bytes| !is_kept(bytes)) {
                return Some(format!("{} was written", path.display()));
            }
        }
        match MessageReader::open(&real(), root, StoreConfig::default()) {
            Ok(reader) => self.unread(&reader),
            Err(error) => Some(format!("the store does not open: {error}")),
        }
    }

    /// A message that the reader does not find.
    fn unread(&self, reader: &MessageReader) -> Option<String> {
        for known in &self.messages {
            let in_log = reader.message_at(known.physical_offset);
            if let Err(error) = in_log {
                return Some(format!("at {}: {error}", known.physical_offset));
            }
            let place = |found: Result<i64>| found.ok() == Some(known.physical_offset);
            if let Some(queue_offset) = known.queue_offset {
                let in_queue = reader.message_in_queue(&known.topic, known.queue_id, queue_offset);
                if !place(in_queue.map(|message| message.view().physical_offset())) {
                    return Some(format!("{}/{} {queue_offset}", known.topic, known.queue_id));
                }
            }
            for key in &known.keys {
                let found = reader.query(&by_key(&known.topic, key));
                let is_found = found.is_ok_and(|found| {
                    let mut places = found.hits.iter().map(|hit| hit.physical_offset);
                    places.any(|at| at == known.physical_offset)
                });
                if !is_found {
                    return Some(format!("key {key} of {} at {}", known.topic, known.physical_offset));
                }
            }
        }
        None
    }

    /// The queue offset of the next message of a queue.
    fn end_of(&self, topic: &str, queue_id: i32) -> i64 {
        let of_queue = self
            .messages
            .iter()
            .filter(|known| known.topic == topic && known.queue_id == queue_id);
        of_queue.filter_map(|known| Some(known.queue_offset? + 1)).max().unwrap_or(0)
    }

    /// Opens a writer, appends a message to each of two queues, and closes it.
    fn write(&self, root: &Path, mode: OpenMode, recovery: Recovery) -> Result<Option<String>> {
        let config = StoreConfig {
            recovery,
            ..StoreConfig::default()
        };
        let store = MessageStore::open(&real(), root, config, mode)?;
        for topic in [self.messages[0].topic.as_str(), "new"] {
            let queue_id = self.messages[0].queue_id;
            let appended = store.append(Message {
                topic: topic.into(),
                queue_id,
                body: b"appended".into(),
                ..Message::default()
            })?;
            if appended.appended.physical_offset < self.log_end || appended.appended.queue_offset != self.end_of(topic, queue_id)
            {
                return Ok(Some(format!("appended at {:?}", appended.appended)));
            }
        }
        store.close()?;
        Ok(None)
    }

    fn run(&self, operation: Operation, root: &Path) -> Result<Option<String>> {
        let config = StoreConfig::default();
        match operation {
            Operation::Read(recovery) => {
                let config = StoreConfig { recovery, ..config };
                let reader = MessageReader::open(&real(), root, config)?;
                Ok(self.unread(&reader))
            }
            Operation::Write(mode, recovery) => self.write(root, mode, recovery),
            Operation::Verify => {
                let reader = MessageReader::open(&real(), root, config)?;
                verify(&real(), &reader, VerifyRequest::default(), |_, _| Ok(()))?;
                Ok(None)
            }
            Operation::Repair => {
                let request = RepairRequest {
                    is_dry_run: false,
                    into: None,
                };
                let report = repair(&real(), root, &config, request, |_, _| Ok(()))?;
                Ok((!report.lost.is_empty()).then(|| format!("lost {:?}", report.lost)))
            }
            Operation::Rebuild => rebuild(&real(), root, &config, false, |_, _| Ok(())).map(|_| None),
        }
    }

    /// Tries the operation on a damaged store. Returns what is wrong then.
    fn examine(&self, damaged: &Image, operation: Operation) -> (bool, Option<String>) {
        let dir = scratch();
        let root = dir.path();
        put(damaged, root);
        match self.run(operation, root) {
            Ok(Some(wrong)) => (true, Some(wrong)),
            Ok(None) => (true, self.missing(root, damaged)),
            Err(error) => (
                false,
                changed(root, damaged)
                    .map(|wrong| format!("{wrong}, and refused: {error}"))
                    .or_else(|| unclear(&error, root)),
            ),
        }
    }
}

/// A file that was changed although the operation was refused.
fn changed(root: &Path, damaged: &Image) -> Option<String> {
    let now = Image::of(root);
    let before: BTreeMap<&Path, &[u8]> = damaged.files().filter(|(path, _)| *path != Path::new("lock")).collect();
    let after: BTreeMap<&Path, &[u8]> = now.files().filter(|(path, _)| *path != Path::new("lock")).collect();
    let differs = |path: &&&Path| before.get(**path) != after.get(**path);
    let path = before.keys().chain(after.keys()).find(differs)?;
    Some(format!("{} was changed", path.display()))
}

/// An error from which nobody knows what to do.
fn unclear(error: &Error, root: &Path) -> Option<String> {
    let names_it = error.to_string().contains(&*root.to_string_lossy());
    (!names_it || matches!(error, Error::Io { .. })).then(|| format!("the error {error}"))
}

/// The files of brokers, for stores that have none.
fn with_broker_files(mut image: Image) -> Image {
    image.put(Path::new("config"), crate::damage::image::Node::Directory);
    image.put_file(
        Path::new("config/consumerOffset.json"),
        br#"{"offsetTable":{"orders@group":{0:12}}}"#.to_vec(),
    );
    image.put_file(Path::new("config/delayOffset.json"), br#"{"offsetTable":{2:3}}"#.to_vec());
    image.put_file(
        Path::new("config/topics.json"),
        br#"{"topicConfigTable":{"orders":{"topicName":"orders","readQueueNums":4,"writeQueueNums":4,"perm":6}}}"#.to_vec(),
    );
    image
}

/// A store that its writer left open, with stamps, queues and index that end before its log.
fn crashed(root: &Path) -> Image {
    append(root, OpenMode::New, 0..25);
    let stamped = Image::of(root);
    let store = MessageStore::open(&real(), root, tiny(), OpenMode::Existing).unwrap();
    for n in 0..12_i32 {
        let properties = mqstore::format::encode_properties([("KEYS", &*format!("late{n}"))], true).unwrap();
        let message = Message {
            topic: "orders".into(),
            queue_id: n % 2,
            body: vec![b'z'; 300].into(),
            properties: properties.into(),
            ..Message::default()
        };
        store.append(message).unwrap();
    }
    store.flush().unwrap();
    let mut open = Image::of(root);
    store.close().unwrap();
    for dir in ["index", "consumequeue"] {
        open.remove(Path::new(dir));
    }
    for directory in stamped
        .directories()
        .filter(|path| path.starts_with("index") || path.starts_with("consumequeue"))
    {
        open.put(directory, crate::damage::image::Node::Directory);
    }
    for (path, bytes) in stamped.files() {
        if path.starts_with("index") || path.starts_with("consumequeue") || path == Path::new("checkpoint") {
            open.put_file(path, bytes.to_vec());
        }
    }
    open
}

fn bases() -> Vec<Base> {
    let dir = scratch();
    let closed = dir.path().join("closed");
    append(&closed, OpenMode::New, 0..37);
    let closed = with_broker_files(Image::of(&closed));
    let mut killed = closed.clone();
    killed.put_file(Path::new("abort"), Vec::new());
    let crashed = with_broker_files(crashed(&dir.path().join("crashed")));
    let mut noted = crashed.clone();
    noted.put_file(
        Path::new("config/mqstore-recovery.json"),
        b"{\"rewrite_from\":0,\"closed_at\":4096}\n".to_vec(),
    );
    let golden = |name: &str| Image::of(&golden_dir().join(name));
    vec![
        Base::of("closed", closed),
        Base::of("killed", killed),
        Base::of("crashed", crashed),
        Base::of("crashed in recovery", noted),
        Base::of("498_basic_clean", with_broker_files(golden("498_basic_clean"))),
        Base::of("533_basic_clean", golden("533_basic_clean")),
        Base::of("491_crash_image", golden("491_crash_image")),
    ]
}

/// The damages of one file: what, and the bytes that it then has; `None` for a file that is gone.
fn damages(file: &Path, bytes: &[u8]) -> Vec<(String, Option<Vec<u8>>)> {
    let every_bit = std::env::var("MQSTORE_EVERY_BIT").is_ok();
    let mut all = vec![("gone".to_owned(), None)];
    if !bytes.is_empty() {
        all.push(("empty".to_owned(), Some(Vec::new())));
        all.push(("cut in half".to_owned(), Some(bytes[..bytes.len() / 2].to_vec())));
        all.push(("all ones".to_owned(), Some(vec![0xFF; bytes.len()])));
        all.push(("all zeros".to_owned(), Some(vec![0; bytes.len()])));
    }
    let meaningful = bytes
        .len()
        .min(CHECKPOINT_FIELDS_SIZE.max(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)));
    let step = if OF_A_BROKER.iter().any(|name| file == Path::new(name)) {
        4
    } else {
        1
    };
    for at in 0..meaningful {
        for bit in 0..8 {
            if every_bit || (bit == at * 5 % 8 && at % step == 0) {
                let mut flipped = bytes.to_vec();
                flipped[at] ^= 1 << bit;
                all.push((format!("bit {bit} of byte {at}"), Some(flipped)));
            }
        }
    }
    all
}

type Case<'a> = (&'a Base, String, Image);

fn cases(bases: &[Base]) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for base in bases {
        for file in base.small_files() {
            for (what, bytes) in damages(&file, base.image.file(&file).unwrap()) {
                let mut image = base.image.clone();
                match bytes {
                    None => image.remove(&file),
                    Some(bytes) => image.put_file(&file, bytes),
                }
                cases.push((base, format!("{}: {what}", file.display()), image));
            }
        }
    }
    cases
}

/// Tries every operation on every case, and expects nothing wrong.
fn expect_nothing_lost(cases: &[Case<'_>]) {
    let next = AtomicUsize::new(0);
    let (wrong, done, refused) = (Mutex::new(Vec::new()), AtomicUsize::new(0), AtomicUsize::new(0));
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some((base, what, image)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for operation in OPERATIONS {
                        let (is_done, found) = base.examine(image, operation);
                        [&refused, &done][usize::from(is_done)].fetch_add(1, Ordering::Relaxed);
                        if let Some(found) = found {
                            wrong
                                .lock()
                                .unwrap()
                                .push(format!("{}, {what}, {operation:?}: {found}", base.name));
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    println!("{} cases, {done:?} done, {refused:?} refused", cases.len());
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong[..wrong.len().min(60)].join("\n")
    );
    assert!(done.into_inner() > cases.len() * OPERATIONS.len() / 2);
}

#[test]
fn damage_of_a_small_file_costs_no_message_of_a_whole_log() {
    let bases = bases();
    let intact: Vec<Case<'_>> = bases
        .iter()
        .map(|base| (base, "intact".to_owned(), base.image.clone()))
        .collect();
    expect_nothing_lost(&intact);
    expect_nothing_lost(&cases(&bases));
}

/// Numbers that no store has in its small files.
fn wrong_offsets(base: &Base) -> [i64; 8] {
    let end = base.log_end;
    [i64::MIN, -1, 0, 1, end - 1, end + 1, end + (1 << 40), i64::MAX]
}

#[test]
fn wrong_offsets_in_lock_mark_and_note_cost_no_message() {
    let bases = bases();
    let mut cases = Vec::new();
    for base in &bases {
        let lock = Path::new("lock");
        let own_claim = base.image.file(lock).and_then(own_from);
        let claim = own_claim.unwrap_or(base.log_end);
        for number in wrong_offsets(base) {
            // A claim inside the log of a broker is that of the lock file of another store.
            if own_claim.is_some() || !(0..=base.log_end).contains(&number) {
                let mut claimed = base.image.clone();
                claimed.put_file(lock, encode_lock_file(number).to_vec());
                cases.push((base, format!("claim {number}"), claimed));
            }
            let mut noted = base.image.clone();
            noted.put(Path::new("config"), crate::damage::image::Node::Directory);
            let note = format!("{{\"rewrite_from\":{number},\"closed_at\":{number}}}\n");
            noted.put_file(Path::new("config/mqstore-recovery.json"), note.into_bytes());
            cases.push((base, format!("note {number}"), noted.clone()));
            let mark = FlushedMark {
                flushed: number,
                own_from: claim,
                is_sync: number % 2 == 0,
            };
            let mut marked = base.image.clone();
            marked.put(Path::new("config"), crate::damage::image::Node::Directory);
            marked.put_file(lock, encode_lock_file(claim).to_vec());
            marked.put_file(Path::new("config/mqstore.flushed"), mark.encode().to_vec());
            cases.push((base, format!("mark {number}"), marked));
        }
    }
    expect_nothing_lost(&cases);
}

#[test]
fn wrong_times_in_the_checkpoint_cost_no_message() {
    let bases = bases();
    let mut cases = Vec::new();
    for base in &bases {
        for time in [i64::MIN, -1, 0, 1, 1 << 41, 1 << 50, i64::MAX] {
            let found = Checkpoint::decode(base.image.file(Path::new("checkpoint")).unwrap_or_default());
            for (name, stamps) in [
                (
                    "all",
                    Checkpoint {
                        physic_msg_timestamp: time,
                        logics_msg_timestamp: time,
                        index_msg_timestamp: time,
                        ..found
                    },
                ),
                (
                    "log",
                    Checkpoint {
                        physic_msg_timestamp: time,
                        ..found
                    },
                ),
                (
                    "index",
                    Checkpoint {
                        index_msg_timestamp: time,
                        ..found
                    },
                ),
                (
                    "ours",
                    Checkpoint {
                        physic_msg_timestamp: time,
                        logics_msg_timestamp: time,
                        keys_stamp: time,
                        ..found
                    },
                ),
            ] {
                let mut stamped = base.image.clone();
                stamped.put_file(Path::new("checkpoint"), stamps.encode().to_vec());
                cases.push((base, format!("{name} stamps {time}"), stamped));
            }
        }
    }
    expect_nothing_lost(&cases);
}
