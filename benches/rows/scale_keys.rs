//! The cost of resolving a key in a store with many keys: the limit is a store with few keys, all of which are resolved.

use mqstore::config::StoreConfig;
use serde_json::json;

use super::resolve::{make, reader, resolve, shuffled};
use crate::harness::row::{LIMIT, OURS};
use crate::harness::{Bench, Contender, Row, Target};

const KEYS: usize = 1_600_000;
/// The keys of the store with few, and of each call.
const FEW: usize = 100_000;

pub fn run(bench: &Bench) {
    let dir = bench.dir();
    let (keys, few) = (bench.size(KEYS, 160), bench.size(FEW, 10));
    let (many_path, few_path) = (dir.path().join("many"), dir.path().join("few"));
    make(&many_path, StoreConfig::default(), keys);
    make(&few_path, StoreConfig::default(), few);
    let (many, one) = (reader(&many_path), reader(&few_path));
    let some = |of: usize| -> Vec<String> {
        let numbers = shuffled(of).into_iter().take(few);
        numbers.map(|n| format!("order-{n}")).collect()
    };
    let (of_many, of_few) = (some(keys), some(few));
    let row = Row {
        name: "scale_keys",
        params: json!({"keys": keys, "limit": few}),
        unit: "ns a key",
        target: Target::of_limit(1.0 / 1.5),
        waits_for_disk: false,
    };
    let ours = Contender::new(OURS, || resolve(&many, &of_many));
    bench.measure(&row, vec![ours, Contender::new(LIMIT, || resolve(&one, &of_few))]);
}
