//! An ordered pipeline: several threads process the tasks of a job, and one consumer takes the outputs in the order of the tasks.
//!
//! One thread at a time finds the next task, while others process the tasks before it. Memory is bounded (back-pressure): no task
//! is found while the maximal number of them is in progress or waits for the consumer.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::Result;
use crate::interrupt::{self, INTERVAL};
use crate::services::without_panic;
use crate::sync::lock;

/// The side of a thread in a pipeline.
pub(crate) trait Worker {
    /// The source of tasks, which one thread at a time holds.
    type Source;
    /// A task of the job.
    type Task;
    /// The result of processing a task.
    type Output;

    /// Returns the next task; `None` after the last one.
    fn find(&mut self, source: &mut Self::Source) -> Option<Self::Task>;

    /// Processes a task.
    ///
    /// # Errors
    /// Those of the task. They end the pipeline once the consumer takes them.
    fn process(&mut self, task: Self::Task) -> Result<Self::Output>;
}

/// An ordered pipeline. [`Pipeline::process_next`] is the loop body of its threads.
pub(crate) struct Pipeline<W: Worker> {
    /// Names the job in the error of a panic.
    job: &'static str,
    /// The most tasks that are in progress or wait for the consumer.
    most: u64,
    state: Mutex<State<W>>,
    /// Signals each change of the state.
    changed: Condvar,
}

struct State<W: Worker> {
    /// `None` while a thread finds a task, and after a panic of that thread.
    source: Option<W::Source>,
    /// The number of the next task to find.
    next: u64,
    /// The number of the next task whose output is taken.
    taken: u64,
    /// The outputs that are not taken yet, by the number of the task.
    outputs: BTreeMap<u64, Result<W::Output>>,
    /// Set after the last task was found.
    is_exhausted: bool,
    is_stopped: bool,
}

impl<W: Worker> Pipeline<W> {
    /// Creates a pipeline that starts at the first task of `source`.
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

    /// Finds and processes the next task, once the limit permits it. Returns false after the last task, and if the pipeline was
    /// stopped.
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

    /// Takes the next output, in the order of the tasks; `None` after the last one. While it would wait, `helper` processes tasks.
    ///
    /// # Errors
    /// Those of the task, including a panic of its thread: there is no output after it. Those of [`interrupt::check`], after which
    /// the caller can try again.
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
            // Called without the lock: the interrupt handler may run for long.
            interrupt::check_after_wait()?;
        }
    }

    fn run(&self, number: u64, mut source: W::Source, worker: &mut W) {
        let found = without_panic(self.job, || {
            let task = worker.find(&mut source);
            Ok((task, source))
        });
        let task = lock(&self.state).end_search(found);
        self.changed.notify_all();
        if let Some(task) = task {
            let output = without_panic(self.job, || worker.process(task));
            lock(&self.state).outputs.insert(number, output);
            self.changed.notify_all();
        }
    }

    /// Ends the threads, each after its current task.
    pub(crate) fn stop(&self) {
        // Set under the lock, so that no thread misses it between its check and its wait.
        lock(&self.state).is_stopped = true;
        self.changed.notify_all();
    }

    /// Returns true once the pipeline was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        lock(&self.state).is_stopped
    }

    /// Passes the source to `visit`, unless a thread holds it.
    pub(crate) fn with_source(&self, visit: impl FnOnce(&mut W::Source)) {
        lock(&self.state).source.as_mut().map(visit);
    }
}

impl<W: Worker> State<W> {
    /// Takes the source to find the task with the returned number, if the limit permits another task.
    fn begin(&mut self, most: u64) -> Option<(u64, W::Source)> {
        let is_open = !self.is_stopped && !self.is_exhausted && self.next < self.taken + most;
        let source = if is_open { self.source.take() } else { None };
        source.map(|source| (self.next, source))
    }

    /// Puts the source back. A panic becomes the output of the task.
    fn end_search(&mut self, found: Result<(Option<W::Task>, W::Source)>) -> Option<W::Task> {
        let task = match found {
            Ok((task, source)) => {
                self.source = Some(source);
                task
            }
            Err(panic) => {
                self.outputs.insert(self.next, Err(panic));
                self.next += 1;
                None
            }
        };
        match &task {
            Some(_) => self.next += 1,
            None => self.is_exhausted = true,
        }
        task
    }
}
