//! Reading the log record by record.

use std::sync::Arc;

use crate::error::Result;
use crate::format::Check;
use crate::log::commit_log::log_files::{LogFiles, LogRecord, StoredMessage};
use crate::storage::MappedFile;

impl LogFiles {
    /// Every whole record from `from` up to `until`, in order; stops at the first thing that is no record.
    pub fn scan(&self, from: i64, until: i64, check: Check) -> LogScan<'_> {
        LogScan {
            log: self,
            file: None,
            at: from,
            until,
            check,
            stopped_by: None,
        }
    }
}

/// An iterator over whole records; see [`LogFiles::scan`].
#[derive(Debug)]
pub struct LogScan<'a> {
    log: &'a LogFiles,
    /// The segment that was read last: looking for it anew costs as much as reading a record.
    file: Option<Arc<MappedFile>>,
    at: i64,
    until: i64,
    check: Check,
    stopped_by: Option<LogRecord>,
}

impl LogScan<'_> {
    /// Where the next record is expected: the end of the last one, or the start of the segment after a BLANK.
    pub fn position(&self) -> i64 {
        self.at
    }

    /// What ended the scan; `None` while it runs and when it reached its bound.
    pub fn stopped_by(&self) -> Option<&LogRecord> {
        self.stopped_by.as_ref()
    }

    fn read(&mut self) -> Result<LogRecord> {
        let is_in = |file: &Arc<MappedFile>| (file.start() as i64..file.end() as i64).contains(&self.at);
        if !self.file.as_ref().is_some_and(is_in) {
            self.file = self.log.locate(self.at)?.map(|(file, _)| file);
        }
        Ok(match &self.file {
            Some(file) => self.log.read_in(file, (self.at - file.start() as i64) as usize, self.check),
            None => LogRecord::Missing,
        })
    }

    fn stop(&mut self, by: LogRecord) -> Option<Result<StoredMessage>> {
        self.stopped_by = Some(by);
        None
    }
}

impl Iterator for LogScan<'_> {
    type Item = Result<StoredMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.until && self.stopped_by.is_none() {
            match self.read() {
                Err(error) => {
                    self.stopped_by = Some(LogRecord::Missing);
                    return Some(Err(error));
                }
                Ok(LogRecord::Message(message)) => {
                    self.at += i64::from(message.view().size());
                    return Some(Ok(message));
                }
                // A BLANK without a segment after it is not part of the log: the next append overwrites it.
                Ok(LogRecord::Blank { next }) if next < self.log.files_end() => self.at = next,
                Ok(LogRecord::Blank { .. }) => return self.stop(LogRecord::End),
                Ok(other) => return self.stop(other),
            }
        }
        None
    }
}
