//! Finding many messages: by queue offset, by key, by id.

/// By queue offset.
mod offsets;
/// What carries the keys that are looked for.
mod wanted;
/// What was found for each of them.
mod hits;
/// By key and by id.
mod keys;

pub use hits::{HitBounds, KeyHit};
pub(super) use keys::KeySearch;
pub use offsets::OffsetResolver;
pub use wanted::{QueryBy, QueryRequest};
pub(super) use wanted::{Wanted, indexed_tag};
