//! One bit of a store flips: it is detected, or no answer changes. The fields where neither holds are listed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::{Error, Result};
use mqstore::read::{GetRequest, HitBounds, MessageReader, QueryBy, QueryRequest, Side, TagFilter};
use mqstore::store::OpenMode;
use tempfile::tempdir;

use super::bases::append;
use super::fields::{Family, fields};
use super::image::Image;

const ROOT: &str = "/store";

/// A question that the intact store answers.
#[derive(Debug)]
enum Question {
    Topics,
    Bounds(String, i32),
    Message(i64),
    InQueue(String, i32, i64),
    Position(String, i32, i64),
    Tagged(String, i32, &'static str),
    At(String, i32, i64),
    Key(String, String),
    Id(String),
    Keys(Vec<(String, String)>),
}

/// The answer: a digest of the value, `None` for an error or for an answer that names its gaps.
type Answer = Option<u64>;

fn digest(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Question {
    /// The kind of question, for the tally.
    fn name(&self) -> &'static str {
        match self {
            Self::Topics => "topics",
            Self::Bounds(..) => "bounds",
            Self::Message(_) => "message_at",
            Self::InQueue(..) => "message_in_queue",
            Self::Position(..) => "position",
            Self::Tagged(..) => "get by tag",
            Self::At(..) => "offset_at",
            Self::Key(..) => "query",
            Self::Id(_) => "message",
            Self::Keys(_) => "resolve_keys",
        }
    }

    fn ask(&self, reader: &MessageReader) -> Answer {
        self.answer(reader).ok().flatten()
    }

    fn answer(&self, reader: &MessageReader) -> Result<Answer> {
        let value = match self {
            Self::Topics => digest(reader.topics()?),
            Self::Bounds(topic, queue_id) => digest(reader.queue_bounds(topic, *queue_id)?),
            Self::Message(offset) => digest(reader.message_at(*offset)?.view().bytes()),
            Self::InQueue(topic, queue_id, n) => digest(reader.message_in_queue(topic, *queue_id, *n)?.view().bytes()),
            Self::Position(topic, queue_id, n) => {
                let position = reader.position(topic, *queue_id, *n)?;
                digest(position.map(|position| (position.physical_offset, position.store_size)))
            }
            Self::Tagged(topic, queue_id, tags) => {
                let request = GetRequest {
                    topic: topic.clone(),
                    queue_id: *queue_id,
                    offset: 0,
                    max_messages: 1000,
                    tags: TagFilter::parse(tags),
                    bounded: false,
                    errors: Errors::Raise,
                };
                let result = reader.get::<Error>(&request, |_| Ok(true))?;
                let offsets = result.messages.iter().map(|message| message.view().physical_offset());
                digest(offsets.collect::<Vec<_>>())
            }
            Self::At(topic, queue_id, time) => digest(reader.offset_at(topic, *queue_id, *time, Side::Left)?),
            Self::Key(topic, key) => {
                let result = reader.query(&QueryRequest {
                    topic: topic.clone(),
                    by: QueryBy::Key(key.clone()),
                    times: i64::MIN..i64::MAX,
                    limit: None,
                    errors: Errors::Raise,
                })?;
                let offsets = result.hits.iter().map(|hit| hit.physical_offset);
                return Ok(result.complete.then(|| digest(offsets.collect::<Vec<_>>())));
            }
            Self::Id(id) => digest(reader.message(id, true)?.view().physical_offset()),
            Self::Keys(wanted) => {
                let wanted: Vec<(&str, &str)> = wanted.iter().map(|(topic, key)| (&**topic, &**key)).collect();
                let hits = reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Raise)?;
                let places = hits
                    .iter()
                    .map(|hits| hits.iter().map(|hit| (hit.physical_offset, hit.store_size)).collect());
                digest(places.collect::<Vec<Vec<_>>>())
            }
        };
        Ok(Some(value))
    }
}

fn open(image: &Image) -> Result<Arc<MessageReader>> {
    MessageReader::open(&image.env(Path::new(ROOT)), Path::new(ROOT), StoreConfig::default()).map(Arc::new)
}

