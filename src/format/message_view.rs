use std::borrow::Cow;

use super::bytes::{i32_at, i64_at, is_text, slice_at, text};
use super::crc::{CRC_PROPERTY_SIZE, before_crc_property, covering, crc_property, crc31, split_crc_property};
use super::host::Host;
use super::message::Message;
use super::message_id::MessageId;
use super::properties::{Properties, property};
use super::record_layout::{
    BODY_CRC_AT, BORN_HOST_AT, BORN_TIME_AT, FLAG_AT, PHYSICAL_OFFSET_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, RecordLayout,
    SYS_FLAG_AT, Version,
};
use super::sys_flag::{INNER_BATCH, Transaction, transaction};

/// One record, read in place: each getter is a few loads. `read_record` makes it, `from_layout` makes it again.
#[derive(Clone, Copy, Debug)]
pub struct MessageView<'a> {
    bytes: &'a [u8],
    layout: RecordLayout,
}

impl<'a> MessageView<'a> {
    /// Views a record whose layout is known. `bytes` are exactly the record; with any others the getters answer nonsense, zeros
    /// or empty slices, and never panic.
    pub fn from_layout(bytes: &'a [u8], layout: RecordLayout) -> Self {
        Self { bytes, layout }
    }

    /// The whole record.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where its parts lie, to be kept beside its bytes.
    pub fn layout(&self) -> RecordLayout {
        self.layout
    }

    /// Bytes of the whole record.
    pub fn size(&self) -> u32 {
        self.layout.size() as u32
    }

    /// The record form.
    pub fn version(&self) -> Version {
        self.layout.version
    }

    /// The stored CRC-32 of the body, without its sign bit.
    pub fn body_crc(&self) -> u32 {
        i32_at(self.bytes, BODY_CRC_AT).cast_unsigned()
    }

    /// Queue of the topic.
    pub fn queue_id(&self) -> i32 {
        i32_at(self.bytes, QUEUE_ID_AT)
    }

    /// The producer's own number.
    pub fn flag(&self) -> i32 {
        i32_at(self.bytes, FLAG_AT)
    }

    /// Number of the message in its queue.
    pub fn queue_offset(&self) -> i64 {
        i64_at(self.bytes, QUEUE_OFFSET_AT)
    }

    /// Byte in the commit log, by the record's own account.
    pub fn physical_offset(&self) -> i64 {
        i64_at(self.bytes, PHYSICAL_OFFSET_AT)
    }

    /// The physical offset after its last byte, by the record's own account.
    pub fn end(&self) -> i64 {
        self.physical_offset().saturating_add(i64::from(self.size()))
    }

    /// See the bits of `sys_flag`.
    pub fn sys_flag(&self) -> i32 {
        i32_at(self.bytes, SYS_FLAG_AT)
    }

    /// When the producer made it, in ms.
    pub fn born_time(&self) -> i64 {
        i64_at(self.bytes, BORN_TIME_AT)
    }

    /// The producer.
    pub fn born_host(&self) -> Host {
        Host::read_at(self.bytes, BORN_HOST_AT, self.layout.is_born_v6())
    }

    /// When the broker appended it, in ms.
    pub fn store_time(&self) -> i64 {
        i64_at(self.bytes, self.layout.store_time_at())
    }

    /// The broker.
    pub fn store_host(&self) -> Host {
        Host::read_at(self.bytes, self.layout.store_host_at(), self.layout.is_store_v6())
    }

    /// How often consumers sent it back.
    pub fn reconsume_times(&self) -> i32 {
        i32_at(self.bytes, self.layout.reconsume_times_at())
    }

    /// Physical offset of the half message, else 0.
    pub fn prepared_transaction_offset(&self) -> i64 {
        i64_at(self.bytes, self.layout.prepared_offset_at())
    }

