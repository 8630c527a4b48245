//! The last message that a live writer has certainly dispatched. A writer dispatches in the order of the log, so an earlier message without
//! a queue entry has lost it.

use crate::error::Result;
use crate::format::{CHECKPOINT_FILE, Check};
use crate::log::{LogRecord, load_checkpoint};
use crate::read::MessageReader;
use crate::recovery::{last_unit, load_own_from};
use crate::storage::Env;

/// Returns its physical offset; `None` if nothing shows it. Queues that are listed after this call have the entry of each message up to it.
/// A broker writes each entry to its file before it dispatches the next message, so that the furthest entry shows it.
///
/// # Errors
/// [`crate::error::Error::Io`].
pub(super) fn last_dispatched(env: &dyn Env, reader: &MessageReader) -> Result<Option<i64>> {
    if load_own_from(env, reader.path())?.is_some() {
        last_stamped(env, reader)
    } else {
        Ok(last_unit(reader.queue_store())?.map(|unit| unit.physical_offset))
    }
}

/// Returns the message of the stamp of our writer. It keeps entries in memory, each queue for another time, until they are in the files
/// before a stamp.
fn last_stamped(env: &dyn Env, reader: &MessageReader) -> Result<Option<i64>> {
    let stamps = load_checkpoint(env, &reader.path().join(CHECKPOINT_FILE))?;
    let at = stamps.logics_physical_offset;
    let is_of_log = stamps.is_ours()
        && match reader.log().read(at, Check::Structure)? {
            LogRecord::Message(message) => message.view().store_time() == stamps.physic_msg_timestamp,
            _ => false,
        };
    Ok(is_of_log.then_some(at))
}
