//! One file a row.

mod append_burst;
mod append_mt;
mod append_paced;
mod append_sustained;
mod counts;
mod dispatch;
mod durable_window;
mod group_commit;
mod sync_floor;
mod visible_latency;
mod serve;

use crate::harness::Bench;

pub use serve::serve;

/// Every row of this binary, in the order of the document.
pub const ALL: &[(&str, fn(&Bench))] = &[
    ("append_burst", append_burst::run),
    ("append_sustained", append_sustained::run),
    ("append_paced", append_paced::run),
    ("append_mt", append_mt::run),
    ("dispatch", dispatch::run),
    ("visible_latency", visible_latency::run),
    ("group_commit", group_commit::run),
    ("durable_window", durable_window::run),
    ("sync_floor", sync_floor::run),
    ("counts", counts::run),
];
