//! From the start of an append until its message is in its queue, in an idle store.

use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::store::MessageStore;
use serde_json::json;

use super::dispatch::dispatch_all;
use crate::harness::machine::microseconds;
use crate::harness::rocketmq::RocketMq;
use crate::harness::row::{LIMIT, OURS, quantile};
use crate::harness::workload::{Workload, open, open_stepped};
use crate::harness::{Bench, Contender, Row, Target};

const MESSAGES: usize = 1000;
/// The store is idle after it.
const GAP: Duration = Duration::from_micros(300);

pub fn run(bench: &Bench) {
    // "caller": who appended waits, and may help. "thread": it only looks, and the dispatcher's thread does all, after its nap.
    for (by, most) in [("caller", 3.0), ("thread", 20.0)] {
        let workload = Workload::of_bodies(100);
        let count = bench.size(MESSAGES, 20);
        let row = Row {
            name: "visible_latency",
            params: json!({"body": 100, "by": by, "quantile": 0.5}),
            unit: "us",
            target: Target::at_most(most),
            waits_for_disk: false,
        };
        let ours = Contender::new(OURS, || ours(bench, &workload, count, by == "caller"));
        let limit = Contender::new(LIMIT, || limit(bench, &workload, count));
        let mut contenders = vec![ours, limit];
        contenders.extend(
            RocketMq::start_all(bench, &[])
                .into_iter()
                .map(|mut peer| Contender::new(peer.name.clone(), move || peer.visible(100, count))),
        );
        bench.measure(&row, contenders);
    }
}

fn ours(bench: &Bench, workload: &Workload, count: usize, helps: bool) -> f64 {
    let dir = bench.dir();
    let store = open(&dir.path().join("store"), StoreConfig::default());
    let found = median(&store, workload, count, |offset| {
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

/// No thread is woken: the caller dispatches its message itself.
fn limit(bench: &Bench, workload: &Workload, count: usize) -> f64 {
    let dir = bench.dir();
    let store = open_stepped(&dir.path().join("store"), StoreConfig::default());
    median(&store, workload, count, |_| dispatch_all(&store))
}

fn median(store: &MessageStore, workload: &Workload, count: usize, mut until_dispatched: impl FnMut(i64)) -> f64 {
    let mut one = || {
        std::thread::sleep(GAP);
        let begun = Instant::now();
        let offset = store.append(workload.message(0)).unwrap().appended.physical_offset;
        until_dispatched(offset);
        microseconds(begun.elapsed())
    };
    one();
    quantile((0..count).map(|_| one()).collect(), 0.5)
}
