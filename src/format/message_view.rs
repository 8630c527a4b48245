use std::borrow::Cow;

use super::bytes::{i32_at, i64_at, is_text, slice_at, text};
use super::crc::{CRC_PROPERTY_SIZE, before_crc_property, crc_of_parts, crc_property, crc31, split_crc_property};
use super::host::Host;
use super::message::Message;
use super::message_id::MessageId;
use super::properties::{Properties, property};
use super::record_layout::{
    BODY_CRC_AT, BORN_HOST_AT, BORN_TIME_AT, FLAG_AT, PHYSICAL_OFFSET_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, RecordLayout,
    SYS_FLAG_AT, Version,
};
use super::sys_flag::{INNER_BATCH, Transaction, transaction};

/// A view of one record in its buffer: each getter takes a few loads. `read_record` creates it; `from_layout` creates it again
/// without parsing.
#[derive(Clone, Copy, Debug)]
pub struct MessageView<'a> {
    bytes: &'a [u8],
    layout: RecordLayout,
}

impl<'a> MessageView<'a> {
    /// Creates a view of a record whose layout is known. `bytes` must be exactly the record. With any other bytes the getters
    /// return garbage, zeros or empty slices, and never panic.
    pub fn from_layout(bytes: &'a [u8], layout: RecordLayout) -> Self {
        Self { bytes, layout }
    }

    /// Returns the bytes of the record.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the layout of the fields, to be stored beside the bytes.
    pub fn layout(&self) -> RecordLayout {
        self.layout
    }

    /// Returns the size of the record.
    pub fn size(&self) -> u32 {
        self.layout.size() as u32
    }

    /// Returns the format version of the record.
    pub fn version(&self) -> Version {
        self.layout.version
    }

    /// Returns the stored CRC-32 of the body, without its sign bit.
    pub fn body_crc(&self) -> u32 {
        i32_at(self.bytes, BODY_CRC_AT).cast_unsigned()
    }

    /// Returns the queue id.
    pub fn queue_id(&self) -> i32 {
        i32_at(self.bytes, QUEUE_ID_AT)
    }

    /// Returns the producer's own number.
    pub fn flag(&self) -> i32 {
        i32_at(self.bytes, FLAG_AT)
    }

    /// Returns the number of the message in its queue.
    pub fn queue_offset(&self) -> i64 {
        i64_at(self.bytes, QUEUE_OFFSET_AT)
    }

    /// Returns the byte in the commit log that the record states as its start.
    pub fn physical_offset(&self) -> i64 {
        i64_at(self.bytes, PHYSICAL_OFFSET_AT)
    }

    /// Returns the physical offset after the last byte, by the start that the record states.
    pub fn end(&self) -> i64 {
        self.physical_offset().saturating_add(i64::from(self.size()))
    }

    /// Returns the sysFlag; see the constants of `sys_flag`.
    pub fn sys_flag(&self) -> i32 {
        i32_at(self.bytes, SYS_FLAG_AT)
    }

    /// Returns the time at which the producer made it, in ms.
    pub fn born_time(&self) -> i64 {
        i64_at(self.bytes, BORN_TIME_AT)
    }

    /// Returns the producer.
    pub fn born_host(&self) -> Host {
        Host::read_at(self.bytes, BORN_HOST_AT, self.layout.is_born_v6())
    }

    /// Returns the time at which the broker appended it, in ms.
    pub fn store_time(&self) -> i64 {
        i64_at(self.bytes, self.layout.store_time_at())
    }

    /// Returns the broker.
    pub fn store_host(&self) -> Host {
        Host::read_at(self.bytes, self.layout.store_host_at(), self.layout.is_store_v6())
    }

    /// Returns the number of times that consumers sent it back.
    pub fn reconsume_times(&self) -> i32 {
        i32_at(self.bytes, self.layout.reconsume_times_at())
    }

    /// Returns the physical offset of the half message, else 0.
    pub fn prepared_transaction_offset(&self) -> i64 {
        i64_at(self.bytes, self.layout.prepared_offset_at())
    }

