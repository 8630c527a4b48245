//! Reading a store, from any process: writes nothing, takes no lock.

mod message_reader;

mod get_message;
mod query;
mod resolve;
mod scan;

pub use crate::log::StoredMessage;
pub use get_message::{GetMessageStatus, GetRequest, GetResult, TagFilter};
pub(crate) use message_reader::expect_store;
pub use message_reader::{MessageReader, Position, Side};
pub use query::{QueryRequest, QueryResult};
pub use resolve::KeyHit;
pub use scan::QueueScan;
