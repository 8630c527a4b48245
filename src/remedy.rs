//! Remedies: the actions of a caller that help after an error, as data. Each face (Rust, Python, command line, Spark) words them
//! for its users.

use std::fmt;

macro_rules! remedies {
    ($($(#[$doc:meta])* $remedy:ident: $name:literal, $in_rust:literal;)*) => {
        /// An action that helps after an error. Its `Display` is for a program in Rust.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Remedy {
            $($(#[$doc])* $remedy,)*
        }

        impl Remedy {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$remedy),*];

            /// Returns the stable name, for programs in other languages.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$remedy => $name,)*
                }
            }
        }

        impl fmt::Display for Remedy {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$remedy => $in_rust,)*
                })
            }
        }
    };
}

remedies! {
    /// For a reader: skip messages that were lost or are damaged, and count them.
    Skip: "skip", "Errors::Skip passes over such messages and counts them";
    /// For a reader: as [`Skip`](Self::Skip). For a writer: a salvage keeps every whole message.
    SkipOrSalvage: "skip-or-salvage",
        "to read the other messages, use Errors::Skip; to continue writing, open the store with Recovery::Salvage, which keeps every whole message";
    /// For a reader: as [`Skip`](Self::Skip). For an operator: put back the segment, because every writer refuses the store without
    /// it, also with a salvage.
    SkipOrPutBack: "skip-or-put-back",
        "to read the other messages, use Errors::Skip; to continue writing, put back the segment that is missing or cut short";
    /// For a writer: a salvage keeps every whole message, and a read-only open reads the store unchanged.
    SalvageOrRead: "salvage-or-read",
        "MessageStore::open with Recovery::Salvage keeps every whole message, MessageReader::open reads the store unchanged";
    /// For a reader: a salvage reads the whole messages after the end of the log, too.
    SalvagePastEnd: "salvage-past-end", "open the store with Recovery::Salvage to read what is whole on both sides";
    /// For a reader: as [`SalvagePastEnd`](Self::SalvagePastEnd). For an operator: as [`SkipOrPutBack`](Self::SkipOrPutBack).
    SalvageOrPutBack: "salvage-or-put-back",
        "to read what is whole on both sides, open the store with Recovery::Salvage; to continue writing, put back the segment that is \
         missing or cut short";
    /// For a writer: a read-only open reads the messages before and after the gap in the log, with a salvage also those after damage.
    ReadAroundGap: "read-around-gap",
        "MessageReader::open reads the messages before and after the gap, with Recovery::Salvage past damage, too";
    /// For an operator who cannot copy a segment again that was cut short: extend it in a copy of the store. A salvage opens that
    /// copy if the store shows that the lost part was on disk.
    ExtendCopy: "extend-copy",
        "if there is nothing to copy it from, extend the file to its length in a copy of the store and open that: what was lost reads as \
         zeros, and Recovery::Salvage is needed where the store says that it was on disk";
    /// For an operator who cannot copy a file again that has bytes after its end: cut it to its length.
    CutFile: "cut-file",
        "copy the file again, or, if the bytes after that length are not its own, cut it to the length (File::set_len)";
    /// For an operator: put back the missing part of the log; if it is lost, a repaired copy keeps the offsets of all other
    /// messages.
    PutBack: "put-back",
        "put back the part of the log that is missing; if it is lost, check::repair into another directory keeps the offsets of all other \
         messages";
    /// For an operator: a repair keeps every whole message.
    Repair: "repair", "check::repair keeps every whole message";
    /// For an operator: a repair of a copy leaves the store as it is.
    RepairCopy: "repair-copy", "check::repair into another directory repairs a copy";
    /// For an operator who cannot copy the file again: a rebuild moves it out of the store and rebuilds it from the log.
    Rebuild: "rebuild",
        "if there is nothing to copy it from, check::rebuild sets it aside and makes it again from the log";
    /// For an operator: copy the intact messages into a new store; queue offsets are new there.
    CopyWhole: "copy-whole",
        "a new store takes over what a scan with Errors::Skip returns; queue offsets are new there";
    /// For a reader: a read-only open writes nothing and takes no lock.
    ReadOnly: "read-only", "MessageReader::open reads the store";
    /// For a reader: search the log itself for a key that is not in the index.
    WalkLog: "walk-log", "a walk looks for it in the log itself";
    /// For an operator of a slave: discard what a writer has appended to its log and its master does not have.
    DiscardTail: "discard-tail", "SlaveOptions::discards_tail removes it";
    /// For a reader: start at the first message of the queue, or at its next one.
    StartAtBound: "start-at-bound",
        "OnMissing::Earliest starts at its first message then, OnMissing::Latest at its next one";
}
