//! Finding many messages: by queue offset, by key, by id.

/// By queue offset.
mod offsets;
/// The arguments of a query, and the keys to be found.
mod query_request;
/// Records that a walk meets and that their queues contradict.
mod contradicted;
/// The hits of the keys.
mod hits;
/// By key and by id.
mod keys;

pub use hits::{HitBounds, KeyHit};
pub(super) use keys::KeySearch;
pub use offsets::OffsetResolver;
pub use query_request::{QueryBy, QueryRequest};
pub(super) use query_request::{Wanted, indexed_tag};
