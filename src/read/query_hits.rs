//! The hits of a query, whose messages are read later: each message is compared with what the query has found.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::format::MessageView;
use crate::log::StoredMessage;
use crate::read::damage::OnDamage;
use crate::read::message_reader::{MessageReader, message_text};
use crate::read::resolve::{KeyHit, QueryRequest};

/// The hits of a query, ascending by physical offset.
#[derive(Debug)]
pub struct QueryHits {
    request: QueryRequest,
    hits: Vec<KeyHit>,
    /// A bit for each hit whose message a read has skipped.
    skipped: Box<[AtomicU64]>,
}

impl QueryHits {
    /// Returns the hits, whose messages are still unread.
    pub fn new(request: QueryRequest, hits: Vec<KeyHit>) -> Self {
        let words = hits.len().div_ceil(u64::BITS as usize);
        Self {
            request,
            hits,
            skipped: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Adds hits whose messages reads have skipped before, as [`skipped_hits`](Self::skipped_hits) returns them.
    #[must_use]
    pub fn with_skipped(self, words: impl IntoIterator<Item = u64>) -> Self {
        for (known, word) in self.skipped.iter().zip(words) {
            known.fetch_or(word, Ordering::Relaxed);
        }
        self
    }

    /// Returns the arguments of the query.
    pub fn request(&self) -> &QueryRequest {
        &self.request
    }

    /// Returns the locations of the messages.
    pub fn list(&self) -> &[KeyHit] {
        &self.hits
    }

    /// Returns the number of hits whose messages reads have skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped_hits().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns a bit for each hit, 64 in a word: 1 if a read has skipped its message.
    pub fn skipped_hits(&self) -> impl Iterator<Item = u64> {
        self.skipped.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns the index of the hit at this physical offset.
    pub fn find(&self, physical_offset: i64) -> Option<usize> {
        self.hits
            .binary_search_by_key(&physical_offset, |hit| hit.physical_offset)
            .ok()
    }

    /// Returns true if the record is a message that the query has found. Another log may have another message of the same offset and size
    /// there, so the key or tag and the store time are compared again.
    pub(super) fn has(&self, view: &MessageView<'_>) -> bool {
        self.is_at_hit(view) && self.request.is_of(view)
    }

    /// Returns true if a hit has the offset and the size of the record.
    fn is_at_hit(&self, view: &MessageView<'_>) -> bool {
        let hit = self.find(view.physical_offset()).and_then(|index| self.hits.get(index));
        hit.is_some_and(|hit| *hit == KeyHit::of(view)) && view.has_topic(&self.request.topic)
    }

    /// Reads the message of the hit at this physical offset.
    ///
    /// # Errors
    /// As [`MessageReader::message_at`]; [`Error::NotFound`] if another message is stored there now.
    pub fn message(&self, reader: &MessageReader, physical_offset: i64) -> Result<StoredMessage> {
        let message = reader.message_at(physical_offset)?;
        let view = message.view();
        if self.has(&view) {
            return Ok(message);
        }
        let now = if self.is_at_hit(&view) {
            format!(
                "another message at that offset now, which the query for {} does not find",
                self.request.by
            )
        } else {
            let now = message_text(&view.topic(), view.queue_id(), view.queue_offset());
            format!("{now}, in {} bytes, now", view.size())
        };
        let hit = self.find(physical_offset).and_then(|index| self.hits.get(index));
        let found = hit.map_or_else(String::new, |hit| {
            message_text(&self.request.topic, hit.queue_id, hit.queue_offset)
        });
        Err(Error::not_found(format!(
            "the query has found {found}, in {} bytes at physical offset {physical_offset}, where the store has {now}: query it again",
            hit.map_or(0, |hit| hit.store_size),
        )))
    }

    /// Calls [`message`](Self::message). Returns `None` for damage that is skipped.
    ///
    /// # Errors
    /// Those of [`message`](Self::message).
    pub fn message_or_skip(
        &self,
        reader: &MessageReader,
        physical_offset: i64,
        on_damage: &OnDamage,
    ) -> Result<Option<StoredMessage>> {
        match self.message(reader, physical_offset) {
            Ok(message) => Ok(Some(message)),
            Err(damage) => self.skip(physical_offset, damage, on_damage).map(|()| None),
        }
    }

    /// Skips the message of a hit, or returns the damage.
    pub(super) fn skip(&self, physical_offset: i64, damage: Error, on_damage: &OnDamage) -> Result<()> {
        on_damage.pass_over(damage, 1)?;
        let (word, bit) = match self.find(physical_offset) {
            Some(index) => (self.skipped.get(index / u64::BITS as usize), index % u64::BITS as usize),
            None => (None, 0),
        };
        if let Some(word) = word {
            word.fetch_or(1 << bit, Ordering::Relaxed);
        }
        Ok(())
    }
}
