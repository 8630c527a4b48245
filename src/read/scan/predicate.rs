//! Whether a message is wanted, by all of it but its body.

use std::collections::HashSet;
use std::ops::Range;

use foldhash::fast::RandomState;

use crate::format::{MessageView, Transaction, property};
use crate::read::get_message::TagFilter;
use crate::read::scan::place::{LedBy, Place};
use crate::read::scan::request::{ScanRequest, TimeOf, Transactions};

/// Whether this is the name of a light queue, which is the topic of its files.
pub(super) fn is_light(topic: &str) -> bool {
    topic.starts_with("%LMQ%")
}

/// The queue id of every light queue.
const LIGHT_QUEUE_ID: i32 = 0;

/// The conditions of a request, the cheap ones first.
#[derive(Debug)]
pub(super) struct Predicate {
    topics: Option<HashSet<Vec<u8>, RandomState>>,
    /// The light queues among the topics, ascending.
    light: Vec<String>,
    /// Ascending.
    queues: Option<Vec<i32>>,
    times: Option<(TimeOf, Range<i64>)>,
    transactions: Transactions,
    tags: TagFilter,
    keys: Option<HashSet<String, RandomState>>,
    properties: Vec<(String, String)>,
}

impl Predicate {
    pub(super) fn new(request: &ScanRequest) -> Self {
        let topics = request.topics.as_ref();
        let mut queues = request.queues.clone();
        if let Some(queues) = &mut queues {
            queues.sort_unstable();
        }
        let mut light: Vec<_> = topics
            .into_iter()
            .flatten()
            .filter(|topic| is_light(topic))
            .cloned()
            .collect();
        light.sort_unstable();
        Self {
            topics: topics.map(|topics| topics.iter().map(|topic| topic.clone().into_bytes()).collect()),
            light,
            queues,
            times: (request.times != (i64::MIN..i64::MAX)).then(|| (request.by, request.times.clone())),
            transactions: request.transactions,
            tags: request.tags.clone(),
            keys: request.keys.as_ref().map(|keys| keys.iter().cloned().collect()),
            properties: request.properties.clone(),
        }
    }

    pub(super) fn admits(&self, place: &Place, view: &MessageView<'_>) -> bool {
        let is_in_place = match &place.by {
            LedBy::Log => self.counts(view) && self.given_with(view).is_some(),
            // A light queue leads to messages of other topics.
            LedBy::Queue(queue, _) if self.light.contains(&queue.topic) => self.given_with(view) == Some(queue.topic.as_bytes()),
            LedBy::Queue(..) | LedBy::Caller => true,
        };
        is_in_place && self.is_in_time(view) && self.has_properties(view)
    }

    fn counts(&self, view: &MessageView<'_>) -> bool {
        self.transactions == Transactions::All || matches!(view.transaction(), Transaction::None | Transaction::Commit)
    }

    /// The topic with which the message is given, once though several are named: its own one, else the first of its light queues. `None` if it
    /// belongs to no topic and queue that is looked at.
    pub(super) fn given_with<'a>(&'a self, view: &'a MessageView<'_>) -> Option<&'a [u8]> {
        let is_wanted = |id: i32| self.queues.as_ref().is_none_or(|queues| queues.binary_search(&id).is_ok());
        let own = view.topic_bytes();
        if is_wanted(view.queue_id()) && self.topics.as_ref().is_none_or(|topics| topics.contains(own)) {
            return Some(own);
        }
        if self.light.is_empty() || !is_wanted(LIGHT_QUEUE_ID) {
            return None;
        }
        let names = view.properties().get(property::INNER_MULTI_DISPATCH).unwrap_or_default();
        let is_in = |light: &&String| names.split(',').any(|name| name == *light);
        self.light.iter().find(is_in).map(String::as_bytes)
    }

    fn is_in_time(&self, view: &MessageView<'_>) -> bool {
        match &self.times {
            None => true,
            Some((TimeOf::Store, times)) => times.contains(&view.store_time()),
            Some((TimeOf::Born, times)) => times.contains(&view.born_time()),
        }
    }

    fn has_properties(&self, view: &MessageView<'_>) -> bool {
        (self.tags.is_any() || self.tags.matches(view.tags().as_ref()))
            && self.keys.as_ref().is_none_or(|wanted| has_key(view, wanted))
            && self.properties.iter().all(|(name, value)| {
                let found = view.properties().get(name);
                found.is_some_and(|found| found == *value)
            })
    }
}

fn has_key(view: &MessageView<'_>, wanted: &HashSet<String, RandomState>) -> bool {
    let properties = view.properties();
    let unique_key = properties.get(property::UNIQ_KEY);
    unique_key.is_some_and(|key| wanted.contains(key.as_ref())) || properties.keys().any(|key| wanted.contains(key.as_ref()))
}
