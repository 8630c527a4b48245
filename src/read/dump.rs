//! The bytes of a record, a queue entry and an index chain, field by field, whether they are whole or not.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{
    Check, CqUnit, DispatchRequest, DumpedField, IndexHeader, dump_item, dump_record, dump_unit, index_key_hash,
};
use crate::log::{ChainItem, IndexFile, LogRecord};
use crate::read::damage::nothing_at;
use crate::read::message_reader::MessageReader;

/// Bytes of a field that are given.
const MOST_BYTES: usize = 256;

/// A field and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpRow {
    /// The file.
    pub path: PathBuf,
    /// Its first byte there.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The first of them, 256 at most.
    pub bytes: Vec<u8>,
    /// Its name.
    pub field: String,
    /// Its value.
    pub value: String,
    /// The damage, if any.
    pub wrong: Option<String>,
}

/// Returns the rows of the fields at an offset of a file.
fn rows<'a>(path: &'a Path, offset: u64, bytes: &'a [u8], fields: Vec<DumpedField>) -> impl Iterator<Item = DumpRow> + 'a {
    fields.into_iter().map(move |field| {
        let shown = field.at..field.at + field.len.min(MOST_BYTES);
        DumpRow {
            path: path.to_owned(),
            offset: offset + field.at as u64,
            length: field.len as u64,
            bytes: bytes.get(shown).unwrap_or_default().to_vec(),
            field: field.name.to_owned(),
            value: field.value,
            wrong: field.wrong,
        }
    })
}

/// Says what is wrong with the field of that name, unless something is already.
fn mark(rows: &mut [DumpRow], field: &str, reason: String) {
    if let Some(row) = rows.iter_mut().find(|row| row.field == field && row.wrong.is_none()) {
        row.wrong = Some(reason);
    }
}

/// Returns the fields at a physical offset, as the files have them.
///
/// # Errors
/// [`Error::NotFound`] where no segment is, [`Error::Io`].
pub fn dump(reader: &MessageReader, physical_offset: i64) -> Result<Vec<DumpRow>> {
    let Some(raw) = reader.log().raw(physical_offset)? else {
        return Err(nothing_at(physical_offset, "no segment of the log has this offset"));
    };
    let fields = dump_record(&raw.bytes, physical_offset);
    Ok(rows(&raw.path, raw.offset, &raw.bytes, fields).collect())
}

/// Returns the fields of a queue entry, and of the record that it leads to.
///
/// # Errors
/// [`Error::NotFound`] for a queue or an entry that is not there, [`Error::Unsupported`] as [`MessageReader::queue_ids`],
/// [`Error::Io`].
pub fn dump_entry(reader: &MessageReader, topic: &str, queue_id: i32, queue_offset: i64) -> Result<Vec<DumpRow>> {
    let not_there = || Error::not_found(format!("{topic}/{queue_id} has no entry at queue offset {queue_offset}"));
    let queue = reader.queue(topic, queue_id)?.ok_or_else(not_there)?;
    let (unit, is_in_memory) = queue.raw_unit(queue_offset)?.ok_or_else(not_there)?;
    let (path, offset) = queue.path_of(queue_offset);
    let bytes = unit.encode();
    let mut found: Vec<_> = rows(&path, offset, &bytes, dump_unit(&bytes)).collect();
    if is_in_memory {
        mark(
            &mut found,
            "physical_offset",
            "the file does not have this entry: opening the store made it, in memory".to_owned(),
        );
    }
    if !unit.is_valid() || unit.is_pre_blank() {
        return Ok(found);
    }
    match reader.log().read(unit.physical_offset, Check::Structure)? {
        LogRecord::Message(message) => {
            let view = message.view();
            if !view.is_in_queue_at(topic, queue_id, queue_offset) {
                let place = format!("{}/{}@{}", view.topic(), view.queue_id(), view.queue_offset());
                mark(&mut found, "physical_offset", format!("it leads to {place}"));
            }
            let (request, levels) = (DispatchRequest::of(&view), reader.config().delay_levels()?);
            if let Some(right) = request.unit(&levels) {
                if right.size != unit.size {
                    mark(&mut found, "size", format!("the record has {} bytes", right.size));
                }
                let is_right = request.is_entry(
                    CqUnit {
                        tags_code: unit.tags_code,
                        ..right
                    },
                    &levels,
                );
                if !is_right && unit.ext_address().is_none() {
                    mark(
                        &mut found,
                        "tags_code",
                        format!("that of the record's tags is {}", right.tags_code),
                    );
                }
            }
        }
        _ => mark(&mut found, "physical_offset", "no whole record starts there".to_owned()),
    }
    if let Some(raw) = reader.log().raw(unit.physical_offset)? {
        let fields = dump_record(&raw.bytes, unit.physical_offset);
        found.extend(rows(&raw.path, raw.offset, &raw.bytes, fields));
    }
    Ok(found)
}

