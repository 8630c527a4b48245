//! Batches of messages, in and out through Arrow. Knows no Python: the compiler checks it, for feature `arrow` has no `PyO3`.

/// The one schema of a message, and batches of messages in it.
mod record_batch;
/// A table that came in, and what its columns hold.
mod table;
/// Columns to be resolved, and what goes back.
mod resolve;
/// What a message on its way in is made of.
mod incoming;

pub(crate) use incoming::{Defaults, PropertyList, expect_field, host, incoming, messages, no_body};
pub(crate) use record_batch::{BatchBuilder, MAX_BATCH_BYTES, MessageColumns, column_names};
pub(crate) use resolve::{from_arrow, resolve_keys, resolve_offsets};
pub(crate) use table::Table;
