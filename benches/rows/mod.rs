//! One file for each row.

mod ablation;
mod append_burst;
mod append_mt;
mod append_paced;
mod append_sustained;
mod append_tail;
mod counts;
mod crc32;
mod dispatch;
mod durable_window;
mod flush_modes;
mod group_commit;
mod groups_commit;
mod index_put;
mod io_modes;
mod lock_kinds;
mod queue_read;
mod read_get;
mod read_while_writing;
mod recover;
mod resolve;
mod scale_keys;
mod scale_msg;
mod scale_producers;
mod scale_recovery;
mod scale_size;
mod scale_topics;
mod scan;
mod send_to;
mod serve;
mod sync_floor;
mod verify;
mod visible_latency;
mod write_amp;

use crate::harness::Bench;

pub use counts::stepped;
pub use serve::serve;

/// Every row of this binary, in the order of the document.
pub const ALL: &[(&str, fn(&Bench))] = &[
    ("append_burst", append_burst::run),
    ("append_sustained", append_sustained::run),
    ("append_paced", append_paced::run),
    ("append_mt", append_mt::run),
    ("append_tail", append_tail::run),
    ("dispatch", dispatch::run),
    ("visible_latency", visible_latency::run),
    ("group_commit", group_commit::run),
    ("groups_commit", groups_commit::run),
    ("durable_window", durable_window::run),
    ("flush_modes", flush_modes::run),
    ("sync_floor", sync_floor::run),
    ("index_put", index_put::run),
    ("recover", recover::run),
    ("scale_recovery", scale_recovery::run),
    ("verify", verify::run),
    ("scale_producers", scale_producers::run),
    ("scale_topics", scale_topics::run),
    ("scale_msg", scale_msg::run),
    ("write_amp", write_amp::run),
    ("io_modes", io_modes::run),
    ("queue_read", queue_read::run),
    ("read_get", read_get::run),
    ("send_to", send_to::run),
    ("resolve", resolve::run),
    ("scan", scan::run),
    ("scale_size", scale_size::run),
    ("scale_keys", scale_keys::run),
    ("read_while_writing", read_while_writing::run),
    ("ablation", ablation::run),
    ("crc32", crc32::run),
    ("lock_kinds", lock_kinds::run),
    ("counts", counts::run),
];
