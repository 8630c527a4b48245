//! Location of the next message of a scan.

use std::sync::Arc;

use crate::format::{MessageView, is_salvage_record};
use crate::read::query_hits::QueryHits;
use crate::read::queue_walk::NamedQueue;

/// A record that is to be read.
#[derive(Debug, Clone)]
pub(super) struct RecordLocation {
    /// Its start.
    pub(super) physical_offset: i64,
    /// Its length in bytes, if known.
    pub(super) size: u32,
    /// The source of the location.
    pub(super) by: LedBy,
}

/// The source of a location.
#[derive(Debug, Clone)]
pub(super) enum LedBy {
    /// The record before it in the log.
    Log,
    /// A walk over the log, which has looked for what leads to it.
    Walk,
    /// The caller.
    Caller,
    /// A query.
    Query(Arc<QueryHits>),
    /// The entry of this queue at this queue offset, with its tags code.
    Queue(Arc<NamedQueue>, i64, i64),
}

impl RecordLocation {
    /// Returns true if the message is the expected one.
    pub(super) fn is_of(&self, view: &MessageView<'_>) -> bool {
        let is_led_to = match &self.by {
            LedBy::Queue(queue, offset, _) => view.is_in_queue_at(&queue.topic, queue.id, *offset),
            LedBy::Query(hits) => hits.has(view),
            LedBy::Log | LedBy::Walk | LedBy::Caller => true,
        };
        is_led_to && !is_salvage_record(view)
    }
}

/// The cost of a random read of one message, as bytes of a sequential read in the same time.
pub(super) const READ_ALONE: i64 = 512;
