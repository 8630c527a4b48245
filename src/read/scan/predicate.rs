//! The predicate on everything of a message but its body.

use std::collections::HashSet;
use std::ops::Range;

use foldhash::fast::RandomState;

use crate::error::Result;
use crate::format::{CqUnit, LIGHT_QUEUE_ID, MessageView, Transaction, is_light_queue, property};
use crate::read::get_message::{TagFilter, is_code_of, wrong_tags};
use crate::read::message_reader::MessageReader;
use crate::read::scan::queue_leads::{Lead, LostQueues, QueueLeads};
use crate::read::scan::record_location::{LedBy, RecordLocation};
use crate::read::scan::request::{ScanRequest, TimeOf, Transactions};

/// The conditions of a request, the cheap ones first.
#[derive(Debug)]
pub(super) struct Predicate {
    topics: Option<HashSet<Vec<u8>, RandomState>>,
    /// The light queues among the topics, ascending.
    light: Vec<String>,
    /// Ascending.
    queue_ids: Option<Vec<i32>>,
    times: Option<(TimeOf, Range<i64>)>,
    transactions: Transactions,
    tags: TagFilter,
    keys: Option<HashSet<String, RandomState>>,
    properties: Vec<(String, String)>,
    leads: QueueLeads,
    lost: LostQueues,
}

impl Predicate {
    pub(super) fn new(request: &ScanRequest, lost: LostQueues) -> Self {
        let topics = request.topics.as_ref();
        let mut queue_ids = request.queue_ids.clone();
        if let Some(queue_ids) = &mut queue_ids {
            queue_ids.sort_unstable();
        }
        let mut light: Vec<_> = topics
            .into_iter()
            .flatten()
            .filter(|topic| is_light_queue(topic))
            .cloned()
            .collect();
        light.sort_unstable();
        Self {
            topics: topics.map(|topics| topics.iter().map(|topic| topic.clone().into_bytes()).collect()),
            light,
            queue_ids,
            times: (request.times != (i64::MIN..i64::MAX)).then(|| (request.by, request.times.clone())),
            transactions: request.transactions,
            tags: request.tags.clone(),
            keys: request.keys.as_ref().map(|keys| keys.iter().cloned().collect()),
            properties: request.properties.clone(),
            leads: QueueLeads::new(request),
            lost,
        }
    }

    /// Returns true if the message is wanted.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) for a message that may be wanted, and is not what a queue says of it: the
    /// entry or the record is damaged; [`Error::Io`](crate::error::Error::Io).
    pub(super) fn admits(&mut self, location: &RecordLocation, view: &MessageView<'_>, reader: &MessageReader) -> Result<bool> {
        if !self.has_times_and_properties(view) {
            return Ok(false);
        }
        let entry = match &location.by {
            LedBy::Log => match self.lead(view, reader)? {
                Lead::Entry(unit) => Some(unit),
                Lead::Unknown => None,
                Lead::None => return Ok(false),
                Lead::Lost => {
                    if self.has_tags(view, None, reader)? {
                        self.lost.add(view);
                    }
                    return Ok(false);
                }
            },
            // A light queue leads to messages of other topics.
            LedBy::Queue(queue, ..)
                if self.light.contains(&queue.topic) && self.given_with(view) != Some(queue.topic.as_bytes()) =>
            {
                return Ok(false);
            }
            LedBy::Queue(_, _, tags_code) => Some(CqUnit {
                physical_offset: location.physical_offset,
                size: location.size.cast_signed(),
                tags_code: *tags_code,
            }),
            LedBy::Walk | LedBy::Caller | LedBy::Query(_) => None,
        };
        self.has_tags(view, entry, reader)
    }

    /// Notes the queue of a wanted message, if its files are lost.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub(super) fn note_lost_queue(&mut self, view: &MessageView<'_>, reader: &MessageReader) -> Result<()> {
        let is_queued = matches!(view.transaction(), Transaction::None | Transaction::Commit);
        if is_queued
            && self.has_times_and_properties(view)
            && self.leads.is_lost(view, reader)?
            && self.has_tags(view, None, reader)?
        {
            self.lost.add(view);
        }
        Ok(())
    }

    /// Returns the entry that leads to a message of the log; nothing if it is not wanted. The record alone does not decide: no
    /// checksum covers its topic, its queue id and its transaction.
    fn lead(&mut self, view: &MessageView<'_>, reader: &MessageReader) -> Result<Lead> {
        let is_named = self.given_with(view).is_some();
        let is_all = self.transactions == Transactions::All;
        if is_named && is_all {
            return Ok(Lead::Unknown);
        }
        if is_named && matches!(view.transaction(), Transaction::None | Transaction::Commit) {
            return self.leads.to(view, reader);
        }
        let is_led_to = self.leads.is_asked_for(view, reader)?;
        Ok(if is_led_to && is_named { Lead::Unknown } else { Lead::None })
    }

    /// Returns the topic with which the message is returned, once though several are named: its own one, else the first of its light
    /// queues. `None` if it belongs to no topic and queue that is looked at.
    pub(super) fn given_with<'a>(&'a self, view: &'a MessageView<'_>) -> Option<&'a [u8]> {
        let is_wanted = |id: i32| {
            self.queue_ids
                .as_ref()
                .is_none_or(|queue_ids| queue_ids.binary_search(&id).is_ok())
        };
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

    fn has_times_and_properties(&self, view: &MessageView<'_>) -> bool {
        let asks_for_properties = self.keys.is_some() || !self.properties.is_empty();
        self.is_in_time(view) && (!asks_for_properties || self.has_properties(view))
    }

    fn is_in_time(&self, view: &MessageView<'_>) -> bool {
        match &self.times {
            None => true,
            Some((TimeOf::Store, times)) => times.contains(&view.store_time()),
            Some((TimeOf::Born, times)) => times.contains(&view.born_time()),
        }
    }

    fn has_properties(&self, view: &MessageView<'_>) -> bool {
        self.keys.as_ref().is_none_or(|wanted| has_key(view, wanted))
            && self.properties.iter().all(|(name, value)| {
                let found = view.properties().get(name);
                found.is_some_and(|found| found == *value)
            })
    }

    fn has_tags(&self, view: &MessageView<'_>, entry: Option<CqUnit>, reader: &MessageReader) -> Result<bool> {
        if self.tags.is_any() {
            return Ok(true);
        }
        let (topic, tags) = (view.topic(), view.tags());
        let is_wanted = self.tags.matches(tags.as_ref());
        match entry {
            Some(unit) if self.tags.may_match(&topic, &unit) != is_wanted && !is_code_of(&topic, &unit, tags.as_ref()) => {
                Err(wrong_tags(reader, view))
            }
            _ => Ok(is_wanted),
        }
    }
}

fn has_key(view: &MessageView<'_>, wanted: &HashSet<String, RandomState>) -> bool {
    let properties = view.properties();
    let unique_key = properties.get(property::UNIQ_KEY);
    unique_key.is_some_and(|key| wanted.contains(key.as_ref())) || properties.keys().any(|key| wanted.contains(key.as_ref()))
}
