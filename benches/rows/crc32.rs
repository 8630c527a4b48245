//! The checksum of a body. The limit copies the same bytes, which an append does as well. This row has no target.

use std::hint::black_box;
use std::time::Instant;

use mqstore::format::crc32;
use serde_json::json;

use crate::harness::machine::each;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::BODIES;
use crate::harness::{Bench, Contender, Row, Target};

const ROUND_BYTES: usize = 256 << 20;

pub fn run(bench: &Bench) {
    for size in BODIES {
        let body = vec![b'x'; size];
        let count = bench.size(ROUND_BYTES, 1 << 20) / size;
        let row = Row {
            name: "crc32",
            params: json!({"body": size}),
            unit: "ns",
            target: Target::default(),
            waits_for_disk: false,
        };
        let timed = |call: &mut dyn FnMut(&[u8])| {
            let begun = Instant::now();
            for _ in 0..count {
                call(black_box(&body));
            }
            each(begun.elapsed(), count)
        };
        let ours = Contender::new(OURS, || {
            timed(&mut |body| {
                black_box(crc32(body));
            })
        });
        let mut copy = vec![0; size];
        let limit = Contender::new(LIMIT, || timed(&mut |body| black_box(&mut copy).copy_from_slice(body)));
        bench.measure(&row, vec![ours, limit]);
    }
}
