use std::borrow::Cow;

use crc32fast::Hasher;

use super::bytes::{put_i32, put_i64};
use super::crc::{CRC_PROPERTY_SIZE, before_crc_property, crc_of_parts, crc_property, crc31};
use super::host::Host;
use super::malformed::Malformed;
use super::properties::MAX_PROPERTIES_SIZE;
use super::record_layout::{
    BODY_CRC_AT, BORN_HOST_AT, BORN_TIME_AT, FLAG_AT, MAGIC_AT, MAX_HEAD_SIZE, PHYSICAL_OFFSET_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT,
    RecordLayout, SYS_FLAG_AT, TOTAL_SIZE_AT, Version,
};
use super::sys_flag::{BORN_HOST_V6, STORE_HOST_V6, Transaction, transaction};

/// All fields of a record (docs/FORMAT.md, section Record). Sizes, magic and checksums follow from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The format version of the record.
    pub version: Version,
    /// The queue of the topic.
    pub queue_id: i32,
    /// The producer's own number, which the store does not interpret.
    pub flag: i32,
    /// The number of the message in its queue; 0 for prepared and rolled-back messages.
    pub queue_offset: i64,
    /// The byte in the commit log at which the record starts.
    pub physical_offset: i64,
    /// The bits of `sys_flag`; encoding sets the two host bits from the hosts.
    pub sys_flag: i32,
    /// The time at which the producer made it, in ms.
    pub born_time: i64,
    /// The producer.
    pub born_host: Host,
    /// The time at which the broker appended it, in ms.
    pub store_time: i64,
    /// The broker.
    pub store_host: Host,
    /// The number of times that consumers sent it back.
    pub reconsume_times: i32,
    /// The physical offset of the half message of this commit or rollback, else 0.
    pub prepared_transaction_offset: i64,
    /// The body as the producer sent it, possibly compressed.
    pub body: Cow<'a, [u8]>,
    /// The topic, at most 127 bytes in V1.
    pub topic: Cow<'a, str>,
    /// The encoded properties (`encode_properties`), without the `__CRC32#` that `crc_property` appends.
    pub properties: Cow<'a, [u8]>,
    /// Set to append a CRC of the whole record as the last property.
    pub crc_property: bool,
}

impl Default for Message<'_> {
    fn default() -> Self {
        Self {
            version: Version::V1,
            queue_id: 0,
            flag: 0,
            queue_offset: 0,
            physical_offset: 0,
            sys_flag: 0,
            born_time: 0,
            born_host: Host::LOCAL,
            store_time: 0,
            store_host: Host::LOCAL,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: Cow::Borrowed(&[]),
            topic: Cow::Borrowed(""),
            properties: Cow::Borrowed(&[]),
            crc_property: false,
        }
    }
}

impl Message<'_> {
    /// Copies borrowed bytes, so that the message owns all of them.
    #[must_use]
    pub fn into_owned(self) -> Message<'static> {
        Message {
            body: self.body.into_owned().into(),
            topic: self.topic.into_owned().into(),
            properties: self.properties.into_owned().into(),
            ..self
        }
    }

    /// Returns the size of the record, even if `encode` refuses it.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        let fixed = RecordLayout::of_header(self.version, self.stored_sys_flag()).size();
        fixed + self.body.len() + self.topic.len() + self.properties_len()
    }

    /// Returns the size of the stored properties, including the checksum.
    #[inline]
    pub fn properties_len(&self) -> usize {
        self.properties_before_crc().len() + self.crc_len()
    }

    /// Encodes the record. Refuses a topic, properties or a total size that do not fit their length fields.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let prepared = self.prepare()?;
        let mut out = Vec::new();
        prepared.write(self.queue_offset, self.physical_offset, self.store_time, |parts| {
            out = parts.concat();
            true
        });
        Ok(out)
    }

    /// Encodes everything that does not depend on the offsets of the record. Refuses what `encode` refuses.
    #[inline]
    pub fn prepare(&self) -> Result<EncodedMessage<'_>, Malformed> {
        self.prepare_with_body(&self.body)
    }

    /// Encodes as [`Message::prepare`] does, with `body`, a copy of the message's body: for a body that another thread may change
    /// during the append.
    #[inline]
    pub fn prepare_with_body<'m>(&'m self, body: &'m [u8]) -> Result<EncodedMessage<'m>, Malformed> {
        let layout = RecordLayout::of_header(self.version, self.stored_sys_flag());
        EncodedMessage::new(self, Head::OfMessage, layout, body, self.properties_before_crc())
    }

    /// Describes the part that is longer than its length field can hold.
    #[cold]
    fn too_long(&self, len: usize, properties_len: usize) -> Malformed {
        let (part, len, limit) = match self.version.max_topic_size() {
            limit if self.topic.len() > limit => ("topic", self.topic.len(), limit),
            _ if properties_len > MAX_PROPERTIES_SIZE => ("properties", properties_len, MAX_PROPERTIES_SIZE),
            _ => ("record", len, i32::MAX as usize),
        };
        let reason = format!(
            "the {part} takes {len} bytes, at most {limit} fit into a {:?} record",
            self.version
        );
        Malformed::new(0, reason)
    }

    #[inline]
    fn properties_before_crc(&self) -> Cow<'_, [u8]> {
        if self.crc_property {
            before_crc_property(&self.properties)
        } else {
            Cow::Borrowed(&self.properties)
        }
    }

    #[inline]
    fn crc_len(&self) -> usize {
        if self.crc_property { CRC_PROPERTY_SIZE } else { 0 }
    }

    #[inline]
    fn stored_sys_flag(&self) -> i32 {
        let born = if self.born_host.is_v6() { BORN_HOST_V6 } else { 0 };
        let store = if self.store_host.is_v6() { STORE_HOST_V6 } else { 0 };
        self.sys_flag & !(BORN_HOST_V6 | STORE_HOST_V6) | born | store
    }
}

