//! Reading many messages at once. A route finds the places of messages, in the order in which they are wanted; a picker reads them.

/// The request for a scan.
mod request;
/// Where a message is expected.
mod record_location;
/// Queues, merged by physical offset.
mod merge;
/// The queue entries that lead to messages of the log.
mod queue_leads;
/// Whether a message is wanted.
mod predicate;
/// Places, by the log.
mod log_locations;
/// Places, by a queue.
mod queue_locations;
/// Which places, in which order.
mod route;
/// Which of the topics that are named are not there.
mod absent_topics;
/// The message at a place.
mod pick;
/// How fast they are read.
mod throttle;
/// A pass over the messages of a request.
mod scan;
/// A scan with several threads.
mod parallel_scan;
/// A scan without an end.
mod follow;

pub use follow::{Follow, FollowFrom, OnMissing, QueueOffsets};
pub use parallel_scan::{ParallelScan, ScanSection};
pub use pick::Picked;
pub use request::{BodyFilter, Order, ScanRequest, TimeOf, Transactions};
pub use scan::{Filled, Scan};
pub(crate) use throttle::Throttle;
