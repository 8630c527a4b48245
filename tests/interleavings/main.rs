//! Every order of the steps of a few threads, by [loom](https://docs.rs/loom).
//!
//! This crate compiles the real sources of the watermark, of the wait of the dispatcher, of the allocator of segments, and of the transient
//! store pool with its commits. What they import from `crate::sync` is in `sync.rs` here, and made of what loom has. Each test is a model: a
//! closure that starts up to four threads.
//! [`explore`] runs it again and again, each time with other switches between the threads, until it has tried all of them. A model fails
//! where an assertion fails, and where no thread can continue ("deadlock").
//!
//! `LOOM_LOCATION=1` makes loom report the position of each blocked thread. `LOOM_LOG=trace LOOM_MAX_PREEMPTIONS=2` makes it print
//! each step of each order; the order that failed is the last one.
//!
//! To add a model of another source, add its path below, let it import its primitives from `crate::sync`, and add to `sync.rs` the
//! ones that are missing there.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory::{fork, region};
use mqstore::{error, format};

// The sources that the models compile. A source that moves has its path here and nowhere else. They are modules of the root, so that
// what is `pub(super)` in them is visible to the models.
#[path = "../../src/log/commit_log/allocate.rs"]
#[expect(dead_code, reason = "the models ask for segments and make none")]
mod allocate;
#[path = "../../src/log/commit_log/commit.rs"]
#[expect(dead_code, reason = "the models ask for no counts, and read nothing")]
mod commit;
#[path = "../../src/log/commit_log/stats.rs"]
#[expect(dead_code, reason = "the models count nothing")]
mod stats;
#[path = "../../src/services/poll_then_park.rs"]
mod poll_then_park;
#[path = "../../src/storage/transient_store_pool.rs"]
#[allow(dead_code, reason = "the models lock no memory")]
mod transient_store_pool;
#[path = "../../src/watermark.rs"]
mod watermark;
#[path = "../../src/log/commit_log/watermarks.rs"]
#[expect(dead_code, reason = "the models have one write mode")]
mod watermarks;

mod memory;
mod pooled_log;
mod sync;

mod allocating;
mod committing;
mod dispatching;
mod group_commit;
mod leading;
mod waiting;

/// The modules that `commit.rs` imports.
mod log {
    pub(crate) mod commit_log {
        pub(crate) use crate::pooled_log::{self as append_state, self as flush};
        pub(crate) use crate::{stats, watermarks};
    }
}

/// The real storage, but for the pool, which is compiled here.
mod storage {
    pub(crate) use mqstore::storage::{AppendFile, Env, Generation, Step, WarmUp};

    pub(crate) use crate::transient_store_pool::TransientStorePool;
}

/// The checks for an interrupt. No call is interrupted.
mod interrupt {
    use std::time::Duration;

    use crate::error::Result;

    pub(crate) const INTERVAL: Duration = Duration::from_secs(1000 * 3600);

    #[expect(clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn check_after_wait() -> Result<()> {
        Ok(())
    }
}

/// Runs a model in every order in which a runnable thread is preempted at most `preemptions` times. The environment variable
/// `MORE_PREEMPTIONS` adds to that number.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let more = std::env::var("MORE_PREEMPTIONS").map_or(0, |more| more.parse().expect("MORE_PREEMPTIONS is a number"));
    if std::env::var_os("LOOM_LOG").is_some() {
        return loom::model(model);
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let mut explorer = loom::model::Builder::new();
    explorer.preemption_bound = Some(preemptions + more);
    explorer.max_branches = 10_000;
    let counted = runs.clone();
    let begun = std::time::Instant::now();
    explorer.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{name}: {} orders with up to {} preemptions in {seconds:.1} s",
        runs.load(Ordering::Relaxed),
        preemptions + more
    );
}
