//! Asks a damaged store every question that a reader answers, and compares each answer with the intact store.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use mqstore::config::Errors;
use mqstore::error::{Error, Result};
use mqstore::format::is_salvage_record;
use mqstore::log::StoredMessage;
use mqstore::read::{GetRequest, HitBounds, MessageReader, QueryBy, QueryRequest, QueueScan, Side, TagFilter, UsageBy};

use super::truth::Truth;

/// More messages than any of the stores holds.
const ENDLESS: usize = 100_000;

/// The answers.
pub(super) struct Answers<'a> {
    root: &'a Path,
    truth: &'a Truth,
    /// True if recovery may have written salvage records.
    pub(super) salvage_records: bool,
    pub(super) messages: usize,
    pub(super) errors: usize,
    /// Fields that were returned changed, without an error.
    pub(super) undetected: BTreeSet<&'static str>,
    /// Answers that no damage may cause.
    pub(super) wrong: Vec<String>,
}

impl<'a> Answers<'a> {
    pub(super) fn new(root: &'a Path, truth: &'a Truth) -> Self {
        Self {
            root,
            truth,
            salvage_records: false,
            messages: 0,
            errors: 0,
            undetected: BTreeSet::new(),
            wrong: Vec::new(),
        }
    }

    /// Returns the value. An error is counted, and must be one on which a caller can act.
    pub(super) fn value<T>(&mut self, result: Result<T>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let names_its_place = match &error {
            // Asking outside the queue, and for what is not built here, is not damage.
            Error::NotFound { what, .. } => return what.is_empty().then(|| self.wrong.push(error.to_string())).and(None),
            Error::Unsupported { path, .. } if path.starts_with(self.root) => return None,
            Error::Corrupt { path, reason, .. } => path.starts_with(self.root) && !reason.is_empty(),
            Error::Io { path, .. } | Error::NotAStore { path, .. } | Error::NoSuchDirectory { path } => {
                path.starts_with(self.root)
            }
            Error::Invalid { what } => what.contains(&*self.root.to_string_lossy()),
            _ => false,
        };
        self.errors += 1;
        if !names_its_place {
            self.wrong.push(format!("no place of damage in {error:?}"));
        }
        None
    }

    /// A message that was returned as whole.
    fn message(&mut self, message: &StoredMessage) {
        self.messages += 1;
        if self.salvage_records && is_salvage_record(&message.view()) {
            return;
        }
        match self.truth.deviations(&message.view()) {
            Ok(fields) => self.undetected.extend(fields),
            // A file that was cut short while it was read reads as zeros, and says so.
            Err(_) if message.intact().is_err() => {}
            Err(wrong) => self.wrong.push(wrong),
        }
    }

    fn message_or_error(&mut self, result: Result<StoredMessage>) -> Option<StoredMessage> {
        let message = self.value(result)?;
        self.message(&message);
        Some(message)
    }
}

/// Asks every question, by every call.
pub(super) fn ask_everything(reader: &Arc<MessageReader>, answers: &mut Answers<'_>) {
    let mut keys = Vec::new();
    for topic in answers.value(reader.topics()).unwrap_or_default() {
        assert!(reader.has_topic(&topic).unwrap());
        for queue_id in answers.value(reader.queue_ids(&topic)).unwrap_or_default() {
            ask_queue(reader, &topic, queue_id, &mut keys, answers);
        }
    }
    walk_log(reader, answers);
    count(reader, answers);
    keys.push(("no topic".to_owned(), "no key".to_owned()));
    let some = keys.iter().step_by(keys.len() / 8 + 1);
    for (number, (topic, key)) in some.clone().enumerate() {
        ask_key(reader, topic, key, number, answers);
    }
    let wanted: Vec<(&str, &str)> = some.map(|(topic, key)| (&**topic, &**key)).collect();
    answers.value(reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Raise));
}

fn ask_key(reader: &MessageReader, topic: &str, key: &str, number: usize, answers: &mut Answers<'_>) {
    let limit = [None, Some(2)][number % 2];
    let (begin, end) = [(i64::MIN, i64::MAX), (1_700_000_000_000, 1_800_000_000_000), (5, 5)][number % 3];
    let request = QueryRequest {
        topic: topic.to_owned(),
        by: QueryBy::Key(key.to_owned()),
        times: begin..end,
        limit,
        errors: Errors::Raise,
    };
    if let Some(result) = answers.value(reader.query(&request)) {
        for hit in &result.hits {
            let Some(message) = answers.message_or_error(reader.message_at(hit.physical_offset)) else {
                continue;
            };
            let view = message.view();
            let has_key = view.keys().iter().any(|own| own == key) || view.unique_key().is_some_and(|own| own == key);
            if view.topic() != topic || !has_key || !(begin..end).contains(&view.store_time()) {
                answers
                    .wrong
                    .push(format!("{topic} {key:?} found {}", view.physical_offset()));
            }
        }
    }
    if number < 2 {
        answers.message_or_error(reader.message(key, true));
    }
}

