//! The table of findings. A test compares it with docs/FINDINGS.md.

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Messages are lost or not found, or a broker will do harm.
    Error,
    /// It costs time or will be set right by the next open, or a broker may refuse the store.
    Warning,
    /// A fact that asks for no action.
    Note,
}

impl Severity {
    /// Returns its name in Python and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// The action that fixes a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fix {
    /// Make queues, index and checkpoint again from the log.
    Rebuild,
    /// Keep what is whole of the log where it is, and put a salvage record over the rest.
    Salvage,
    /// Move the file aside.
    SetAside,
    /// Write the right place in the queues into a record; remove a record whose place nothing proves.
    Correct,
    /// Take over each whole message, with a new queue offset: too many messages contradict their queue entries.
    CopyWhole,
    /// The next open for writing, by mqstore or a broker.
    Open,
    /// Put back the part of the log that is missing.
    PutBack,
    /// The fix of that finding. Until then the store refuses everything else.
    After(FindingId),
    /// Something that only an operator can do.
    ByHand(&'static str),
    /// No action.
    Nothing,
}

impl Fix {
    /// Returns the stable name, for programs in other languages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::Salvage => "salvage",
            Self::SetAside => "set-aside",
            Self::Correct => "correct",
            Self::CopyWhole => "copy-whole",
            Self::Open => "open",
            Self::PutBack => "put-back",
            Self::After(_) => "after",
            Self::ByHand(_) => "by-hand",
            Self::Nothing => "nothing",
        }
    }
}

/// The facts about one kind of finding.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// Stable: scripts compare it.
    pub name: &'static str,
    /// In a store that was closed.
    pub severity: Severity,
    /// Its fix.
    pub fix: Fix,
    /// Issues and pull requests of `RocketMQ` in which its brokers leave such a store.
    pub known_as: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
}

const GIVE_SIZES: Fix = Fix::ByHand(
    "open the store for writing once with the options max_hash_slot_num and max_index_num, as maxHashSlotNum and maxIndexNum are set in its \
     broker's configuration",
);

/// With them a repair and a rebuild leave log, queues and index as they are, because a writer refuses the store: an entry is of another
/// type, or a part is missing.
pub const REFUSED: [FindingId; 3] = [
    FindingId::StoreWrongType,
    FindingId::LogMissingSegment,
    FindingId::LogCutShort,
];

/// Two of them, or two queue entries, show that the end of the log is missing. Without it queue offsets would be given again.
pub(super) const PAST_END: [FindingId; 3] = [
    FindingId::QueueEntryPastEnd,
    FindingId::IndexItemPastEnd,
    FindingId::CheckpointAhead,
];

const PUT_FIRST_BACK: Fix =
    Fix::ByHand("put the segments back, if there is a copy of them; the messages after them are not affected");

