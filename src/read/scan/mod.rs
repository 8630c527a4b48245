//! Reading many messages at once. A route finds the locations of messages, in the order in which they are wanted; a picker reads them.
//!
//! - **Bounds.** With a time range, only segments are read whose first messages were stored in about that range.
//! - **Route.** Along the entries of the queues, 64 at once, if topics are named and have less than about half of the log; otherwise record
//!   by record along the log. Queues that are read in log order are merged by physical offset. A message that is unwanted by the tag hash of
//!   its entry costs no read of the log. If the topic may have lost a queue, the log is read instead.
//! - **Both routes return the same messages.** A record that was found in the log counts only if the entry of its queue leads to it. No
//!   checksum covers a topic, so a record of an unwanted topic may be a damaged wanted one: each wanted queue is kept in step with the log,
//!   and an entry that leads to such a record shows the damage.
//! - **Page cache.** A pass in log order reads 4 MiB ahead, and drops the pages that it has brought into the cache. It asks the system
//!   block by block (128 KiB) which pages were cached before, and keeps those. Where the system does not answer nothing is dropped.
//!   Messages of a queue stay cached, because messages of other queues between them may come next.
//! - **Threads.** In a long pass one thread at a time follows the route and takes the locations of a section; it reads their messages while
//!   another one continues. Damage, counts and coverage belong to a section until the caller takes it, so they are those of one thread.

/// The request for a scan.
mod request;
/// Location of the next message.
mod record_location;
/// The queue entries that lead to messages of the log.
mod queue_leads;
/// The predicate on a message.
mod predicate;
/// Locations, by the log.
mod log_locations;
/// Locations, by a queue.
mod queue_locations;
/// The segments that a scan of a time leaves out.
mod segment_times;
/// Queues whose files are lost, and signs of them.
mod queue_census;
/// The route: the locations of messages, in order.
mod route;
/// Requested topics that do not exist.
mod absent_topics;
/// The message at a location.
mod pick;
/// A limit on the bytes read a second.
mod throttle;
/// A pass over the messages of a request.
mod scan;
/// A scan with several threads.
mod parallel_scan;
/// Queues that begin again.
mod known_end;
/// A scan without an end.
mod follow;

pub use follow::{Follow, FollowFrom, OnMissing, QueueOffsets};
pub use parallel_scan::{ParallelScan, ScanSection};
pub use pick::Picked;
pub use queue_census::lost_queues;
pub use queue_leads::LostQueues;
pub use request::{BodyFilter, Order, ScanRequest, TimeOf, Transactions};
pub use scan::{Filled, Scan};
pub(crate) use throttle::Throttle;