/// Asks the intact store every question about its content.
fn questions(reader: &MessageReader) -> Vec<Question> {
    let mut questions = vec![Question::Topics];
    let mut keys = BTreeSet::new();
    for topic in reader.topics().unwrap() {
        for queue_id in reader.queue_ids(&topic).unwrap() {
            let bounds = reader.queue_bounds(&topic, queue_id).unwrap();
            questions.push(Question::Bounds(topic.clone(), queue_id));
            questions.extend(["red", "green"].map(|tag| Question::Tagged(topic.clone(), queue_id, tag)));
            for n in bounds {
                let message = reader.message_in_queue(&topic, queue_id, n).unwrap();
                let view = message.view();
                questions.push(Question::Message(view.physical_offset()));
                questions.push(Question::InQueue(topic.clone(), queue_id, n));
                questions.push(Question::Position(topic.clone(), queue_id, n));
                questions.push(Question::At(topic.clone(), queue_id, view.store_time()));
                if n % 4 == 0 {
                    questions.push(Question::Id(view.unique_key().unwrap().into_owned()));
                }
                keys.extend(view.keys().into_iter().map(|key| (topic.clone(), key)));
            }
        }
    }
    questions.extend(keys.iter().map(|(topic, key)| Question::Key(topic.clone(), key.clone())));
    questions.push(Question::Keys(keys.into_iter().collect()));
    questions
}

/// The effect of a flipped bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Every answer is as before.
    Harmless,
    /// Every change was an error, or is in the recovery report.
    Detected,
    /// Answers to some kinds of questions changed without an error.
    Undetected,
}

struct Intact {
    image: Image,
    questions: Vec<Question>,
    answers: Vec<Answer>,
    log_end: i64,
}

impl Intact {
    fn of(image: Image) -> Self {
        let reader = open(&image).unwrap();
        let questions = questions(&reader);
        let answers: Vec<Answer> = questions.iter().map(|question| question.ask(&reader)).collect();
        assert!(answers.iter().all(Option::is_some));
        let log_end = reader.recovery().log_end;
        Self {
            image,
            questions,
            answers,
            log_end,
        }
    }

    /// The effect of one flipped bit of a file, and the kinds of answers that changed without an error.
    fn flip(&self, path: &Path, at: usize, bit: u8) -> (End, BTreeSet<&'static str>) {
        let mut image = self.image.clone();
        image.edit(path, |bytes| bytes[at] ^= 1 << bit);
        let mut silent = BTreeSet::new();
        let Ok(reader) = open(&image) else {
            return (End::Detected, silent);
        };
        let report = reader.recovery();
        let told = report.log_end != self.log_end || report.queue_entries_ahead > 0 || report.refused > 0;
        let mut changed = false;
        for (question, intact) in self.questions.iter().zip(&self.answers) {
            let answer = question.ask(&reader);
            changed |= answer != *intact;
            if answer.is_some() && answer != *intact && !told {
                silent.insert(question.name());
            }
        }
        let end = match (changed, silent.is_empty()) {
            (false, _) => End::Harmless,
            (true, true) => End::Detected,
            (true, false) => End::Undetected,
        };
        (end, silent)
    }
}

/// Returns the family and the field of a byte of a file.
pub(crate) fn place_names(path: &Path, bytes: &[u8]) -> Vec<String> {
    let family = format!("{:?}", Family::of(path));
    let mut names = vec![format!("{family}: nothing"); bytes.len()];
    for field in fields(path, bytes) {
        names[field.at..field.at + field.width].fill(format!("{family}: {}", field.name));
    }
    names
}

