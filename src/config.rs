//! The options of a store: RocketMQ's names in `snake_case`, with its defaults.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::{DelayLevels, IndexGeometry};

/// Bytes of a page, as `RocketMQ` counts pages.
pub const PAGE_SIZE: u64 = 4096;
/// Smallest commit-log segment: one page.
pub const MIN_SEGMENT_SIZE: u64 = PAGE_SIZE;
/// Largest commit-log segment: positions inside a segment are signed 32-bit numbers.
pub const MAX_SEGMENT_SIZE: u64 = (1 << 31) - 4096;

/// Most buffers of a transient store pool. Each is a mapping, and Linux gives a process 65,530 of them.
const MAX_POOL_SIZE: usize = 1024;

/// Which sizes a new store gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Geometry {
    /// Small enough to be made in a moment.
    Small,
    /// `RocketMQ`'s defaults.
    Broker,
}

/// When a message is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushDiskType {
    /// When it is appended. It is made durable a while later.
    Async,
    /// When it is durable, unless its property WAIT is false. It is read only then.
    Sync,
}

/// What opening does with damage inside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// A writer refuses damage of what was on disk, as the checkpoint or the mark of what was flushed says. Any later damage
    /// counts as a torn end. It is cut together with all that follows it.
    Heal,
    /// What is whole is kept, on both sides of any damage.
    Salvage,
}

/// What a read of many messages does at one that was lost or is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errors {
    /// It ends with an error.
    Raise,
    /// It passes over the message, and counts it.
    Skip,
}

/// The sizes of a store's files, all of them.
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
    /// Files that are made in a moment.
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

