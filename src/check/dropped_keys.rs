//! Keys of a crashed store that brokers drop at their next start.

use std::sync::Arc;

use crate::check::context::Context;
use crate::check::finding_id::FindingId;
use crate::check::findings::Finding;
use crate::check::key_items::KeyFile;
use crate::error::Result;
use crate::format::Checkpoint;

/// Adds a note for each index file that the recovery of a broker removes, with the keys that it does not put into a new one.
///
/// # Errors
/// Those of reading the files.
pub(super) fn look_at_dropped_keys(files: &[Arc<KeyFile>], checkpoint: &Checkpoint, context: &mut Context<'_>) -> Result<()> {
    let Some(brokers) = context.brokers else { return Ok(()) };
    let start = brokers.start();
    for of in files.iter().filter(|of| of.header.end_time > checkpoint.index_msg_timestamp) {
        let dropped = of.first_at(start)? - 1;
        if dropped > 0 {
            let what = format!("a broker drops its first {dropped} keys, of messages before physical offset {start}");
            let finding = Finding::new(FindingId::IndexNotRecovered, of.file.path(), of.position(1), what);
            context.add(finding.counting(dropped.unsigned_abs().into()));
        }
    }
    Ok(())
}
