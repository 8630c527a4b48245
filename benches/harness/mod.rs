//! Rounds, statistics, the machine, results.

/// Quantiles of measured values.
mod quantile;
/// Counts of a thread's allocations and page faults.
pub mod counting;
/// Counts of instructions.
pub mod instructions;
/// The current latency of a sync and of a wake.
pub mod machine;
/// A row of the results: its figures, its ratios, and its verdict.
pub mod row;
/// A run of this program: its arguments, its directories, its results.
mod bench;
/// RocketMQ's own store, in a process that answers one round after another.
pub mod rocketmq;
/// An environment with a fixed latency of log syncs.
pub mod slow_env;
/// The messages and stores that rows measure.
pub mod workload;

pub use bench::{Bench, Contender};
pub use quantile::quantile;
pub use row::{Row, Target};
