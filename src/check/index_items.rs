//! The items of the index files, in the order of the log.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{DispatchRequest, ITEM_SIZE, IndexGeometry, IndexHeader, IndexItem, MessageView};
use crate::interrupt;
use crate::log::IndexFile;

/// Items that are read at once. A section of the log has few more, and those of the next section are read with that one.
const AT_ONCE: i32 = 256;

/// An index file that can be read.
#[derive(Debug)]
pub(super) struct KeyFile {
    pub(super) file: Arc<IndexFile>,
    pub(super) geometry: IndexGeometry,
    pub(super) header: IndexHeader,
    /// The number of the item after the last.
    pub(super) count: i32,
    /// Physical offset of the message of its first item, if there is one.
    pub(super) first_offset: i64,
    /// A writer adds to it.
    pub(super) grows: bool,
    /// A writer that crashed may have added items that the header does not count, and the next writer makes it agree.
    pub(super) is_unfinished: bool,
}

impl KeyFile {
    /// Reads the header and the bounds of an index file.
    ///
    /// # Errors
    /// Those of reading the file.
    pub(super) fn new(file: Arc<IndexFile>, geometry: IndexGeometry, grows: bool, is_unfinished: bool) -> Result<Self> {
        let header = file.header();
        let mut key_file = Self {
            count: header.index_count.min(i32::try_from(geometry.items).unwrap_or(i32::MAX)),
            file,
            geometry,
            header,
            first_offset: i64::MAX,
            grows,
            is_unfinished,
        };
        let counted = key_file.count_items()?;
        // A broker that recovers a store writes to it before it takes the lock.
        key_file.grows |= counted != header.index_count && key_file.file.reread_header()?;
        if !key_file.grows {
            key_file.count = counted;
        }
        if let Some(first) = key_file.item(1)? {
            key_file.first_offset = first.physical_offset;
        }
        Ok(key_file)
    }

    /// Returns the number after the last item that is not zero, near the header's.
    fn count_items(&self) -> Result<i32> {
        let is_used = |number: i32| -> Result<bool> {
            let item = self.item(number)?;
            Ok(item.is_some_and(|item| item != IndexItem::decode(&[0; ITEM_SIZE])))
        };
        let mut count = self.count;
        while count > 1 && !is_used(count - 1)? {
            interrupt::check()?;
            count -= 1;
        }
        while is_used(count)? {
            interrupt::check()?;
            count += 1;
        }
        Ok(count)
    }

    fn item(&self, number: i32) -> Result<Option<IndexItem>> {
        let mut items = Vec::new();
        self.file.items(self.geometry, number..number + 1, &mut items)?;
        Ok(items.pop())
    }

    /// Returns the number of the first item of a message at `offset` or after it. Offsets do not fall in a whole file.
    pub(super) fn first_at(&self, offset: i64) -> Result<i32> {
        self.file.first_at(self.geometry, self.count, offset)
    }

    /// Returns the byte of an item.
    pub(super) fn position(&self, number: i32) -> u64 {
        self.geometry.item_position(number.cast_unsigned())
    }

    /// Returns offset and time of the first or the last item's message, by the header and by the message. `None` where they
    /// are equal, and for other items.
    pub(super) fn wrong_end(&self, number: i32, message: (i64, i64)) -> Option<String> {
        let IndexHeader {
            begin_physical_offset,
            begin_time,
            end_physical_offset,
            end_time,
            ..
        } = self.header;
        if number == 1 && (begin_physical_offset, begin_time) != message {
            return Some(format!(
                "it begins at physical offset {begin_physical_offset} and time {begin_time}, its first item at {} and {}",
                message.0, message.1
            ));
        }
        if number + 1 == self.count && !self.grows && (end_physical_offset, end_time) != message {
            return Some(format!(
                "it ends at physical offset {end_physical_offset} and time {end_time}, its last item at {} and {}",
                message.0, message.1
            ));
        }
        None
    }
}

/// The items of a file that are read next.
#[derive(Debug, Default)]
pub(super) struct ItemsAhead {
    items: Vec<IndexItem>,
    /// The number of the first of them.
    first: i32,
}