/// Every place of the log at which a message can start, and some at which none can.
fn walk_log(reader: &MessageReader, answers: &mut Answers<'_>) {
    let bounds = reader.physical_bounds();
    for offset in [i64::MIN, -1, 0, bounds.start, bounds.end - 1, bounds.end, i64::MAX] {
        answers.message_or_error(reader.message_at(offset));
    }
    let starts: Vec<i64> = answers.truth.starts().filter(|start| bounds.contains(start)).collect();
    for start in starts {
        if let Some(message) = answers.message_or_error(reader.message_at(start))
            && message.view().physical_offset() != start
        {
            answers
                .wrong
                .push(format!("{start} gives {}", message.view().physical_offset()));
        }
    }
}

/// Asks for the usage: each whole message is counted, or lies where it says that nothing could be.
fn count(reader: &MessageReader, answers: &mut Answers<'_>) {
    let by = [
        UsageBy::Topic,
        UsageBy::QueueId,
        UsageBy::Tags,
        UsageBy::Hour,
        UsageBy::Segment,
    ];
    answers.value(reader.usage(&by, Errors::Raise));
    answers.value(reader.segments());
    answers.value(reader.index_files());
    let Some(usage) = answers.value(reader.usage(&by, Errors::Skip)) else {
        return;
    };
    let messages: i64 = usage.groups.iter().map(|(_, count)| count.messages).sum();
    let bytes: i64 = usage.groups.iter().map(|(_, count)| count.bytes).sum();
    let unread: i64 = usage.unread.iter().map(|stretch| stretch.end - stretch.start).sum();
    let is_read = |start: &i64| usage.covers.contains(start) && !usage.unread.iter().any(|stretch| stretch.contains(start));
    let whole = answers.truth.starts().filter(is_read);
    let whole = whole.filter(|start| reader.message_at(*start).is_ok()).count() as i64;
    if messages < whole || bytes + unread > usage.covers.end - usage.covers.start {
        answers.wrong.push(format!(
            "{messages} of {whole} messages counted, {bytes} bytes and {unread} unread in {:?}",
            usage.covers
        ));
    }
}

fn ask_queue(
    reader: &Arc<MessageReader>,
    topic: &str,
    queue_id: i32,
    keys: &mut Vec<(String, String)>,
    answers: &mut Answers<'_>,
) {
    let Some(bounds) = answers.value(reader.queue_bounds(topic, queue_id)) else {
        return;
    };
    let Some(scan) = answers.value(QueueScan::new(reader.clone(), topic.to_owned(), queue_id, bounds.clone())) else {
        return;
    };
    let mut count = 0;
    let mut before = i64::MIN;
    for message in scan.take(ENDLESS) {
        count += 1;
        let Some(message) = answers.message_or_error(message) else {
            continue;
        };
        let view = message.view();
        // A queue gives its own messages, each once and in order.
        if (&*view.topic(), view.queue_id()) != (topic, queue_id) || view.queue_offset() <= before {
            let (own, offset) = (view.topic(), view.queue_offset());
            answers
                .wrong
                .push(format!("{topic}/{queue_id} gives {own}/{}, number {offset}", view.queue_id()));
        }
        before = view.queue_offset();
        if count % 16 == 0 {
            answers.message_or_error(reader.message(&view.message_id().to_string(), true));
        }
        keys.extend(view.keys().into_iter().map(|key| (topic.to_owned(), key)));
    }
    if count == ENDLESS {
        answers
            .wrong
            .push(format!("{topic}/{queue_id} {bounds:?} is iterated without end"));
    }
    let middle = bounds.start + (bounds.end - bounds.start) / 2;
    for offset in [i64::MIN, bounds.start, middle, bounds.end, i64::MAX] {
        for bounded in [true, false] {
            let request = GetRequest {
                topic: topic.to_owned(),
                queue_id,
                offset,
                max_messages: 8,
                tags: TagFilter::default(),
                bounded,
                errors: Errors::Raise,
            };
            let result = answers.value(reader.get::<Error>(&request, |_| Ok(true)));
            for message in result.iter().flat_map(|result| &result.messages) {
                answers.message(message);
            }
        }
        answers.message_or_error(reader.message_in_queue(topic, queue_id, offset));
        answers.value(reader.position(topic, queue_id, offset));
        answers.value(reader.offset_at(topic, queue_id, offset, Side::Left));
    }
    answers.value(reader.offset_at(topic, queue_id, 1_760_000_000_000, Side::Right));
}
