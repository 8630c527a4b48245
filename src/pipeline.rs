//! Ordered pipeline: several threads process the parts of a job, and one consumer takes the outputs in the order of the parts.
//!
//! One thread at a time finds the next part, while others process the parts before it. Memory is bounded: no part is found while as many
//! as the pipeline admits are in progress or wait for the consumer.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::Result;
use crate::interrupt::{self, INTERVAL};
use crate::services::without_panic;
use crate::sync::lock;

/// A thread's side of a pipeline.
pub(crate) trait Worker {
    /// The source of parts, which one thread at a time has.
    type Source;
    /// A part of the job.
    type Task;
    /// The result of processing a part.
    type Output;

    /// Returns the next part; `None` after the last one.
    fn find(&mut self, source: &mut Self::Source) -> Option<Self::Task>;

    /// Processes a part.
    ///
    /// # Errors
    /// Those of the part. They end the pipeline once the consumer takes them.
    fn process(&mut self, part: Self::Task) -> Result<Self::Output>;
}

/// An ordered pipeline. [`Pipeline::process_next`] is the loop body of its threads.
pub(crate) struct Pipeline<W: Worker> {
    /// Names the job in the error of a panic.
    job: &'static str,
    /// The most parts that are in progress or wait for the consumer.
    most: u64,
    state: Mutex<State<W>>,
    /// Signals each change of the state.
    changed: Condvar,
}

struct State<W: Worker> {
    /// `None` while a thread finds a part, and after a panic of that thread.
    source: Option<W::Source>,
    /// The number of the next part that is found.
    next: u64,
    /// The number of the next part whose output is taken.
    taken: u64,
    /// Outputs of later parts, and of this one once it was processed.
    outputs: BTreeMap<u64, Result<W::Output>>,
    /// No other part is found.
    is_exhausted: bool,
    is_stopped: bool,
}

impl<W: Worker> Pipeline<W> {
    /// Begins at the first part of `source`; finds none yet.
    pub(crate) fn new(job: &'static str, source: W::Source, most: usize) -> Self {
        Self {
            job,
            most: most as u64,
            state: Mutex::new(State {
                source: Some(source),
                next: 0,
                taken: 0,
                outputs: BTreeMap::new(),
                is_exhausted: false,
                is_stopped: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Finds and processes the next part, once there is room for it. Returns false after the last part, and if the pipeline was stopped.
    pub(crate) fn process_next(&self, worker: &mut W) -> bool {
        let mut state = lock(&self.state);
        while !state.is_stopped && !state.is_exhausted {
            if let Some((number, source)) = state.begin(self.most) {
                drop(state);
                self.run(number, source, worker);
                return true;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        false
    }

    /// Takes the next output, in the order of the parts; `None` after the last one. While it would wait, `helper` processes parts.
    ///
    /// # Errors
    /// Those of the part, a panic of its thread among them: there is no output after it. Those of [`interrupt::check`], after which the
    /// caller can try again.
    pub(crate) fn take(&self, mut helper: Option<&mut W>) -> Result<Option<W::Output>> {
        loop {
            let mut state = lock(&self.state);
            if state.is_stopped {
                return Ok(None);
            }
            let number = state.taken;
            if let Some(output) = state.outputs.remove(&number) {
                state.taken += 1;
                state.is_stopped |= output.is_err();
                drop(state);
                self.changed.notify_all();
                return output.map(Some);
            }
            if state.is_exhausted && number == state.next {
                return Ok(None);
            }
            if let Some(worker) = helper.as_deref_mut()
                && let Some((number, source)) = state.begin(self.most)
            {
                drop(state);
                self.run(number, source, worker);
                interrupt::check()?;
                continue;
            }
            let waited = self.changed.wait_timeout(state, INTERVAL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            // Without the lock: the interrupt handler may run for long.
            interrupt::check_after_wait()?;
        }
    }

    fn run(&self, number: u64, mut source: W::Source, worker: &mut W) {
        let found = without_panic(self.job, || {
            let part = worker.find(&mut source);
            Ok((part, source))
        });
        let part = lock(&self.state).end_search(found);
        self.changed.notify_all();
        if let Some(part) = part {
            let output = without_panic(self.job, || worker.process(part));
            lock(&self.state).outputs.insert(number, output);
            self.changed.notify_all();
        }
    }

    /// Ends the threads, each after its part.
    pub(crate) fn stop(&self) {
        // Under the lock, so that no thread misses it between its check and its wait.
        lock(&self.state).is_stopped = true;
        self.changed.notify_all();
    }

    /// Returns true once the pipeline was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        lock(&self.state).is_stopped
    }

    /// Hands the source to `visit`, unless a thread has it.
    pub(crate) fn with_source(&self, visit: impl FnOnce(&mut W::Source)) {
        lock(&self.state).source.as_mut().map(visit);
    }
}

impl<W: Worker> State<W> {
    /// Takes the source to find the part of the number that it returns, if there is room for one.
    fn begin(&mut self, most: u64) -> Option<(u64, W::Source)> {
        let is_open = !self.is_stopped && !self.is_exhausted && self.next < self.taken + most;
        let source = if is_open { self.source.take() } else { None };
        source.map(|source| (self.next, source))
    }

    /// Puts the source back. A panic takes the place of the part.
    fn end_search(&mut self, found: Result<(Option<W::Task>, W::Source)>) -> Option<W::Task> {
        let part = match found {
            Ok((part, source)) => {
                self.source = Some(source);
                part
            }
            Err(panic) => {
                self.outputs.insert(self.next, Err(panic));
                self.next += 1;
                None
            }
        };
        match &part {
            Some(_) => self.next += 1,
            None => self.is_exhausted = true,
        }
        part
    }
}
