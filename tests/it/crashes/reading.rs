//! A store as its readers see it, compared with the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use mqstore::config::Errors;
use mqstore::error::Error;
use mqstore::read::{MessageReader, QueryBy, QueryRequest};

use super::model::{Checked, Entry, Expect, Found, Violation, ensure, keys, queues, works};
use super::torn::Garbled;
use crate::simulated_env::Random;

/// The most keys that are queried in one image.
const KEYS: usize = 12;

/// Every message of the log in order: no byte of it is passed over but the BLANKs.
pub(super) fn walk(reader: &MessageReader, segment: u64) -> Checked<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut bounds = reader.physical_bounds();
    while !bounds.is_empty() {
        match reader.message_at(bounds.start) {
            Ok(stored) => {
                bounds.start += i64::from(stored.view().size());
                found.push(stored.view().bytes().to_vec());
            }
            Err(Error::NotFound { .. }) => bounds.start = (bounds.start / segment as i64 + 1) * segment as i64,
            Err(error) => return works("the log can be walked", Err(error)),
        }
    }
    Ok(found)
}

/// Compares log, queues and keys with what is expected.
pub(super) fn check(reader: &MessageReader, expect: &Expect, segment: u64, random: &mut Random) -> Checked<Found> {
    let found = walk(reader, segment)?;
    let count = found.len();
    expect.judge(count)?;
    ensure(count <= expect.entries.len(), "nothing is there that nobody appended", || {
        format!("{count} messages are there, {} were appended", expect.entries.len())
    })?;
    // After a torn record, whole messages that nobody acknowledged may follow. A writer that cuts them says so.
    let missing = reader.recovery().missing.as_ref();
    let missing = missing.filter(|_| reader.recovery().cut.count() == 0);
    ensure(
        missing.is_none() || count < expect.entries.len(),
        "a reader that has every message says so",
        || format!("{missing:?}"),
    )?;
    let found = expect
        .torn
        .held(&expect.entries, &found, expect.acked)
        .map_err(|offset| Violation {
            check: "messages are as they were appended",
            what: format!("the one at physical offset {offset} differs"),
        })?;
    let entries = &found.entries[..count];
    check_queues(reader, entries, &found.garbled)?;
    check_keys(reader, entries, &found.garbled, random)?;
    Ok(found)
}

fn check_queues(reader: &MessageReader, entries: &[Arc<Entry>], garbled: &Garbled) -> Checked {
    let expected = queues(entries);
    let mut found = Vec::new();
    for topic in works("queues are listed", reader.topics())? {
        for queue_id in works("queues are listed", reader.queue_ids(&topic))? {
            found.push((topic.clone(), queue_id));
        }
    }
    for ((topic, queue_id), messages) in expected.iter().filter(|((topic, id), _)| !garbled.is_in(topic, *id)) {
        let check = "queues are dense and complete";
        let bounds = works(check, reader.queue_bounds(topic, *queue_id))?;
        ensure(bounds == (0..messages.len() as i64), check, || {
            format!("{topic} {queue_id} spans {bounds:?} and has {} messages", messages.len())
        })?;
        for (offset, entry) in messages.iter().enumerate() {
            let stored = works(check, reader.message_in_queue(topic, *queue_id, offset as i64))?;
            ensure(
                stored.view().bytes() == entry.bytes,
                "queue entries name the right messages",
                || format!("{topic} {queue_id} {offset} is not the message at {}", entry.physical_offset),
            )?;
        }
    }
    for (topic, queue_id) in found
        .iter()
        .filter(|(topic, id)| !expected.contains_key(&(topic.as_str(), *id)) && !garbled.is_in(topic, *id))
    {
        let bounds = works("queues without messages are empty", reader.queue_bounds(topic, *queue_id))?;
        ensure(bounds.is_empty(), "queues without messages are empty", || {
            format!("{topic} {queue_id} spans {bounds:?}")
        })?;
    }
    Ok(())
}

fn check_keys(reader: &MessageReader, entries: &[Arc<Entry>], garbled: &Garbled, random: &mut Random) -> Checked {
    if garbled.is_index_torn {
        return Ok(());
    }
    let sound = |(_, offsets): &(_, BTreeSet<i64>)| !offsets.iter().any(|offset| garbled.is_at(*offset));
    let expected: Vec<_> = keys(entries).into_iter().filter(sound).collect();
    let first = if expected.len() > KEYS {
        random.index(expected.len())
    } else {
        0
    };
    for ((topic, key), offsets) in expected.iter().cycle().skip(first).take(expected.len().min(KEYS)) {
        let request = QueryRequest {
            topic: (*topic).to_owned(),
            by: QueryBy::Key((*key).to_owned()),
            times: i64::MIN..i64::MAX,
            limit: None,
            errors: Errors::Raise,
        };
        let answer = works("keys are found", reader.query(&request))?;
        let found: Vec<i64> = answer.hits.iter().map(|hit| hit.physical_offset).collect();
        // Whole messages after the end of the log are not looked at.
        let is_right = answer.complete == reader.recovery().missing.is_none() && found.iter().eq(offsets.iter());
        if !is_right {
            return Err(Violation {
                check: "keys are found",
                what: format!(
                    "{topic} {key}: at {found:?} (complete: {}), stored at {offsets:?}",
                    answer.complete
                ),
            });
        }
    }
    Ok(())
}
