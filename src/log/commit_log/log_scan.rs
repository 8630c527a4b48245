//! Reading the log record by record.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{Check, MessageView, RecordLayout};
use crate::log::commit_log::log_files::{LogFiles, LogRecord, StoredMessage, claimed_range, nothing_at, record_in};
use crate::storage::{MappedFile, SelectedBuffer};

impl LogFiles {
    /// Every whole record from `from` up to `until`, in order; stops at the first thing that is no record.
    pub fn scan(&self, from: i64, until: i64, check: Check) -> LogScan<'_> {
        LogScan {
            log: self,
            segment: None,
            is_settled: false,
            at: from,
            until,
            check,
            copy: Vec::new(),
            last: None,
            stopped_by: None,
        }
    }
}

/// A cursor over whole records; see [`LogFiles::scan`]. Moving it on allocates nothing and gives views. As an iterator it gives messages
/// that outlive it.
#[derive(Debug)]
pub struct LogScan<'a> {
    log: &'a LogFiles,
    /// The segment that was read last: looking for it anew costs as much as reading a record.
    segment: Option<Segment>,
    is_settled: bool,
    at: i64,
    until: i64,
    check: Check,
    /// The bytes of the last record, if they can change in the file.
    copy: Vec<u8>,
    /// The last record: its positions in the segment, and where its parts lie.
    last: Option<(Range<usize>, RecordLayout)>,
    stopped_by: Option<LogRecord<()>>,
}

#[derive(Debug)]
struct Segment {
    file: Arc<MappedFile>,
    /// Its bytes do not change up to the bound of the scan, and are used where they are.
    is_in_place: bool,
}

impl LogScan<'_> {
    /// The same scan of bytes that nobody changes, in the last segment, too: those below *readable*, for their writer.
    #[must_use]
    pub(crate) fn of_settled(mut self) -> Self {
        self.is_settled = true;
        self
    }

    /// Where the next record is expected: the end of the last one, or the start of the segment after a BLANK.
    pub fn position(&self) -> i64 {
        self.at
    }

    /// What ended the scan; `None` while it runs and when it reached its bound.
    pub fn stopped_by(&self) -> Option<&LogRecord<()>> {
        self.stopped_by.as_ref()
    }

    /// Reads the next record, which [`view`](Self::view) then shows; `false` if there is none.
    ///
    /// # Errors
    /// As [`LogFiles::read`].
    pub fn advance(&mut self) -> Result<bool> {
        self.last = None;
        while self.at < self.until && self.stopped_by.is_none() {
            let (position, found) = self.read_next().inspect_err(|_| self.stopped_by = Some(LogRecord::Missing))?;
            match found {
                LogRecord::Message(layout) => {
                    self.at += layout.size() as i64;
                    self.last = Some((position..position + layout.size(), layout));
                    return Ok(true);
                }
                // A BLANK without a segment after it is not part of the log: the next append overwrites it.
                LogRecord::Blank { next } if next < self.log.files_end() => self.at = next,
                LogRecord::Blank { .. } => self.stopped_by = Some(LogRecord::End),
                other => self.stopped_by = Some(other.kind()),
            }
        }
        Ok(false)
    }

    /// The record that was read last. Ask [`check_intact`](Self::check_intact) after using it.
    pub fn view(&self) -> Option<MessageView<'_>> {
        let (range, layout) = self.last.as_ref()?;
        Some(MessageView::from_layout(self.bytes(range), *layout))
    }

    /// Whether what was read of the last record so far were the file's bytes.
    ///
    /// # Errors
    /// As [`StoredMessage::intact`].
    pub fn check_intact(&self) -> Result<()> {
        match (&self.segment, &self.last) {
            (Some(segment), Some((range, _))) if segment.is_in_place => segment.file.check_intact(range.clone()),
            _ => Ok(()),
        }
    }

    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        match &self.segment {
            Some(segment) if segment.is_in_place => segment.file.bytes(range.clone()).unwrap_or_default(),
            _ => &self.copy,
        }
    }

    /// What stands at the next position, and that position in its segment.
    #[inline]
    fn read_next(&mut self) -> Result<(usize, LogRecord<RecordLayout>)> {
        self.locate()?;
        let Some(segment) = &self.segment else {
            return Ok((0, LogRecord::Missing));
        };
        let position = (self.at - segment.file.start() as i64) as usize;
        let bytes = if segment.is_in_place {
            segment.file.bytes(position..segment.file.len() as usize)
        } else {
            claimed_range(&segment.file, position).and_then(|range| {
                self.copy.resize(range.len(), 0);
                segment.file.read(position, &mut self.copy).then_some(self.copy.as_slice())
            })
        };
        let found = match bytes {
            Some(bytes) => record_in(&segment.file, position, bytes, self.check),
            None => nothing_at(&segment.file, position),
        };
        Ok((position, found))
    }

    #[inline]
    fn locate(&mut self) -> Result<()> {
        let is_in = |segment: &Segment| (segment.file.start() as i64..segment.file.end() as i64).contains(&self.at);
        if !self.segment.as_ref().is_some_and(is_in) {
            self.segment = self.log.locate(self.at)?.map(|(file, _)| Segment {
                is_in_place: self.is_settled || self.log.is_sealed(&file),
                file,
            });
        }
        Ok(())
    }

    /// The last record as a message that outlives the scan.
    fn message(&self) -> Option<StoredMessage> {
        let (range, layout) = self.last.as_ref()?;
        let buffer = match &self.segment {
            Some(segment) if segment.is_in_place => segment.file.select(range.clone())?,
            _ => SelectedBuffer::Owned(self.copy.as_slice().into()),
        };
        Some(StoredMessage::new(buffer, *layout))
    }
}

impl Iterator for LogScan<'_> {
    type Item = Result<StoredMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(true) => self.message().map(Ok),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}
