//! The growth of the cost of an append with the body, as a fixed part and a part for each KiB: a least-squares fit through five
//! sizes.

use std::collections::HashMap;

use serde_json::json;

use super::append_burst;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::Workload;
use crate::harness::{Bench, Contender, Row, Target};

const BODIES: [usize; 5] = [64, 256, 1024, 4096, 16 * 1024];

pub fn run(bench: &Bench) {
    let mut workloads = HashMap::new();
    for body in BODIES {
        workloads.insert(body, Workload::of_bodies(body));
    }
    let parts = [("a message", Target::at_most(50.0)), ("a KiB", Target::of_limit(1.0 / 1.15))];
    for (part, target) in parts {
        let row = Row {
            name: "scale_msg",
            params: json!({"part": part}),
            unit: "ns",
            target,
            waits_for_disk: false,
        };
        let line = |cost: fn(&Bench, &Workload) -> f64| {
            let points: Vec<(f64, f64)> = BODIES
                .iter()
                .map(|body| (*body as f64 / 1024.0, cost(bench, &workloads[body])))
                .collect();
            let (fixed, slope) = least_squares(&points);
            if part == "a KiB" { slope } else { fixed }
        };
        let ours = Contender::new(OURS, || line(append_burst::ours));
        let limit = Contender::new(LIMIT, || line(append_burst::limit));
        bench.measure(&row, vec![ours, limit]);
    }
}

/// Minimizes the relative errors, so that small bodies count as much as large ones.
fn least_squares(points: &[(f64, f64)]) -> (f64, f64) {
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(*x, *y) / (y * y)).sum::<f64>();
    let (n, x, y) = (sum(|_, _| 1.0), sum(|x, _| x), sum(|_, y| y));
    let (xx, xy) = (sum(|x, _| x * x), sum(|x, y| x * y));
    let slope = (n * xy - x * y) / (n * xx - x * x);
    ((y - slope * x) / n, slope)
}
