//! Finding many messages: by queue offset, by key, by id.

/// Lookup by queue offset.
mod offsets;
/// The arguments of a query, and the keys to be found.
mod query_request;
/// Records that a walk meets and that their queues contradict.
mod contradicted;
/// The hits of the keys.
mod hits;
/// The stretches of the log, each with or without an index file.
mod sources;
/// Lookup by key.
mod keys;
/// Lookup by id.
mod ids;

pub use hits::{HitBounds, KeyHit};
pub use ids::resolve_ids;
pub(super) use keys::KeySearch;
pub use offsets::OffsetResolver;
pub use query_request::{QueryBy, QueryRequest};
pub(super) use query_request::{Wanted, indexed_tag};
pub(super) use sources::{is_of_log, sources};
