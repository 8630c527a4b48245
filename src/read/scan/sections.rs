//! A pass whose messages several threads read at once. One thread at a time finds the next places, which are a section; it reads their
//! messages while another thread finds the section after it. The sections are given in their order.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::interrupt::{self, INTERVAL, interruptible};
use crate::log::RecordCursor;
use crate::read::message_reader::MessageReader;
use crate::read::on_damage::OnDamage;
use crate::read::scan::absent_topics::AbsentTopics;
use crate::read::scan::pick::{Failed, Outcome, Picked, Picker};
use crate::read::scan::place::{Place, READ_ALONE};
use crate::read::scan::request::ScanRequest;
use crate::read::scan::route::{Part, Route};
use crate::read::scan::scan::{Filled, Scan};
use crate::services::without_panic;
use crate::storage::Generation;
use crate::sync::lock;

/// What makes something of the messages of a section: all that it made, and why it ended before the end of the section.
type Gather<T> = Box<dyn Fn(&mut Section<'_>) -> (Vec<T>, Option<Error>) + Send + Sync>;

/// A section, as it is read.
pub struct Section<'a> {
    reader: &'a MessageReader,
    request: &'a ScanRequest,
    picker: &'a mut Picker,
    on_damage: OnDamage,
    route: Route,
    /// For which there was no room.
    held_back: Option<Place>,
    /// What failed after the places of the route.
    failed: Option<Error>,
}

impl fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section").field("route", &self.route).finish_non_exhaustive()
    }
}

impl Section<'_> {
    /// As [`Scan::fill`]; it does not pause.
    ///
    /// # Errors
    /// As [`Scan::fill`].
    pub fn fill(&mut self, mut take: impl FnMut(Picked<'_>) -> Result<bool>) -> Result<Filled> {
        loop {
            let next = match self.held_back.take() {
                Some(place) => Ok(Some(place)),
                None => self
                    .route
                    .next(self.reader, self.request, &mut self.picker.cursor, &self.on_damage),
            };
            let place = match next {
                Ok(Some(place)) => place,
                Ok(None) => return Ok(self.failed.take().map_or(Filled::End, Filled::Stopped)),
                Err(error) => return Ok(Filled::Stopped(error)),
            };
            match self.picker.pick(&place, &mut take) {
                Ok(Outcome::Taken | Outcome::PassedOver) => {}
                Ok(Outcome::NoRoom) => {
                    self.held_back = Some(place);
                    return Ok(Filled::Full);
                }
                Err(Failed::Torn(error)) => return Err(error),
                Err(Failed::Stopped(error)) => return Ok(Filled::Stopped(error)),
            }
        }
    }
}

/// A pass in sections. The threads start with the first one that is asked for, and end with the pass, or when this is dropped.
pub struct Sections<T> {
    /// Tells of the pass. The threads have its route.
    scan: Scan,
    threads: Vec<JoinHandle<()>>,
    is_begun: bool,
    begun_in: Generation,
    shared: Arc<Shared<T>>,
    /// What was left of the route after the last section.
    left: i64,
    /// Why there is no other section.
    failed: Option<Error>,
    is_over: bool,
}

impl<T> fmt::Debug for Sections<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sections").field("scan", &self.scan).finish_non_exhaustive()
    }
}

/// What the threads share.
struct Shared<T> {
    reader: Arc<MessageReader>,
    request: Arc<ScanRequest>,
    /// Its count is that of the caller.
    on_damage: OnDamage,
    absent: AbsentTopics,
    /// Bytes of the messages of a section, about.
    bytes: u64,
    /// So many sections are read or wait to be given.
    most: u64,
    gather: Gather<T>,
    ahead: Mutex<Ahead>,
    read: Mutex<Read<T>>,
    /// A section was read, or given, or the pass ends.
    changed: Condvar,
    is_stopped: AtomicBool,
    /// Where the last message of the sections that were given lies.
    given_to: AtomicI64,
}

/// What no thread has taken yet.
struct Ahead {
    route: Route,
    cursor: RecordCursor,
    /// The number of the next section.
    next: u64,
    is_over: bool,
}

/// Sections that were read.
struct Read<T> {
    waiting: BTreeMap<u64, Done<T>>,
    /// How many were given.
    given: u64,
    /// A thread failed without a section.
    failed: Option<Error>,
}

