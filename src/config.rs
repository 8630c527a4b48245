//! The options of a store: RocketMQ's names in `snake_case`, with its defaults.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::{DelayLevels, IndexGeometry};

/// Bytes of a page, as `RocketMQ` counts pages.
pub const PAGE_SIZE: u64 = 4096;
/// The smallest commit-log segment: one page.
pub const MIN_SEGMENT_SIZE: u64 = PAGE_SIZE;
/// The largest commit-log segment: positions inside a segment are signed 32-bit numbers.
pub const MAX_SEGMENT_SIZE: u64 = (1 << 31) - 4096;

/// The most slots, and the most items, of an index file: their numbers are signed 32-bit numbers.
const MAX_INDEX_NUM: u64 = i32::MAX as u64;
/// The most buffers of a transient store pool. Each is a mapping, and Linux limits a process to 65,530 of them.
const MAX_POOL_SIZE: usize = 1024;

/// The file sizes of a new store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Geometry {
    /// Files that are small enough to be created in a moment.
    Small,
    /// `RocketMQ`'s defaults.
    Broker,
}

/// The time at which an append is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushDiskType {
    /// After the append. The message becomes durable later.
    Async,
    /// After the sync, unless the property WAIT is false. Only then the message becomes readable.
    Sync,
}

impl FlushDiskType {
    /// The values by their names.
    pub const NAMES: [(&'static str, Self); 2] = [("ASYNC_FLUSH", Self::Async), ("SYNC_FLUSH", Self::Sync)];

    /// Returns true if messages are shown only once they are flushed. Appended bytes then wait in a pool, and a sync commits them.
    #[inline]
    pub fn shows_only_flushed(self) -> bool {
        match self {
            Self::Async => false,
            Self::Sync => true,
        }
    }

    /// Returns true if an append waits for a sync, unless the caller or the message disables the wait.
    #[inline]
    pub fn waits_for_sync(self) -> bool {
        match self {
            Self::Async => false,
            Self::Sync => true,
        }
    }
}

/// The treatment of damage inside the log at an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// A writer refuses damage of bytes that were on disk according to the checkpoint or the mark of the flushed offset. Any later
    /// damage counts as a torn end, and is cut together with everything after it.
    Heal,
    /// Intact messages are kept, on both sides of any damage.
    Salvage,
}

impl Recovery {
    /// The values by their names.
    pub const NAMES: [(&'static str, Self); 2] = [("heal", Self::Heal), ("salvage", Self::Salvage)];
}

/// The treatment of a lost or damaged message in a read of many messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errors {
    /// The read ends with an error.
    Raise,
    /// The read skips the message, and counts it.
    Skip,
}

impl Errors {
    /// The values by their names.
    pub const NAMES: [(&'static str, Self); 2] = [("raise", Self::Raise), ("skip", Self::Skip)];
}

/// The role of a writer among replicas of its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerRole {
    /// A master whose appends do not wait for slaves.
    AsyncMaster,
    /// A master whose appends wait for slaves, unless the caller or the message disables the wait.
    SyncMaster,
}

impl BrokerRole {
    /// The values by their names.
    pub const NAMES: [(&'static str, Self); 2] = [("ASYNC_MASTER", Self::AsyncMaster), ("SYNC_MASTER", Self::SyncMaster)];
}

/// The complete file sizes of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a commit-log segment.
    pub commit_log: u64,
    /// Bytes of a consume-queue file.
    pub consume_queue: u64,
    /// Shape of an index file.
    pub index: IndexGeometry,
}

impl Sizes {
    /// Files that are created in a moment.
    pub const SMALL: Self = Self {
        commit_log: 64 << 20,
        consume_queue: 6_000_000,
        index: IndexGeometry {
            slots: 125_000,
            items: 500_000,
        },
    };
    /// `RocketMQ`'s defaults.
    pub const BROKER: Self = Self {
        commit_log: 1 << 30,
        consume_queue: 6_000_000,
        index: IndexGeometry::ROCKETMQ,
    };
}

/// The description of an option.
#[derive(Debug)]
pub struct StoreOption {
    /// The name in Rust and Python.
    pub name: &'static str,
    /// `RocketMQ`'s name; empty if `RocketMQ` has no such option.
    pub rocketmq: &'static str,
    /// The unit of a number; empty for other values.
    pub unit: &'static str,
    /// The default, as Python writes it.
    pub default: String,
    /// The accepted values.
    pub accepted: &'static str,
    /// The meaning, in sentences.
    pub text: &'static str,
}

/// A field of [`StoreConfig`] by its type.
pub enum OptionField<'a> {
    /// An option that is on or off.
    Flag(&'a mut bool),
    /// Text.
    Text(&'a mut String),
    /// A small number.
    U32(&'a mut u32),
    /// A number.
    U64(&'a mut u64),
    /// A number of ms.
    Millis(&'a mut u64),
    /// A number of seconds.
    Seconds(&'a mut u64),
    /// A number of bytes or objects in memory.
    Usize(&'a mut usize),
    /// A size of files, or none.
    Size(&'a mut Option<u64>),
    /// An option that is on, off, or decided by the store.
    Choice(&'a mut Option<bool>),
    /// The longest time of a wait.
    Wait(&'a mut Duration),
    /// An age in hours, or none.
    Age(&'a mut Option<Duration>),
    /// The acknowledgement of an append.
    FlushDiskType(&'a mut FlushDiskType),
    /// The sizes of a new store.
    Geometry(&'a mut Geometry),
    /// The treatment of damage at an open.
    Recovery(&'a mut Recovery),
    /// The treatment of damage in a read.
    Errors(&'a mut Errors),
    /// The role among replicas.
    BrokerRole(&'a mut BrokerRole),
}

impl OptionField<'_> {
    /// Returns the field as one of this unit.
    fn of_unit(self, unit: &str) -> Self {
        match self {
            Self::U64(field) if unit == "ms" => Self::Millis(field),
            Self::U64(field) if unit == "seconds" => Self::Seconds(field),
            other => other,
        }
    }
}

/// A type that an option has.
pub trait OptionType {
    /// The values that are accepted unless the option says more.
    const ACCEPTED: &'static str;

    /// Returns the value as Python writes it.
    fn text(&self) -> String;

    /// Returns the field that holds the value.
    fn field(&mut self) -> OptionField<'_>;
}

macro_rules! option_types {
    ($($type:ty => $variant:ident, $accepted:literal, |$value:ident| $text:expr;)+) => {
        $(impl OptionType for $type {
            const ACCEPTED: &'static str = $accepted;

            fn text(&self) -> String {
                let $value = self;
                $text
            }

            fn field(&mut self) -> OptionField<'_> {
                OptionField::$variant(self)
            }
        })+
    };
}

option_types! {
    bool => Flag, "True or False", |value| if *value { "True" } else { "False" }.to_owned();
    String => Text, "a str", |value| format!("{value:?}");
    u32 => U32, "an int from 0 to 2**32 - 1", |value| value.to_string();
    u64 => U64, "an int from 0 to 2**64 - 1", |value| value.to_string();
    usize => Usize, "an int from 0 to 2**64 - 1", |value| value.to_string();
    Option<u64> => Size, "an int from 0 to 2**64 - 1, or None", |value| value.map_or_else(|| "None".to_owned(), |size| size.to_string());
    Option<bool> => Choice, "True, False or None", |value| match value {
        None => "None",
        Some(true) => "True",
        Some(false) => "False",
    }.to_owned();
    Duration => Wait, "a number of 0 or more, a timedelta, or None for no limit", |value| value.as_secs().to_string();
    Option<Duration> => Age, "a number of hours of 0 or more, a timedelta, or None",
        |value| value.map_or_else(|| "None".to_owned(), |age| (age.as_secs() / 3600).to_string());
    FlushDiskType => FlushDiskType, "\"ASYNC_FLUSH\" or \"SYNC_FLUSH\"", |value| name_of(&FlushDiskType::NAMES, *value);
    Geometry => Geometry, "\"broker\" or None", |value| if *value == Geometry::Broker { "\"broker\"" } else { "None" }.to_owned();
    Recovery => Recovery, "\"heal\" or \"salvage\"", |value| name_of(&Recovery::NAMES, *value);
    Errors => Errors, "\"raise\" or \"skip\"", |value| name_of(&Errors::NAMES, *value);
    BrokerRole => BrokerRole, "\"ASYNC_MASTER\" or \"SYNC_MASTER\"", |value| name_of(&BrokerRole::NAMES, *value);
}

fn name_of<T: Copy + PartialEq>(names: &[(&str, T)], value: T) -> String {
    let name = names.iter().find(|(_, named)| *named == value);
    name.map_or_else(String::new, |(name, _)| format!("{name:?}"))
}

/// Returns the first literal, or the second one if it is given.
macro_rules! accepted {
    ($type:ty) => {
        <$type as OptionType>::ACCEPTED
    };
    ($type:ty, $accepted:literal) => {
        $accepted
    };
}

/// Declares the options: the meaning, then name, type and default; `RocketMQ`'s name, the unit, and the bounds if it has some. Everything
/// that lists options is made from this table or compared with it: the struct, its defaults and checks, the options of `open` and the
/// `StoreConfig` in Python, and docs/CONFIG.md.
macro_rules! options {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty = $default:expr, $rocketmq:literal, $unit:literal $(, $accepted:literal if $check:expr)?;
    )+) => {
        /// The options of an open store. `None` for a size means: determined by the files on disk.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct StoreConfig {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for StoreConfig {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl StoreConfig {
            /// Returns the description of each option.
            pub fn options() -> Vec<StoreOption> {
                let config = Self::default();
                vec![$(StoreOption {
                    name: stringify!($name),
                    rocketmq: $rocketmq,
                    unit: $unit,
                    default: config.$name.text(),
                    accepted: accepted!($type $(, $accepted)?),
                    text: concat!($($doc),+),
                },)+]
            }

            /// Returns the option of this name.
            pub fn option(&mut self, name: &str) -> Option<OptionField<'_>> {
                match name {
                    $(stringify!($name) => Some(self.$name.field().of_unit($unit)),)+
                    _ => None,
                }
            }

            fn expect_in_bounds(&self) -> Result<()> {
                $($(
                    let is_accepted: fn(&$type) -> bool = $check;
                    if !is_accepted(&self.$name) {
                        return invalid(stringify!($name), self.$name.text(), $accepted);
                    }
                )?)+
                Ok(())
            }
        }
    };
}

options! {
    /// The size of a commit-log segment. None: that of the files; 67108864 in a new store (RocketMQ's default: 1073741824).
    mapped_file_size_commit_log: Option<u64> = None, "mappedFileSizeCommitLog", "bytes",
        "a multiple of 4096 from 4096 to 2147479552 (2 GiB - 4 KiB)"
        if |size| size.is_none_or(|size| (MIN_SEGMENT_SIZE..=MAX_SEGMENT_SIZE).contains(&size) && size.is_multiple_of(4096));
    /// The size of a consume-queue file. None: that of the files; 6000000 in a new store, RocketMQ's default.
    mapped_file_size_consume_queue: Option<u64> = None, "mappedFileSizeConsumeQueue", "bytes",
        "a multiple of 20, at most 2147479552"
        if |size| size.is_none_or(|size| size != 0 && size.is_multiple_of(20) && size <= MAX_SEGMENT_SIZE);
    /// The sizes of a new store that no other option states: "broker" for RocketMQ's, None for those of a small store. A store of
    /// other sizes refuses "broker".
    geometry: Geometry = Geometry::Small, "", "";
    /// Hash slots of an index file, given together with `max_index_num`. None: as in the files; 125000 in a new store (RocketMQ's
    /// default: 5000000).
    max_hash_slot_num: Option<u64> = None, "maxHashSlotNum", "slots",
        "1 to 2147483647"
        if |slots| slots.is_none_or(|slots| (1..=MAX_INDEX_NUM).contains(&slots));
    /// Items of an index file, given together with `max_hash_slot_num`. None: as in the files; 500000 in a new store (RocketMQ's
    /// default: 20000000).
    max_index_num: Option<u64> = None, "maxIndexNum", "items",
        "2 to 2147483647"
        if |items| items.is_none_or(|items| (2..=MAX_INDEX_NUM).contains(&items));
    /// The part of physical memory within which a message counts as cached: decides the limits of `get` and
    /// `suggest_pulling_from_slave`. A writer drops its older appends from the page cache.
    access_message_in_memory_max_ratio: u32 = 40, "accessMessageInMemoryMaxRatio", "percent",
        "0 to 100 (percent)"
        if |percent| *percent <= 100;
    /// The most bytes that one `get` returns while the messages count as cached.
    max_transfer_bytes_on_message_in_memory: u64 = 262_144, "maxTransferBytesOnMessageInMemory", "bytes";
    /// The most messages that one `get` returns while they count as cached.
    max_transfer_count_on_message_in_memory: usize = 32, "maxTransferCountOnMessageInMemory", "messages";
    /// The most bytes that one `get` returns once a message counts as cold.
    max_transfer_bytes_on_message_in_disk: u64 = 65_536, "maxTransferBytesOnMessageInDisk", "bytes";
    /// The most messages that one `get` returns once one counts as cold.
    max_transfer_count_on_message_in_disk: usize = 8, "maxTransferCountOnMessageInDisk", "messages";
    /// The least bytes of queue entries that one `get` examines (20 an entry).
    max_filter_message_size: usize = 16_000, "maxFilterMessageSize", "bytes";
    /// The scan for the end of the log compares each body, and each record with a `__CRC32#`, with its checksum.
    check_crc_on_recover: bool = true, "checkCRCOnRecover", "";
    /// The delay of each delay level: a list of times such as "1s 5m 2h".
    message_delay_level: String = DelayLevels::ROCKETMQ.to_owned(), "messageDelayLevel", "";
    /// The largest body of a message.
    max_message_size: usize = 4_194_304, "maxMessageSize", "bytes";
    /// Each appended record gets a checksum of all its other bytes, header included, as its last property (`__CRC32#`). Brokers of
    /// 5.2 and later with `forceVerifyPropCRC` check it, others read a property.
    enabled_append_prop_crc: bool = false, "enabledAppendPropCRC", "";
    /// The acknowledgement of an append: with `ASYNC_FLUSH` when the message survives the process or waits in the pool, with
    /// `SYNC_FLUSH` when it survives a power failure. With `SYNC_FLUSH` it is read only then.
    flush_disk_type: FlushDiskType = FlushDiskType::Async, "flushDiskType", "";
    /// The longest wait of an append for its message to be durable, unless the append itself syncs for all that wait.
    sync_flush_timeout: u64 = 5000, "syncFlushTimeout", "ms";
    /// The interval at which appended messages are made durable without a request.
    flush_interval_commit_log: u64 = 500, "flushIntervalCommitLog", "ms", "1 or more (ms)" if |interval| *interval > 0;
    /// The new pages that a flush at an interval needs.
    flush_commit_log_least_pages: u64 = 4, "flushCommitLogLeastPages", "pages of 4 KiB";
    /// The time after which a flush at an interval needs no new pages.
    flush_commit_log_thorough_interval: u64 = 10_000, "flushCommitLogThoroughInterval", "ms";
    /// Flushes without a request come at the interval alone. With False they come as soon as there are enough new pages.
    flush_commit_log_timed: bool = true, "flushCommitLogTimed", "";
    /// All pages of a new segment are written with zeros and locked in memory before it is used. Not with `ASYNC_FLUSH` and a pool.
    warm_mapped_file_enable: bool = false, "warmMapedFileEnable", "";
    /// With `SYNC_FLUSH`, the zeros of `warm_mapped_file_enable` are synced after this number of pages.
    flush_least_pages_when_warm_mapped_file: u64 = 4096, "flushLeastPagesWhenWarmMapedFile", "pages of 4 KiB",
        "1 or more (pages of 4,096 bytes)"
        if |pages| *pages > 0;
    /// Appended messages wait in locked memory until a thread of the store writes them to the log in large pieces. A read of this
    /// store, `commit` and every sync write them at once; a killed process loses the rest. With `SYNC_FLUSH` they wait in memory in
    /// any case, and this locks it.
    transient_store_pool_enable: bool = false, "transientStorePoolEnable", "";
    /// The number of buffers of the transient store pool.
    transient_store_pool_size: usize = 5, "transientStorePoolSize", "buffers",
        "1 to 1024 (buffers)"
        if |buffers| (1..=MAX_POOL_SIZE).contains(buffers);
    /// The size of each buffer (RocketMQ: that of a segment). `transient_store_pool_enable` locks it as far as `RLIMIT_MEMLOCK`
    /// permits.
    transient_store_pool_buffer_size: usize = 4 << 20, "", "bytes",
        "a multiple of 4096, so that all buffers fit into the address space"
        if |bytes| *bytes != 0 && bytes.is_multiple_of(4096);
    /// The interval at which the pool is written to the log, unless much waits.
    commit_interval_commit_log: u64 = 200, "commitIntervalCommitLog", "ms", "1 or more (ms)" if |interval| *interval > 0;
    /// The pages that must wait in the pool before an interval writes it.
    commit_commit_log_least_pages: u64 = 4, "commitCommitLogLeastPages", "pages of 4 KiB";
    /// The time after which the pool is written however few pages wait.
    commit_commit_log_thorough_interval: u64 = 200, "commitCommitLogThoroughInterval", "ms";
    /// The longest wait of an append for the next segment of the log or for a buffer.
    wait_time_out: u64 = 5000, "", "ms";
    /// While an append holds the append lock for longer than this, other appends raise `BusyError`.
    os_page_cache_busy_time_out_mills: u64 = 1000, "osPageCacheBusyTimeOutMills", "ms";
    /// Dispatched bytes after which the checkpoint is stamped again: about the amount that recovery reads. Stamps that take 100 ms or
    /// longer come later.
    checkpoint_interval: u64 = 64 << 20, "", "bytes", "1 or more (bytes)" if |interval| *interval > 0;
    /// A writer does the work of a broker: it delivers delayed messages and timers, and removes old ones. None: True for a store that
    /// mqstore has made, False once a broker has written it. With False delayed messages wait for a broker, and nothing is removed by
    /// itself.
    services: Option<bool> = None, "", "";
    /// The longest time from an append to the time of delivery that it asks for (`deliver_at`).
    timer_max_delay_sec: u64 = 259_200, "timerMaxDelaySec", "seconds";
    /// The age at which a segment of the log is removed (`services`): that of its last message. None: no age (RocketMQ's default: 72).
    file_reserved_time: Option<Duration> = None, "fileReservedTime", "hours";
    /// The age of a segment is that of its file (mtime), as in RocketMQ, instead of that of its last message.
    expire_by_file_time: bool = false, "", "";
    /// The hours of the day, in local time, in which segments are removed for their age: a list such as "04;16". Empty: all
    /// (RocketMQ's default: "04").
    delete_when: String = String::new(), "deleteWhen", "";
    /// The oldest segments are removed while the log has more bytes than this. None: no limit.
    max_log_bytes: Option<u64> = None, "", "bytes";
    /// The part of the disk above which segments that are old enough are removed in any hour, read or not. None: the use of the disk
    /// does not matter (RocketMQ's default: 75).
    disk_max_used_space_ratio: Option<u64> = None, "diskMaxUsedSpaceRatio", "percent",
        "1 to 100 (percent), or None"
        if |percent| percent.is_none_or(|percent| (1..=100).contains(&percent));
    /// The part of the disk above which the oldest segments are removed, however young and read or not, if
    /// `disk_max_used_space_ratio` is given.
    disk_space_clean_forcibly_ratio: u64 = 85, "diskSpaceCleanForciblyRatio", "percent",
        "1 to 100 (percent)"
        if |percent| (1..=100).contains(percent);
    /// Segments are removed above `disk_space_clean_forcibly_ratio`. With False a full disk removes nothing that is not old enough.
    clean_file_forcibly_enable: bool = true, "cleanFileForciblyEnable", "";
    /// The removal for age or `max_log_bytes` waits until each consumer group has consumed the messages, and each connected slave has
    /// acknowledged them. With False it does not, as in RocketMQ.
    retain_unconsumed: bool = true, "", "";
    /// The time between two looks for segments to remove. The first one is a minute after the open.
    clean_resource_interval: u64 = 10_000, "cleanResourceInterval", "ms", "1 or more (ms)" if |interval| *interval > 0;
    /// The pause after the removal of a segment.
    delete_commit_log_files_interval: u64 = 100, "deleteCommitLogFilesInterval", "ms";
    /// The port at which a writer listens for slaves; 0 for any that is free. None: it does not listen. RocketMQ's `haListenPort`, which
    /// `StoreConfig.from_broker_conf` leaves out.
    ha_listen_port: Option<u64> = None, "", "",
        "0 to 65535, or None"
        if |port| port.is_none_or(|port| port <= 65_535);
    /// The IP address at which it listens. The protocol knows neither passwords nor encryption: whoever reaches the port reads the log.
    ha_listen_host: String = "127.0.0.1".to_owned(), "", "";
    /// The port at which a writer answers slaves that ask for topics, groups and progress; 0 for any that is free. It listens on
    /// `ha_listen_host`, also at the port two below. None: it does not listen. RocketMQ's `listenPort`, which
    /// `StoreConfig.from_broker_conf` leaves out.
    listen_port: Option<u64> = None, "", "",
        "0 to 65535, or None"
        if |port| port.is_none_or(|port| port <= 65_535);
    /// `SYNC_MASTER`: an append also waits until slaves hold its message. RocketMQ's `brokerRole`, which `StoreConfig.from_broker_conf`
    /// leaves out.
    broker_role: BrokerRole = BrokerRole::AsyncMaster, "", "";
    /// The copies that an append of a `SYNC_MASTER` waits for, that of the master included; connections of one host count as one. None: 2
    /// (RocketMQ's default: 1). 1 waits for nobody.
    in_sync_replicas: Option<u64> = None, "inSyncReplicas", "replicas",
        "1 or more, or None"
        if |replicas| replicas.is_none_or(|replicas| replicas > 0);
    /// The longest wait of an append of a `SYNC_MASTER` for slaves.
    slave_timeout: u64 = 3000, "slaveTimeout", "ms";
    /// A slave that is behind by this much or more is not waited for.
    ha_max_gap_not_in_sync: u64 = 268_435_456, "haMaxGapNotInSync", "bytes", "1 or more (bytes)" if |gap| *gap > 0;
    /// The longest wait of a writer for another one to release the lock. 0: it fails at once.
    lock_timeout: Duration = Duration::ZERO, "", "seconds";
    /// The treatment of damage inside the log at an open. "heal": a writer refuses damage of messages that were on disk, and cuts a
    /// torn end. "salvage": whole messages are kept on both sides of any damage.
    recovery: Recovery = Recovery::Heal, "", "";
    /// The treatment of a lost or damaged message in a read of many messages, unless the call states it: "raise" an error, or "skip"
    /// and count it.
    errors: Errors = Errors::Raise, "", "";
    /// Tags are indexed, too, as by 5.4 and later. For a reader: the index holds the tag of every message, so that `query(topic,
    /// tag=...)` need not walk the log.
    index_tags: bool = false, "", "";
    /// An I/O error under a mapping becomes an error instead of a SIGBUS signal.
    sigbus_guard: bool = true, "", "";
}

impl StoreConfig {
    /// Rejects invalid options; changes none.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the option, its value and the accepted values.
    pub fn validate(&self) -> Result<()> {
        self.expect_in_bounds()?;
        match (self.max_hash_slot_num, self.max_index_num) {
            (None, None) => {}
            (Some(slots), Some(items)) => {
                let len = self.index_geometry().map_or(0, IndexGeometry::file_len);
                if len > IndexGeometry::MAX_FILE_LEN {
                    return Err(Error::Invalid {
                        what: format!(
                            "max_hash_slot_num {slots} and max_index_num {items} make index files of {len} bytes: a broker maps 2147483647"
                        ),
                    });
                }
            }
            (slots, _) => {
                let (given, missing) = match slots {
                    Some(_) => ("max_hash_slot_num", "max_index_num"),
                    None => ("max_index_num", "max_hash_slot_num"),
                };
                return Err(Error::Invalid {
                    what: format!("{given} is given and {missing} is not: give both or neither"),
                });
            }
        }
        let buffer = self.transient_store_pool_buffer_size;
        let pool = self.transient_store_pool_size.checked_mul(buffer);
        if pool.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return invalid(
                "transient_store_pool_buffer_size",
                buffer,
                "a multiple of 4096, so that all buffers fit into the address space",
            );
        }
        self.delete_hours()?;
        self.delay_levels().map(drop)
    }

    /// Sets the undetermined sizes to those of `open`, and returns all sizes.
    pub fn fill(&mut self, open: Sizes) -> Sizes {
        Sizes {
            commit_log: *self.mapped_file_size_commit_log.get_or_insert(open.commit_log),
            consume_queue: *self.mapped_file_size_consume_queue.get_or_insert(open.consume_queue),
            index: IndexGeometry {
                slots: *self.max_hash_slot_num.get_or_insert(u64::from(open.index.slots)) as u32,
                items: *self.max_index_num.get_or_insert(u64::from(open.index.items)) as u32,
            },
        }
    }

    /// Returns true if appended bytes wait in memory until they are written to the log. With `SYNC_FLUSH` they wait for the sync
    /// that makes them durable.
    pub fn uses_pool(&self) -> bool {
        self.transient_store_pool_enable || self.flush_disk_type.shows_only_flushed()
    }

    /// Returns true if every size is given.
    pub fn has_geometry(&self) -> bool {
        self.mapped_file_size_commit_log.is_some()
            && self.mapped_file_size_consume_queue.is_some()
            && self.index_geometry().is_some()
    }

    /// Returns the geometry of the index files, if it is given.
    pub fn index_geometry(&self) -> Option<IndexGeometry> {
        self.max_hash_slot_num
            .zip(self.max_index_num)
            .map(|(slots, items)| IndexGeometry {
                slots: slots as u32,
                items: items as u32,
            })
    }

    /// Returns the largest distance in bytes from the log's end at which a message still counts as cached.
    pub fn memory_window(&self, physical_memory: u64) -> i64 {
        let ratio = u64::from(self.access_message_in_memory_max_ratio);
        i64::try_from(physical_memory / 100 * ratio).unwrap_or(i64::MAX)
    }

    /// Parses `delete_when`: the hours of the day in which segments are removed for their age.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not a list of hours such as `"04;16"`.
    pub fn delete_hours(&self) -> Result<Vec<u8>> {
        let hours = self.delete_when.split(';').map(str::trim).filter(|hour| !hour.is_empty());
        let parsed: Option<Vec<u8>> = hours.map(|hour| hour.parse().ok().filter(|hour| *hour < 24)).collect();
        parsed.ok_or_else(|| Error::Invalid {
            what: format!(
                "delete_when is {:?}: expected hours from 00 to 23 with ';' between them, such as \"04;16\"",
                self.delete_when
            ),
        })
    }

    /// Returns true if some option lets a writer remove old segments by itself.
    pub fn removes_segments(&self) -> bool {
        self.file_reserved_time.is_some() || self.max_log_bytes.is_some() || self.disk_max_used_space_ratio.is_some()
    }

    /// Parses `message_delay_level`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not a list of times such as `"1s 5m 2h"`.
    pub fn delay_levels(&self) -> Result<DelayLevels> {
        DelayLevels::parse(&self.message_delay_level).map_err(|e| Error::Invalid {
            what: format!("message_delay_level is {:?}: {e}", self.message_delay_level),
        })
    }
}

/// Returns the name of an option with the name that it has in a broker's configuration, from which it may come.
pub(crate) fn named_as_in_rocketmq(name: &str) -> String {
    let options = StoreConfig::options();
    match options.iter().find(|option| option.name == name) {
        Some(option) if !option.rocketmq.is_empty() => format!("{name} ({} of a broker)", option.rocketmq),
        _ => name.to_owned(),
    }
}

fn invalid(option: &str, value: impl std::fmt::Display, accepted: &str) -> Result<()> {
    Err(Error::Invalid {
        what: format!("{option} is {value}: expected {accepted}"),
    })
}
