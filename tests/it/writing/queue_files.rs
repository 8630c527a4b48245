//! New queue files are created beside the dispatcher: no message waits for their syncs, and no entry is lost or written twice.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mqstore::services::{Next, Service};
use mqstore::store::MessageStore;

use super::services::stepped;
use super::{Place, bodies, message, put};
use crate::counting_env::CountingEnv;

const FILE: &str = "consumequeue/t/0/00000000000000000000";
/// The time for which an entry waits in memory, and after which the dispatcher asks for a file that is being created.
const WRITE_OUT: Duration = Duration::from_millis(10);
const TAKE_BACK: Duration = Duration::from_millis(2);
const RETRY: Duration = Duration::from_millis(100);

/// A store without threads that leaves queue files to their service, and its clock.
struct Steps {
    env: CountingEnv,
    store: Arc<MessageStore>,
    now: Instant,
}

impl Steps {
    fn new(place: &Place) -> Self {
        let (env, store) = stepped(place);
        let store = Arc::new(store);
        let now = Instant::now();
        let steps = Self { env, store, now };
        steps.create();
        steps
    }

    fn create(&self) {
        let idle = Next::Idle { until: None };
        assert_eq!(self.store.step(Service::CreateQueueFiles, self.now).unwrap(), idle);
    }

    fn dispatch(&self) -> Next {
        self.store.step(Service::Dispatch, self.now).unwrap()
    }

    /// Steps the dispatcher after `passed`; it wants the next step after `next`.
    fn dispatch_after(&mut self, passed: Duration, next: Option<Duration>) {
        self.now += passed;
        let until = next.map(|next| self.now + next);
        assert_eq!(self.dispatch(), Next::Idle { until });
    }

    /// Fails the creation of queue files.
    fn fail(&self, errno: i32) {
        self.env.before_changes(move |change| {
            if change.starts_with("create ") && change.contains("consumequeue/t/mqstore-new-") {
                return Err(io::Error::from_raw_os_error(errno));
            }
            Ok(())
        });
    }
}

/// Returns the number of entries in the first file of the queue.
fn written(place: &Place) -> usize {
    let bytes = fs::read(place.at(FILE)).unwrap();
    bytes.as_chunks::<20>().0.iter().filter(|entry| **entry != [0; 20]).count()
}

#[test]
fn entries_wait_in_memory_until_their_queue_file_is_there() {
    let place = Place::new();
    let mut steps = Steps::new(&place);
    put(&steps.store, "t", b"0");
    steps.dispatch_after(Duration::ZERO, Some(WRITE_OUT));
    // The file is requested, and not created.
    steps.dispatch_after(WRITE_OUT, Some(TAKE_BACK));
    put(&steps.store, "t", b"1");
    steps.dispatch_after(TAKE_BACK, Some(TAKE_BACK));
    assert!(!place.at("consumequeue/t").exists());
    assert_eq!(bodies(steps.store.reader(), "t", 0), [b"0", b"1"]);
    steps.create();
    assert_eq!(written(&place), 2);
    assert_eq!(bodies(steps.store.reader(), "t", 0), [b"0", b"1"]);
    // Later entries are written by the dispatcher.
    put(&steps.store, "t", b"2");
    steps.dispatch_after(WRITE_OUT, Some(WRITE_OUT));
    steps.dispatch_after(WRITE_OUT, None);
    assert_eq!(written(&place), 3);
    steps.store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0), [b"0", b"1", b"2"]);
}