/// Returns for each index file the slot of a key and the items of its chain, the newest first, each with the record that it leads to: at most
/// `most` items a file.
///
/// # Errors
/// [`Error::NotFound`] if there is no index file, [`Error::Io`].
pub fn dump_key(reader: &MessageReader, topic: &str, key: &str, most: usize) -> Result<Vec<DumpRow>> {
    let mut found = Vec::new();
    let hash = index_key_hash(topic, key);
    for (file, geometry) in reader.index().with_geometries()? {
        let path = file.path().to_owned();
        let row = |offset: u64, length: u64, field: String, value: String, wrong: Option<String>| DumpRow {
            path: path.clone(),
            offset,
            length,
            bytes: Vec::new(),
            field,
            value,
            wrong,
        };
        let Some(geometry) = geometry else {
            let reason = "its bytes fit no number of slots and items: a search reads the log".to_owned();
            found.push(row(0, file.file_len(), "index_file".to_owned(), String::new(), Some(reason)));
            continue;
        };
        let Some(chain) = file.chain(geometry, hash, most)? else {
            continue;
        };
        let value = match chain.newest {
            0 => "no item".to_owned(),
            newest => format!("item {newest}"),
        };
        let mut slot = row(
            geometry.slot_position(chain.slot),
            4,
            format!("slot {}", chain.slot),
            value,
            None,
        );
        slot.bytes = chain.newest.to_be_bytes().to_vec();
        found.push(slot);
        for item in &chain.items {
            let position = geometry.item_position(item.number.cast_unsigned());
            add_item(reader, &mut found, &file, position, item, (topic, key))?;
        }
        if chain.continues {
            found.push(row(
                0,
                0,
                "more".to_owned(),
                format!("the chain continues after {most} items"),
                None,
            ));
        }
    }
    if found.is_empty() {
        return Err(Error::not_found("there is no index file: a search by key reads the log"));
    }
    Ok(found)
}

/// Adds the fields of an item of a chain, and in a row more the record that it leads to.
fn add_item(
    reader: &MessageReader,
    found: &mut Vec<DumpRow>,
    file: &IndexFile,
    position: u64,
    link: &ChainItem,
    asked: (&str, &str),
) -> Result<()> {
    let path = file.path().to_owned();
    let Some(item) = link.item else {
        if let Some(last) = found.last_mut() {
            last.wrong = Some(format!("there is no item {}: the chain is broken", link.number));
        }
        return Ok(());
    };
    let header: IndexHeader = file.header();
    let mut fields: Vec<_> = rows(&path, position, &item.encode(), dump_item(item, &header)).collect();
    for row in &mut fields {
        row.field = format!("item {} {}", link.number, row.field);
    }
    if link.is_broken {
        let field = format!("item {} physical_offset", link.number);
        mark(
            &mut fields,
            &field,
            "the item is not of this slot, not older, or outside of the file's range: the chain is broken".to_owned(),
        );
    }
    found.append(&mut fields);
    let (value, wrong) = record_of_item(reader, item.physical_offset, asked, link.is_of_key)?;
    let raw = reader.log().raw(item.physical_offset)?;
    let (path, offset) = raw.map_or((path, position), |raw| (raw.path, raw.offset));
    let field = format!("item {} record", link.number);
    found.push(DumpRow {
        path,
        offset,
        length: 0,
        bytes: Vec::new(),
        field,
        value,
        wrong,
    });
    Ok(())
}

/// Returns the record to which an item leads, and what is wrong with it.
fn record_of_item(
    reader: &MessageReader,
    physical_offset: i64,
    (topic, key): (&str, &str),
    is_of_key: bool,
) -> Result<(String, Option<String>)> {
    let LogRecord::Message(message) = reader.log().read(physical_offset, Check::Structure)? else {
        return Ok((String::new(), Some("no whole record starts there".to_owned())));
    };
    let view = message.view();
    let keys: Vec<_> = DispatchRequest::of(&view).index_keys(reader.config().index_tags).collect();
    let value = format!(
        "{}/{}@{}, keys {}",
        view.topic(),
        view.queue_id(),
        view.queue_offset(),
        keys.join(" ")
    );
    let is_it = view.has_topic(topic) && keys.iter().any(|own| own == key);
    let wrong = (is_of_key && !is_it).then(|| "hash collision: the message does not have this key".to_owned());
    Ok((value, wrong))
}
