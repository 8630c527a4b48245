//! Parallel scan: one thread at a time takes a section of locations, and reads its messages while another takes the next. Sections are
//! returned in order.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::interrupt::interruptible;
use crate::log::RecordCursor;
use crate::pipeline::{Pipeline, Worker};
use crate::read::damage::OnDamage;
use crate::read::message_reader::MessageReader;
use crate::read::scan::absent_topics::AbsentTopics;
use crate::read::scan::pick::{Failed, Outcome, Picked, Picker};
use crate::read::scan::queue_leads::LostQueues;
use crate::read::scan::record_location::{READ_ALONE, RecordLocation};
use crate::read::scan::request::ScanRequest;
use crate::read::scan::route::{Route, RoutePart};
use crate::read::scan::scan::{Filled, Scan};
use crate::storage::Generation;

/// A function that gathers the messages of a section: its results, and the error that ended it before the end of the section.
type Gather<T> = Box<dyn Fn(&mut ScanSection<'_>) -> (Vec<T>, Option<Error>) + Send + Sync>;

/// A section, as it is read.
pub struct ScanSection<'a> {
    reader: &'a MessageReader,
    request: &'a ScanRequest,
    picker: &'a mut Picker,
    on_damage: OnDamage,
    route: Route,
    /// The location that the last call had no space for.
    held_back: Option<RecordLocation>,
    /// The error after the locations of the route.
    failed: Option<Error>,
}

impl fmt::Debug for ScanSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanSection")
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}

impl ScanSection<'_> {
    /// Calls [`Scan::fill`] without pauses.
    ///
    /// # Errors
    /// As [`Scan::fill`].
    pub fn fill(&mut self, mut take: impl FnMut(Picked<'_>) -> Result<bool>) -> Result<Filled> {
        loop {
            let next = match self.held_back.take() {
                Some(location) => Ok(Some(location)),
                None => self
                    .route
                    .next(self.reader, self.request, &mut self.picker.cursor, &self.on_damage),
            };
            let location = match next {
                Ok(Some(location)) => location,
                Ok(None) => return Ok(self.failed.take().map_or(Filled::End, Filled::Stopped)),
                Err(error) => return Ok(Filled::Stopped(error)),
            };
            match self.picker.pick(&location, &mut take) {
                Ok(Outcome::Taken | Outcome::PassedOver) => {}
                Ok(Outcome::NoRoom) => {
                    self.held_back = Some(location);
                    return Ok(Filled::Full);
                }
                Err(Failed::Torn(error)) => return Err(error),
                Err(Failed::Stopped(error)) => return Ok(Filled::Stopped(error)),
            }
        }
    }
}

/// A parallel scan, in sections. Its threads start with the first section, and end with the scan, or when this is dropped.
pub struct ParallelScan<T> {
    /// Reports about the pass. The threads have its route.
    scan: Scan,
    threads: Vec<JoinHandle<()>>,
    /// The threads to start.
    most_threads: usize,
    is_begun: bool,
    begun_in: Generation,
    shared: Arc<Shared<T>>,
    /// The length of the route after the section that was taken last.
    left: i64,
    /// The error that ends the pass after the last section.
    failed: Option<Error>,
    is_over: bool,
}

impl<T> fmt::Debug for ParallelScan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParallelScan")
            .field("scan", &self.scan)
            .finish_non_exhaustive()
    }
}

/// Data that the threads share.
struct Shared<T> {
    reader: Arc<MessageReader>,
    request: Arc<ScanRequest>,
    /// Its count is that of the caller.
    on_damage: OnDamage,
    absent: AbsentTopics,
    lost: LostQueues,
    /// Bytes of the messages of a section, about.
    bytes: u64,
    gather: Gather<T>,
    /// The physical offset of the last message of the sections that the caller has.
    given_to: AtomicI64,
    pipeline: Pipeline<SectionReader<T>>,
}

/// The part of the pass that no section has yet.
struct Ahead {
    route: Route,
    cursor: RecordCursor,
    is_over: bool,
}

/// One thread, which finds and reads sections.
struct SectionReader<T> {
    shared: Arc<Shared<T>>,
    picker: Picker,
}

/// A section that was found or read.
struct Done<T> {
    made: Vec<T>,
    failed: Option<Error>,
    skipped: u64,
    /// The physical offset of its last message.
    end: Option<i64>,
    /// The length of the route after it.
    left: i64,
    is_last: bool,
}

