//! Reading a store, from any process: writes nothing, takes no lock.

/// What a read of many messages does at one that was lost or is damaged.
mod on_damage;
/// Why no message is read at a place.
mod unreadable;
mod message_reader;

mod walk;
mod scan;
mod get_message;
mod lookup_by_time;
mod query;
mod resolve;
mod landmarks;

pub use crate::log::StoredMessage;
pub use get_message::{GetMessageStatus, GetRequest, GetResult, TagFilter};
pub use lookup_by_time::Side;
pub use message_reader::{MessageReader, Position};
pub use on_damage::OnDamage;
pub use query::{QueryBy, QueryRequest, QueryResult};
pub use resolve::KeyHit;
pub use scan::{QueueScan, RecordScan};
