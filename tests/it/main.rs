//! The one integration binary of the Rust core.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout
)]

mod asleep;
mod beside_a_broker;
mod broker;
mod broker_settings;
mod child;
mod counting_env;
mod crashes;
mod damage;
mod falling_times;
mod finding_tags;
mod foreign_index;
mod format_properties;
mod format_rules;
mod gate;
mod geometry;
mod golden;
mod guard;
mod ha;
mod heap;
mod index_chains;
mod interrupt;
mod kept_elsewhere;
mod later_formats;
mod live_index;
mod lost_queues;
mod mapped_file_queue;
mod metadata;
mod options;
mod page_cache;
mod played_broker;
mod queries;
mod query_damage;
mod queue_tail;
mod reading;
mod reading_lightly;
mod recovery;
mod relisting;
mod remade_topics;
mod removed;
mod repairing;
mod resolving;
mod parallel_scan;
mod simulated_env;
mod skipping;
mod storage;
mod store_writer;
mod telling;
mod tidy;
mod transfer;
mod usage;
mod vectors;
mod verifying;
mod watermark;
mod writing;