    /// As stored; `decode_body` decompresses it.
    pub fn body(&self) -> &'a [u8] {
        slice_at(self.bytes, self.layout.body_at(), self.layout.body_len as usize)
    }

    /// Whether the body has the stored checksum. One that is empty has none.
    #[inline]
    pub fn has_whole_body(&self) -> bool {
        self.body().is_empty() || self.body_crc() == crc31(self.body())
    }

    /// Whether the checksum of the whole record is right, which is the last property. Most records have none.
    #[inline]
    pub fn has_whole_record(&self) -> bool {
        self.wrong_crc_property().is_none()
    }

    /// That property, as it is stored and as it would be right, if the two differ.
    #[inline]
    pub(super) fn wrong_crc_property(&self) -> Option<(&'a [u8; CRC_PROPERTY_SIZE], [u8; CRC_PROPERTY_SIZE])> {
        let (_, stored) = split_crc_property(self.properties().bytes())?;
        let (covered, _) = self.bytes.split_last_chunk::<CRC_PROPERTY_SIZE>()?;
        let found = crc_property(covering([covered]));
        (*stored != found).then_some((stored, found))
    }

    /// As stored.
    pub fn topic_bytes(&self) -> &'a [u8] {
        slice_at(self.bytes, self.layout.topic_at(), self.layout.topic_len.into())
    }

    /// Malformed UTF-8 becomes U+FFFD.
    pub fn topic(&self) -> Cow<'a, str> {
        text(self.topic_bytes())
    }

    /// Whether [`topic`](Self::topic) is this one.
    pub fn has_topic(&self, topic: &str) -> bool {
        is_text(self.topic_bytes(), topic)
    }

    /// The stored property bytes, a `__CRC32#` included.
    pub fn properties(&self) -> Properties<'a> {
        Properties::new(slice_at(
            self.bytes,
            self.layout.properties_at(),
            self.layout.properties_len.into(),
        ))
    }

    /// The `TAGS` property, whole.
    pub fn tags(&self) -> Option<Cow<'a, str>> {
        self.properties().get(property::TAGS)
    }

    /// The client's message id.
    pub fn unique_key(&self) -> Option<Cow<'a, str>> {
        self.properties().get(property::UNIQ_KEY)
    }

    /// The pieces of `KEYS`.
    pub fn keys(&self) -> Vec<String> {
        self.properties().keys().map(Cow::into_owned).collect()
    }

    /// What the sysFlag says.
    pub fn transaction(&self) -> Transaction {
        transaction(self.sys_flag())
    }

    /// The broker's id of this message.
    pub fn message_id(&self) -> MessageId {
        MessageId {
            store_host: self.store_host(),
            physical_offset: self.physical_offset(),
        }
    }

    /// Returns true if one entry of a consume queue names this message. Half and rolled-back messages have none, and their queue offset
    /// is 0; an inner batch has its entry in a batch queue.
    pub fn has_queue_entry(&self) -> bool {
        matches!(self.transaction(), Transaction::None | Transaction::Commit) && !self.is_inner_batch()
    }

    /// The body holds several messages (`ProducerBatch` reads them), and the record counts as several in its queue.
    pub fn is_inner_batch(&self) -> bool {
        self.sys_flag() & INNER_BATCH != 0
    }

    /// Whether a queue entry at this place may lead here: the message names the place as its own, or (a light queue's) among
    /// those to which it was dispatched as well.
    pub fn stands_in_queue(&self, topic: &str, queue_id: i32, queue_offset: i64) -> bool {
        let own = self.queue_offset() == queue_offset && self.queue_id() == queue_id && self.topic_bytes() == topic.as_bytes();
        own || self.stands_in_light_queue(topic, queue_offset)
    }

    fn stands_in_light_queue(&self, topic: &str, queue_offset: i64) -> bool {
        let mut places = self.light_queues().into_iter();
        places.any(|(name, offset)| name == topic && offset == queue_offset)
    }

    /// Returns the queues to which the message was dispatched as well, each with its queue offset there.
    pub fn light_queues(&self) -> Vec<(String, i64)> {
        let properties = self.properties();
        let topics = properties.get(property::INNER_MULTI_DISPATCH).unwrap_or_default();
        let offsets = properties.get(property::INNER_MULTI_QUEUE_OFFSET).unwrap_or_default();
        let places = topics.split(',').zip(offsets.split(','));
        places
            .filter_map(|(name, offset)| Some((name.to_owned(), offset.parse().ok()?)))
            .collect()
    }

    /// Returns the changes that give this record another place in the queues: positions in the record, each with its new bytes. `None` for
    /// a topic of another length.
    pub fn changes_of_place(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Option<[(usize, Vec<u8>); 3]> {
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

    /// Everything in it, owned. Encoding that again gives the same bytes if the checksums were right and the topic UTF-8.
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

    /// A `__CRC32#` becomes the flag only if encoding would write these very bytes: batch records of 5.2 and 5.3 may lack the
    /// separator before it, and anybody may store a property of that name.
    fn properties_for_encoding(&self) -> (&'a [u8], bool) {
        let stored = self.properties().bytes();
        let split = split_crc_property(stored).zip(self.bytes.split_last_chunk::<CRC_PROPERTY_SIZE>());
        match split {
            Some(((rest, last), (covered, _)))
                if *before_crc_property(rest) == *rest && *last == crc_property(covering([covered])) =>
            {
                (rest, true)
            }
            _ => (stored, false),
        }
    }
}
