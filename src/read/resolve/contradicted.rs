//! Records of a walk that may be wanted although they do not say so: no checksum covers topic and properties, but a queue of a wanted topic
//! leads to such a record, or the code of its tags in the queue is another one.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::error::{Error, Result};
use crate::format::MessageView;
use crate::log::EntryCursor;
use crate::read::asked_queues::AskedQueues;
use crate::read::damage::{Unread, Unreadable};
use crate::read::get_message::{is_code_of, wrong_tags};
use crate::read::message_reader::MessageReader;
use crate::read::resolve::query_request::{Numbers, QueryBy, Wanted};

/// The records of a walk that the queues of the wanted topics contradict.
#[derive(Debug)]
pub(super) struct Contradicted<'a> {
    reader: &'a MessageReader,
    wanted: Wanted<'a>,
    /// Ascending.
    topics: Vec<&'a str>,
    asked: AskedQueues,
    tag: Option<WantedTag<'a>>,
    unread: Unread,
    failed: Option<Error>,
}

/// A tag, and the queues of its topic by id.
#[derive(Debug)]
struct WantedTag<'a> {
    tag: Cow<'a, str>,
    queues: HashMap<i32, Option<EntryCursor>, RandomState>,
}

impl<'a> Contradicted<'a> {
    pub(super) fn new(wanted: Wanted<'a>, numbers: &Numbers<'a>, reader: &'a MessageReader) -> Self {
        let topics = wanted.topics(numbers);
        let named = topics.iter().map(|topic| (*topic).to_owned()).collect();
        Self {
            reader,
            wanted,
            asked: AskedQueues::new(Some(named), None, false),
            tag: match wanted {
                Wanted::Query(request) => match &request.by {
                    QueryBy::Tag(tag) => Some(WantedTag {
                        tag: tag.into(),
                        queues: HashMap::default(),
                    }),
                    QueryBy::Key(_) => None,
                },
                Wanted::Keys(_) | Wanted::UniqueKeys(..) => None,
            },
            topics,
            unread: Unread::new(),
            failed: None,
        }
    }

    /// Takes account of the next record of the walk. `is_hit`: it counts as found.
    #[inline]
    pub(super) fn look_at(&mut self, view: &MessageView<'_>, is_hit: bool) {
        let topic = view.topic_bytes();
        let is_of_topic = match self.topics.as_slice() {
            [only] => only.as_bytes() == topic,
            topics => topics.binary_search_by(|known| known.as_bytes().cmp(topic)).is_ok(),
        };
        let looked = match &self.tag {
            _ if !is_of_topic || is_hit => self.asked.lead_to(view.physical_offset(), self.reader).map(drop),
            Some(_) => self.compare_tags(view),
            None => return,
        };
        match looked {
            Ok(()) => {}
            Err(Error::Corrupt { .. }) if !is_of_topic && !self.wanted.may_be_of(view) => {}
            // Its body is damaged, which a walk does not check.
            Err(Error::Corrupt { .. }) if is_hit && self.is_in_place(view) => {}
            Err(damage @ Error::Corrupt { .. }) => {
                self.unread.insert(view.physical_offset(), Unreadable::Damaged(damage));
            }
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
    }

    /// Returns true if the queue entry of a record leads to it.
    fn is_in_place(&self, view: &MessageView<'_>) -> bool {
        let entry = self.reader.entry(&view.topic(), view.queue_id(), view.queue_offset());
        matches!(entry, Ok(Some(unit)) if unit.physical_offset == view.physical_offset())
    }

    /// Compares the tags of a record with the code in the entry that leads to it, which may be that of the wanted tag.
    fn compare_tags(&mut self, view: &MessageView<'_>) -> Result<()> {
        let Some(WantedTag { tag: wanted, queues }) = &mut self.tag else {
            return Ok(());
        };
        let (topic, tags) = (view.topic(), view.tags());
        if tags.as_ref().is_some_and(|tags| tags == wanted) {
            return Ok(());
        }
        let queue_id = view.queue_id();
        let entries = if let Some(known) = queues.get_mut(&queue_id) {
            known
        } else {
            let queue = match self.reader.queue(&topic, queue_id) {
                Err(Error::Unsupported { .. }) => None,
                queue => queue?,
            };
            queues.entry(queue_id).or_insert(queue.map(EntryCursor::new))
        };
        let Some(entries) = entries else { return Ok(()) };
        match entries.known_unit(view.queue_offset())? {
            Some(unit)
                if unit.physical_offset == view.physical_offset()
                    && is_code_of(&topic, &unit, Some(wanted))
                    && !is_code_of(&topic, &unit, tags.as_ref()) =>
            {
                Err(wrong_tags(self.reader, view))
            }
            _ => Ok(()),
        }
    }

    /// Returns the damage.
    ///
    /// # Errors
    /// [`Error::Io`] if a queue could not be read.
    pub(super) fn finish(self) -> Result<Unread> {
        self.failed.map_or(Ok(self.unread), Err)
    }
}
