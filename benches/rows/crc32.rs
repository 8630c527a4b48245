//! The checksum of a body. The limit reads the same bytes and adds them up. This row has no target.

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
        let timed = |call: fn(&[u8]) -> u64| {
            let begun = Instant::now();
            for _ in 0..count {
                black_box(call(black_box(&body)));
            }
            each(begun.elapsed(), count)
        };
        let ours = Contender::new(OURS, || timed(|body| u64::from(crc32(body))));
        let limit = Contender::new(LIMIT, || timed(sum));
        bench.measure(&row, vec![ours, limit]);
    }
}

fn sum(body: &[u8]) -> u64 {
    let words = body.chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().unwrap()));
    words.fold(0, u64::wrapping_add)
}
