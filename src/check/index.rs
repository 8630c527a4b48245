//! Compares the index files with the log: each key has its item, and each item leads to its message.
//!
//! The items of a file are in the order of the log, so each file is read once, along with the log. Files may overlap: after a crash
//! some brokers index again what an older file has.

use std::ops::Range;
use std::sync::Arc;

use crate::check::context::{Context, Writer};
use crate::check::finding_id::FindingId;
use crate::check::findings::{Affected, Finding};
use crate::check::index_files::{STEP, add_header, add_wrong_count, look_at_empty, look_at_length, look_at_links, look_at_sizes};
use crate::check::index_items::{ItemsAhead, KeyFile};
use crate::error::Result;
use crate::format::{DispatchRequest, INDEX_DIR, IndexGeometry, IndexItem, MessageView};
use crate::interrupt;
use crate::log::{IndexFile, IndexService, StorePart};

/// All index files, while the log is read from start to end.
#[derive(Debug)]
pub(super) struct Keys {
    /// The files that can be read, by their first items.
    files: Arc<[Arc<KeyFile>]>,
    /// Files whose first item is of a later message; the next one last.
    waiting: Vec<Cursor>,
    /// Files that have items of messages from here on.
    active: Vec<Cursor>,
    /// Physical offsets of which files that cannot be read may have the keys.
    blind: Vec<Range<i64>>,
    /// The file that came to its end last, and the number of its next item.
    last: Option<(Arc<IndexFile>, u64)>,
    has_files: bool,
    is_deep: bool,
    /// The keys of a message, and whether the item of each was found.
    hashes: Vec<(i32, bool)>,
    /// Items that were compared.
    pub(super) items: u64,
}

/// A file, and how far it was read.
#[derive(Debug)]
struct Cursor {
    of: Arc<KeyFile>,
    /// The number of the next item.
    next: i32,
    ahead: ItemsAhead,
    /// The time of items can be compared: they count from the begin time.
    is_begin_right: bool,
}

impl Keys {
    /// Lists the index files that can be read, and reports what is wrong with each as a whole.
    ///
    /// # Errors
    /// Those of reading the files.
    pub(super) fn new(index: &IndexService, is_deep: bool, context: &mut Context<'_>) -> Result<Self> {
        let mut keys = Self {
            files: Arc::new([]),
            waiting: Vec::new(),
            active: Vec::new(),
            blind: Vec::new(),
            last: None,
            has_files: false,
            is_deep,
            hashes: Vec::new(),
            items: 0,
        };
        let files = index.with_geometries()?;
        let newest = files.len();
        let expected = index.geometry()?.map(IndexGeometry::file_len);
        if expected.is_none() {
            look_at_sizes(context)?;
        }
        let (mut readable, mut unread_from) = (Vec::new(), None);
        let mut end = context.bounds.start;
        for (number, (file, geometry)) in files.into_iter().enumerate() {
            let seems_empty = file.header().items() == 0;
            let grows = context.writer == Writer::Live && number + 1 == newest;
            if let Some(expected) = expected.filter(|_| !grows && (geometry.is_some() || seems_empty)) {
                look_at_length(&file, expected, seems_empty && number + 1 == newest, context);
            }
            let Some(geometry) = geometry else {
                if seems_empty {
                    look_at_empty(&file, grows, context)?;
                } else {
                    keys.has_files = true;
                    let what = format!("the {} bytes fit no number of slots and items", file.file_len());
                    context.add(Finding::new(FindingId::IndexUnreadable, file.path(), 0, what));
                    unread_from.get_or_insert(end);
                }
                continue;
            };
            let is_unfinished = context.writer == Writer::Crashed && number + 1 == newest;
            let of = KeyFile::new(file, geometry, grows, is_unfinished)?;
            if of.count != of.header.index_count && !of.grows {
                let what = format!("it counts {} items, and there are {}", of.header.items(), of.count - 1);
                add_wrong_count(&of.file, what, context);
            }
            keys.has_files |= !seems_empty || of.count > 1;
            if of.count <= 1 {
                look_at_links(&of, is_deep, context)?;
                continue;
            }
            if let Some(from) = unread_from.take() {
                // The keys of one message may be in two files.
                keys.blind.push(from..of.first_offset.saturating_add(1));
            }
            end = of.header.end_physical_offset;
            readable.push(Arc::new(of));
        }
        if let Some(from) = unread_from {
            keys.blind.push(from..i64::MAX);
        }
        readable.sort_by_key(|file| file.first_offset);
        keys.files = readable.into();
        keys.waiting = keys.files.iter().rev().cloned().map(Cursor::new).collect();
        Ok(keys)
    }

    /// Returns the files that can be read, by their first items.
    pub(super) fn files(&self) -> Arc<[Arc<KeyFile>]> {
        Arc::clone(&self.files)
    }

