//! Batches of messages, in and out through Arrow. Independent of Python, which the compiler checks: feature `arrow` has no `PyO3`.

/// The columns of a message, declared once.
mod columns;
/// The pool of buffers for bodies.
mod buffers;
/// Batches of messages.
mod record_batch;
/// The value of a column in one row.
mod cell;
/// A table from a caller, and the values of its columns.
mod table;
/// Bulk resolution of the rows of a table.
mod resolve;
/// Statistics of messages, files and consumers as batches.
mod statistics;
/// Messages from the rows of a table, to be appended.
mod incoming;
/// Rows as JSON Lines.
mod json_lines;

pub(crate) use columns::{MessageColumns, column_names, expect_field};
pub(crate) use incoming::{Defaults, Rows, host, incoming, no_body};
pub(crate) use json_lines::{BodyAs, json_lines};
pub(crate) use record_batch::{BatchBuilder, MAX_BATCH_BYTES};
pub(crate) use resolve::{from_arrow, resolve_ids, resolve_keys, resolve_offsets, resolve_times};
pub(crate) use statistics::{
    USAGE_COLUMNS, consumer_offsets, delay_backlog, delay_offsets, dump, groups, index_files, kept_elsewhere, lags, segments,
    subscription_groups, topic_configs, usage,
};
pub(crate) use table::Table;
