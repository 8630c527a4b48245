//! The items of `src/sync.rs`, implemented with loom. At each call loom may switch to another thread.
//!
//! Three things differ from loom's own.
//!
//! - For loom a sequentially consistent access acquires and releases. Loom leaves out the order between a write and a
//!   later read of another atomic by the same thread. A fence before the read, if both are sequentially consistent, makes that order.
//! - loom has no time. Here each thread has a clock of its own, which moves only in [`park_timeout`]. A deadline that is less than an hour
//!   away comes in the first timed park, and the thread continues at any moment after that. A deadline further away never comes.
//! - A thread that is unparked while it waits for a lock makes loom fail. A [`Notify`] for each thread does not.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use loom::sync::Notify;
use loom::sync::atomic::fence;
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// A deadline so far away never comes.
const NEVER: Duration = Duration::from_secs(3600);

/// Until a deadline that comes.
pub(crate) const SOON: Duration = Duration::from_millis(1);

/// Until a deadline that never comes, however long the tests take.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100 * 3600);

/// The state of one thread.
#[derive(Debug, Default)]
struct Own {
    token: Notify,
    /// The time that passed on the clock of the thread. Only the thread itself reads and moves it.
    passed: std::sync::Mutex<Duration>,
}

loom::thread_local! {
    static OWN: Thread = Thread::default();
    /// True if the last write of the thread to an atomic was sequentially consistent.
    static WROTE_SEQ_CST: Cell<bool> = Cell::new(false);
}

/// A handle of a thread.
#[derive(Debug, Default, Clone)]
pub(crate) struct Thread(std::sync::Arc<Own>);

impl Thread {
    pub(crate) fn unpark(&self) {
        self.0.token.notify();
    }
}

pub(crate) fn current() -> Thread {
    OWN.with(Clone::clone)
}

/// Also tries one return of each thread for no reason.
#[track_caller]
pub(crate) fn park() {
    current().0.token.wait();
}

#[track_caller]
pub(crate) fn park_timeout(left: Duration) {
    if left >= NEVER {
        park();
    } else {
        *current().0.passed.lock().unwrap() += left;
    }
}

/// Lets time pass and other threads run.
pub(crate) fn sleep(_time: Duration) {
    *current().0.passed.lock().unwrap() += SOON;
    loom::thread::yield_now();
}

pub(crate) fn now() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    let passed = *current().0.passed.lock().unwrap();
    *START.get_or_init(Instant::now) + passed
}

/// A lock of loom, at which threads are switched; or one of std, where nobody is stopped while he holds it.
pub(crate) trait Lock {
    type Guard<'a>
    where
        Self: 'a;

    fn locked(&self) -> Self::Guard<'_>;
}

impl<T> Lock for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn locked(&self) -> Self::Guard<'_> {
        self.lock().unwrap()
    }
}

impl<T> Lock for std::sync::Mutex<T> {
    type Guard<'a>
        = std::sync::MutexGuard<'a, T>
    where
        T: 'a;

    fn locked(&self) -> Self::Guard<'_> {
        self.lock().unwrap()
    }
}

pub(crate) fn lock<L: Lock>(mutex: &L) -> L::Guard<'_> {
    mutex.locked()
}

fn before_read(order: Ordering) {
    if order == Ordering::SeqCst && WROTE_SEQ_CST.with(Cell::get) {
        fence(Ordering::SeqCst);
    }
}

fn after_write(order: Ordering) {
    WROTE_SEQ_CST.with(|wrote| wrote.set(order == Ordering::SeqCst));
}

macro_rules! atomic {
    ($name:ident($number:ty): $($write:ident),+) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        impl $name {
            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $number {
                before_read(order);
                self.0.load(order)
            }

            $(#[track_caller]
            pub(crate) fn $write(&self, value: $number, order: Ordering) -> $number {
                let before = self.0.$write(value, order);
                after_write(order);
                before
            })+
        }
    };
}

atomic!(AtomicI64(i64): fetch_max);
atomic!(AtomicUsize(usize): fetch_add, fetch_sub);

impl AtomicI64 {
    pub(crate) fn new(value: i64) -> Self {
        Self(loom::sync::atomic::AtomicI64::new(value))
    }
}

/// Parks as the real one does. The system checks the number and lets the thread sleep under one lock, which wakes take, too.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    number: AtomicUsize,
    sleeping: Mutex<Vec<Thread>>,
}

impl Gate {
    const OPEN: usize = 1;
    const ONE_WAKE: usize = 2;

    #[track_caller]
    pub(crate) fn seen(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }

    #[track_caller]
    pub(crate) fn wait(&self, seen: usize, left: Option<Duration>) -> bool {
        let own = current();
        let mut sleeping = lock(&self.sleeping);
        if self.seen() == seen && seen & Self::OPEN == 0 {
            sleeping.push(own.clone());
            drop(sleeping);
            left.map_or_else(park, park_timeout);
            lock(&self.sleeping).retain(|other| !std::sync::Arc::ptr_eq(&other.0, &own.0));
        }
        self.seen() & Self::OPEN != 0
    }

    pub(crate) fn wake_one(&self) {
        self.number.fetch_add(Self::ONE_WAKE, Ordering::Release);
        self.wake(1);
    }

    pub(crate) fn wake_all(&self) {
        self.number.fetch_add(Self::ONE_WAKE, Ordering::Release);
        self.wake(usize::MAX);
    }

    /// Called once.
    pub(crate) fn open(&self) {
        self.number.fetch_add(Self::OPEN, Ordering::Release);
        self.wake(usize::MAX);
    }

    fn wake(&self, most: usize) {
        let mut sleeping = lock(&self.sleeping);
        let count = sleeping.len().min(most);
        for thread in sleeping.drain(..count) {
            thread.unpark();
        }
    }
}
