//! The transactions of a log: each half message, and its one end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mqstore::broker::{OpenHalves, open_transactions};
use mqstore::format::{GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, Transaction, property};
use mqstore::read::{MessageReader, StoredMessage};
use serde_json::Value;

/// The end of a half message, as the log shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Committed,
    GivenUp,
    /// An op message lists it, and nothing else names it.
    RolledBack,
}

/// A half message of a log.
#[derive(Debug)]
pub(crate) struct Half {
    pub(crate) queue_offset: i64,
    pub(crate) body: Vec<u8>,
    /// The topic that it names.
    topic: String,
    /// The physical offset at which its record ends.
    pub(crate) end: i64,
}

/// The half messages of a log and their ends, by physical offset.
#[derive(Debug, Default)]
pub(crate) struct TransactionLog {
    halves: BTreeMap<i64, Half>,
    ends: BTreeMap<i64, End>,
}

impl TransactionLog {
    /// Finds them in the messages of a log.
    ///
    /// # Errors
    /// If a half message has ended twice, its copy is another message, or an op message lists none that is there.
    pub(crate) fn of(log: &[StoredMessage]) -> Result<Self, String> {
        let (mut found, mut listed) = (Self::default(), BTreeSet::new());
        for message in log {
            let view = message.view();
            let half = view.prepared_transaction_offset();
            let end = match view.transaction() {
                // The retries and dead letters of a committed message keep its type, and name no half message.
                Transaction::Commit if view.reconsume_times() == 0 => End::Committed,
                _ if view.has_topic(GIVEN_UP_TOPIC) => End::GivenUp,
                _ if view.has_topic(HALF_TOPIC) => {
                    let half = Half {
                        queue_offset: view.queue_offset(),
                        body: view.body().to_vec(),
                        topic: view.properties().get(property::REAL_TOPIC).unwrap_or_default().into_owned(),
                        end: view.end(),
                    };
                    found.halves.insert(view.physical_offset(), half);
                    continue;
                }
                _ if view.has_topic(OP_TOPIC) => {
                    listed.insert(String::from_utf8_lossy(view.body()).parse::<i64>().unwrap());
                    continue;
                }
                _ => continue,
            };
            if let Some(before) = found.ends.insert(half, end) {
                return Err(format!("the half message at {half} has two ends, {before:?} and {end:?}"));
            }
            let is_copy = found.halves.get(&half).is_some_and(|half| {
                let is_there = end == End::GivenUp || view.has_topic(&half.topic);
                is_there && half.body == view.body()
            });
            if !is_copy {
                return Err(format!("the end {end:?} of the half message at {half} is another message"));
            }
        }
        let places = found.places();
        for offset in listed {
            let Some(half) = places.get(&offset) else {
                return Err(format!(
                    "an op message lists the half message {offset}, and the log has no such one"
                ));
            };
            found.ends.entry(*half).or_insert(End::RolledBack);
        }
        Ok(found)
    }

    /// Returns the physical offsets of the half messages by their queue offsets.
    fn places(&self) -> BTreeMap<i64, i64> {
        let halves = self.halves.iter();
        halves.map(|(place, half)| (half.queue_offset, *place)).collect()
    }

    /// Returns the ends, by physical offset of the half message.
    pub(crate) fn ends(&self) -> &BTreeMap<i64, End> {
        &self.ends
    }

    /// Returns the half messages, by physical offset.
    pub(crate) fn halves(&self) -> &BTreeMap<i64, Half> {
        &self.halves
    }

    /// Returns those that have no end.
    pub(crate) fn open(&self) -> BTreeSet<i64> {
        let places = self.halves.keys().copied();
        places.filter(|half| !self.ends.contains_key(half)).collect()
    }

    /// Checks that the progress in a `consumerOffset.json` passes no half message without an end.
    pub(crate) fn check_progress(&self, file: &Value) -> Result<(), String> {
        let name = format!("{HALF_TOPIC}@CID_RMQ_SYS_TRANS");
        let progress = file["offsetTable"][name]["0"].as_i64().unwrap_or(0);
        let places = self.places();
        for passed in 0..progress {
            if !places.get(&passed).is_some_and(|half| self.ends.contains_key(half)) {
                return Err(format!(
                    "the progress passes half message {passed}, and it has no end in the log"
                ));
            }
        }
        Ok(())
    }
}

/// Returns the physical offsets of half messages.
pub(crate) fn open_places(open: &OpenHalves) -> BTreeSet<i64> {
    let halves = open.halves.iter();
    halves.map(|half| half.message.view().physical_offset()).collect()
}

/// Checks that a reader finds the open transactions of a log.
pub(crate) fn check_reader(reader: &Arc<MessageReader>, log: &TransactionLog) -> Result<(), String> {
    let open = open_transactions(reader, None).map_err(|error| error.to_string())?.content;
    let (found, expected) = (open_places(&open), log.open());
    if found != expected || open.passed_over > 0 {
        return Err(format!(
            "{found:?} are open, and by the log {expected:?}: {:?}",
            open.doubts()
        ));
    }
    Ok(())
}