impl ItemsAhead {
    /// Reads the item `number` of a file. Those from `next` on are kept.
    pub(super) fn get(&mut self, file: &KeyFile, number: i32, next: i32) -> Result<Option<IndexItem>> {
        if number >= file.count {
            return Ok(None);
        }
        if self.known(number).is_none() {
            self.first = next;
            let end = file.count.min(next.saturating_add(AT_ONCE));
            file.file.items(file.geometry, next..end, &mut self.items)?;
        }
        Ok(self.known(number))
    }

    /// Returns the item of this number, if it was read.
    fn known(&self, number: i32) -> Option<IndexItem> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.items.get(at).copied()
    }
}

/// The items of messages that follow each other in the log, file after file.
#[derive(Debug)]
pub(super) struct KeyItems<'a> {
    /// Ordered by their first items.
    files: &'a [Arc<KeyFile>],
    /// The index of the file of the next item.
    at: usize,
    /// The numbers of the items of the file that were taken.
    numbers: Range<i32>,
    ahead: ItemsAhead,
    taken: Vec<(usize, Range<i32>)>,
}

impl<'a> KeyItems<'a> {
    /// Skips to the items of messages from `offset` on.
    ///
    /// # Errors
    /// Those of reading the files.
    pub(super) fn from(files: &'a [Arc<KeyFile>], offset: i64) -> Result<Self> {
        let at = files.partition_point(|file| file.first_offset <= offset).saturating_sub(1);
        let number = files.get(at).map_or(Ok(1), |file| file.first_at(offset))?;
        Ok(Self {
            files,
            at,
            numbers: number..number,
            ahead: ItemsAhead::default(),
            taken: Vec::new(),
        })
    }

    /// Takes the items of the next message. `false` if they are not those of its keys, in their order, each with its time.
    ///
    /// # Errors
    /// Those of reading the files.
    #[inline]
    pub(super) fn take(&mut self, view: &MessageView<'_>, dispatched: &DispatchRequest<'_>) -> Result<bool> {
        let at = view.physical_offset();
        for hash in dispatched.index_key_hashes(false) {
            if !self.take_one(view, hash)? {
                return Ok(false);
            }
        }
        if self.peek()?.is_none_or(|item| item.physical_offset > at) {
            return Ok(true);
        }
        // Some brokers index tags.
        let tag = dispatched.index_key_hashes(true).last();
        let has_tag = tag.map_or(Ok(false), |hash| self.take_one(view, hash))?;
        Ok(has_tag && self.peek()?.is_none_or(|item| item.physical_offset > at))
    }

    fn take_one(&mut self, view: &MessageView<'_>, hash: i32) -> Result<bool> {
        let (Some(item), Some(file)) = (self.peek()?, self.files.get(self.at)) else {
            return Ok(false);
        };
        let (at, time, number) = (view.physical_offset(), view.store_time(), self.numbers.end);
        self.numbers.end += 1;
        Ok((item.physical_offset, item.key_hash) == (at, hash)
            && item.time_diff >= 0
            && file.header.times(number, &item).contains(&time)
            && file.wrong_end(number, (at, time)).is_none())
    }

    #[inline]
    fn peek(&mut self) -> Result<Option<IndexItem>> {
        match self.ahead.known(self.numbers.end) {
            Some(item) => Ok(Some(item)),
            None => self.look_ahead(),
        }
    }

    fn look_ahead(&mut self) -> Result<Option<IndexItem>> {
        while let Some(file) = self.files.get(self.at) {
            if let Some(item) = self.ahead.get(file, self.numbers.end, self.numbers.end)? {
                return Ok(Some(item));
            }
            if self.at + 1 == self.files.len() {
                break;
            }
            self.next_file();
        }
        Ok(None)
    }

    fn next_file(&mut self) {
        if !self.numbers.is_empty() {
            self.taken.push((self.at, self.numbers.clone()));
        }
        self.at += 1;
        self.numbers = 1..1;
        self.ahead = ItemsAhead::default();
    }

    /// Returns the items that were taken: numbers, with the index of the file.
    pub(super) fn into_taken(mut self) -> Vec<(usize, Range<i32>)> {
        self.next_file();
        self.taken
    }
}
