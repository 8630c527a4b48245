//! Unique keys, as `RocketMQ`'s client gives them to the messages that it sends.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::{UniqueKey, ms_of_month};
use crate::storage::{Env, Generation, Origin};

/// Time and counter of the last key of this process: ms since 1970 by local time, and 16 bits. It only rises, so no two keys of a process
/// are equal: not when its clock steps back, and not when more keys are made in one ms than the counter counts.
static LAST: AtomicU64 = AtomicU64::new(0);
const COUNTER_BITS: u32 = 16;

/// The random part that distinguishes the keys of this thread. It is drawn again in a new month, because a key holds only the time within a month, and
/// in a fork, because a fork starts with its parent's `LAST`.
#[derive(Clone, Copy)]
struct Producer {
    origin: Origin,
    generation: Generation,
    month_start: i64,
}

thread_local! {
    /// One for each thread: no lock that another thread could hold during a fork.
    static PRODUCER: Cell<Option<Producer>> = const { Cell::new(None) };
}

/// Creates a key that no other call returns: in this process, in a fork of it, or, but for an equal random number of 32 bits, anywhere.
pub fn new_unique_key(env: &dyn Env) -> UniqueKey {
    let now = (env.now_local_ms().max(0) as u64) << COUNTER_BITS;
    let next = |last: u64| now.max(last + 1);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    let stamp = next(last.unwrap_or_else(|last| last));
    let ms = (stamp >> COUNTER_BITS) as i64;
    let origin = producer(ms - i64::from(ms_of_month(ms))).origin;
    UniqueKey {
        address: origin.address,
        process: origin.process_id as u16,
        producer: origin.random,
        ms_of_month: ms_of_month(ms),
        counter: stamp as u16,
    }
}

fn producer(month_start: i64) -> Producer {
    let generation = Generation::current();
    let known = PRODUCER.get();
    if let Some(known) = known.filter(|known| known.generation == generation && known.month_start == month_start) {
        return known;
    }
    let drawn = Producer {
        origin: Origin::draw(),
        generation,
        month_start,
    };
    PRODUCER.set(Some(drawn));
    drawn
}
