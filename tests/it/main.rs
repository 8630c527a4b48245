//! The one integration binary of the Rust core.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout
)]

mod golden;
mod format_properties;
mod format_rules;
mod vectors;
