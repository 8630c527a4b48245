//! Groups that acknowledge a message and commit durably, all at once, compared with one group that does.
//!
//! The limit is the commit of one group: a sync of the log, of the new `consumerOffset.json`, and of its directory. "limit without a
//! store" is a leader/follower group commit of as many threads that only waits for the same three syncs, so that it shows what the
//! threads cost: with syncs of 1 ms their wake-up takes longer than a sync, and neither program comes to 1.5 times one group. The syncs
//! of the rows in ms are simulated, on a file system in memory.

use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerController, Consumer, Start, Subscription};
use mqstore::config::StoreConfig;
use mqstore::read::OnMissing;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use serde_json::json;

use crate::harness::row::{LIMIT, OURS};
use crate::harness::slow_env::SlowEnv;
use crate::harness::workload::{TOPIC, Workload};
use crate::harness::{Bench, Contender, Row, Target, quantile};
use crate::limits::wait_at_least;

const GROUPS: usize = 100;
/// The longest time of all as a multiple of that of one.
const MOST_TIMES: f64 = 1.5;
/// The commits of each group in a round, whose median counts.
const BURSTS: usize = 15;

pub fn run(bench: &Bench) {
    let groups = bench.size(GROUPS, 3);
    for sync in [Some(1), Some(5), None] {
        let row = Row {
            name: "groups_commit",
            params: json!({"groups": groups, "from": "Rust", "sync_ms": sync.map_or(json!("disk"), |ms| json!(ms))}),
            unit: "ms",
            target: Target::of_limit(1.0 / MOST_TIMES),
            waits_for_disk: sync.is_none(),
        };
        let sync = sync.map(Duration::from_millis);
        let mut contenders = vec![
            Contender::new(OURS, || commits(bench, groups, sync)),
            Contender::new(LIMIT, || commits(bench, 1, sync)),
        ];
        if let Some(sync) = sync {
            contenders.push(Contender::new("limit without a store", move || {
                without_store(bench, groups, sync)
            }));
        }
        bench.measure(&row, contenders);
    }
}

/// Returns the milliseconds until each group has committed its acknowledgement of the same new message.
fn commits(bench: &Bench, groups: usize, simulated: Option<Duration>) -> f64 {
    let (dir, env): (_, Arc<dyn Env>) = match simulated {
        Some(sync) => (bench.memory_dir(), Arc::new(SlowEnv::new(sync))),
        None => (bench.dir(), Arc::new(RealEnv::new())),
    };
    let store = MessageStore::open(&env, &dir.path().join("store"), StoreConfig::default(), OpenMode::New).unwrap();
    let store = Arc::new(store);
    let broker = BrokerController::new(&store);
    let workload = Workload::of_bodies(100);
    let join = |group| {
        broker
            .consumer(Some(&format!("group-{group}")), subscription(), &Start::Earliest)
            .unwrap()
    };
    let consumers: Vec<Consumer> = (0..groups).map(join).collect();
    let burst = |_| {
        store.append(workload.message(0)).unwrap();
        for consumer in &consumers {
            assert_eq!(consumer.poll(1, None).unwrap().len(), 1);
        }
        let next = consumers[0].positions().unwrap()[0].next;
        at_once(&consumers, |consumer| {
            consumer.ack([(TOPIC, 0, next - 1)]).unwrap();
            consumer.commit().unwrap();
        })
    };
    let took = (0..bench.size(BURSTS, 1)).map(burst).collect();
    drop(consumers);
    broker.close().unwrap();
    store.close().unwrap();
    quantile(took, 0.5)
}

fn subscription() -> Subscription {
    Subscription {
        topics: vec![TOPIC.to_owned()],
        tags: "*".to_owned(),
        is_ordered: false,
        max_reconsume_times: Some(16),
        consume_timeout: Duration::from_secs(15 * 60),
        on_missing: OnMissing::Refuse,
    }
}

/// Does the work with each of these in a thread of its own, and returns the milliseconds from their start until the last has ended.
fn at_once<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) -> f64 {
    let begin = Barrier::new(all.len() + 1);
    let run = |one| {
        begin.wait();
        work(one);
        Instant::now()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|one| scope.spawn(move || run(one))).collect();
        // All threads sleep at the barrier by then.
        thread::sleep(Duration::from_millis(5));
        let begun = Instant::now();
        begin.wait();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap());
        ends.max().unwrap().duration_since(begun).as_secs_f64() * 1e3
    })
}

/// Group commit of threads without a store: returns the milliseconds until the change of each is in a round of three syncs.
fn without_store(bench: &Bench, threads: usize, sync: Duration) -> f64 {
    #[derive(Default)]
    struct Commits {
        made: usize,
        durable: usize,
        is_led: bool,
    }
    let burst = |_| {
        let (commits, ended) = (Mutex::new(Commits::default()), Condvar::new());
        at_once(&vec![(); threads], |()| {
            let mut state = commits.lock().unwrap();
            state.made += 1;
            let wanted = state.made;
            while state.durable < wanted {
                if state.is_led {
                    state = ended.wait(state).unwrap();
                    continue;
                }
                state.is_led = true;
                drop(state);
                wait_at_least(sync);
                let made = commits.lock().unwrap().made;
                wait_at_least(sync);
                wait_at_least(sync);
                state = commits.lock().unwrap();
                (state.is_led, state.durable) = (false, made);
                ended.notify_all();
            }
        })
    };
    quantile((0..bench.size(BURSTS, 1)).map(burst).collect(), 0.5)
}
