use std::borrow::Cow;

use crc32fast::Hasher;

use super::bytes::put_i64;
use super::crc::{CRC_PROPERTY_SIZE, before_crc_property, covering, crc_property, crc31};
use super::host::Host;
use super::malformed::Malformed;
use super::properties::MAX_PROPERTIES_SIZE;
use super::record_layout::{MAX_HEAD_SIZE, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT, RecordLayout, Version};
use super::sys_flag::{BORN_HOST_V6, STORE_HOST_V6, Transaction, transaction};

/// Everything that one record holds, owned (docs/FORMAT.md, section Record). Sizes, magic and checksums follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The record form.
    pub version: Version,
    /// Queue of the topic.
    pub queue_id: i32,
    /// The producer's own number; the store does not look at it.
    pub flag: i32,
    /// Number of the message in its queue; 0 for prepared and rolled-back ones.
    pub queue_offset: i64,
    /// Byte in the commit log at which the record starts.
    pub physical_offset: i64,
    /// Bits of `sys_flag`; the two host bits are set from the hosts.
    pub sys_flag: i32,
    /// When the producer made it, in ms.
    pub born_time: i64,
    /// The producer.
    pub born_host: Host,
    /// When the broker appended it, in ms.
    pub store_time: i64,
    /// The broker.
    pub store_host: Host,
    /// How often consumers sent it back.
    pub reconsume_times: i32,
    /// Physical offset of the half message of this commit or rollback, else 0.
    pub prepared_transaction_offset: i64,
    /// As the producer sent it, possibly compressed.
    pub body: Cow<'a, [u8]>,
    /// At most 127 bytes in V1.
    pub topic: String,
    /// Encoded, see `encode_properties`; without the `__CRC32#` that `crc_property` appends.
    pub properties: Vec<u8>,
    /// Append a CRC of the whole record as the last property.
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
            topic: String::new(),
            properties: Vec::new(),
            crc_property: false,
        }
    }
}

impl Message<'_> {
    /// Bytes of the record, also of one that `encode` refuses.
    pub fn encoded_len(&self) -> usize {
        let fixed = RecordLayout::of_header(self.version, self.stored_sys_flag()).size();
        fixed + self.body.len() + self.topic.len() + self.properties_len()
    }

    /// Bytes of the properties that the record holds, the checksum's included.
    pub fn properties_len(&self) -> usize {
        self.properties_before_crc().len() + self.crc_len()
    }

    /// The record. Refuses a topic, properties or total size that do not fit their length fields.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let prepared = self.prepare()?;
        let mut out = vec![0; prepared.len()];
        prepared.write(self.queue_offset, self.physical_offset, self.store_time, |at, bytes| {
            out.get_mut(at..at + bytes.len()).is_some_and(|place| {
                place.copy_from_slice(bytes);
                true
            })
        });
        Ok(out)
    }

    /// All of the record that is known before it has its place. Refuses what `encode` refuses.
    pub fn prepare(&self) -> Result<EncodedMessage<'_>, Malformed> {
        let sys_flag = self.stored_sys_flag();
        let properties = self.properties_before_crc();
        let layout = self.layout(sys_flag, properties.len() + self.crc_len())?;

        let mut head = Vec::with_capacity(layout.body_at());
        head.extend_from_slice(&(layout.size() as i32).to_be_bytes());
        head.extend_from_slice(&self.version.magic().to_be_bytes());
        head.extend_from_slice(&crc31(&self.body).to_be_bytes());
        head.extend_from_slice(&self.queue_id.to_be_bytes());
        head.extend_from_slice(&self.flag.to_be_bytes());
        head.extend_from_slice(&[0; 8]);
        head.extend_from_slice(&[0; 8]);
        head.extend_from_slice(&sys_flag.to_be_bytes());
        head.extend_from_slice(&self.born_time.to_be_bytes());
        self.born_host.write_to(&mut head);
        head.extend_from_slice(&[0; 8]);
        self.store_host.write_to(&mut head);
        head.extend_from_slice(&self.reconsume_times.to_be_bytes());
        head.extend_from_slice(&self.prepared_transaction_offset.to_be_bytes());
        head.extend_from_slice(&layout.body_len.to_be_bytes());

        let mut tail = Vec::with_capacity(layout.size() - layout.topic_length_at());
        match self.version {
            Version::V1 => tail.push(layout.topic_len as u8),
            Version::V2 => tail.extend_from_slice(&layout.topic_len.to_be_bytes()),
        }
        tail.extend_from_slice(self.topic.as_bytes());
        tail.extend_from_slice(&layout.properties_len.to_be_bytes());
        tail.extend_from_slice(&properties);
        let checked = self.crc_property.then(|| covering([&self.body, &tail]));
        Ok(EncodedMessage {
            message: self,
            checked,
            sys_flag,
            layout,
            head,
            tail,
        })
    }

    /// The one place where lengths are narrowed, after each was compared with its limit.
    fn layout(&self, sys_flag: i32, properties_len: usize) -> Result<RecordLayout, Malformed> {
        let mut layout = RecordLayout::of_header(self.version, sys_flag);
        let limits = [
            ("topic", self.topic.len(), self.version.max_topic_size()),
            ("properties", properties_len, MAX_PROPERTIES_SIZE),
            ("body", self.body.len(), i32::MAX as usize),
        ];
        for (part, len, limit) in limits {
            if len > limit {
                let reason = format!(
                    "the {part} takes {len} bytes, at most {limit} fit into a {:?} record",
                    self.version
                );
                return Err(Malformed::new(0, reason));
            }
        }
        layout.body_len = self.body.len() as u32;
        layout.topic_len = self.topic.len() as u16;
        layout.properties_len = properties_len as u16;
        if layout.size() > i32::MAX as usize {
            let reason = format!(
                "the record takes {} bytes, at most {} fit its size field",
                layout.size(),
                i32::MAX
            );
            return Err(Malformed::new(0, reason));
        }
        Ok(layout)
    }

    fn properties_before_crc(&self) -> Cow<'_, [u8]> {
        if self.crc_property {
            before_crc_property(&self.properties)
        } else {
            Cow::Borrowed(&self.properties)
        }
    }

    fn crc_len(&self) -> usize {
        if self.crc_property { CRC_PROPERTY_SIZE } else { 0 }
    }

    fn stored_sys_flag(&self) -> i32 {
        let born = if self.born_host.is_v6() { BORN_HOST_V6 } else { 0 };
        let store = if self.store_host.is_v6() { STORE_HOST_V6 } else { 0 };
        self.sys_flag & !(BORN_HOST_V6 | STORE_HOST_V6) | born | store
    }
}

