//! New unique keys: no two of them are equal.

use std::collections::HashSet;
use std::thread;

use mqstore::storage::RealEnv;
use mqstore::store::new_unique_key;

use crate::counting_env::CountingEnv;

/// 2100 and 2200 began at these ms.
const YEAR_2100: i64 = 4_102_444_800_000;
const YEAR_2200: i64 = 7_258_118_400_000;
const DAY: i64 = 86_400_000;

#[test]
fn no_two_threads_make_the_same_key() {
    let make = || {
        (0..20_000)
            .map(|_| new_unique_key(&RealEnv::new()).to_string())
            .collect::<Vec<_>>()
    };
    let threads: Vec<_> = (0..8).map(|_| thread::spawn(make)).collect();
    let keys: Vec<String> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
}

#[test]
fn keys_differ_while_the_clock_is_frozen_and_after_it_steps_back() {
    let env = CountingEnv::new();
    let mut places = Vec::new();
    for now in [YEAR_2100, YEAR_2100 - 1, YEAR_2100 - 40 * DAY, YEAR_2100] {
        env.set_now(now);
        // More than the counter counts.
        places.extend((0..70_000).map(|_| {
            let key = new_unique_key(&env);
            // Another test may bring the keys of this process to another month, which has another random number.
            (key.producer, key.ms_of_month, key.counter)
        }));
    }
    assert_eq!(places.iter().collect::<HashSet<_>>().len(), places.len());
}

#[test]
fn a_new_month_begins_with_a_new_random_number() {
    let env = CountingEnv::new();
    let made = [YEAR_2200, YEAR_2200 + 30 * DAY, YEAR_2200 + 31 * DAY].map(|now| {
        env.set_now(now);
        new_unique_key(&env)
    });
    assert_eq!(made.map(|key| i64::from(key.ms_of_month) / DAY), [0, 30, 0]);
    assert_eq!(made[0].producer, made[1].producer);
    assert_ne!(made[1].producer, made[2].producer);
    assert_eq!(u32::from(made[2].process), std::process::id() & 0xFFFF);
}
