//! Whether every item of an index file can be reached from its slot.

use crate::error::Result;
use crate::format::{INDEX_HEADER_SIZE, IndexGeometry, IndexHeader, IndexItem, SLOT_SIZE};
use crate::interrupt;
use crate::log::index::follow::{add_items, item};
use crate::log::index::index_file::IndexFile;
use crate::log::index::newest_items::{NewestItems, windows};
use crate::storage::{MappedFile, OpenFile};

/// Bytes that are copied at once.
const PIECE: usize = 64 * 1024;

/// Items that are copied at once.
const AT_ONCE: i32 = 4096;

/// Where no item was put.
const UNUSED: IndexItem = IndexItem {
    key_hash: 0,
    physical_offset: 0,
    time_diff: 0,
    previous: 0,
};

/// How the items of a file hang in its slots.
#[derive(Debug)]
pub struct Links {
    /// The first link or slot that is not as a put leaves it: its byte in the file, and what is wrong.
    pub broken: Option<(u64, String)>,
    /// Slots that have an item, up to there.
    pub used_slots: u32,
}

impl IndexFile {
    /// What a crash tears shows in one of these: offsets and times never fall (but for the first item of a file, whose time
    /// counts from the end of the file before), the header begins with the first item and ends with the last; each item links to
    /// the one before it in its slot; each slot leads to its newest item.
    pub(super) fn look_whole(&self, geometry: IndexGeometry) -> Result<bool> {
        let Some(mapped) = self.mapped()? else { return Ok(false) };
        let header = self.header();
        if geometry.file_len() > self.file_len()
            || header.index_count.cast_unsigned() > geometry.items
            || !are_items_in_order(&mapped, geometry, header)
        {
            return Ok(false);
        }
        let links = self.links(geometry, header.index_count)?;
        Ok(links.is_some_and(|links| links.broken.is_none()))
    }

    /// The first byte after the header that is not zero. What was never written is not read.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn first_used(&self) -> Result<Option<u64>> {
        let Some(file) = self.open_unmapped()? else {
            return Ok(None);
        };
        let mut bytes = vec![0; PIECE];
        for part in file.written() {
            let mut at = part.start.max(INDEX_HEADER_SIZE as u64);
            while at < part.end {
                interrupt::check()?;
                let len = (part.end - at).min(PIECE as u64);
                let piece = bytes.get_mut(..len as usize).unwrap_or_default();
                piece.fill(0);
                file.read(at, piece)?;
                if let Some(used) = piece.iter().position(|byte| *byte != 0) {
                    return Ok(Some(at + used as u64));
                }
                at += len;
            }
        }
        Ok(None)
    }

    /// How the items before number `count` hang in the slots; `None` if the file was removed.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn links(&self, geometry: IndexGeometry, count: i32) -> Result<Option<Links>> {
        let broken = |at: u64, what: String, used_slots: u32| {
            let broken = Some((at, what));
            Ok(Some(Links { broken, used_slots }))
        };
        let (Some(mapped), Some(file)) = (self.mapped()?, self.open_unmapped()?) else {
            return Ok(None);
        };
        let (mut used_slots, mut items) = (0, Vec::new());
        for window in windows(geometry, count) {
            let mut newest = NewestItems::none(window);
            let mut number = 1;
            while number < count {
                interrupt::check()?;
                items.clear();
                add_items(
                    &mapped,
                    geometry,
                    number..count.min(number.saturating_add(AT_ONCE)),
                    &mut items,
                );
                for item in &items {
                    let before = newest.replace(geometry.slot_of(item.key_hash), number);
                    if let Some(before) = before.filter(|before| *before != item.previous) {
                        let what = format!(
                            "item {number} links to item {}, the one before it in its slot is {before}",
                            item.previous
                        );
                        return broken(geometry.item_position(number.cast_unsigned()), what, used_slots);
                    }
                    number += 1;
                }
                if items.is_empty() {
                    let at = geometry.item_position(number.cast_unsigned());
                    return broken(at, format!("there is no room for item {number}"), used_slots);
                }
            }
            used_slots += newest.numbers().iter().filter(|number| **number != 0).count() as u32;
            if let Some(at) = first_wrong_slot(&file, &mapped, geometry, &newest, count)? {
                let slot = (at - INDEX_HEADER_SIZE as u64) / SLOT_SIZE as u64;
                return broken(at, format!("slot {slot} does not lead to its newest item"), used_slots);
            }
        }
        Ok(Some(Links {
            broken: None,
            used_slots,
        }))
    }
}

/// Whether the items are those of the header, and none has a smaller offset or time than the one before it.
fn are_items_in_order(mapped: &MappedFile, geometry: IndexGeometry, header: IndexHeader) -> bool {
    let mut before: Option<IndexItem> = None;
    for number in 1..header.index_count {
        let Some(item) = item(mapped, geometry, number) else {
            return false;
        };
        let is_after = match before {
            None => item.physical_offset == header.begin_physical_offset,
            Some(before) => item.physical_offset >= before.physical_offset && (number == 2 || item.time_diff >= before.time_diff),
        };
        if item.key_hash < 0 || item.time_diff < 0 || !is_after {
            return false;
        }
        before = Some(item);
    }
    before.is_none_or(|last| last.physical_offset == header.end_physical_offset)
}

/// The byte of the first slot that does not hold its newest item, nor one that was put since the header was read: a live broker does that.
/// Slots that were never written are not read: there may be a gigabyte of them.
fn first_wrong_slot(
    file: &OpenFile,
    mapped: &MappedFile,
    geometry: IndexGeometry,
    newest: &NewestItems,
    count: i32,
) -> Result<Option<u64>> {
    let mut bytes = vec![0; PIECE];
    let mut at = geometry.slot_position(newest.first());
    for numbers in newest.numbers().chunks(PIECE / SLOT_SIZE) {
        let piece = bytes.get_mut(..numbers.len() * SLOT_SIZE).unwrap_or_default();
        piece.fill(0);
        let is_written = !file.written_in(&(at..at + piece.len() as u64)).is_empty();
        if is_written && file.read(at, piece)? < piece.len() {
            return Ok(Some(at));
        }
        let is_wrong = |(head, newest): (&[u8; SLOT_SIZE], &i32)| {
            let mut head = i32::from_be_bytes(*head);
            while head >= count {
                let Some(item) = item(mapped, geometry, head).filter(|item| *item != UNUSED) else {
                    return true;
                };
                head = item.previous.min(head - 1);
            }
            head != *newest
        };
        if let Some(wrong) = piece.as_chunks().0.iter().zip(numbers).position(is_wrong) {
            return Ok(Some(at + (wrong * SLOT_SIZE) as u64));
        }
        at += piece.len() as u64;
    }
    Ok(None)
}
