//! The remedies of errors in the words of Python.

use std::fmt;

use crate::remedy::Remedy;

/// Returns what to do, in the words of Python.
pub(super) fn advice(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Skip => "errors=\"skip\" passes over such messages and counts them",
        Remedy::SkipOrSalvage => {
            "to read the other messages, use errors=\"skip\"; to continue writing, open the store with recovery=\"salvage\", which \
             keeps every whole message"
        }
        Remedy::SkipOrPutBack => {
            "to read the other messages, use errors=\"skip\"; to continue writing, put back the segment that is missing or cut short"
        }
        Remedy::SalvageOrRead => {
            "open the store with recovery=\"salvage\" to keep every whole message, or with mode \"r\" to read it unchanged"
        }
        Remedy::SalvagePastEnd => {
            "open the store with recovery=\"salvage\" to read what is whole on both sides, with mode \"r\" without a change"
        }
        Remedy::ReadAroundGap => {
            "mode \"r\" reads the messages before and after the gap, with recovery=\"salvage\" past damage, too"
        }
        Remedy::ExtendCopy => {
            "if there is nothing to copy it from, extend it to its length in a copy of the store (truncate -s) and open that: what was \
             lost reads as zeros, and recovery=\"salvage\" is needed where the store says that it was on disk"
        }
        Remedy::Repair => "mqstore.repair keeps every whole message",
        Remedy::Rebuild => "if there is nothing to copy it from, mqstore.rebuild sets it aside and makes it again from the log",
        Remedy::ReadOnly => "mode \"r\" reads the store",
        Remedy::WalkLog => "walk=True searches the log itself",
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