/// Harmless, detected and undetected bits of each field, and which questions the undetected ones change.
#[derive(Default)]
struct Tally(BTreeMap<String, ([usize; 3], BTreeSet<&'static str>)>);

impl Tally {
    fn print(&self) -> String {
        let mut text = format!("{:<38} {:>8} {:>8} {:>10}\n", "bits of", "harmless", "detected", "undetected");
        let mut total = [0; 3];
        for (field, (counts, silent)) in &self.0 {
            let [harmless, detected, undetected] = counts;
            let silent: Vec<_> = silent.iter().copied().collect();
            let _ = writeln!(
                text,
                "{field:<38} {harmless:>8} {detected:>8} {undetected:>10} {}",
                silent.join(", ")
            );
            total = std::array::from_fn(|n| total[n] + counts[n]);
        }
        let [harmless, detected, undetected] = total;
        let _ = writeln!(text, "{:<38} {harmless:>8} {detected:>8} {undetected:>10}", "all");
        text
    }

    fn undetected(&self) -> BTreeMap<&str, Vec<&'static str>> {
        let undetected = self.0.iter().filter(|(_, (_, silent))| !silent.is_empty());
        undetected
            .map(|(field, (_, silent))| (&**field, silent.iter().copied().collect()))
            .collect()
    }
}

/// Flips every bit of every file, on every core.
fn flip_all(intact: &Intact) -> Tally {
    const CHUNK: usize = 64;
    let chunks: Vec<(PathBuf, Range<usize>)> = intact
        .image
        .files()
        .flat_map(|(path, bytes)| {
            let starts = (0..bytes.len()).step_by(CHUNK);
            starts.map(move |start| (path.to_owned(), start..bytes.len().min(start + CHUNK)))
        })
        .collect();
    let names: BTreeMap<&Path, Vec<String>> = intact
        .image
        .files()
        .map(|(path, bytes)| (path, place_names(path, bytes)))
        .collect();
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally::default());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((path, range)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for at in range.clone() {
                        let flips = (0..8).map(|bit| intact.flip(path, at, bit));
                        let flips: Vec<_> = flips.collect();
                        let mut tally = tally.lock().unwrap();
                        let (counts, silent) = tally.0.entry(names[&**path][at].clone()).or_default();
                        for (end, kinds) in flips {
                            counts[end as usize] += 1;
                            silent.extend(kinds);
                        }
                    }
                }
            });
        }
    });
    tally.into_inner().unwrap()
}

/// All fields in which a flipped bit can change answers without an error, with the questions concerned. No checksum of the format
/// covers them, and no other bytes on disk repeat them:
/// - of a record, everything but sizes, magic, physical offset, body and the body's CRC; a queue confirms a record's topic, queue id and
///   queue offset, but `message_at` reads no queue;
/// - of a queue entry, what is used without reading the message (`position`, a tag that is not wanted), and the first bytes after
///   the last entry, where a flipped bit looks like one more (`bounds`; reading it is an error);
/// - of an index file, a link that skips items of its own slot: only the whole file would show it.
const UNDETECTED: [(&str, &[&str]); 18] = [
    ("Index: previous", &["query", "resolve_keys"]),
    ("Log: born host", &["message_at", "message_in_queue"]),
    ("Log: born port", &["message_at", "message_in_queue"]),
    ("Log: born time", &["message_at", "message_in_queue"]),
    ("Log: flag", &["message_at", "message_in_queue"]),
    ("Log: prepared transaction offset", &["message_at", "message_in_queue"]),
    (
        "Log: properties",
        &["message_at", "message_in_queue", "query", "resolve_keys"],
    ),
    ("Log: queue id", &["message_at"]),
    ("Log: queue offset", &["message_at"]),
    ("Log: reconsume times", &["message_at", "message_in_queue"]),
    ("Log: store host", &["message_at", "message_in_queue"]),
    ("Log: store port", &["message_at", "message_in_queue"]),
    ("Log: store time", &["message_at", "message_in_queue", "offset_at"]),
    ("Log: sysFlag", &["message_at", "message_in_queue"]),
    ("Log: topic", &["message_at"]),
    ("Queue: physical offset", &["bounds", "get by tag", "position"]),
    ("Queue: size", &["bounds", "get by tag", "position"]),
    ("Queue: tags code", &["get by tag"]),
];

#[test]
fn each_bit_of_a_small_store_flipped_is_detected_or_harmless() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..24);
    let intact = Intact::of(Image::of(&root));
    let tally = flip_all(&intact);
    println!("{}", tally.print());
    let documented: BTreeMap<&str, Vec<&str>> = UNDETECTED.iter().map(|(field, kinds)| (*field, kinds.to_vec())).collect();
    assert_eq!(tally.undetected(), documented);
}