/// A section that was read.
struct Done<T> {
    made: Vec<T>,
    failed: Option<Error>,
    skipped: u64,
    /// Where its last message lies.
    end: Option<i64>,
    /// What is left of the route after it.
    left: i64,
    is_last: bool,
}

impl<T: Send + 'static> Sections<T> {
    /// The messages of `scan` that it has not given yet. Each of at most `threads` threads hands sections of about `bytes` to `gather`. As
    /// many sections as threads, and two more, are in memory at most.
    pub fn new(
        mut scan: Scan,
        threads: usize,
        bytes: u64,
        gather: impl Fn(&mut Section<'_>) -> (Vec<T>, Option<Error>) + Send + Sync + 'static,
    ) -> Self {
        let ahead = Ahead {
            route: std::mem::replace(&mut scan.route, Route::Parts(Vec::new())),
            cursor: RecordCursor::default(),
            next: 0,
            is_over: false,
        };
        let shared = Shared {
            reader: Arc::clone(&scan.reader),
            request: Arc::clone(&scan.request),
            on_damage: scan.on_damage.clone(),
            absent: scan.absent.clone(),
            bytes,
            most: threads as u64 + 1,
            gather: Box::new(gather),
            ahead: Mutex::new(ahead),
            read: Mutex::new(Read {
                waiting: BTreeMap::new(),
                given: 0,
                failed: None,
            }),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
            given_to: AtomicI64::new(i64::MIN),
        };
        Self {
            left: scan.whole,
            scan,
            threads: Vec::new(),
            is_begun: false,
            begun_in: Generation::current(),
            shared: Arc::new(shared),
            failed: None,
            is_over: false,
        }
    }

    /// What was made of the next section; `None` at the end. Ask only in the process that has made this.
    ///
    /// # Errors
    /// Why the pass ends, after what was made before; those of [`interrupt::check`].
    pub fn next_section(&mut self) -> Result<Option<Vec<T>>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.is_over {
            return Ok(None);
        }
        self.begin();
        let done = self.take()?;
        self.scan.on_damage.add_skipped(done.skipped);
        self.left = done.left;
        if let Some(end) = done.end {
            self.shared.given_to.store(end, Ordering::Relaxed);
        }
        if done.failed.is_some() || done.is_last {
            self.is_over = true;
            self.stop();
            if done.failed.is_none() {
                self.scan.is_ended = true;
                lock(&self.shared.ahead).route.drop_behind(&self.shared.reader, None);
            }
        }
        match done.failed {
            Some(error) if done.made.is_empty() => return Err(error),
            failed => self.failed = failed,
        }
        Ok(Some(done.made))
    }

    /// Starts the threads. Where the system gives none, the caller's reads.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        while self.threads.len() as u64 + 1 < self.shared.most {
            let shared = Arc::clone(&self.shared);
            let reads = move || {
                let asked = Arc::clone(&shared);
                let ask = move || if asked.is_stopped() { Err(Error::Closed) } else { Ok(()) };
                let mut picker = shared.picker();
                interruptible(ask, || while shared.read_section(&mut picker) {});
            };
            match thread::Builder::new().name("mqstore-scan".to_owned()).spawn(reads) {
                Ok(thread) => self.threads.push(thread),
                Err(_) => break,
            }
        }
    }

    /// Waits for the next section.
    fn take(&mut self) -> Result<Done<T>> {
        loop {
            if self.threads.is_empty() {
                self.shared.read_section(&mut self.shared.picker());
            }
            let mut read = lock(&self.shared.read);
            let next = read.given;
            if let Some(done) = read.waiting.remove(&next) {
                read.given += 1;
                drop(read);
                self.shared.changed.notify_all();
                return Ok(done);
            }
            if let Some(error) = read.failed.take() {
                return Err(error);
            }
            let waited = self.shared.changed.wait_timeout(read, INTERVAL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            // Without the lock: whoever is asked may run for long.
            interrupt::check_after_wait()?;
        }
    }
}

impl<T> Sections<T> {
    /// As [`Scan::is_complete`].
    pub fn is_complete(&self) -> bool {
        self.scan.is_complete()
    }

    /// As [`Scan::absent_topics`].
    pub fn absent_topics(&self) -> Vec<String> {
        self.scan.absent_topics()
    }

    /// As [`Scan::covers`].
    pub fn covers(&self) -> Range<i64> {
        self.scan.covers()
    }

