//! The words of Python for the remedies of errors.

use std::fmt;

use crate::remedy::Remedy;

/// Returns what to do, in the words of Python.
pub(super) fn advice(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Skip => "open the store with errors=\"skip\" to pass over such messages and count them",
        Remedy::SkipOrSalvage => {
            "to read the other messages, open the store with errors=\"skip\"; to continue writing, open it with recovery=\"salvage\", \
             which keeps every whole message"
        }
        Remedy::SkipOrPutBack => {
            "to read the other messages, open the store with errors=\"skip\"; to continue writing, put back the segment that is missing or \
             cut short"
        }
        Remedy::SalvageOrRead => {
            "open the store with recovery=\"salvage\" to keep every whole message, or with mode \"r\" to read it unchanged"
        }
        Remedy::SalvagePastEnd => "open the store with recovery=\"salvage\" to read what is whole on both sides",
        Remedy::SalvageOrPutBack => {
            "to read what is whole on both sides, open the store with recovery=\"salvage\"; to continue writing, put back the segment that \
             is missing or cut short"
        }
        Remedy::ReadAroundGap => {
            "mode \"r\" reads the messages before and after the gap, with recovery=\"salvage\" past damage, too"
        }
        Remedy::ExtendCopy => {
            "if there is nothing to copy it from, extend it to its length in a copy of the store (truncate -s) and open that: what was \
             lost reads as zeros, and recovery=\"salvage\" is needed where the store says that it was on disk"
        }
        Remedy::CutFile => {
            "copy the file again, or, if the bytes after that length are not its own, cut it to the length (truncate -s)"
        }
        Remedy::PutBack => {
            "put back the part of the log that is missing; if it is lost, mqstore.repair with `into` keeps the offsets of all other \
             messages"
        }
        Remedy::Repair => "mqstore.repair keeps every whole message",
        Remedy::RepairCopy => "mqstore.repair with `into` repairs a copy",
        Remedy::Rebuild => "if there is nothing to copy it from, mqstore.rebuild sets it aside and makes it again from the log",
        Remedy::CopyWhole => "Store.copy_to with errors=\"skip\" takes over what is whole; queue offsets are new there",
        Remedy::ReadOnly => "mode \"r\" reads the store",
        Remedy::WalkLog => "walk=True searches the log itself",
        Remedy::DiscardTail => "discard_tail=True removes it",
        Remedy::StartAtBound => "on_missing=\"earliest\" starts at its first message then, on_missing=\"latest\" at its next one",
    }
}

/// Returns the text with what to do.
pub(super) fn advising(text: impl fmt::Display, remedy: Option<Remedy>) -> String {
    match remedy {
        Some(remedy) => format!("{text}; {}", advice(remedy)),
        None => text.to_string(),
    }
}
