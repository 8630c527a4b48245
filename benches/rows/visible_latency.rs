//! The time from the start of an append until its message is in its queue, if nothing else is appended. The limit is a caller that
//! dispatches its message itself, without threads.
//!
//! "caller": the appending thread waits, and may help. "thread": it only checks, and the dispatcher's thread does everything. 300
//! us after a message that thread sleeps between polls, and 3 ms after it the thread is parked and has to be woken.

use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::store::MessageStore;
use serde_json::json;

use super::dispatch::dispatch_all;
use crate::harness::machine::microseconds;
use crate::harness::rocketmq::RocketMq;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, open, open_stepped};
use crate::harness::{Bench, Contender, Row, Target, quantile};

/// The pause between two messages, and the messages of a round. With `RocketMQ` the first pause is used.
const NAPS: (Duration, usize) = (Duration::from_micros(300), 1000);
const SLEEPS: (Duration, usize) = (Duration::from_millis(3), 200);

pub fn run(bench: &Bench) {
    for (by, most, (gap, count)) in [("caller", 3.0, NAPS), ("thread", 20.0, NAPS), ("thread", 20.0, SLEEPS)] {
        let workload = Workload::of_bodies(100);
        let count = bench.size(count, 20);
        let row = Row {
            name: "visible_latency",
            params: json!({"body": 100, "by": by, "gap_us": gap.as_micros() as u64, "quantile": 0.5}),
            unit: "us",
            target: Target::at_most(most),
            waits_for_disk: false,
        };
        let ours = Contender::new(OURS, || ours(bench, &workload, gap, count, by == "caller"));
        let limit = Contender::new(LIMIT, || limit(bench, &workload, gap, count));
        let mut contenders = vec![ours, limit];
        contenders.extend(
            RocketMq::start_all(bench, &[])
                .into_iter()
                .map(|mut peer| Contender::new(peer.name.clone(), move || peer.visible(100, count))),
        );
        bench.measure(&row, contenders);
    }
}

fn ours(bench: &Bench, workload: &Workload, gap: Duration, count: usize, helps: bool) -> f64 {
    let dir = bench.dir();
    let store = open(&dir.path().join("store"), StoreConfig::default());
    let found = median(&store, workload, gap, count, |offset| {
        if helps {
            store.wait_dispatched(offset, None).unwrap();
        } else {
            while store.dispatched_offset() <= offset {
                std::hint::spin_loop();
            }
        }
    });
    store.close().unwrap();
    found
}

fn limit(bench: &Bench, workload: &Workload, gap: Duration, count: usize) -> f64 {
    let dir = bench.dir();
    let store = open_stepped(&dir.path().join("store"), StoreConfig::default());
    median(&store, workload, gap, count, |_| dispatch_all(&store))
}

fn median(store: &MessageStore, workload: &Workload, gap: Duration, count: usize, mut until_dispatched: impl FnMut(i64)) -> f64 {
    let mut one = || {
        std::thread::sleep(gap);
        let begun = Instant::now();
        let offset = store.append(workload.message(0)).unwrap().appended.physical_offset;
        until_dispatched(offset);
        microseconds(begun.elapsed())
    };
    one();
    quantile((0..count).map(|_| one()).collect(), 0.5)
}