    /// Skips the items of messages that agree with them: numbers, with the index of the file. `end` is the end of the last of
    /// these messages. `false` if other items come before them, or belong to these messages, too.
    ///
    /// # Errors
    /// Those of reading the files.
    pub(super) fn take_agreed(&mut self, items: &[(usize, Range<i32>)], end: i64, context: &mut Context<'_>) -> Result<bool> {
        if !self.are_next(items, end)? {
            return Ok(false);
        }
        for (_, numbers) in items {
            if self.active.is_empty() {
                self.active.extend(self.waiting.pop());
            }
            for cursor in &mut self.active {
                cursor.next = numbers.end;
            }
            self.items += u64::from((numbers.end - numbers.start).unsigned_abs());
            self.close_ended(context)?;
        }
        Ok(true)
    }

    /// Returns true if these are the next items, and no others are of messages before `end`.
    fn are_next(&mut self, items: &[(usize, Range<i32>)], end: i64) -> Result<bool> {
        let mut at = match self.active.as_mut_slice() {
            [] => None,
            [one] => {
                if items.is_empty() && one.peek()?.is_some_and(|item| item.physical_offset < end) {
                    return Ok(false);
                }
                Some((Arc::clone(&one.of), one.next))
            }
            _ => return Ok(false),
        };
        let mut waiting = self.waiting.iter().rev();
        for (index, numbers) in items {
            let (of, next) = match at.take() {
                Some(active) => active,
                None => match waiting.next() {
                    Some(opened) => (Arc::clone(&opened.of), opened.next),
                    None => return Ok(false),
                },
            };
            let is_of = self.files.get(*index).is_some_and(|file| Arc::ptr_eq(file, &of));
            if !is_of || next != numbers.start {
                return Ok(false);
            }
            at = (numbers.end < of.count).then_some((of, numbers.end));
        }
        Ok(waiting.next().is_none_or(|next| next.of.first_offset >= end))
    }

    /// Compares the items of a message. Messages come in the order of the log.
    ///
    /// # Errors
    /// Those of reading the files.
    #[inline]
    pub(super) fn compare(
        &mut self,
        view: &MessageView<'_>,
        dispatched: &DispatchRequest<'_>,
        context: &mut Context<'_>,
    ) -> Result<()> {
        self.hashes.clear();
        self.hashes
            .extend(dispatched.index_key_hashes(false).map(|hash| (hash, false)));
        let at = view.physical_offset();
        while self.waiting.last().is_some_and(|next| next.of.first_offset <= at) {
            self.active.extend(self.waiting.pop());
        }
        let mut is_one_at_end = false;
        for cursor in &mut self.active {
            self.items += cursor.compare(view, dispatched, &mut self.hashes, context)?;
            is_one_at_end |= cursor.is_at_end();
        }
        if is_one_at_end {
            self.close_ended(context)?;
        }
        if self.hashes.iter().any(|(_, is_found)| !is_found) {
            self.add_missing(view, dispatched, context);
        }
        Ok(())
    }

    /// Compares the items after those of the last message. Returns the number of items that were compared.
    ///
    /// # Errors
    /// Those of reading the files.
    pub(super) fn finish(mut self, context: &mut Context<'_>) -> Result<u64> {
        self.active.append(&mut self.waiting);
        for cursor in &mut self.active {
            while let Some(item) = cursor.peek()? {
                interrupt::check()?;
                cursor.add_stray(&item, context);
                self.items += 1;
            }
        }
        self.close_ended(context)?;
        Ok(self.items)
    }

    fn close_ended(&mut self, context: &mut Context<'_>) -> Result<()> {
        let is_deep = self.is_deep;
        let ended = self.active.extract_if(.., |cursor| cursor.is_at_end());
        for cursor in ended {
            look_at_links(&cursor.of, is_deep, context)?;
            self.last = Some((Arc::clone(&cursor.of.file), cursor.position()));
        }
        Ok(())
    }

    #[cold]
    fn add_missing(&self, view: &MessageView<'_>, dispatched: &DispatchRequest<'_>, context: &mut Context<'_>) {
        let at = view.physical_offset();
        if !self.has_files && context.kept_elsewhere.contains(&StorePart::Keys) {
            return;
        }
        if self.blind.iter().any(|blind| blind.contains(&at)) || context.has_expired(at) {
            return;
        }
        let is_after_all = self.active.is_empty() && self.waiting.is_empty();
        let keys = dispatched.index_keys(false).zip(&self.hashes);
        for (key, _) in keys.filter(|(_, (_, is_found))| !is_found) {
            let affected = Affected {
                key: Some(key.clone().into_owned()),
                ..Affected::of(view)
            };
            let next = self
                .active
                .last()
                .map(|cursor| (Arc::clone(&cursor.of.file), cursor.position()));
            let (id, path, position) = match next.or_else(|| self.last.clone()) {
                None if !self.has_files => (FindingId::IndexAbsent, context.root.join(INDEX_DIR), 0),
                None => (FindingId::IndexKeyMissing, context.root.join(INDEX_DIR), 0),
                Some((file, position)) if context.brokers.is_some_and(|brokers| is_after_all && at < brokers.start()) => {
                    (FindingId::IndexNotRecovered, file.path().to_owned(), position)
                }
                Some((file, position)) if is_after_all && context.writer != Writer::Closed => {
                    (FindingId::IndexNotIndexed, file.path().to_owned(), position)
                }
                Some((file, position)) => (FindingId::IndexKeyMissing, file.path().to_owned(), position),
            };
            let what = format!(
                "key {key:?} of the message of topic {:?} at physical offset {at} has no item",
                view.topic()
            );
            context.add_after(Finding::new(id, &path, position, what).of(affected), STEP);
        }
    }
}

