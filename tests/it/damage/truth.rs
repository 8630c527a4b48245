//! The messages of the intact store. A damaged copy must return no others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mqstore::format::{Check, Message, MessageView, Record, parse_segment_name, read_record};

use super::fields::{Family, record_starts};
use super::image::Image;
use super::mutator::Base;

/// The records of an intact store and of its earlier state, by physical offset.
#[derive(Default, Clone)]
pub(super) struct Truth {
    records: BTreeMap<i64, Vec<Vec<u8>>>,
    /// Whole records in the bodies of others. They count as messages of a store with several damages.
    carried: BTreeMap<i64, Vec<u8>>,
    takes_carried: bool,
}

impl Truth {
    pub(super) fn of(base: &Base) -> Self {
        let mut truth = Self::default();
        truth.add(&base.image);
        truth.add(&base.older);
        truth
    }

    fn add(&mut self, image: &Image) {
        for (path, bytes) in image.files().filter(|(path, _)| Family::of(path) == Family::Log) {
            let start = segment_start(path);
            for record in record_starts(bytes).windows(2) {
                let (at, bytes) = (start + record[0] as i64, &bytes[record[0]..record[1]]);
                self.records.entry(at).or_default().push(bytes.to_vec());
                for inside in 1..bytes.len() {
                    if let Record::Message(view) = read_record(&bytes[inside..], Check::Whole)
                        && view.physical_offset() == at + inside as i64
                    {
                        self.carried.insert(view.physical_offset(), view.bytes().to_vec());
                    }
                }
            }
        }
    }

    /// A message that was appended since.
    pub(super) fn add_appended(&mut self, offset: i64, message: &Message<'_>) {
        let message = Message {
            physical_offset: offset,
            ..message.clone()
        };
        self.records.entry(offset).or_default().push(message.encode().unwrap());
    }

    /// Starts of the messages.
    pub(super) fn starts(&self) -> impl Iterator<Item = i64> {
        self.records.keys().copied()
    }

    /// The number of records in the bodies of others.
    pub(super) fn carried(&self) -> usize {
        self.carried.len()
    }

    /// Returns the truth of a store with several damages: a reader may take a record in a body for a message.
    pub(super) fn with_carried(&self) -> Self {
        Self {
            takes_carried: true,
            ..self.clone()
        }
    }

    /// Returns the fields in which a message that was read differs from that of the intact store: at most those that no
    /// checksum covers. `Err` if it has no message of this body there.
    pub(super) fn deviations(&self, read: &MessageView<'_>) -> Result<BTreeSet<&'static str>, String> {
        let at = read.physical_offset();
        if self.takes_carried && self.carried.get(&at).is_some_and(|carried| carried == read.bytes()) {
            return Ok(BTreeSet::new());
        }
        let Some(known) = self.records.get(&at) else {
            return Err(format!("there is no message at {at}"));
        };
        let of_one = known.iter().filter_map(|record| differing(record, read));
        of_one
            .min_by_key(BTreeSet::len)
            .ok_or_else(|| format!("the message at {at} has another body"))
    }
}

fn segment_start(path: &Path) -> i64 {
    let name = path.file_name().unwrap().to_str().unwrap();
    parse_segment_name(name).unwrap() as i64
}

type Same = fn(&MessageView<'_>, &MessageView<'_>) -> bool;

/// The fields in which two messages of one body differ; `None` if their bodies do.
fn differing(known: &[u8], read: &MessageView<'_>) -> Option<BTreeSet<&'static str>> {
    if known == read.bytes() {
        return Some(BTreeSet::new());
    }
    let Record::Message(known) = read_record(known, Check::Whole) else {
        panic!("an intact store has an intact record")
    };
    if known.body() != read.body() {
        return None;
    }
    let fields: [(&'static str, Same); 14] = [
        ("form", |a, b| a.version() == b.version()),
        ("body CRC", |a, b| a.body_crc() == b.body_crc()),
        ("queue id", |a, b| a.queue_id() == b.queue_id()),
        ("flag", |a, b| a.flag() == b.flag()),
        ("queue offset", |a, b| a.queue_offset() == b.queue_offset()),
        ("sysFlag", |a, b| a.sys_flag() == b.sys_flag()),
        ("born time", |a, b| a.born_time() == b.born_time()),
        ("born host", |a, b| a.born_host() == b.born_host()),
        ("store time", |a, b| a.store_time() == b.store_time()),
        ("store host", |a, b| a.store_host() == b.store_host()),
        ("reconsume times", |a, b| a.reconsume_times() == b.reconsume_times()),
        ("prepared transaction offset", |a, b| {
            a.prepared_transaction_offset() == b.prepared_transaction_offset()
        }),
        ("topic", |a, b| a.topic_bytes() == b.topic_bytes()),
        ("properties", |a, b| a.properties() == b.properties()),
    ];
    let different = fields.into_iter().filter(|(_, same)| !same(&known, read));
    Some(different.map(|(name, _)| name).collect())
}