macro_rules! finding_ids {
    ($($(#[doc = $doc:literal])? $id:ident: $name:literal, $severity:ident, $fix:expr, $known_as:literal, $meaning:literal;)*) => {
        /// A kind of finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FindingId {
            $(#[doc = $meaning] $id,)*
        }

        impl FindingId {
            /// All of them, by family.
            pub const ALL: &'static [Self] = &[$(Self::$id),*];

            /// Returns the facts about it.
            pub const fn facts(self) -> Facts {
                match self {
                    $(Self::$id => Facts {
                        name: $name,
                        severity: Severity::$severity,
                        fix: $fix,
                        known_as: $known_as,
                        meaning: $meaning,
                    },)*
                }
            }
        }
    };
}

finding_ids! {
    StoreNotClosed: "store.not_closed", Note, Fix::Open, "",
        "there is an abort file: the last writer crashed, or still runs";
    StoreUnfinishedFile: "store.unfinished_file", Note, Fix::Open, "#7539",
        "a writer had not finished this file when it died; it takes room only";
    StoreWrongType: "store.wrong_type", Error, Fix::SetAside, "",
        "wrong file type: a writer refuses the store, or fails at the first message of that queue";
    StoreNotRead: "store.not_read", Note, Fix::Nothing, "",
        "a broker keeps this part in files of another format: it was not read, and not compared with the log";
    LogDamagedRecord: "log.damaged_record", Error, Fix::Salvage, "",
        "there is no whole record here: the message, and others that were hidden by the damage, cannot be read";
    LogMissingSegment: "log.missing_segment", Error, Fix::PutBack, "#5455, #2140, #2141",
        "a segment is missing between others: its messages are lost, and a broker stops there";
    LogBeginsLate: "log.begins_late", Note, PUT_FIRST_BACK, "",
        "only mqstore has written the first messages of this store, and no note says that it has removed their segments (only a crash on a full disk may lose the note): they are lost";
    LogCutShort: "log.cut_short", Error, Fix::PutBack, "#3257",
        "a segment is shorter than the others: nothing can be written after it, and a broker does not start";
    LogEmptyFile: "log.empty_file", Warning, Fix::SetAside, "#6904, #6903",
        "a segment without a byte: a broker was killed as it made it, and before 5.1.3 does not start";
    LogForeignFile: "log.foreign_file", Warning, Fix::SetAside, "#3257",
        "a file that is not a segment: a broker does not start";
    LogBytesAfterEnd: "log.bytes_after_end", Warning, Fix::Open, "#10666, #10816",
        "bytes follow the end of the log: a torn record of a crash, or records that an earlier recovery left";
    LogSegmentAfterEnd: "log.segment_after_end", Error, Fix::Salvage, "#1434",
        "the log ends before this segment, so no read reaches its messages";
    LogEndsEarly: "log.ends_early", Error, Fix::Salvage, "",
        "the log ends before messages that the store says were on disk";
    LogLostMessages: "log.lost_messages", Note, Fix::Nothing, "",
        "messages were lost here, and a recovery has put a salvage record in their place";
    LogStoreTimeFalls: "log.store_time_falls", Note, Fix::Nothing, "",
        "the message was stored before the one before it: a clock was set back, or the field is damaged; lookups by time are not exact";
    LogStoreTimeWrong: "log.store_time_wrong", Note, Fix::Nothing, "",
        "the store time is far from those of the messages before and after it, or in the future: the field is damaged, or a clock was wrong; lookups by time are not exact";
    LogTopicName: "log.topic_name", Note, Fix::Nothing, "#1637, #6747",
        "a broker accepts no such topic: it has other characters than ASCII letters, digits, percent, bar, hyphen and underscore";
    LogDuplicateQueueOffset: "log.duplicate_queue_offset", Error, Fix::Correct, "#495",
        "an earlier message has the same queue offset, so no queue leads to this one";
    LogEarlierTopic: "log.earlier_topic", Note, Fix::Nothing, "",
        "the message is of an earlier topic of the same name, which was deleted: no queue leads to it";
    QueueTopicMissing: "queue.topic_missing", Error, Fix::Rebuild, "#8032",
        "the log has messages of this topic, and its queues are lost; a note if topics.json does not name the topic: it was deleted";
    QueueEntryMissing: "queue.entry_missing", Error, Fix::Rebuild, "#405, #7355, #1434",
        "the queue has no entry of this message: consumers do not get it";
    QueueNotDispatched: "queue.not_dispatched", Note, Fix::Open, "#405",
        "the message is not in its queue yet: the writer, or the next open, adds it";
    QueueNotRecovered: "queue.not_recovered_by_broker", Error, Fix::Rebuild, "",
        "the message is not in its queue, and the recovery of a broker does not put it there, or puts it at another queue offset: rebuild the store before a broker starts";
    QueueEntryWrong: "queue.entry_wrong", Error, Fix::Rebuild, "#495",
        "the entry does not lead to the message of its queue offset";
    QueuePlaceContradicted: "queue.place_contradicted", Error, Fix::Correct, "",
        "the entry leads to a whole message that names another place in the queues, from which nothing leads to it: no checksum covers the place";
    QueueMessageLost: "queue.message_lost", Note, Fix::Nothing, "",
        "a message of this queue was lost, and a recovery has marked its place";
    QueueTagsCode: "queue.tags_code", Error, Fix::Rebuild, "",
        "the entry has another tags code than its message: consumers of that tag do not get it";
    QueueEntryPastEnd: "queue.entry_past_end", Error, Fix::Rebuild, "#495, #467",
        "the entry points at or past the end of the log";
    QueueHole: "queue.hole", Error, Fix::Rebuild, "#7355, #1397",
        "neither the queue nor the log has a message of this queue offset, and later ones are there";
    QueueZeroFile: "queue.zero_file", Error, Fix::Rebuild, "#9728, #10108",
        "the last file of the queue has no entry: a broker takes its zeros for one";
    QueueFileLength: "queue.file_length", Error, Fix::Rebuild, "#3257",
        "a file of the queue is not as long as the others: a broker does not start";
    QueueForeignFile: "queue.foreign_file", Warning, Fix::SetAside, "#3257",
        "a file that is not a queue file: a broker does not start";
    QueueNotRead: "queue.not_read", Note, Fix::Nothing, "",
        "queues of this form are not read, so they were not compared with the log";
    IndexAbsent: "index.absent", Note, Fix::Rebuild, "#3868",
        "the log has keys, and there is no index file: a query by key walks the log";
    IndexKeyMissing: "index.key_missing", Error, Fix::Rebuild, "#3868, #8007",
        "the index has no item of a key of this message: a broker does not find it by that key";
    IndexNotIndexed: "index.not_indexed", Note, Fix::Open, "#3868, #4463",
        "the keys of the last messages are not in the index yet: the writer, or the next open, adds them";
    IndexNotRecovered: "index.not_recovered_by_broker", Note, Fix::Open, "",
        "the recovery of a broker removes this index file and does not put these keys into a new one: a broker does not find their messages by key, unless mqstore opens the store for writing before";
    IndexItemWrong: "index.item_wrong", Error, Fix::Rebuild, "#8018",
        "the item leads to no message with its key and time";
    IndexItemPastEnd: "index.item_past_end", Error, Fix::Rebuild, "",
        "the item points at or past the end of the log";
    IndexChainBroken: "index.chain_broken", Error, Fix::Rebuild, "#8018",
        "a link or slot does not lead to the item before it: keys are not found, and a broker may search for ever";
    IndexHeaderWrong: "index.header_wrong", Error, Fix::Rebuild, "#1919, #1987, #10656",
        "the header contradicts the items: a broker passes the file over, or reads too much of it";
    IndexUnreadable: "index.unreadable", Error, Fix::Rebuild, "#3868",
        "the bytes of the file fit no number of slots and items: it was cut short or is damaged, and queries walk the log";
    IndexFileLength: "index.file_length", Error, Fix::Rebuild, "",
        "the file is not as long as the index files of this store: a writer, and a broker, find none of its keys or refuse the store";
    IndexSizesUnknown: "index.sizes_unknown", Warning, GIVE_SIZES, "",
        "no index file has an item that shows its sizes: a writer asks for them, a broker knows them from its configuration";
    IndexForeignFile: "index.foreign_file", Warning, Fix::SetAside, "",
        "a file that is not an index file: a broker may not start";
    CheckpointMissing: "checkpoint.missing", Note, Fix::Open, "",
        "there is no checkpoint, or half of one: the next open after a crash takes longer";
    CheckpointAhead: "checkpoint.ahead_of_log", Error, Fix::Rebuild, "#678, #10073",
        "a stamp is later than the last message: a part of the log is missing, or the clock of the store was set back";
    CheckpointInFuture: "checkpoint.in_future", Warning, Fix::Open, "",
        "a stamp is later than the clock";
    ConfigUnreadable: "config.unreadable", Warning, Fix::SetAside, "#9705, #9412, #5905",
        "the file is empty or not JSON: a broker starts without these settings, or not at all";
    ConfigTopicMissing: "config.topic_missing", Note, Fix::Nothing, "",
        "the topic has queues, and topics.json does not name it: a broker deletes them in time";
}