    /// Returns the body as stored; `decode_body` decompresses it.
    pub fn body(&self) -> &'a [u8] {
        slice_at(self.bytes, self.layout.body_at(), self.layout.body_len as usize)
    }

    /// Returns true if the body matches the stored checksum. An empty body has no checksum.
    #[inline]
    pub fn has_whole_body(&self) -> bool {
        self.body().is_empty() || self.body_crc() == crc31(self.body())
    }

    /// Returns true if the record matches the checksum in its last property, or has no such property. Most records have none.
    #[inline]
    pub fn has_whole_record(&self) -> bool {
        self.wrong_crc_property().is_none()
    }

    /// Returns the checksum property as stored and as computed, if the two differ.
    #[inline]
    pub(super) fn wrong_crc_property(&self) -> Option<(&'a [u8; CRC_PROPERTY_SIZE], [u8; CRC_PROPERTY_SIZE])> {
        // The properties are the last part of the record.
        let (covered, stored) = split_crc_property(self.bytes)?;
        if usize::from(self.layout.properties_len) < CRC_PROPERTY_SIZE {
            return None;
        }
        let found = crc_property(crc_of_parts([covered]));
        (*stored != found).then_some((stored, found))
    }

    /// Returns the topic as stored.
    pub fn topic_bytes(&self) -> &'a [u8] {
        slice_at(self.bytes, self.layout.topic_at(), self.layout.topic_len.into())
    }

    /// Returns the topic. Malformed UTF-8 becomes U+FFFD.
    pub fn topic(&self) -> Cow<'a, str> {
        text(self.topic_bytes())
    }

    /// Returns true if [`topic`](Self::topic) equals `topic`.
    pub fn has_topic(&self, topic: &str) -> bool {
        is_text(self.topic_bytes(), topic)
    }

    /// Returns the stored properties, including a `__CRC32#`.
    pub fn properties(&self) -> Properties<'a> {
        Properties::new(slice_at(
            self.bytes,
            self.layout.properties_at(),
            self.layout.properties_len.into(),
        ))
    }

    /// Returns the whole property `TAGS`.
    pub fn tags(&self) -> Option<Cow<'a, str>> {
        self.properties().get(property::TAGS)
    }

    /// Returns the client's message id.
    pub fn unique_key(&self) -> Option<Cow<'a, str>> {
        self.properties().get(property::UNIQ_KEY)
    }

    /// Returns the keys in `KEYS`.
    pub fn keys(&self) -> Vec<String> {
        self.properties().keys().map(Cow::into_owned).collect()
    }

    /// Returns the transaction type in the sysFlag.
    pub fn transaction(&self) -> Transaction {
        transaction(self.sys_flag())
    }

    /// Returns the broker's id of this message.
    pub fn message_id(&self) -> MessageId {
        MessageId {
            store_host: self.store_host(),
            physical_offset: self.physical_offset(),
        }
    }

    /// Returns true if exactly one entry of a consume queue points to this message. Half and rolled-back messages have no entry,
    /// and their queue offset is 0. An inner batch has its entry in a batch queue.
    pub fn has_queue_entry(&self) -> bool {
        matches!(self.transaction(), Transaction::None | Transaction::Commit) && !self.is_inner_batch()
    }

    /// Returns true if the body holds several messages. `ProducerBatch` reads them, and the record counts as several in its queue.
    pub fn is_inner_batch(&self) -> bool {
        self.sys_flag() & INNER_BATCH != 0
    }

    /// Returns true if the queue entry with this topic, queue id and queue offset may point to this message: the message states
    /// them as its own, or as those of a light queue to which it was dispatched as well.
    #[inline]
    pub fn is_in_queue_at(&self, topic: &str, queue_id: i32, queue_offset: i64) -> bool {
        let own = self.queue_offset() == queue_offset && self.queue_id() == queue_id && self.topic_bytes() == topic.as_bytes();
        own || self.is_in_light_queue_at(topic, queue_offset)
    }

    #[cold]
    fn is_in_light_queue_at(&self, topic: &str, queue_offset: i64) -> bool {
        let mut entries = self.light_queues().into_iter();
        entries.any(|(name, offset)| name == topic && offset == queue_offset)
    }

    /// Returns the light queues to which the message was dispatched as well, each with the queue offset there.
    pub fn light_queues(&self) -> Vec<(String, i64)> {
        let properties = self.properties();
        let topics = properties.get(property::INNER_MULTI_DISPATCH).unwrap_or_default();
        let offsets = properties.get(property::INNER_MULTI_QUEUE_OFFSET).unwrap_or_default();
        let entries = topics.split(',').zip(offsets.split(','));
        entries
            .filter_map(|(name, offset)| Some((name.to_owned(), offset.parse().ok()?)))
            .collect()
    }

    /// Returns the edits that move this record to another queue offset: positions in the record, each with its new bytes. `None`
    /// for a topic of another length.
    pub fn queue_position_edits(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Option<[(usize, Vec<u8>); 3]> {
        (topic.len() == self.topic_bytes().len()).then(|| {
            [
                (QUEUE_ID_AT, queue_id.to_be_bytes().to_vec()),
                (QUEUE_OFFSET_AT, queue_offset.to_be_bytes().to_vec()),
                (self.layout.topic_at(), topic.as_bytes().to_vec()),
            ]
        })
    }

    /// Returns true if a checksum covers the whole record (`__CRC32#`).
    pub fn has_crc_property(&self) -> bool {
        split_crc_property(self.properties().bytes()).is_some()
    }

    /// Decodes all fields. Encoding the result again returns the same bytes if the checksums were right and the topic was UTF-8.
    pub fn to_message(&self) -> Message<'a> {
        let (properties, crc_property) = self.properties_for_encoding();
        Message {
            version: self.version(),
            queue_id: self.queue_id(),
            flag: self.flag(),
            queue_offset: self.queue_offset(),
            physical_offset: self.physical_offset(),
            sys_flag: self.sys_flag(),
            born_time: self.born_time(),
            born_host: self.born_host(),
            store_time: self.store_time(),
            store_host: self.store_host(),
            reconsume_times: self.reconsume_times(),
            prepared_transaction_offset: self.prepared_transaction_offset(),
            body: self.body().into(),
            topic: self.topic(),
            properties: properties.into(),
            crc_property,
        }
    }

    /// Returns the properties to encode, and true if encoding shall append a `__CRC32#`. It shall only if that writes the same
    /// bytes: batch records of 5.2 and 5.3 may have no separator before it, and any producer may store a property of that name.
    fn properties_for_encoding(&self) -> (&'a [u8], bool) {
        let stored = self.properties().bytes();
        let split = split_crc_property(stored).zip(self.bytes.split_last_chunk::<CRC_PROPERTY_SIZE>());
        match split {
            Some(((rest, last), (covered, _)))
                if *before_crc_property(rest) == *rest && *last == crc_property(crc_of_parts([covered])) =>
            {
                (rest, true)
            }
            _ => (stored, false),
        }
    }
}
