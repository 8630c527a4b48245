//! The fields of a record, a queue entry or an index item, intact or not, in a form for people.

use std::borrow::Cow;

use super::bytes::{i32_at, slice_at, text};
use super::consume_queue::{CQ_UNIT_SIZE, CqUnit};
use super::date::utc_text;
use super::host::Host;
use super::index::{IndexHeader, IndexItem};
use super::malformed::Malformed;
use super::message_view::MessageView;
use super::properties::Properties;
use super::record::{BLANK_SIZE, Check, Record, check_body, check_whole, layout_of, read_record};
use super::record_layout::{
    BODY_CRC_AT, BODY_LENGTH_SIZE, BORN_HOST_AT, BORN_TIME_AT, FLAG_AT, MAGIC_AT, MIN_RECORD_SIZE, PHYSICAL_OFFSET_AT,
    PROPERTIES_LENGTH_SIZE, QUEUE_ID_AT, QUEUE_OFFSET_AT, RecordLayout, SYS_FLAG_AT, TOTAL_SIZE_AT, Version,
};
use super::sys_flag::{Compression, Transaction, compression, transaction};

/// The most characters of a text that are shown.
const TEXT: usize = 200;

/// A field of the dumped bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedField {
    /// The position of its first byte.
    pub at: usize,
    /// Its length, or less if the bytes end inside it.
    pub len: usize,
    /// Its name.
    pub name: &'static str,
    /// The decoded value.
    pub value: String,
    /// The reason why the field is wrong.
    pub wrong: Option<String>,
}

/// The fields found so far.
struct Fields<'a> {
    bytes: &'a [u8],
    list: Vec<DumpedField>,
}

impl<'a> Fields<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, list: Vec::new() }
    }

    /// Adds a field. A field that is cut short gets no value, and fields after it are not added.
    fn add(&mut self, at: usize, len: usize, name: &'static str, value: impl Into<String>) {
        let left = self.bytes.len().saturating_sub(at);
        let is_cut = left < len;
        if at > self.bytes.len() || (is_cut && left == 0) {
            return;
        }
        let (value, wrong) = if is_cut {
            (String::new(), Some(format!("{len} bytes, but {left} are left")))
        } else {
            (value.into(), None)
        };
        let len = len.min(left);
        self.list.push(DumpedField {
            at,
            len,
            name,
            value,
            wrong,
        });
    }

    /// Marks the field that contains the byte `at` as wrong; without such a field, the last one.
    fn mark(&mut self, at: usize, reason: impl Into<String>) {
        let holds = |field: &DumpedField| (field.at..field.at + field.len).contains(&at);
        let index = self.list.iter().position(holds);
        let index = index.or(self.list.len().checked_sub(1));
        if let Some(field) = index.and_then(|index| self.list.get_mut(index)) {
            field.wrong = Some(reason.into());
        }
    }
}

/// Returns the number of bytes to dump for a record with this head: as many as it claims, and at least a minimal record.
pub fn size_to_dump(head: [u8; BLANK_SIZE]) -> usize {
    let claimed = usize::try_from(i32_at(&head, TOTAL_SIZE_AT)).unwrap_or(0);
    match Version::of_magic(i32_at(&head, MAGIC_AT)) {
        Some(_) => claimed.max(MIN_RECORD_SIZE),
        None => MIN_RECORD_SIZE,
    }
}

/// Returns the fields of the record, BLANK or free space at a physical offset, which `bytes` starts with. A record with a damaged
/// magic is decoded as V1.
pub fn dump_record(bytes: &[u8], physical_offset: i64) -> Vec<DumpedField> {
    let mut fields = Fields::new(bytes);
    match read_record(bytes, Check::Structure) {
        Record::Message(view) => {
            add_record(&mut fields, view.bytes(), view.layout());
            for (at, checked) in [(BODY_CRC_AT, check_body(&view)), (bytes.len(), check_whole(&view))] {
                if let Err(Malformed { reason, .. }) = checked {
                    fields.mark(at, reason);
                }
            }
            if view.physical_offset() != physical_offset {
                let reason = format!("the record is at {physical_offset}: stale bytes of an earlier log, not a message");
                fields.mark(PHYSICAL_OFFSET_AT, reason);
            }
        }
        Record::Blank { size } => {
            fields.add(
                TOTAL_SIZE_AT,
                MAGIC_AT,
                "total_size",
                format!("{size}, to the end of the segment"),
            );
            fields.add(
                MAGIC_AT,
                BLANK_SIZE - MAGIC_AT,
                "magic",
                "a BLANK: the log continues in the next segment",
            );
        }
        Record::End => {
            fields.add(
                TOTAL_SIZE_AT,
                bytes.len().min(BLANK_SIZE),
                "nothing",
                "nothing is written here",
            );
        }
        Record::Corrupt(Malformed { at, reason }) => {
            let version = Version::of_magic(i32_at(bytes, MAGIC_AT)).unwrap_or(Version::V1);
            let claimed = usize::try_from(i32_at(bytes, TOTAL_SIZE_AT)).unwrap_or(0);
            let record = bytes.get(..claimed.max(MIN_RECORD_SIZE)).unwrap_or(bytes);
            add_record(&mut fields, record, layout_of(record, version));
            fields.mark(at, reason);
        }
    }
    fields.list
}

