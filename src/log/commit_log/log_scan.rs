//! Reading the log record by record.

use crate::error::Result;
use crate::format::{Check, MessageView};
use crate::interrupt;
use crate::log::commit_log::log_files::LogFiles;
use crate::log::commit_log::log_record::{LogRecord, StoredMessage};
use crate::log::commit_log::record_cursor::RecordCursor;

impl LogFiles {
    /// Scans the intact records from `from` up to `until`, in order; stops at the first bytes that are not a record.
    pub fn scan(&self, from: i64, until: i64, check: Check) -> LogScan<'_> {
        LogScan {
            log: self,
            cursor: RecordCursor::default(),
            at: from,
            until,
            check,
            stopped_by: None,
        }
    }

    /// Returns the end of the intact records from `from` on: the first bytes that are not a record, or `until`.
    ///
    /// # Errors
    /// Those of [`LogScan::advance`] and [`interrupt::check`].
    pub(crate) fn end_of_records(&self, from: i64, until: i64) -> Result<i64> {
        let mut scan = self.scan(from, until, Check::Structure);
        while interrupt::check().and_then(|()| scan.advance())? {}
        Ok(scan.position())
    }
}

/// A scan of intact records; see [`LogFiles::scan`]. `advance` allocates nothing, and `view` returns a view. As an iterator it
/// returns messages that are independent of the scan.
#[derive(Debug)]
pub struct LogScan<'a> {
    log: &'a LogFiles,
    cursor: RecordCursor,
    at: i64,
    until: i64,
    check: Check,
    stopped_by: Option<LogRecord<()>>,
}

impl LogScan<'_> {
    /// Treats the bytes as immutable, also in the last segment. A writer may do so for those below *readable*, and for all of them
    /// while it opens the log.
    #[must_use]
    pub(crate) fn of_immutable(mut self) -> Self {
        self.cursor = RecordCursor::of_immutable();
        self
    }

    /// Returns the offset at which the next record is expected: the end of the last one, or the start of the segment after a BLANK.
    pub fn position(&self) -> i64 {
        self.at
    }

    /// Returns the bytes that ended the scan; `None` while it runs, and after it reached its bound.
    pub fn stopped_by(&self) -> Option<&LogRecord<()>> {
        self.stopped_by.as_ref()
    }

    /// Reads the next record, which [`view`](Self::view) then returns; false at the end of the scan.
    ///
    /// # Errors
    /// Those of [`LogFiles::read`].
    pub fn advance(&mut self) -> Result<bool> {
        while self.at < self.until && self.stopped_by.is_none() {
            let read = self.cursor.read(self.log, self.at, self.check);
            match read.inspect_err(|_| self.stopped_by = Some(LogRecord::Missing))? {
                LogRecord::Message(()) => {
                    self.at += self.view().map_or(0, |view| i64::from(view.size()));
                    return Ok(true);
                }
                // A BLANK without a segment after it is not part of the log: the next append overwrites it.
                LogRecord::Blank { next } if next < self.log.files_end() => self.at = next,
                LogRecord::Blank { .. } => self.stopped_by = Some(LogRecord::End),
                other => self.stopped_by = Some(other),
            }
        }
        Ok(false)
    }

    /// Returns the current record. Call [`check_intact`](Self::check_intact) after using it.
    pub fn view(&self) -> Option<MessageView<'_>> {
        self.cursor.view()
    }

    /// Checks that the bytes of the current record that were read so far are the file's.
    ///
    /// # Errors
    /// Those of [`StoredMessage::intact`].
    pub fn check_intact(&self) -> Result<()> {
        self.cursor.check_intact()
    }
}

impl Iterator for LogScan<'_> {
    type Item = Result<StoredMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(true) => self.cursor.message().map(Ok),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}