    /// As [`Scan::progress`].
    pub fn progress(&self) -> (u64, u64) {
        let whole = self.scan.whole;
        ((whole - self.left.clamp(0, whole)).cast_unsigned(), whole.cast_unsigned())
    }

    /// Ends the threads, each after the section that it reads.
    fn stop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        // With the lock: a thread that has found nothing to do yet waits, and does not miss it.
        drop(lock(&self.shared.read));
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<T> Drop for Sections<T> {
    fn drop(&mut self) {
        if self.begun_in == Generation::current() {
            self.stop();
        } else {
            // The threads are the parent's, and so are the locks that they hold.
            std::mem::forget(std::mem::take(&mut self.threads));
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}

impl<T> Shared<T> {
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn picker(&self) -> Picker {
        let (reader, request) = (Arc::clone(&self.reader), Arc::clone(&self.request));
        Picker::new(reader, request, self.on_damage.clone(), self.absent.clone())
    }

    /// Reads the next section, once there is room for it. `false` if there is none.
    fn read_section(&self, picker: &mut Picker) -> bool {
        let read = without_panic("scan", || {
            let Some((number, route, mut done)) = self.find_section() else {
                return Ok(false);
            };
            let on_damage = picker.count_apart();
            let mut section = Section {
                reader: &self.reader,
                request: &self.request,
                picker,
                on_damage: on_damage.clone(),
                route,
                held_back: None,
                failed: done.failed.take(),
            };
            (done.made, done.failed) = (self.gather)(&mut section);
            done.skipped += on_damage.skipped();
            lock(&self.read).waiting.insert(number, done);
            Ok(true)
        });
        let goes_on = read.unwrap_or_else(|panic| {
            lock(&self.read).failed = Some(panic);
            false
        });
        self.changed.notify_all();
        goes_on
    }

    /// The way through the next section, with its number. `None` if there is none, or nobody asks for it any more.
    fn find_section(&self) -> Option<(u64, Route, Done<T>)> {
        let ahead = &mut *lock(&self.ahead);
        if ahead.is_over || !self.wait_for_room(ahead.next) {
            return None;
        }
        ahead
            .route
            .drop_behind(&self.reader, Some(self.given_to.load(Ordering::Relaxed)));
        let mut done = Done {
            made: Vec::new(),
            failed: None,
            skipped: 0,
            end: None,
            left: 0,
            is_last: false,
        };
        let route = match ahead
            .route
            .take_front(&self.reader, &self.request, &mut ahead.cursor, self.bytes)
        {
            Ok(Some((front, end))) => {
                done.end = Some(end);
                front
            }
            Ok(None) => self.find_places(ahead, &mut done),
            Err(error) => {
                (ahead.is_over, done.failed) = (true, Some(error));
                Route::Parts(Vec::new())
            }
        };
        (done.left, done.is_last) = (ahead.route.left(), ahead.is_over);
        ahead.next += 1;
        Some((ahead.next - 1, route, done))
    }

    /// The places of the next section, found one by one.
    fn find_places(&self, ahead: &mut Ahead, done: &mut Done<T>) -> Route {
        let on_damage = self.on_damage.apart();
        let (mut places, mut bytes) = (Vec::new(), 0);
        while bytes < self.bytes && !ahead.is_over {
            match ahead.route.next(&self.reader, &self.request, &mut ahead.cursor, &on_damage) {
                Ok(Some(place)) => {
                    bytes += if place.size > 0 {
                        u64::from(place.size)
                    } else {
                        READ_ALONE.unsigned_abs()
                    };
                    places.push(place);
                }
                Ok(None) => ahead.is_over = true,
                Err(error) => {
                    ahead.is_over = !error.is_damage();
                    done.failed = Some(error);
                    break;
                }
            }
        }
        done.skipped = on_damage.skipped();
        done.end = places.last().map(|place| place.physical_offset);
        places.reverse();
        Route::Parts(vec![Part::Found(places)])
    }

    /// Waits until the section of this number may be read; `false` if nobody asks for it any more.
    fn wait_for_room(&self, number: u64) -> bool {
        let mut read = lock(&self.read);
        while number >= read.given + self.most && !self.is_stopped() {
            read = self.changed.wait(read).unwrap_or_else(PoisonError::into_inner);
        }
        !self.is_stopped()
    }
}