impl<T: Send + 'static> ParallelScan<T> {
    /// Begins a pass over the messages of `scan` that it has not returned yet. Each of at most `threads` threads hands sections of about
    /// `bytes` to `gather`. At most two more sections than threads are in memory.
    pub fn new(
        mut scan: Scan,
        threads: usize,
        bytes: u64,
        gather: impl Fn(&mut ScanSection<'_>) -> (Vec<T>, Option<Error>) + Send + Sync + 'static,
    ) -> Self {
        let ahead = Ahead {
            route: std::mem::replace(&mut scan.route, Route::Parts(Vec::new())),
            cursor: RecordCursor::default(),
            is_over: false,
        };
        let shared = Shared {
            reader: Arc::clone(&scan.reader),
            request: Arc::clone(&scan.request),
            on_damage: scan.on_damage.clone(),
            absent: scan.absent.clone(),
            lost: scan.lost.clone(),
            bytes,
            gather: Box::new(gather),
            given_to: AtomicI64::new(i64::MIN),
            pipeline: Pipeline::new("scan", ahead, threads + 1),
        };
        Self {
            left: scan.whole,
            scan,
            threads: Vec::new(),
            most_threads: threads,
            is_begun: false,
            begun_in: Generation::current(),
            shared: Arc::new(shared),
            failed: None,
            is_over: false,
        }
    }

    /// Returns the output of the next section; `None` at the end. Only the process that has made this may ask.
    ///
    /// # Errors
    /// The error that ends the pass, after the output before it; those of [`interrupt::check`](crate::interrupt::check).
    pub fn next_section(&mut self) -> Result<Option<Vec<T>>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.is_over {
            return Ok(None);
        }
        self.begin();
        let mut helper = self.threads.is_empty().then(|| SectionReader::new(&self.shared));
        let Some(done) = self.shared.pipeline.take(helper.as_mut())? else {
            // A thread has panicked.
            self.is_over = true;
            return Ok(None);
        };
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
                let shared = &self.shared;
                shared
                    .pipeline
                    .with_source(|ahead| ahead.route.drop_behind(&shared.reader, None));
            }
        }
        match done.failed {
            Some(error) if done.made.is_empty() => return Err(error),
            failed => self.failed = failed,
        }
        Ok(Some(done.made))
    }

    /// Starts the threads. If the system starts none, the caller's thread reads.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        while self.threads.len() < self.most_threads {
            let shared = Arc::clone(&self.shared);
            let reads = move || {
                let asked = Arc::clone(&shared);
                let ask = move || {
                    if asked.pipeline.is_stopped() {
                        Err(Error::Closed)
                    } else {
                        Ok(())
                    }
                };
                let mut reader = SectionReader::new(&shared);
                interruptible(ask, || while shared.pipeline.process_next(&mut reader) {});
            };
            match thread::Builder::new().name("mqstore-scan".to_owned()).spawn(reads) {
                Ok(thread) => self.threads.push(thread),
                Err(_) => break,
            }
        }
    }
}

impl<T> ParallelScan<T> {
    /// Returns [`Scan::is_complete`].
    pub fn is_complete(&self) -> bool {
        self.scan.is_complete()
    }

    /// Returns [`Scan::absent_topics`].
    pub fn absent_topics(&self) -> Vec<String> {
        self.scan.absent_topics()
    }

    /// Returns [`Scan::lost_queues`].
    pub fn lost_queues(&self) -> Vec<(String, i32)> {
        self.scan.lost_queues()
    }

    /// Returns [`Scan::covers`].
    pub fn covers(&self) -> Range<i64> {
        self.scan.covers()
    }

    /// Returns [`Scan::progress`].
    pub fn progress(&self) -> (u64, u64) {
        let whole = self.scan.whole;
        ((whole - self.left.clamp(0, whole)).cast_unsigned(), whole.cast_unsigned())
    }

    /// Ends the threads, each after the section that it reads.
    fn stop(&mut self) {
        self.shared.pipeline.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<T> Drop for ParallelScan<T> {
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

impl<T> SectionReader<T> {
    fn new(shared: &Arc<Shared<T>>) -> Self {
        let (reader, request) = (Arc::clone(&shared.reader), Arc::clone(&shared.request));
        Self {
            picker: Picker::new(
                reader,
                request,
                shared.on_damage.clone(),
                shared.absent.clone(),
                shared.lost.clone(),
            ),
            shared: Arc::clone(shared),
        }
    }
}

impl<T> Worker for SectionReader<T> {
    type Source = Ahead;
    type Task = (Route, Done<T>);
    type Output = Done<T>;

    /// Finds the route of the next section.
    fn find(&mut self, ahead: &mut Ahead) -> Option<Self::Task> {
        if ahead.is_over {
            return None;
        }
        let Shared { reader, request, .. } = &*self.shared;
        let given_to = self.shared.given_to.load(Ordering::Relaxed);
        ahead.route.drop_behind(reader, Some(given_to));
        let mut done = Done {
            made: Vec::new(),
            failed: None,
            skipped: 0,
            end: None,
            left: 0,
            is_last: false,
        };
        let front = ahead.route.take_front(reader, request, &mut ahead.cursor, self.shared.bytes);
        let route = match front {
            Ok(Some((front, end))) => {
                done.end = Some(end);
                front
            }
            Ok(None) => self.shared.find_locations(ahead, &mut done),
            Err(error) => {
                (ahead.is_over, done.failed) = (true, Some(error));
                Route::Parts(Vec::new())
            }
        };
        (done.left, done.is_last) = (ahead.route.left(), ahead.is_over);
        Some((route, done))
    }

    fn process(&mut self, (route, mut done): Self::Task) -> Result<Done<T>> {
        let on_damage = self.picker.count_apart();
        let mut section = ScanSection {
            reader: &self.shared.reader,
            request: &self.shared.request,
            picker: &mut self.picker,
            on_damage: on_damage.clone(),
            route,
            held_back: None,
            failed: done.failed.take(),
        };
        (done.made, done.failed) = (self.shared.gather)(&mut section);
        done.skipped += on_damage.skipped();
        Ok(done)
    }
}

impl<T> Shared<T> {
    /// Finds the locations of the next section one by one.
    fn find_locations(&self, ahead: &mut Ahead, done: &mut Done<T>) -> Route {
        let on_damage = self.on_damage.apart();
        let (mut locations, mut bytes) = (Vec::new(), 0);
        while bytes < self.bytes && !ahead.is_over {
            match ahead.route.next(&self.reader, &self.request, &mut ahead.cursor, &on_damage) {
                Ok(Some(location)) => {
                    bytes += if location.size > 0 {
                        u64::from(location.size)
                    } else {
                        READ_ALONE.unsigned_abs()
                    };
                    locations.push(location);
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
        done.end = locations.last().map(|location| location.physical_offset);
        locations.reverse();
        Route::Parts(vec![RoutePart::Found(locations)])
    }
}
