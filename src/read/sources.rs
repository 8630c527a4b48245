//! Where the messages of each stretch of the log are found by their keys.

use std::ops::Range;

use crate::error::Result;
use crate::format::{Check, DispatchRequest};
use crate::log::{Indexed, LogRecord, Source};
use crate::read::message_reader::MessageReader;
use crate::sync::lock;

impl MessageReader {
    /// The log in stretches, ascending, as [`IndexService::sources`](crate::log::IndexService::sources) divides it. The last one is left out if
    /// it is one message, which the index has, too.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn sources(&self, log: Range<i64>) -> Result<Vec<Source>> {
        let mut sources = self.index().sources(log)?;
        if let [.., Source::Index(indexed), Source::LogAfterIndex(rest)] = sources.as_slice() {
            let wanted = (*indexed.header(), rest.end);
            let is_known = *lock(&self.indexed_to_end) == Some(wanted);
            if is_known || self.is_indexed(indexed, rest)? {
                *lock(&self.indexed_to_end) = Some(wanted);
                sources.pop();
            }
        }
        Ok(sources)
    }

    /// Whether one message takes this stretch, and all its keys are in the file.
    fn is_indexed(&self, indexed: &Indexed, stretch: &Range<i64>) -> Result<bool> {
        let LogRecord::Message(message) = self.log().read(stretch.start, Check::Structure)? else {
            return Ok(false);
        };
        let view = message.view();
        for key_hash in DispatchRequest::of(&view).index_key_hashes(self.config().index_tags) {
            let (offsets, is_whole) = indexed.offsets(key_hash, &(i64::MIN..=i64::MAX))?;
            if !is_whole || !offsets.contains(&stretch.start) {
                return Ok(false);
            }
        }
        Ok(view.end() == stretch.end && message.intact().is_ok())
    }
}