fn add_record(fields: &mut Fields<'_>, record: &[u8], layout: RecordLayout) {
    fields.bytes = fields.bytes.get(..record.len()).unwrap_or(fields.bytes);
    let view = MessageView::from_layout(record, layout);
    let magic = i32_at(record, MAGIC_AT);
    let meaning = match Version::of_magic(magic) {
        Some(Version::V1) => ": a record, V1",
        Some(Version::V2) => ": a record, V2",
        None => "",
    };
    fields.add(TOTAL_SIZE_AT, 4, "total_size", i32_at(record, TOTAL_SIZE_AT).to_string());
    fields.add(MAGIC_AT, 4, "magic", format!("{magic:#010x}{meaning}"));
    fields.add(BODY_CRC_AT, 4, "body_crc", format!("{:#010x}", view.body_crc()));
    fields.add(QUEUE_ID_AT, 4, "queue_id", view.queue_id().to_string());
    fields.add(FLAG_AT, 4, "flag", view.flag().to_string());
    fields.add(QUEUE_OFFSET_AT, 8, "queue_offset", view.queue_offset().to_string());
    fields.add(PHYSICAL_OFFSET_AT, 8, "physical_offset", view.physical_offset().to_string());
    fields.add(SYS_FLAG_AT, 4, "sys_flag", sys_flag_in_words(view.sys_flag()));
    fields.add(BORN_TIME_AT, 8, "born_time", time(view.born_time()));
    let (store_time, store_host) = (layout.store_time_at(), layout.store_host_at());
    fields.add(BORN_HOST_AT, store_time - BORN_HOST_AT, "born_host", host(view.born_host()));
    fields.add(store_time, 8, "store_time", time(view.store_time()));
    let reconsume_times = layout.reconsume_times_at();
    fields.add(
        store_host,
        reconsume_times - store_host,
        "store_host",
        host(view.store_host()),
    );
    fields.add(reconsume_times, 4, "reconsume_times", view.reconsume_times().to_string());
    let prepared = view.prepared_transaction_offset().to_string();
    fields.add(layout.prepared_offset_at(), 8, "prepared_transaction_offset", prepared);
    let lengths = [
        layout.body_len.cast_signed(),
        layout.topic_len.cast_signed().into(),
        layout.properties_len.cast_signed().into(),
    ];
    let [body, topic, properties] = lengths.map(|len: i32| len.to_string());
    fields.add(layout.body_length_at(), BODY_LENGTH_SIZE, "body_length", body);
    fields.add(layout.body_at(), layout.body_len as usize, "body", shown(view.body()));
    fields.add(
        layout.topic_length_at(),
        layout.version.topic_length_size(),
        "topic_length",
        topic,
    );
    fields.add(layout.topic_at(), layout.topic_len.into(), "topic", shown(view.topic_bytes()));
    fields.add(
        layout.properties_length_at(),
        PROPERTIES_LENGTH_SIZE,
        "properties_length",
        properties,
    );
    let bytes = slice_at(record, layout.properties_at(), layout.properties_len.into());
    fields.add(
        layout.properties_at(),
        layout.properties_len.into(),
        "properties",
        in_words(Properties::new(bytes)),
    );
}

/// Returns the fields of a queue entry.
pub fn dump_unit(bytes: &[u8; CQ_UNIT_SIZE]) -> Vec<DumpedField> {
    let unit = CqUnit::decode(bytes);
    let mut fields = Fields::new(bytes);
    fields.add(0, 8, "physical_offset", unit.physical_offset.to_string());
    fields.add(8, 4, "size", unit.size.to_string());
    fields.add(12, 8, "tags_code", unit.tags_code.to_string());
    if unit.is_pre_blank() {
        fields.mark(0, "it fills the file up to the first message of the queue");
    } else if !unit.is_valid() {
        fields.mark(0, "no entry is written here");
    } else if unit.is_lost() {
        fields.mark(12, "the message was lost, and a salvage record replaces it");
    }
    fields.list
}

/// Returns the fields of an index item of a file with this header.
pub fn dump_item(item: IndexItem, header: &IndexHeader) -> Vec<DumpedField> {
    let bytes = item.encode();
    let mut fields = Fields::new(&bytes);
    let stored = header.begin_time.saturating_add(i64::from(item.time_diff) * 1000);
    fields.add(0, 4, "key_hash", item.key_hash.to_string());
    fields.add(4, 8, "physical_offset", item.physical_offset.to_string());
    fields.add(12, 4, "time_diff", format!("{} s, at about {}", item.time_diff, time(stored)));
    fields.add(16, 4, "previous", item.previous.to_string());
    fields.list
}

fn sys_flag_in_words(flag: i32) -> String {
    let compressed = match compression(flag) {
        Ok(Compression::None) => "",
        Ok(Compression::Zlib) => ", compressed by zlib",
        Ok(Compression::Lz4) => ", compressed by lz4",
        Ok(Compression::Zstd) => ", compressed by zstd",
        Err(_) => ", compressed in an unknown way",
    };
    let transaction = match transaction(flag) {
        Transaction::None => "",
        Transaction::Prepared => ", half message",
        Transaction::Commit => ", committed",
        Transaction::Rollback => ", rolled back",
    };
    format!("{flag:#x}{compressed}{transaction}")
}

fn host(host: Host) -> String {
    host.to_string()
}

fn time(ms: i64) -> String {
    format!("{ms}: {}", utc_text(ms))
}

fn in_words(properties: Properties<'_>) -> String {
    let pairs = properties.to_pairs();
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    cut(pairs.join(", ").into())
}

/// Returns the bytes if they are text, shortened; otherwise nothing, because the dump shows them in hexadecimal as well.
fn shown(bytes: &[u8]) -> String {
    let start = bytes.get(..4 * TEXT).unwrap_or(bytes);
    match str::from_utf8(start) {
        Err(error) if error.valid_up_to() + 4 < start.len() || start.len() == bytes.len() => String::new(),
        _ => cut(text(start)),
    }
}

fn cut(text: Cow<'_, str>) -> String {
    match text.char_indices().nth(TEXT) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.into_owned(),
    }
}
