//! An index file as a whole: its length, its header, the links between its items, and the keys that a broker drops at its next start.

use std::sync::Arc;

use crate::check::context::{Context, Writer};
use crate::check::finding_id::FindingId;
use crate::check::findings::Finding;
use crate::check::index_items::KeyFile;
use crate::error::Result;
use crate::format::{Checkpoint, ITEM_SIZE};
use crate::log::IndexFile;
use crate::store::find_index_file_without_sizes;

/// Findings at items that follow each other are one.
pub(super) const STEP: u64 = ITEM_SIZE as u64;

/// Reports a header that contradicts the items.
pub(super) fn add_header(of: &KeyFile, what: String, context: &mut Context<'_>) {
    add_of_file(
        of,
        Finding::new(FindingId::IndexHeaderWrong, of.file.path(), 0, what),
        context,
    );
}

/// Adds a finding that the next writer sets right if the file is unfinished.
fn add_of_file(of: &KeyFile, finding: Finding, context: &mut Context<'_>) {
    if of.is_unfinished {
        context.add_left_by_crash(finding, STEP);
    } else {
        context.add_after(finding, STEP);
    }
}

/// Reports an index file for which a writer asks for sizes, because no index file shows them. A live writer knows them.
pub(super) fn look_at_sizes(context: &mut Context<'_>) -> Result<()> {
    if context.writer == Writer::Live {
        return Ok(());
    }
    if let Some(path) = find_index_file_without_sizes(context.reader)? {
        let what = "no index file has an item, and the sizes are not recorded";
        context.add(Finding::new(FindingId::IndexSizesUnknown, &path, 0, what));
    }
    Ok(())
}

/// Reports a wrong item count in the header, which the next open of a crashed store corrects.
pub(super) fn add_wrong_count(file: &IndexFile, what: String, context: &mut Context<'_>) {
    context.add_left_by_crash(Finding::new(FindingId::IndexHeaderWrong, file.path(), 0, what), STEP);
}

/// Reports a file whose length differs from the store's index files. The writer of a crashed store may have died while it made the last one.
pub(super) fn look_at_length(file: &IndexFile, expected: u64, may_be_unfinished: bool, context: &mut Context<'_>) {
    let len = file.file_len();
    let is_unfinished = may_be_unfinished && len < expected && context.writer == Writer::Crashed;
    if len != expected && !is_unfinished {
        let what = format!("it has {len} bytes, and the index files of this store have {expected}");
        context.add(Finding::new(FindingId::IndexFileLength, file.path(), len, what));
    }
}

/// Looks at a file whose header counts no item, and whose geometry is unknown.
pub(super) fn look_at_empty(file: &IndexFile, grows: bool, context: &mut Context<'_>) -> Result<()> {
    let slots = file.header().slot_count;
    if grows {
        return Ok(());
    }
    if slots != 0 {
        add_wrong_count(file, format!("it counts {slots} used slots and no item"), context);
    } else if let Some(at) = file.first_used()? {
        add_wrong_count(file, format!("it counts no item, and byte {at} is not zero"), context);
    }
    Ok(())
}

/// Looks at the links of a file whose items are right.
pub(super) fn look_at_links(of: &KeyFile, is_deep: bool, context: &mut Context<'_>) -> Result<()> {
    let is_wrong = |id| context.findings().has(id, of.file.path());
    if !is_deep || of.grows || is_wrong(FindingId::IndexItemWrong) {
        return Ok(());
    }
    let Some(links) = of.file.links(of.geometry, of.count)? else {
        return Ok(());
    };
    if let Some((at, what)) = links.broken {
        add_of_file(
            of,
            Finding::new(FindingId::IndexChainBroken, of.file.path(), at, what),
            context,
        );
    } else if i64::from(links.used_slots) != i64::from(of.header.slot_count) {
        let what = format!(
            "it counts {} used slots, and there are {}",
            of.header.slot_count, links.used_slots
        );
        add_header(of, what, context);
    }
    Ok(())
}

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
