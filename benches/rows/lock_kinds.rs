//! Several producers under one lock, to choose the kind of the append lock. The limit is the record kernel, whose lock spins; the
//! same kernel with the mutex of the standard library is measured as well.

use std::sync::Mutex;

use serde_json::json;

use super::append_mt;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{TOPIC, Workload};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::{FileMap, Lock, RecordKernel, Spin};

const PRODUCERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const BODY: usize = 100;
/// A round of the fast kernel would otherwise last only some ms.
const TIMES: usize = 10;

pub fn run(bench: &Bench) {
    let workload = Workload::of_bodies(BODY);
    for producers in bench.size(&PRODUCERS[..], &PRODUCERS[1..2]) {
        let row = Row {
            name: "lock_kinds",
            params: json!({"body": BODY, "producers": producers}),
            unit: "messages/s",
            target: Target::default(),
            waits_for_disk: false,
        };
        let contenders = vec![
            Contender::new(OURS, || append_mt::ours(bench, &workload, *producers)),
            Contender::new(LIMIT, || kernel::<Spin>(bench, &workload, *producers)),
            Contender::new("limit with a mutex", || kernel::<Mutex<()>>(bench, &workload, *producers)),
        ];
        bench.measure(&row, contenders);
    }
}

fn kernel<L: Lock>(bench: &Bench, workload: &Workload, producers: usize) -> f64 {
    let dir = bench.dir();
    let map = FileMap::populated(&dir.path().join("segment"), 16 << 20);
    let kernel = RecordKernel::<L>::with_lock(&map, TOPIC);
    let each = workload.messages(bench.is_smoke) * TIMES / producers;
    append_mt::rate(producers, each, |_| {
        kernel.append(TOPIC.as_bytes(), 0, &workload.properties, &workload.body);
    })
}
