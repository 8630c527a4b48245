//! A prepared writer: appends to one queue of one topic. What all of its messages share is checked and encoded once.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{EncodedMessage, Message, MessageTemplate, PropertyList, PropertyRoom, encode_keys};
use crate::log::{Prepared, QueueSlot};
use crate::store::append::{Waits, expect_legal};
use crate::store::append_result::AppendResult;
use crate::store::message_checker::check_properties_len;
use crate::store::message_store::MessageStore;

/// Appends messages to one queue. Their records are those that [`Appender::append`](crate::store::Appender::append) of a producer
/// writes for the same topic, queue id, tag and keys.
#[derive(Debug, Clone)]
pub struct TopicWriter {
    store: Arc<MessageStore>,
    /// The shared fields. Its properties are those before the keys.
    template: MessageTemplate,
    slot: QueueSlot,
    /// The copies for which each append waits.
    waits: Waits,
}

impl MessageStore {
    /// Returns a writer of messages with this tag to a queue. The settings of the topic bind each append.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`] for a topic, queue id or tag that no message may have, also by the settings of the topic.
    pub fn writer(self: &Arc<Self>, topic: &str, queue_id: i32, tags: Option<&str>) -> Result<TopicWriter> {
        let mut properties = PropertyList::default();
        if let Some(tags) = tags {
            properties.put_tags(tags).map_err(Error::of_properties)?;
        }
        let mut message = Message {
            topic: Cow::Owned(topic.to_owned()),
            queue_id,
            properties: Cow::Owned(properties.encode().map_err(Error::of_properties)?),
            ..Message::default()
        };
        let appender = self.appender(None).of_producer();
        // A tag and keys neither delay a message nor send it elsewhere, so what is checked here holds for every message.
        appender.checked(&mut message)?;
        Ok(TopicWriter {
            store: self.clone(),
            slot: self.log.queue_slot(topic, queue_id),
            waits: appender.waits_for([&message]),
            template: MessageTemplate::new(message),
        })
    }
}

impl TopicWriter {
    /// Returns the store.
    pub fn store(&self) -> &Arc<MessageStore> {
        &self.store
    }

    /// Returns the topic.
    pub fn topic(&self) -> &str {
        &self.template.message().topic
    }

    /// Returns the queue id.
    pub fn queue_id(&self) -> i32 {
        self.template.message().queue_id
    }

    /// Appends a message, born now.
    ///
    /// # Errors
    /// Those of [`Appender::append`](crate::store::Appender::append).
    #[inline]
    pub fn append<K: AsRef<str>>(&self, body: &[u8], keys: &[K]) -> Result<AppendResult> {
        let appender = self.store.appender(None);
        self.encoded(body, keys, |message, prepared| {
            appender.put(message, Some(prepared), self.waits)
        })
    }

    /// Appends a message, born now, unless the call would wait: for a segment, or until the message is durable. Then it returns `None`,
    /// and nothing is stored.
    ///
    /// # Errors
    /// Those of [`append`](Self::append).
    #[inline]
    pub fn try_append<K: AsRef<str>>(&self, body: &[u8], keys: &[K]) -> Result<Option<AppendResult>> {
        if self.waits.any() {
            return Ok(None);
        }
        let appender = self.store.appender(None);
        self.encoded(body, keys, |message, prepared| {
            appender.try_put(message, Some(prepared), Waits::default())
        })
    }

    /// Checks and encodes a message, and passes it to `put`.
    #[inline]
    fn encoded<K: AsRef<str>, T>(
        &self,
        body: &[u8],
        keys: &[K],
        put: impl FnOnce(&EncodedMessage<'_>, Prepared) -> Result<T>,
    ) -> Result<T> {
        let Self {
            store, template, slot, ..
        } = self;
        let called_at = store.env.now_ms();
        let shared = template.message();
        let mut room = PropertyRoom::default();
        let properties = encode_keys(&shared.properties, keys, &mut room).map_err(Error::of_properties)?;
        store.topics.expect_allowed(shared, true)?;
        store.checker.check_body(body.len())?;
        check_properties_len(template.properties_len(properties.len()))?;
        let encoded = template.prepare(called_at, body, properties);
        let message = expect_legal(&encoded)?;
        store.checker.check_size("record", message.len() as u64)?;
        put(message, Prepared { slot: *slot, called_at })
    }
}
