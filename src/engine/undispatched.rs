//! What the queue files lack of what the log holds.

use std::collections::BTreeMap;

use crate::format::{CQ_UNIT_SIZE, CqUnit, DelayLevels, MessageView, Transaction, validate_topic};
use crate::log::ConsumeQueueStore;

/// For each topic and queue id: entries by queue offset.
pub(super) type QueueTails = BTreeMap<(String, i32), BTreeMap<i64, CqUnit>>;

/// Gathers what the queues lack.
pub(super) struct Undispatched<'a> {
    queues: &'a ConsumeQueueStore,
    delay_levels: DelayLevels,
    /// For each topic and queue id: the entries to add, by queue offset.
    pub(super) entries: QueueTails,
    /// A message came whose predecessor in its queue did not.
    pub(super) gap: bool,
    pub(super) refused: u64,
    /// Where messages lead that were lost a moment ago.
    filler: Option<CqUnit>,
}

impl<'a> Undispatched<'a> {
    pub(super) fn new(queues: &'a ConsumeQueueStore, delay_levels: DelayLevels) -> Self {
        Self {
            queues,
            delay_levels,
            entries: BTreeMap::new(),
            gap: false,
            refused: 0,
            filler: None,
        }
    }

    /// Messages are lost here: numbers that a queue then lacks lead to what fills their place.
    pub(super) fn pass_over(&mut self, filler: CqUnit) {
        self.filler = Some(filler).filter(|filler| filler.size > 0);
    }

    pub(super) fn add(&mut self, view: &MessageView<'_>) {
        if !has_queue_entry(view) || self.queues.rocksdb().is_some() {
            return;
        }
        let topic = view.topic();
        let (queue_id, queue_offset) = (view.queue_id(), view.queue_offset());
        let Ok(queue) = self.queues.queue(&topic, queue_id) else {
            return; // a batch consume queue, which is not built here
        };
        let unit = CqUnit {
            physical_offset: view.physical_offset(),
            size: view.size() as i32,
            tags_code: view.tags_code(&self.delay_levels),
        };
        if queue
            .as_ref()
            .and_then(|queue| queue.known_unit(queue_offset))
            .is_some_and(|known| (known.physical_offset, known.size) == (unit.physical_offset, unit.size))
        {
            return;
        }
        if validate_topic(&topic, view.version()).is_err() || !(0..MAX_QUEUE_OFFSET).contains(&queue_offset) || queue_id < 0 {
            self.refused += 1;
            return;
        }
        let entries = self.entries.entry((topic.into_owned(), queue_id)).or_default();
        let gathered = entries.last_key_value().map(|(offset, _)| offset + 1);
        let known = queue.map(|queue| queue.max_offset()).filter(|max| *max > 0);
        let gap = gathered.max(known).map_or(queue_offset > 0, |next| queue_offset > next);
        self.gap |= gap;
        if gap
            && let (Some(filler), Some(next)) = (self.filler, gathered.max(known))
            && queue_offset - next <= MAX_LOST_TOGETHER
        {
            entries.extend((next..queue_offset).map(|lost| (lost, filler)));
        } else if gap && gathered.max(known).is_some() {
            // Nobody ever appended the messages between: this number is not to be believed.
            self.refused += 1;
            return;
        }
        if known.is_none() && entries.first_key_value().is_some_and(|(first, _)| queue_offset < *first) {
            // The queue holds nothing in front of its first message: one of the two numbers is wrong, and a second message in a row
            // is better evidence than one.
            self.refused += 1;
            if entries.len() > 1 {
                return;
            }
            entries.clear();
        }
        entries.insert(queue_offset, unit);
    }
}

/// A number that leaves out more is not to be believed, whatever was lost.
const MAX_LOST_TOGETHER: i64 = 10_000_000;
/// Beyond it a queue file has no name.
const MAX_QUEUE_OFFSET: i64 = i64::MAX / CQ_UNIT_SIZE as i64;

/// Half and rolled-back messages have no queue entry, and a producer batch stored whole belongs to a batch consume queue.
fn has_queue_entry(view: &MessageView<'_>) -> bool {
    matches!(view.transaction(), Transaction::None | Transaction::Commit) && !view.is_inner_batch()
}