/// Options of a store that is opened. `None` for a size means: as the files on disk say.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "RocketMQ's options, each by its name")]
pub struct StoreConfig {
    /// Bytes of a commit-log segment, a multiple of 4,096 (RocketMQ's default: 1,073,741,824).
    pub mapped_file_size_commit_log: Option<u64>,
    /// Bytes of a consume-queue file, a multiple of 20 (RocketMQ's default: 6,000,000).
    pub mapped_file_size_consume_queue: Option<u64>,
    /// The sizes that neither an option nor a file tells: a new store's.
    pub geometry: Geometry,
    /// Hash slots of an index file (RocketMQ's default: 5,000,000). Given together with `max_index_num`.
    pub max_hash_slot_num: Option<u64>,
    /// Items of an index file (RocketMQ's default: 20,000,000). Given together with `max_hash_slot_num`.
    pub max_index_num: Option<u64>,
    /// Percent of physical memory within which a message counts as cached: decides the limits of `get` and
    /// `suggest_pulling_from_slave`. A writer drops what it has appended before that from the page cache.
    pub access_message_in_memory_max_ratio: u32,
    /// Bytes that one `get` returns at most while the messages count as cached.
    pub max_transfer_bytes_on_message_in_memory: u64,
    /// Messages that one `get` returns at most while they count as cached.
    pub max_transfer_count_on_message_in_memory: usize,
    /// Bytes that one `get` returns at most once a message counts as cold.
    pub max_transfer_bytes_on_message_in_disk: u64,
    /// Messages that one `get` returns at most once one counts as cold.
    pub max_transfer_count_on_message_in_disk: usize,
    /// Bytes of queue entries that one `get` examines at least (20 an entry).
    pub max_filter_message_size: usize,
    /// Whether the scan for the end of the log checks each body, and each record that has a `__CRC32#`, against its CRC.
    pub check_crc_on_recover: bool,
    /// The delay of each delay level, `"1s 5s 10s ..."`.
    pub message_delay_level: String,
    /// Bytes that the body of a message may have.
    pub max_message_size: usize,
    /// Whether each appended record gets a CRC of all its other bytes, header included, as its last property (`__CRC32#`, 5.2 and later).
    pub enabled_append_prop_crc: bool,
    /// When a message is acknowledged.
    pub flush_disk_type: FlushDiskType,
    /// How long an append waits for its message to be durable at most, in ms.
    pub sync_flush_timeout: u64,
    /// How often appended messages are made durable without being asked, in ms.
    pub flush_interval_commit_log: u64,
    /// Pages of 4,096 bytes that must have been written since the last flush for the one that comes at an interval.
    pub flush_commit_log_least_pages: u64,
    /// After so long a time a flush at an interval asks for no number of pages, in ms.
    pub flush_commit_log_thorough_interval: u64,
    /// Whether such flushes come at the interval alone. If not, they come as soon as enough pages are written.
    pub flush_commit_log_timed: bool,
    /// Whether the pages of a new segment are written with zeros and locked in memory before it is used. Not with `ASYNC_FLUSH` where there
    /// is a pool.
    pub warm_mapped_file_enable: bool,
    /// With `SYNC_FLUSH`: after so many pages those zeros are synced.
    pub flush_least_pages_when_warm_mapped_file: u64,
    /// Whether appended bytes wait in memory that is locked until a service writes them to the log. With `SYNC_FLUSH` they wait in memory
    /// anyway, and this locks it.
    pub transient_store_pool_enable: bool,
    /// Buffers of that memory.
    pub transient_store_pool_size: usize,
    /// Bytes of each buffer (RocketMQ: of a segment).
    pub transient_store_pool_buffer_size: usize,
    /// How often that service looks whether to write, in ms.
    pub commit_interval_commit_log: u64,
    /// Pages of 4,096 bytes that must wait for it to write then.
    pub commit_commit_log_least_pages: u64,
    /// After so long a time it asks for no number of pages, in ms.
    pub commit_commit_log_thorough_interval: u64,
    /// How long an append waits for the next segment of the log or for a buffer at most, in ms.
    pub wait_time_out: u64,
    /// An append is refused while another one holds the append lock for more than so long, in ms.
    pub os_page_cache_busy_time_out_mills: u64,
    /// Bytes of dispatched messages after which the checkpoint is stamped again: about what recovery reads, and a segment.
    pub checkpoint_interval: u64,
    /// The longest time that a writer waits at its open for another one to release the lock. Zero: it fails at once.
    pub lock_timeout: Duration,
    /// What opening does with damage inside the log.
    pub recovery: Recovery,
    /// What a read of many messages does at one that was lost or is damaged, where the call does not say.
    pub errors: Errors,
    /// Whether tags are indexed, too, as 5.4 and later do (under `T#` and the tag).
    pub index_tags: bool,
    /// Whether an I/O error under a mapping becomes an error instead of a SIGBUS signal.
    pub sigbus_guard: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            mapped_file_size_commit_log: None,
            mapped_file_size_consume_queue: None,
            geometry: Geometry::Small,
            max_hash_slot_num: None,
            max_index_num: None,
            access_message_in_memory_max_ratio: 40,
            max_transfer_bytes_on_message_in_memory: 262_144,
            max_transfer_count_on_message_in_memory: 32,
            max_transfer_bytes_on_message_in_disk: 65_536,
            max_transfer_count_on_message_in_disk: 8,
            max_filter_message_size: 16_000,
            check_crc_on_recover: true,
            message_delay_level: DelayLevels::ROCKETMQ.to_owned(),
            max_message_size: 4_194_304,
            enabled_append_prop_crc: false,
            flush_disk_type: FlushDiskType::Async,
            sync_flush_timeout: 5000,
            flush_interval_commit_log: 500,
            flush_commit_log_least_pages: 4,
            flush_commit_log_thorough_interval: 10_000,
            flush_commit_log_timed: true,
            warm_mapped_file_enable: false,
            flush_least_pages_when_warm_mapped_file: 4096,
            transient_store_pool_enable: false,
            transient_store_pool_size: 5,
            transient_store_pool_buffer_size: 4 << 20,
            commit_interval_commit_log: 200,
            commit_commit_log_least_pages: 4,
            commit_commit_log_thorough_interval: 200,
            wait_time_out: 5000,
            os_page_cache_busy_time_out_mills: 1000,
            checkpoint_interval: 64 << 20,
            lock_timeout: Duration::ZERO,
            recovery: Recovery::Heal,
            errors: Errors::Raise,
            index_tags: false,
            sigbus_guard: true,
        }
    }
}

