//! Writing to damaged stores: a store is refused unchanged, or repaired. Then it holds what is appended and nothing that was
//! never in it.

use std::path::Path;
use std::sync::Arc;

use mqstore::check::VerifyRequest;
use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::{Error, Result};
use mqstore::format::Message;
use mqstore::read::MessageReader;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};

use super::bases::message;
use super::image::Image;
use super::questions::{Answers, ask_everything};
use super::truth::Truth;
use crate::reading::open;
use crate::verifying::verified_by;
use crate::verifying::writable::promises_a_writer;

/// Whatever a damaged record says, no message goes into a queue beyond it.
const MAX_QUEUE_ID: i32 = 65_535;

/// The result of writing to a damaged store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mended {
    Refused,
    Written,
}

/// A topic and queue of the store, and a topic and queue that it does not have.
fn places(reader: &MessageReader) -> Result<Vec<(String, i32)>> {
    let mut places = vec![("appended".to_owned(), 0)];
    if let Some(topic) = reader.topics()?.pop()
        && let Some(queue_id) = reader.queue_ids(&topic).ok().and_then(|mut ids| ids.pop())
        && queue_id <= MAX_QUEUE_ID
    {
        places.push((topic, queue_id));
    }
    Ok(places)
}

/// Appends two messages to each queue and closes the store. Returns their offsets.
fn append(store: &MessageStore) -> Result<Vec<(i64, Message<'static>)>> {
    let mut appended = Vec::new();
    for n in 0..2 {
        for (topic, queue_id) in places(store.reader())? {
            let mut message = Message {
                topic: topic.into(),
                queue_id,
                ..message(1000 + n)
            };
            let result = match store.append(message.clone()) {
                // A batch consume queue is only read.
                Err(Error::Unsupported { .. }) => continue,
                result => result?,
            };
            message.queue_offset = result.appended.queue_offset;
            appended.push((result.appended.physical_offset, message));
        }
    }
    store.flush()?;
    store.close()?;
    Ok(appended)
}

/// Returns true if verify ends and promises that a writer opens the store.
pub(super) fn is_sound(root: &Path) -> bool {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    verified_by(&env, root, VerifyRequest::default()).is_ok_and(|report| promises_a_writer(&report))
}

/// Opens the store at `root` for writing, writes and closes it, opens it again and asks everything. No writer is refused a store
/// that `is_sound`.
pub(super) fn mend(root: &Path, recovery: Recovery, is_sound: bool, truth: &Truth, answers: &mut Answers<'_>) -> Mended {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let before = Image::of(root);
    // Where no index file is left a writer makes one of a broker's size, which takes a second.
    let has_index = before.files().any(|(path, _)| path.starts_with("index"));
    let config = StoreConfig {
        recovery,
        max_hash_slot_num: (!has_index).then_some(100),
        max_index_num: (!has_index).then_some(400),
        ..StoreConfig::default()
    };
    let store = match MessageStore::open(&env, root, config, OpenMode::Existing) {
        Ok(store) => store,
        Err(error) if is_sound && recovery == Recovery::Heal => {
            let what = format!("verify promises a writer, which fails: {error}");
            answers.wrong.push(what);
            return Mended::Refused;
        }
        // The system may refuse a call in the middle of an open.
        Err(error) if is_system(&error) => return Mended::Refused,
        refused => {
            answers.value(refused.map(drop));
            // A lock writes the bytes of the lock file.
            for (path, bytes) in before.files().filter(|(path, _)| *path != Path::new("lock")) {
                if std::fs::read(root.join(path)).ok().as_deref() != Some(bytes) {
                    answers
                        .wrong
                        .push(format!("{} was changed although the store was refused", path.display()));
                }
            }
            return Mended::Refused;
        }
    };
    let appended = match append(&store) {
        Ok(appended) => appended,
        Err(error) if is_system(&error) => return Mended::Refused,
        Err(error) => {
            answers.value::<()>(Err(error));
            return Mended::Refused;
        }
    };
    drop(store);
    let mut truth = truth.clone();
    for (offset, message) in &appended {
        truth.add_appended(*offset, message);
    }
    let mut again = Answers::new(root, &truth);
    again.salvage_records = true;
    if let Some(reader) = again.value(MessageReader::open(&env, root, StoreConfig::default()).map(Arc::new)) {
        ask_everything(&reader, &mut again);
        for (offset, message) in &appended {
            find(&reader, *offset, message, &mut again);
        }
    } else {
        again
            .wrong
            .push("a store that was written and closed does not open".to_owned());
    }
    let said = again.wrong.into_iter().map(|wrong| format!("after {recovery:?}: {wrong}"));
    answers.wrong.extend(said);
    answers.messages += again.messages;
    Mended::Written
}

/// Returns true if the system has refused a call: a directory is missing, a link leads nowhere.
fn is_system(error: &Error) -> bool {
    match error {
        Error::Poisoned { cause, .. } => is_system(cause),
        error => matches!(error, Error::Io { .. }),
    }
}

fn find(reader: &MessageReader, offset: i64, message: &Message<'_>, answers: &mut Answers<'_>) {
    let (topic, queue_id, number) = (&message.topic, message.queue_id, message.queue_offset);
    let found = [
        ("at", reader.message_at(offset)),
        ("in queue", reader.message_in_queue(topic, queue_id, number)),
    ];
    for (how, found) in found {
        match found {
            Ok(found) if found.view().body() == &*message.body && found.view().physical_offset() == offset => {}
            Ok(_) => answers
                .wrong
                .push(format!("appended to {topic}/{queue_id}, and another is {how}")),
            Err(error) => answers.wrong.push(format!(
                "appended to {topic}/{queue_id} as {number} at {offset}, and not {how}: {error}"
            )),
        }
    }
}

#[test]
fn a_lock_that_is_a_link_to_a_segment_costs_the_log_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    super::plain(dir.path(), 40).0.finish(true);
    let before = std::fs::read(super::log_file(dir.path(), 0)).unwrap();
    std::fs::remove_file(dir.path().join("lock")).unwrap_or_default();
    std::os::unix::fs::symlink("commitlog/00000000000000000000", dir.path().join("lock")).unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, dir.path(), StoreConfig::default(), OpenMode::Existing).unwrap();
    store.close().unwrap();
    assert!(std::fs::read(super::log_file(dir.path(), 0)).unwrap() == before);
}

#[test]
fn a_queue_file_named_between_two_others_is_refused_to_a_writer_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    super::plain(dir.path(), 40).0.finish(true);
    let [right, wrong] = [0, 20].map(|start| super::queue_file(dir.path(), "orders", start));
    std::fs::rename(right, &wrong).unwrap();
    let before = Image::of(dir.path());
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let refused = MessageStore::open(&env, dir.path(), StoreConfig::default(), OpenMode::Existing);
    assert_eq!(super::corrupt_place(refused.unwrap_err()).0, wrong);
    for (path, bytes) in before.files() {
        assert_eq!(std::fs::read(dir.path().join(path)).unwrap(), bytes, "{}", path.display());
    }
    assert_eq!(open(dir.path()).topics().unwrap(), ["orders"], "it can still be read");
}
