//! More producers, each waiting until its message is durable on the disk: the rate must not fall. The limit of P producers is the
//! same store with the next smaller number of them.

use serde_json::json;

use super::group_commit;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::{Bench, Contender, Row, Target};

const PRODUCERS: [usize; 5] = [1, 2, 8, 32, 64];

pub fn run(bench: &Bench) {
    for pair in bench.size(&PRODUCERS[..], &PRODUCERS[..2]).windows(2) {
        let (fewer, producers) = (pair[0], pair[1]);
        let row = Row {
            name: "scale_producers",
            params: json!({"producers": producers, "compared_with": fewer}),
            unit: "messages/s",
            target: Target::of_limit(1.0),
            waits_for_disk: true,
        };
        let more = Contender::new(OURS, || group_commit::ours(bench, producers, None));
        let less = Contender::new(LIMIT, || group_commit::ours(bench, fewer, None));
        bench.measure(&row, vec![more, less]);
    }
}
