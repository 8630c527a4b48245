//! Reading a store, from any process: writes nothing, takes no lock.

/// Damage that a read meets.
mod damage;
/// The keys of what was walked.
mod walked_keys;
/// A store opened for reading.
mod message_reader;
/// Changes that another process has made since an open.
mod refresh;
/// Polling of a store that another process writes to.
mod growth_poll;

/// The order of the log among the messages of several queues.
mod merge;
/// The records to which the queues that are asked for lead.
mod asked_queues;
/// Walks over a queue, from either end.
mod queue_walk;
/// Walks over the log, also past damage.
mod walk;
/// Reads by queue offset as a broker answers them.
mod get_message;
/// The first message of a time.
mod lookup_by_time;
/// Many messages by offset, key or id.
mod resolve;
/// The hits of a query, whose messages are read later.
mod query_hits;
/// Queries by key or tag.
mod query;
/// Reading many messages at once.
mod scan;
/// Log usage by topic, queue, tag and hour.
mod usage;
/// The files of a store, one by one.
mod inventory;
/// The bytes at an offset, field by field.
mod dump;
/// The progress of a broker's consumers.
mod consumer_progress;
/// Delayed messages that wait for their delivery.
mod delay_backlog;

pub use crate::log::StoredMessage;
pub use consumer_progress::{GroupLag, GroupOffset, GroupState};
pub use damage::OnDamage;
pub use delay_backlog::{DelayBacklog, delay_backlog};
pub use dump::{DumpRow, dump, dump_entry, dump_key};
pub use get_message::{GetMessageStatus, GetRequest, GetResult, TagFilter};
pub use growth_poll::GrowthPoll;
pub use inventory::Segment;
pub use lookup_by_time::Side;
pub use message_reader::{MessageReader, Position};
pub use query::QueryResult;
pub use query_hits::QueryHits;
pub use queue_walk::QueueScan;
pub use refresh::Refreshed;
pub use resolve::{HitBounds, KeyHit, OffsetResolver, QueryBy, QueryRequest, resolve_ids};
pub(crate) use scan::Throttle;
pub use scan::{
    BodyFilter, Filled, Follow, FollowFrom, LostQueues, OnMissing, Order, ParallelScan, Picked, QueueOffsets, Scan, ScanRequest,
    ScanSection, TimeOf, Transactions, lost_queues,
};
pub use usage::{Shared, Usage, UsageBy, UsageCount};
pub(crate) use walk::Walked;
