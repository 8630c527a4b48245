//! Walking the log where no queue or index serves.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::{Check, is_salvage_record};
use crate::interrupt;
use crate::log::{LogRecord, StoredMessage};
use crate::read::message_reader::MessageReader;
use crate::read::nothing::{EXPIRED, WAS_LOST, nothing_at};

impl MessageReader {
    /// Hands every whole message of a stretch of the log to `visit`. After damage or a missing segment the walk goes on at the next
    /// segment. Returns the first damage. Without damage it returns [`Error::NotFound`] for the first message that has expired or was
    /// lost, if there is one.
    pub(super) fn walk(&self, range: Range<i64>, mut visit: impl FnMut(&StoredMessage)) -> Result<Option<Error>> {
        let (mut damage, mut gone) = (None, None);
        let mut from = range.start;
        loop {
            let mut scan = self.log().scan(from, range.end, Check::Structure);
            for message in scan.by_ref() {
                interrupt::check()?;
                let message = message?;
                if is_salvage_record(&message.view()) {
                    gone.get_or_insert_with(|| nothing_at(message.view().physical_offset(), WAS_LOST));
                } else {
                    visit(&message);
                }
            }
            let at = scan.position();
            match scan.stopped_by() {
                None => return Ok(damage.or(gone)),
                Some(LogRecord::Missing) if self.log().is_removed(at) => {
                    gone.get_or_insert_with(|| nothing_at(at, EXPIRED));
                }
                Some(LogRecord::Corrupt(error) | LogRecord::NoRecord(error)) => {
                    damage.get_or_insert_with(|| error.clone());
                }
                Some(_) => {
                    let why = "no record starts here: the segment is missing or cut short; copy it again";
                    damage.get_or_insert_with(|| self.log().corrupt(at, why.to_owned()));
                }
            }
            match self.log().next_start(at) {
                Some(next) if next < range.end => from = next,
                _ => return Ok(damage.or(gone)),
            }
        }
    }
}