#[test]
fn messages_are_dispatched_while_a_queue_file_is_synced() {
    let place = Place::new();
    let mut steps = Steps::new(&place);
    put(&steps.store, "t", b"0");
    steps.dispatch_after(Duration::ZERO, Some(WRITE_OUT));
    steps.dispatch_after(WRITE_OUT, Some(TAKE_BACK));
    let (slot, seen) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::default()));
    let _ = slot.set(Arc::downgrade(&steps.store));
    let (during, dispatched, now) = (slot.clone(), seen.clone(), steps.now);
    steps.env.before_changes(move |change| {
        if change.starts_with("sync QueueFiles") && !dispatched.swap(true, Ordering::SeqCst) {
            let store = during.get().and_then(std::sync::Weak::upgrade).unwrap();
            put(&store, "t", b"1");
            store.step(Service::Dispatch, now).unwrap();
            assert_eq!(store.dispatched_offset(), store.appended_offset());
            assert_eq!(bodies(store.reader(), "t", 0), [b"0", b"1"]);
        }
        Ok(())
    });
    steps.create();
    assert!(seen.load(Ordering::SeqCst));
    assert_eq!(written(&place), 1);
    // The dispatcher takes the queue back, and writes the later entry at once.
    steps.dispatch_after(TAKE_BACK, None);
    assert_eq!(written(&place), 2);
    steps.store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0), [b"0", b"1"]);
}

#[test]
fn a_full_disk_under_a_new_queue_file_is_waited_out() {
    for errno in [28, 24] {
        let place = Place::new();
        let mut steps = Steps::new(&place);
        steps.fail(errno);
        put(&steps.store, "t", b"0");
        steps.dispatch_after(Duration::ZERO, Some(WRITE_OUT));
        steps.dispatch_after(WRITE_OUT, Some(TAKE_BACK));
        for _ in 0..3 {
            steps.create();
            steps.dispatch_after(TAKE_BACK, Some(RETRY));
            // The queue waits again, and its file is requested again.
            steps.dispatch_after(RETRY, Some(TAKE_BACK));
        }
        steps.env.heal();
        steps.create();
        steps.dispatch_after(WRITE_OUT, None);
        assert_eq!(written(&place), 1);
        steps.store.close().unwrap();
        assert_eq!(bodies(&place.reader(), "t", 0), [b"0"]);
    }
}

#[test]
fn a_failure_to_create_a_queue_file_poisons_the_store() {
    let place = Place::new();
    let mut steps = Steps::new(&place);
    steps.fail(5);
    put(&steps.store, "t", b"0");
    steps.dispatch_after(Duration::ZERO, Some(WRITE_OUT));
    steps.dispatch_after(WRITE_OUT, Some(TAKE_BACK));
    steps.create();
    steps.now += TAKE_BACK;
    let error = steps.store.step(Service::Dispatch, steps.now).unwrap_err();
    assert!(error.to_string().contains("mqstore-new-"), "{error}");
    steps.store.close().unwrap_err();
    drop(steps);
    assert_eq!(bodies(&place.reader(), "t", 0), [b"0"]);
}

#[test]
fn a_shortage_hides_no_other_failure_to_create_a_queue_file() {
    let place = Place::new();
    let mut steps = Steps::new(&place);
    // More queues than the dispatcher requests at once.
    for queue_id in 0..1001 {
        steps.store.append(message("t", queue_id, b"x")).unwrap();
    }
    while steps.dispatch() == Next::Again {}
    // The entries of many queues wait longer.
    steps.now += Duration::from_secs(1);
    for errno in [28, 5] {
        steps.fail(errno);
        steps.dispatch();
        steps.create();
    }
    steps.now += TAKE_BACK;
    let error = steps.store.step(Service::Dispatch, steps.now).unwrap_err();
    assert!(error.to_string().contains("os error 5"), "{error}");
    steps.store.close().unwrap_err();
}

#[test]
fn a_close_creates_the_queue_files_that_were_requested() {
    for errno in [None, Some(28)] {
        let place = Place::new();
        let mut steps = Steps::new(&place);
        put(&steps.store, "t", b"0");
        steps.dispatch_after(Duration::ZERO, Some(WRITE_OUT));
        steps.dispatch_after(WRITE_OUT, Some(TAKE_BACK));
        if let Some(errno) = errno {
            steps.fail(errno);
            steps.create();
            steps.env.heal();
        }
        steps.store.close().unwrap();
        assert_eq!(written(&place), 1);
        let reader = place.reader();
        assert_eq!((reader.recovery().undispatched, bodies(&reader, "t", 0).len()), (0, 1));
        assert_eq!(steps.store.step(Service::CreateQueueFiles, steps.now).unwrap(), Next::Done);
    }
}
