//! The cost of mqstore, row by row: mqstore, the limit of this machine and RocketMQ's own store take turns in one run.
//!
//! `make bench` runs this and the rows of `benches/compare`, and writes docs/BENCHMARKS.md. `cargo bench -- ROW...` runs rows of
//! this binary only. `cargo test` runs each of them once with tiny sizes, and fails only if a count exceeds its bound; times are
//! never judged.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::inline_always,
    clippy::useless_conversion,
    clippy::type_complexity,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    missing_docs,
    unreachable_pub,
    reason = "a bench stops at the first thing that is wrong, and prints; its limits use raw memory"
)]

#[path = "../tests/it/counting_env.rs"]
#[allow(dead_code, unreachable_pub)]
mod counting_env;

/// Rounds, statistics, the machine, results.
mod harness;
/// Lower bounds of the cost on this machine, measured in the same round.
mod limits;
/// One file for each row.
mod rows;

fn main() {
    let bench = harness::Bench::of_arguments();
    if bench.is_server() {
        rows::serve(&bench);
        return;
    }
    if let Some(work) = &bench.stepped {
        rows::stepped(&bench, work);
        return;
    }
    for (name, run) in rows::ALL {
        if bench.wants(name) {
            run(&bench);
        }
    }
    bench.end();
}
