//! Rounds, statistics, the machine, results.

/// Quantiles of measured values.
mod quantile;
/// What a thread allocates and faults.
pub mod counting;
/// How many instructions a piece of work takes.
pub mod instructions;
/// How long a sync and a wake take now.
pub mod machine;
/// One row of the results: its figures, its ratios, whether it met its target.
pub mod row;
/// One run of this program: its arguments, its directory, where results go.
mod bench;
/// RocketMQ's own store, in a process that answers one round after another.
pub mod rocketmq;
/// The environment whose syncs take as long as they are told.
pub mod slow_env;
/// The messages and stores that rows measure.
pub mod workload;

pub use bench::{Bench, Contender};
pub use quantile::quantile;
pub use row::{Row, Target};