/// The part of a record before its body.
#[derive(Clone, Debug)]
struct RecordHead {
    bytes: [u8; MAX_HEAD_SIZE],
    layout: RecordLayout,
}

impl RecordHead {
    /// Fills in the fields that a message has before its append, and whose size does not depend on its body.
    #[inline]
    fn of(message: &Message<'_>) -> Self {
        let sys_flag = message.stored_sys_flag();
        if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6) == 0 {
            // Fast path: the compiler knows all positions.
            return Self::with_layout(message, sys_flag, RecordLayout::of_header(message.version, 0));
        }
        Self::with_layout(message, sys_flag, RecordLayout::of_header(message.version, sys_flag))
    }

    #[inline]
    fn with_layout(message: &Message<'_>, sys_flag: i32, layout: RecordLayout) -> Self {
        let mut bytes = [0; MAX_HEAD_SIZE];
        put_i32(&mut bytes, MAGIC_AT, message.version.magic());
        put_i32(&mut bytes, QUEUE_ID_AT, message.queue_id);
        put_i32(&mut bytes, FLAG_AT, message.flag);
        put_i32(&mut bytes, SYS_FLAG_AT, sys_flag);
        put_i64(&mut bytes, BORN_TIME_AT, message.born_time);
        message.born_host.put_at(&mut bytes, BORN_HOST_AT);
        message.store_host.put_at(&mut bytes, layout.store_host_at());
        put_i32(&mut bytes, layout.reconsume_times_at(), message.reconsume_times);
        put_i64(&mut bytes, layout.prepared_offset_at(), message.prepared_transaction_offset);
        Self { bytes, layout }
    }

    /// Returns a copy with another born time.
    #[inline]
    fn born_at(&self, born_time: i64) -> Self {
        let mut head = self.clone();
        put_i64(&mut head.bytes, BORN_TIME_AT, born_time);
        head
    }
}

/// A message whose fields many messages share: each has its own born time, body and properties. The head of their records is
/// encoded once.
#[derive(Clone, Debug)]
pub struct MessageTemplate {
    message: Message<'static>,
    head: RecordHead,
}

impl MessageTemplate {
    /// Makes a template of a message.
    pub fn new(message: Message<'static>) -> Self {
        let head = RecordHead::of(&message);
        Self { message, head }
    }

    /// Returns the message with the shared fields.
    #[inline]
    pub fn message(&self) -> &Message<'static> {
        &self.message
    }

    /// Returns the size of the stored properties, including the checksum, for properties of `len` bytes.
    #[inline]
    pub fn properties_len(&self, len: usize) -> usize {
        len + self.message.crc_len()
    }

    /// Encodes a message with these fields. The properties end with a separator and have no `__CRC32#`. Refuses what
    /// [`Message::encode`] refuses.
    #[inline]
    pub fn prepare<'m>(&'m self, born_time: i64, body: &'m [u8], properties: &'m [u8]) -> Result<EncodedMessage<'m>, Malformed> {
        let head = Head::OfTemplate(self, born_time);
        EncodedMessage::new(&self.message, head, self.head.layout, body, Cow::Borrowed(properties))
    }
}

/// The origin of the fields of a head that are known before the append.
#[derive(Clone, Copy, Debug)]
enum Head<'a> {
    OfMessage,
    /// The template, and the born time.
    OfTemplate(&'a MessageTemplate, i64),
}

/// A record whose queue offset, physical offset and store time are not assigned yet. Sizes and checksums are computed, and the
/// parts are still in the memory of the producer. Under the append lock only the head is built, and all parts are copied.
#[derive(Clone, Debug)]
pub struct EncodedMessage<'a> {
    message: &'a Message<'a>,
    head: Head<'a>,
    body: &'a [u8],
    /// The size of the record.
    len: usize,
    body_crc: u32,
    topic_length: [u8; 2],
    properties_length: [u8; 2],
    /// The properties without the checksum.
    properties: Cow<'a, [u8]>,
    /// The checksum of everything after the head, if the record gets a checksum of all its bytes. The head contains the physical
    /// offset, so its checksum is computed under the lock and combined with this one.
    checked: Option<Hasher>,
}

