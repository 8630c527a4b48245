//! The dispatcher, which polls and then parks, beside threads that append and threads that wait and help. The steps are those of
//! `src/services/runner.rs`, over the real watermarks and waits, and without files.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread::{JoinHandle, spawn};

use crate::error::Error;
use crate::explore;
use crate::poll_then_park::PollThenPark;
use crate::watermark::{Wait, Watermark};

#[derive(Default)]
struct Store {
    readable: Watermark,
    dispatched: Watermark,
    dispatcher: Mutex<()>,
}

impl Store {
    /// Performs one step. The caller holds `dispatcher`.
    fn dispatch(&self) {
        self.dispatched.advance(self.readable.get());
    }

    fn run_dispatcher(&self) {
        let mut polling = PollThenPark::begin();
        while self.readable.poisoned().is_none() {
            let target = {
                let _held = self.dispatcher.lock();
                self.dispatch();
                self.dispatched.get() + 1
            };
            polling.wait(&self.readable, target, None);
        }
    }

    /// Waits as `MessageStore::wait_dispatched` does.
    fn wait_dispatched(&self, target: i64) -> Wait {
        if let Ok(_held) = self.dispatcher.try_lock() {
            self.dispatch();
        }
        self.dispatched.wait(target, None)
    }
}

fn dispatches(store: &Arc<Store>) -> JoinHandle<()> {
    let store = store.clone();
    spawn(move || store.run_dispatcher())
}

fn close(store: &Store, dispatcher: JoinHandle<()>) {
    store.readable.poison(Error::Closed);
    dispatcher.join().unwrap();
}

#[test]
fn appends_are_dispatched_while_the_dispatcher_naps_and_sleeps() {
    explore(3, || {
        let store = Arc::new(Store::default());
        let dispatcher = dispatches(&store);
        store.readable.advance(1);
        assert!(matches!(store.dispatched.wait(1, None), Wait::Reached));
        close(&store, dispatcher);
    });
}

#[test]
fn a_waiter_that_helps_waits_for_no_message_that_the_dispatcher_missed() {
    explore(2, || {
        let store = Arc::new(Store::default());
        let dispatcher = dispatches(&store);
        let other = store.clone();
        let other = spawn(move || {
            other.readable.advance(1);
            other.wait_dispatched(1)
        });
        store.readable.advance(2);
        assert!(matches!(store.wait_dispatched(2), Wait::Reached));
        assert!(matches!(other.join().unwrap(), Wait::Reached));
        close(&store, dispatcher);
    });
}