impl StoreConfig {
    /// Rejects what cannot be right; edits nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the option, its value and what is accepted.
    pub fn validate(&self) -> Result<()> {
        if let Some(size) = self.mapped_file_size_commit_log
            && (!(MIN_SEGMENT_SIZE..=MAX_SEGMENT_SIZE).contains(&size) || !size.is_multiple_of(4096))
        {
            return invalid(
                "mapped_file_size_commit_log",
                size,
                "a multiple of 4096 from 4096 to 2147479552 (2 GiB - 4 KiB)",
            );
        }
        if let Some(size) = self.mapped_file_size_consume_queue
            && (size == 0 || !size.is_multiple_of(20) || size > MAX_SEGMENT_SIZE)
        {
            return invalid("mapped_file_size_consume_queue", size, "a multiple of 20, at most 2147479552");
        }
        match (self.max_hash_slot_num, self.max_index_num) {
            (None, None) => {}
            (Some(slots), Some(items)) => {
                if slots == 0 || slots > i32::MAX as u64 {
                    return invalid("max_hash_slot_num", slots, "1 to 2147483647");
                }
                if items < 2 || items > i32::MAX as u64 {
                    return invalid("max_index_num", items, "2 to 2147483647");
                }
                let geometry = IndexGeometry {
                    slots: slots as u32,
                    items: items as u32,
                };
                if geometry.file_len() > IndexGeometry::MAX_FILE_LEN {
                    return Err(Error::Invalid {
                        what: format!(
                            "max_hash_slot_num {slots} and max_index_num {items} make index files of {} bytes: a broker maps 2147483647",
                            geometry.file_len()
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
        if self.flush_interval_commit_log == 0 {
            return invalid("flush_interval_commit_log", 0, "1 or more (ms)");
        }
        if self.flush_least_pages_when_warm_mapped_file == 0 {
            return invalid(
                "flush_least_pages_when_warm_mapped_file",
                0,
                "1 or more (pages of 4,096 bytes)",
            );
        }
        if self.checkpoint_interval == 0 {
            return invalid("checkpoint_interval", 0, "1 or more (bytes)");
        }
        if self.access_message_in_memory_max_ratio > 100 {
            return invalid(
                "access_message_in_memory_max_ratio",
                self.access_message_in_memory_max_ratio,
                "0 to 100 (percent)",
            );
        }
        self.validate_pool()?;
        self.delay_levels().map(drop)
    }

    fn validate_pool(&self) -> Result<()> {
        if self.commit_interval_commit_log == 0 {
            return invalid("commit_interval_commit_log", 0, "1 or more (ms)");
        }
        if !(1..=MAX_POOL_SIZE).contains(&self.transient_store_pool_size) {
            return invalid(
                "transient_store_pool_size",
                self.transient_store_pool_size,
                "1 to 1024 (buffers)",
            );
        }
        if self.transient_store_pool_buffer_size == 0
            || !self.transient_store_pool_buffer_size.is_multiple_of(4096)
            || self
                .transient_store_pool_size
                .checked_mul(self.transient_store_pool_buffer_size)
                .is_none_or(|bytes| bytes > isize::MAX as usize)
        {
            return invalid(
                "transient_store_pool_buffer_size",
                self.transient_store_pool_buffer_size,
                "a multiple of 4096, so that all buffers fit into the address space",
            );
        }
        Ok(())
    }

    /// Fills the sizes that are still open with `open`'s, and gives all.
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

    /// Whether appended bytes wait in memory until they are written to the log: with `SYNC_FLUSH` for the sync that makes them durable.
    pub fn uses_pool(&self) -> bool {
        self.transient_store_pool_enable || self.flush_disk_type == FlushDiskType::Sync
    }

    /// Whether every size is given.
    pub fn has_geometry(&self) -> bool {
        self.mapped_file_size_commit_log.is_some()
            && self.mapped_file_size_consume_queue.is_some()
            && self.index_geometry().is_some()
    }

    /// The geometry of the index files, if it is given.
    pub fn index_geometry(&self) -> Option<IndexGeometry> {
        self.max_hash_slot_num
            .zip(self.max_index_num)
            .map(|(slots, items)| IndexGeometry {
                slots: slots as u32,
                items: items as u32,
            })
    }

    /// How far before the log's end a message may lie and still count as cached, in bytes.
    pub fn memory_window(&self, physical_memory: u64) -> i64 {
        let ratio = u64::from(self.access_message_in_memory_max_ratio);
        i64::try_from(physical_memory / 100 * ratio).unwrap_or(i64::MAX)
    }

    /// The parsed `message_delay_level`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not a list of times such as `"1s 5m 2h"`.
    pub fn delay_levels(&self) -> Result<DelayLevels> {
        DelayLevels::parse(&self.message_delay_level).map_err(|e| Error::Invalid {
            what: format!("message_delay_level is {:?}: {e}", self.message_delay_level),
        })
    }
}

fn invalid(option: &str, value: impl std::fmt::Display, accepted: &str) -> Result<()> {
    Err(Error::Invalid {
        what: format!("{option} is {value}: expected {accepted}"),
    })
}