impl<'a> EncodedMessage<'a> {
    /// Encodes a record with the fields of `message`, but with this body and these properties, which come before the checksum.
    #[inline]
    fn new(
        message: &'a Message<'a>,
        head: Head<'a>,
        layout: RecordLayout,
        body: &'a [u8],
        properties: Cow<'a, [u8]>,
    ) -> Result<Self, Malformed> {
        let properties_len = properties.len() + message.crc_len();
        let len = layout.size() + body.len() + message.topic.len() + properties_len;
        if message.topic.len() > message.version.max_topic_size()
            || properties_len > MAX_PROPERTIES_SIZE
            || len > i32::MAX as usize
        {
            return Err(message.too_long(len, properties_len));
        }
        let (topic_length, properties_length) = (
            (message.topic.len() as u16).to_be_bytes(),
            (properties_len as u16).to_be_bytes(),
        );
        let after_head = || after_head(message, body, &topic_length, &properties_length, &properties);
        Ok(Self {
            checked: message.crc_property.then(|| crc_of_parts(after_head())),
            message,
            head,
            body,
            body_crc: crc31(body),
            len,
            topic_length,
            properties_length,
            properties,
        })
    }

    /// Returns the size of the record.
    #[expect(clippy::len_without_is_empty, reason = "no record is empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the topic.
    #[inline]
    pub fn topic(&self) -> &str {
        &self.message.topic
    }

    /// Returns the queue id.
    #[inline]
    pub fn queue_id(&self) -> i32 {
        self.message.queue_id
    }

    /// Returns the host of the broker.
    #[inline]
    pub fn store_host(&self) -> Host {
        self.message.store_host
    }

    /// Returns the store time that the message was given by its producer.
    #[inline]
    pub fn stated_store_time(&self) -> i64 {
        self.message.store_time
    }

    /// Returns true if the message takes a queue offset. Prepared and rolled-back messages do not.
    #[inline]
    pub fn has_queue_offset(&self) -> bool {
        matches!(transaction(self.message.sys_flag), Transaction::None | Transaction::Commit)
    }

    /// Returns everything before the body.
    #[inline]
    fn head(&self, queue_offset: i64, physical_offset: i64, store_time: i64) -> RecordHead {
        let mut head = match self.head {
            Head::OfMessage => RecordHead::of(self.message),
            Head::OfTemplate(template, born_time) => template.head.born_at(born_time),
        };
        let RecordHead { bytes, layout } = &mut head;
        put_i32(bytes, TOTAL_SIZE_AT, self.len as i32);
        put_i32(bytes, BODY_CRC_AT, self.body_crc.cast_signed());
        put_i64(bytes, QUEUE_OFFSET_AT, queue_offset);
        put_i64(bytes, PHYSICAL_OFFSET_AT, physical_offset);
        put_i64(bytes, layout.store_time_at(), store_time);
        put_i32(bytes, layout.body_length_at(), self.body.len() as i32);
        head
    }

    /// Passes the record's bytes to `write` in parts, and returns its result. A reader recognises a record by its head, which is
    /// the first part, so `write` must copy the head last.
    #[inline]
    pub fn write(&self, queue_offset: i64, physical_offset: i64, store_time: i64, write: impl FnOnce(&[&[u8]]) -> bool) -> bool {
        let head = self.head(queue_offset, physical_offset, store_time);
        let (head, _) = head.bytes.split_at(head.layout.body_at().min(MAX_HEAD_SIZE));
        let [body, topic_length, topic, properties_length, properties] = after_head(
            self.message,
            self.body,
            &self.topic_length,
            &self.properties_length,
            &self.properties,
        );
        match &self.checked {
            None => write(&[head, body, topic_length, topic, properties_length, properties]),
            Some(checked) => {
                let mut covered = crc_of_parts([head]);
                covered.combine(checked);
                let crc = crc_property(covered);
                write(&[head, body, topic_length, topic, properties_length, properties, &crc])
            }
        }
    }
}

/// Returns the parts of a record after its head, without the checksum.
#[inline]
fn after_head<'a>(
    message: &'a Message<'_>,
    body: &'a [u8],
    topic_length: &'a [u8; 2],
    properties_length: &'a [u8; 2],
    properties: &'a [u8],
) -> [&'a [u8]; 5] {
    let topic_length = match message.version {
        Version::V1 => &topic_length[1..],
        Version::V2 => &topic_length[..],
    };
    [body, topic_length, message.topic.as_bytes(), properties_length, properties]
}