/// A record without its place: everything is encoded but queue offset, physical offset and store time, and the body is still where
/// its producer left it. What remains to be done under the append lock is a copy.
#[derive(Clone, Debug)]
pub struct EncodedMessage<'a> {
    message: &'a Message<'a>,
    sys_flag: i32,
    layout: RecordLayout,
    head: Vec<u8>,
    /// Topic and properties with their lengths.
    tail: Vec<u8>,
    /// The checksum of body and tail, if the record gets a checksum of all its bytes. The header comes first but holds the physical offset,
    /// so its checksum is combined with this one under the lock.
    checked: Option<Hasher>,
}

impl EncodedMessage<'_> {
    /// Bytes of the record.
    #[expect(clippy::len_without_is_empty, reason = "no record is empty")]
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.message.topic
    }

    /// The queue of the topic.
    pub fn queue_id(&self) -> i32 {
        self.message.queue_id
    }

    /// Whether it takes a number in its queue: prepared and rolled-back messages do not.
    pub fn has_queue_offset(&self) -> bool {
        matches!(transaction(self.sys_flag), Transaction::None | Transaction::Commit)
    }

    /// Hands the record's bytes to `put`, with their position in it. The header comes last, so that whoever looks meanwhile finds a
    /// whole record or none. Stops at the first `put` that gives `false`, and gives that.
    pub fn write(
        &self,
        queue_offset: i64,
        physical_offset: i64,
        store_time: i64,
        mut put: impl FnMut(usize, &[u8]) -> bool,
    ) -> bool {
        let mut head = [0; MAX_HEAD_SIZE];
        let (head, _) = head.split_at_mut(self.head.len().min(MAX_HEAD_SIZE));
        head.copy_from_slice(&self.head);
        put_i64(head, QUEUE_OFFSET_AT, queue_offset);
        put_i64(head, PHYSICAL_OFFSET_AT, physical_offset);
        put_i64(head, self.layout.store_time_at(), store_time);
        let tail_at = self.layout.topic_length_at();
        if let Some(checked) = &self.checked {
            // Last, because it covers every byte before it, the lengths that already count it included.
            let mut covered = covering([head]);
            covered.combine(checked);
            if !put(tail_at + self.tail.len(), &crc_property(covered)) {
                return false;
            }
        }
        put(tail_at, &self.tail) && put(head.len(), &self.message.body) && put(0, head)
    }
}
