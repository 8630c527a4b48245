//! The open transactions of a store: a reader finds them by its files, and the process that writes it has them as they are now.
//!
//! A broker with `transRocksDBEnable` has its half and op messages in topics of their own. How often it has asked, and what it has given
//! up, is in its database, which is not read.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::transaction::Transactions;
use super::transaction_mark::TransactionMark;
use super::transaction_record::TRANSACTION_GROUP;
use super::transaction_search::{OpenHalf, OpenHalves, StoredProgress, find_copies, search};
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{
    CONSUMER_OFFSET_FILE, HALF_TOPIC, MessageView, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, decode_settings, property,
};
use crate::log::{BrokerSettings, StoredMessage, load_broker_settings};
use crate::read::{MessageReader, OnDamage, QueueScan};
use crate::recovery::load_own_from;

/// Returns the half messages whose transactions are open, in the order in which they were stored; of a store that this process writes by
/// its transactions, `own`.
///
/// # Errors
/// The damage of `consumerOffset.json`, if the store has half messages; [`Error::Unsupported`] where their queues are in `RocksDB`; those
/// of reading.
pub fn open_transactions(reader: &Arc<MessageReader>, own: Option<&Transactions>) -> Result<BrokerSettings<OpenHalves>> {
    let mut open = match own {
        Some(own) => BrokerSettings {
            content: own.open()?,
            doubts: Vec::new(),
        },
        None => search_files(reader)?,
    };
    add_of_database(reader, &mut open.content)?;
    open.content.halves.sort_by_key(|half| half.message.view().physical_offset());
    Ok(open)
}

/// Searches with the progress in the files of the store.
fn search_files(reader: &Arc<MessageReader>) -> Result<BrokerSettings<OpenHalves>> {
    let has_halves = !reader.queue_bounds(HALF_TOPIC, 0)?.is_empty();
    // The file is read before the bounds of the queues, which a live writer moves before it.
    let stored = match stored_progress(reader) {
        // Without the progress, each half message that nothing in the log has ended counts as open.
        Err(Error::NotFound { .. } | Error::Unsupported { .. }) => BrokerSettings::default(),
        // Another reader of the file reports its damage.
        Err(Error::Corrupt { .. }) if !has_halves => BrokerSettings::default(),
        stored => stored?,
    };
    Ok(BrokerSettings {
        content: search(reader, stored.content)?,
        doubts: stored.doubts,
    })
}

/// Reads the progress and the mark of the transactions.
fn stored_progress(reader: &MessageReader) -> Result<BrokerSettings<StoredProgress>> {
    let offsets = reader.consumer_offsets()?;
    let offset = |topic: &str| {
        let own = offsets.content.iter().filter(|known| known.group == TRANSACTION_GROUP);
        let mut own = own.filter(|known| known.topic == topic && known.queue_id == 0);
        own.next().map_or(0, |known| known.offset)
    };
    let env = reader.env().as_ref();
    let fields = load_broker_settings(env, reader.path(), CONSUMER_OFFSET_FILE, decode_settings)?;
    let mark = fields.and_then(|fields| TransactionMark::of_fields(&fields.content));
    let own_from = load_own_from(env, reader.path())?;
    Ok(BrokerSettings {
        content: StoredProgress {
            half: offset(HALF_TOPIC),
            op: offset(OP_TOPIC),
            mark: mark.filter(|mark| mark.is_valid(own_from)),
        },
        doubts: offsets.doubts,
    })
}

/// Adds the half messages of a broker that keeps its transactions in `RocksDB`.
fn add_of_database(reader: &Arc<MessageReader>, open: &mut OpenHalves) -> Result<()> {
    let log_end = reader.physical_bounds().end;
    let (mut ended, mut halves) = (HashSet::new(), BTreeMap::new());
    open.unread.ops += each(reader, ROCKSDB_OP_TOPIC, |message| {
        ended.extend(ended_by(&message.view()));
    })?;
    open.passed_over += each(reader, ROCKSDB_HALF_TOPIC, |message| {
        let offset = message.view().physical_offset();
        if !ended.contains(&offset) {
            halves.insert(offset, OpenHalf { message, checks: 0 });
        }
    })?;
    if let Some(first) = halves.keys().next().copied() {
        let offsets = halves.keys().map(|offset| (*offset, *offset)).collect();
        let (copies, damaged) = find_copies(reader, &offsets, first..log_end)?;
        open.unread.stretches += damaged;
        for (offset, _) in copies {
            halves.remove(&offset);
        }
    }
    open.halves.extend(halves.into_values());
    Ok(())
}

/// Reads each message of a topic. Returns the number of those that are lost or damaged.
fn each(reader: &Arc<MessageReader>, topic: &str, mut take: impl FnMut(StoredMessage)) -> Result<u64> {
    let on_damage = OnDamage::new(Errors::Skip);
    for queue_id in reader.queue_ids(topic)? {
        let scan = QueueScan::new(reader.clone(), topic.to_owned(), queue_id, 0..i64::MAX)?;
        for message in scan.on_damage(on_damage.clone()) {
            take(message?);
        }
    }
    Ok(on_damage.skipped())
}

/// Returns the physical offset of the half message that an op message names.
fn ended_by(op: &MessageView<'_>) -> Option<i64> {
    op.properties().get(property::TRANS_OFFSET)?.parse().ok()
}