impl Cursor {
    fn new(of: Arc<KeyFile>) -> Self {
        Self {
            of,
            next: 1,
            ahead: ItemsAhead::default(),
            is_begin_right: true,
        }
    }

    /// Returns the byte of the next item.
    fn position(&self) -> u64 {
        self.of.position(self.next)
    }

    fn is_at_end(&self) -> bool {
        self.next >= self.of.count
    }

    /// Reads the item `number`, which is the next one or that after it.
    fn item(&mut self, number: i32) -> Result<Option<IndexItem>> {
        self.ahead.get(&self.of, number, self.next)
    }

    fn peek(&mut self) -> Result<Option<IndexItem>> {
        self.item(self.next)
    }

    /// Compares the items up to those of this message, and returns their number.
    fn compare(
        &mut self,
        view: &MessageView<'_>,
        dispatched: &DispatchRequest<'_>,
        hashes: &mut [(i32, bool)],
        context: &mut Context<'_>,
    ) -> Result<u64> {
        let at = view.physical_offset();
        let begun = self.next;
        while let Some(item) = self.peek()? {
            let is_later = item.physical_offset > at;
            if is_later {
                // Offsets do not fall. If the next item is one of this message, this one is damaged.
                let after = self.item(self.next + 1)?;
                if after.is_none_or(|after| after.physical_offset > at) {
                    break;
                }
            }
            if item.physical_offset == at && self.belongs(&item, view, dispatched, hashes, context) {
                self.next += 1;
            } else {
                self.add_stray(&item, context);
            }
        }
        Ok((self.next - begun).unsigned_abs().into())
    }

    /// Returns true if an item is of the message at its offset, and has its time. The header names the first and the last item's message.
    fn belongs(
        &mut self,
        item: &IndexItem,
        view: &MessageView<'_>,
        dispatched: &DispatchRequest<'_>,
        hashes: &mut [(i32, bool)],
        context: &mut Context<'_>,
    ) -> bool {
        let number = self.next;
        let of_message = (view.physical_offset(), view.store_time());
        let header = self.of.header;
        if number == 1 {
            self.is_begin_right = header.begin_time == of_message.1;
        }
        if let Some(what) = self.of.wrong_end(number, of_message) {
            add_header(&self.of, what, context);
        }
        let is_of_time = item.time_diff >= 0 && (!self.is_begin_right || header.times(number, item).contains(&view.store_time()));
        if let Some((_, is_found)) = hashes.iter_mut().find(|(hash, is_found)| *hash == item.key_hash && !is_found) {
            *is_found = true;
            return is_of_time;
        }
        // Some brokers index the last message before a crash twice, and some index tags.
        is_of_time
            && (hashes.iter().any(|(hash, _)| *hash == item.key_hash)
                || dispatched.index_key_hashes(true).last() == Some(item.key_hash))
    }

    /// Passes over an item that leads to no message with its key.
    #[cold]
    fn add_stray(&mut self, item: &IndexItem, context: &mut Context<'_>) {
        let (number, position, at) = (self.next, self.position(), item.physical_offset);
        self.next += 1;
        let has_expired = at >= 0 && context.has_expired(at);
        if has_expired || context.is_damaged(at, Affected::default) {
            return;
        }
        let is_past_end = at >= context.bounds.end;
        if is_past_end && context.writer == Writer::Live {
            return;
        }
        let id = if is_past_end {
            FindingId::IndexItemPastEnd
        } else {
            FindingId::IndexItemWrong
        };
        let what = format!(
            "item {number} leads to physical offset {at}, where there is no message with the key hash {} and its time",
            item.key_hash
        );
        let affected = Affected {
            physical_offset: Some(at),
            ..Affected::default()
        };
        let finding = Finding::new(id, self.of.file.path(), position, what).of(affected);
        if is_past_end {
            context.add_past_end(at, finding, STEP);
        } else {
            context.add_after(finding, STEP);
        }
    }
}
