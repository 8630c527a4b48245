//! Appending from P threads that each wait until their message is durable: how many messages one sync carries. Prints; asserts nothing.
//!
//! With a sync that takes a known time L, P threads can make P / L messages a second at most: each sync carries one of each thread. The
//! first table has a sync of 1 ms, the second one the disk of the directory for temporary files, whose L is that of P = 1. Each figure is
//! the median of five rounds after one to warm up; the P take turns.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    missing_docs
)]

#[path = "../tests/it/counting_env.rs"]
#[allow(dead_code, unreachable_pub)]
mod counting_env;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use counting_env::CountingEnv;
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::format::Message;
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};

const PRODUCERS: [usize; 5] = [1, 2, 8, 32, 64];
const ROUNDS: usize = 6;
const ROUND: Duration = Duration::from_millis(700);
const SIMULATED: Duration = Duration::from_millis(1);

/// Messages a second, syncs a second, and two quantiles of the time that an append takes, in microseconds.
#[derive(Clone, Copy)]
struct Round {
    messages: f64,
    syncs: f64,
    p50: f64,
    p99: f64,
}

fn main() {
    for simulated in [Some(SIMULATED), None] {
        let mut rounds = vec![Vec::new(); PRODUCERS.len()];
        for number in 0..ROUNDS {
            for (producers, rounds) in PRODUCERS.iter().zip(&mut rounds) {
                let round = round(*producers, simulated);
                if number > 0 {
                    rounds.push(round);
                }
            }
        }
        match simulated {
            Some(time) => println!("a sync takes {} us", time.as_micros()),
            None => println!("the disk of {}", std::env::temp_dir().display()),
        }
        println!(
            "{:>9} {:>12} {:>14} {:>10} {:>10} {:>10}",
            "producers", "messages/s", "messages/sync", "of P", "p50 us", "p99 us"
        );
        for (producers, rounds) in PRODUCERS.iter().zip(rounds) {
            let median = |of: &dyn Fn(&Round) -> f64| {
                let mut all: Vec<f64> = rounds.iter().map(of).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            let (rate, carried) = (median(&|round| round.messages), median(&|round| round.messages / round.syncs));
            println!(
                "{producers:>9} {rate:>12.0} {carried:>14.1} {:>10.2} {:>10.0} {:>10.0}",
                carried / *producers as f64,
                median(&|round| round.p50),
                median(&|round| round.p99)
            );
            if let Some(time) = simulated {
                let ideal = *producers as f64 / time.as_secs_f64();
                println!("{:>9} {:>12.2} of the {ideal:.0} that P / L allows", "", rate / ideal);
            }
        }
    }
}

/// An environment that counts the syncs of the log, and makes them take as long.
fn counting(syncs: &Arc<AtomicU64>, simulated: Option<Duration>) -> Arc<dyn Env> {
    let (env, counted) = (CountingEnv::new(), syncs.clone());
    env.before_changes(move |change| {
        if change.starts_with("sync LogRange") {
            counted.fetch_add(1, Ordering::Relaxed);
            if let Some(time) = simulated {
                let begun = Instant::now();
                thread::sleep(time.saturating_sub(Duration::from_micros(60)));
                while begun.elapsed() < time {
                    std::hint::spin_loop();
                }
            }
        }
        Ok(())
    });
    Arc::new(env)
}

fn round(producers: usize, simulated: Option<Duration>) -> Round {
    let dir = tempfile::tempdir().unwrap();
    let syncs = Arc::new(AtomicU64::new(0));
    let env = counting(&syncs, simulated);
    // Where the sync is simulated, the file system is one in memory.
    let path = match simulated {
        Some(_) => std::path::Path::new("/dev/shm").join(dir.path().file_name().unwrap()),
        None => dir.path().join("store"),
    };
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        ..StoreConfig::default()
    };
    let store = MessageStore::open(&env, &path, config, OpenMode::New).unwrap();
    let body = vec![b'x'; 1024];
    let append = |queue_id: usize| {
        let message = Message {
            topic: "orders".to_owned(),
            queue_id: queue_id as i32,
            body: body.as_slice().into(),
            ..Message::default()
        };
        store.append(message).unwrap();
    };
    append(0);
    let (begun, before) = (Instant::now(), syncs.load(Ordering::Relaxed));
    let mut times: Vec<f64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..producers)
            .map(|producer| {
                let append = &append;
                scope.spawn(move || {
                    let mut times = Vec::new();
                    while begun.elapsed() < ROUND {
                        let at = Instant::now();
                        append(producer);
                        times.push(at.elapsed().as_secs_f64() * 1e6);
                    }
                    times
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let synced = syncs.load(Ordering::Relaxed) - before;
    store.close().unwrap();
    if simulated.is_some() {
        std::fs::remove_dir_all(&path).unwrap();
    }
    times.sort_by(f64::total_cmp);
    Round {
        messages: times.len() as f64 / seconds,
        syncs: synced as f64 / seconds,
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    }
}
