//! Rounds for the rows of `benches/compare`, which measure from Python and need the figure of Rust in the same round.
//!
//! Each line of the input is a question, each line of the output its answer: one number or more.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Instant;

use mqstore::config::StoreConfig;
use mqstore::store::{AppendResult, Incoming};

use super::{append_sustained, durable_window, scan};
use crate::harness::Bench;
use crate::harness::machine::each;
use crate::harness::workload::{Workload, open};

/// Answers until the input ends.
pub fn serve(bench: &Bench) {
    for question in io::stdin().lock().lines() {
        println!("{}", answer(bench, &question.unwrap()));
        io::stdout().flush().unwrap();
    }
}

fn answer(bench: &Bench, question: &str) -> String {
    let words: Vec<&str> = question.split(' ').collect();
    let number = |at: usize| words[at].parse::<usize>().unwrap();
    let plain = || Workload::plain(number(1));
    let figure = match words[0] {
        "machine" => {
            let weather = bench.weather();
            return format!("{} {}", weather.sync, weather.wake);
        }
        "append" => append_sustained::ours(bench, &plain(), number(2)),
        "append_with_key" => append_sustained::ours(bench, &Workload::of_bodies(number(1)), number(2)),
        "append_batch" => append_batch(bench, &plain(), number(2), number(3)),
        "scan_limit" => scan::limit_of(Path::new(words[1])),
        "durable_limit" => durable_window::limit(bench, &plain(), number(2)),
        unknown => panic!("no question is called {unknown:?}"),
    };
    figure.to_string()
}

/// Returns the nanoseconds for a message of `count` messages in batches.
fn append_batch(bench: &Bench, workload: &Workload, count: usize, batch: usize) -> f64 {
    let dir = bench.dir();
    let store = open(&dir.path().join("store"), StoreConfig::default());
    store.append(workload.message(0)).unwrap();
    let mut done: Vec<AppendResult> = Vec::new();
    let begun = Instant::now();
    for _ in 0..count / batch {
        done.clear();
        let messages: Vec<Incoming<'_>> = (0..batch).map(|_| workload.message(0).into()).collect();
        store.appender(None).append_all(messages, &mut done).unwrap();
    }
    let took = begun.elapsed();
    store.close().unwrap();
    each(took, count / batch * batch)
}
