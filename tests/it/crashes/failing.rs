//! Small histories on a machine whose k-th call fails, for every k: what an error means, and what it must not lose.

use std::time::{Duration, Instant};

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::format::Message;
use mqstore::read::MessageReader;
use mqstore::services::{Next, Service};
use mqstore::store::{AppendResult, MessageStore};

use super::examine::{Examiner, root};
use super::history::{Draft, History, Operation, producer_batch};
use super::model::{Checked, Expect, Model, ensure, works};
use super::run::machine;
use crate::simulated_env::{Failure, Fault, Random, SimulatedEnv};

/// No service waits longer than this for a shortage to be over.
const HEALED_AFTER: Duration = Duration::from_secs(1);
/// Power cuts that a failed store goes through.
const CUTS: u64 = 2;

/// A history under way on a failing machine.
struct Failing<'a> {
    examiner: &'a Examiner<'a>,
    env: SimulatedEnv,
    store: MessageStore,
    model: Model,
    now: Instant,
    /// True once any call of the store has failed.
    has_failed: bool,
    failure: Failure,
    /// The reason for which the store is poisoned.
    poisoned: Option<Error>,
}

/// Carries the history out with this fault. Gives how many calls the fault concerned.
pub(super) fn with_fault(examiner: &Examiner<'_>, history: &History, fault: Fault, seed: u64) -> Checked<u64> {
    let env = machine();
    env.set_fault(Some(fault));
    let opened = examiner.open(&env, false);
    let concerned = env.concerned();
    let mut random = Random::new(seed);
    match opened {
        Err(_) if fault.failure != Failure::Short => {
            env.set_fault(None);
            let expect = Expect {
                is_made: false,
                ..Model::default().expect()
            };
            examiner.image(&env.crash(random.next()).0, &expect, seed, 0)?;
            works("a failed open leaves what can be opened", examiner.open(&env, false)).map(|_| concerned)
        }
        opened => {
            let mut failing = Failing {
                examiner,
                store: works("short reads and writes are no errors", opened)?,
                env,
                model: Model::default(),
                now: Instant::now(),
                has_failed: false,
                failure: fault.failure,
                poisoned: None,
            };
            failing.all(history)?;
            ensure(
                fault.failure != Failure::Short || !failing.has_failed,
                "short reads and writes are no errors",
                || "a call failed".to_owned(),
            )?;
            let concerned = failing.env.concerned();
            failing.end(&mut random)?;
            Ok(concerned)
        }
    }
}

fn any_message() -> Message<'static> {
    Message {
        topic: "t".into(),
        ..Message::default()
    }
}

impl Failing<'_> {
    fn all(&mut self, history: &History) -> Checked {
        for operation in &history.operations {
            match operation {
                Operation::Append(draft) => self.append(std::slice::from_ref(draft), false)?,
                Operation::AppendAll(drafts) => self.append(drafts, false)?,
                Operation::ProducerBatch(drafts) => self.append(drafts, true)?,
                Operation::Flush => {
                    if let Some(flushed) = self.tried(MessageStore::flush) {
                        self.model.ack(flushed);
                    }
                }
                Operation::WaitDurable => self.wait_durable(),
                Operation::Dispatch(ms) => self.step(Service::Dispatch, *ms),
                Operation::FlushStep(ms) => self.step(Service::Flush, *ms),
                Operation::Commit(ms) => self.step(Service::Commit, *ms),
                Operation::Allocate => {
                    self.step(Service::Allocate, 0);
                    self.step(Service::CreateQueueFiles, 0);
                }
                Operation::Clock(ms) => self.env.set_now(self.env.now() + ms),
                Operation::Reopen | Operation::Kill | Operation::PowerCut(_) | Operation::Stall(..) | Operation::Read => {}
            }
        }
        Ok(())
    }

    /// The result of a call, if it does not fail.
    fn tried<T>(&mut self, call: impl FnOnce(&MessageStore) -> Result<T, Error>) -> Option<T> {
        let outcome = call(&self.store);
        self.has_failed |= outcome.is_err();
        outcome.inspect_err(|error| self.note(error)).ok()
    }

    fn note(&mut self, error: &Error) {
        let error = match error {
            Error::NotDurable { cause, .. } => cause,
            error => error,
        };
        if matches!(error, Error::Poisoned { .. }) {
            self.poisoned.get_or_insert_with(|| error.clone());
        }
    }

    /// The log has what an append reports as stored, and nothing more of an append that fails.
    fn append(&mut self, drafts: &[Draft], is_batch: bool) -> Checked {
        let messages: Vec<_> = drafts.iter().map(Draft::message).collect();
        let mut done: Vec<AppendResult> = Vec::new();
        let outcome = if is_batch {
            let appender = self.store.appender(None);
            appender.append_producer_batch(&producer_batch(drafts), None, &mut done)
        } else {
            self.store.appender(None).append_all(messages.clone(), &mut done)
        };
        self.has_failed |= !matches!(outcome, Ok(()) | Err(Error::IllegalMessage { .. }));
        if let Err(error) = &outcome {
            self.note(error);
        }
        // What waits in the pool is in no file; a commit that fails may write a part of it.
        self.tried(MessageStore::commit);
        // The check of the log makes calls, too; the failure must not hit them.
        let fault = self.env.pause_fault();
        // After a shortage it works.
        if self.store.commit().is_err() {
            let beside = MessageReader::open(&self.env.copy().shared(), root(), StoreConfig::default());
            let beside = works("a failed store opens for reading", beside)?;
            done.retain(|done| done.appended.end() <= beside.physical_bounds().end);
        }
        let end = done.last().map_or(0, |last| last.appended.end());
        let added = if end <= self.store.reader().physical_bounds().end {
            self.model.add(self.store.reader(), &messages, &done)
        } else {
            // This store does not show what is not durable.
            let beside = MessageReader::open(&self.env.copy().shared(), root(), StoreConfig::default());
            works("a failed store opens for reading", beside).and_then(|beside| self.model.add(&beside, &messages, &done))
        };
        self.env.resume_fault(fault);
        if outcome.is_ok() && self.examiner.geometry.flush_disk_type == FlushDiskType::Sync {
            self.model.ack(end);
        }
        added
    }

    fn wait_durable(&mut self) {
        let Some(last) = self.model.entries.last().map(|entry| entry.physical_offset) else {
            return;
        };
        let at_once = Some(Instant::now());
        if let Err(Error::TimedOut { .. }) = self.store.wait_durable(last, at_once) {
            self.step(Service::Flush, 0);
        }
        if self.tried(|store| store.wait_durable(last, at_once)).is_some() {
            self.model.acked = self.model.entries.len();
        }
    }

    fn step(&mut self, service: Service, ms: u64) {
        self.now += Duration::from_millis(ms);
        let now = self.now;
        while self.tried(|store| store.step(service, now)) == Some(Next::Again) {}
    }

    /// A poisoned store accepts and acknowledges nothing, and every error names its first failure.
    fn refuses_everything(&mut self) -> Checked {
        // The dispatcher's next step wakes the threads that wait for it.
        self.step(Service::Dispatch, 0);
        let Some(Error::Poisoned { cause: first, .. }) = &self.poisoned else {
            return Ok(());
        };
        let at_once = Some(Instant::now());
        let outcomes = [
            self.store.append(any_message()).map(drop),
            self.store.flush().map(drop),
            self.store.wait_durable(i64::MAX - 1, at_once),
            self.store.wait_dispatched(i64::MAX - 1, at_once),
        ];
        for (call, outcome) in ["append", "flush", "wait_durable", "wait_dispatched"].iter().zip(outcomes) {
            let is_refused = matches!(&outcome, Err(Error::Poisoned { cause, .. }) if cause.to_string() == first.to_string());
            ensure(is_refused, "a poisoned store refuses everything", || {
                format!("after {first}: {call} gave {outcome:?}")
            })?;
        }
        Ok(())
    }

    /// A call that found no descriptor or memory works again when there is some.
    fn heal(&mut self) -> Checked {
        let check = "a shortage poisons no store";
        ensure(self.poisoned.is_none(), check, || format!("{:?}", self.poisoned))?;
        let done = works(check, self.store.append(any_message()))?;
        works(check, self.store.commit())?;
        self.model.add(self.store.reader(), &[any_message()], &[done])?;
        self.now += HEALED_AFTER;
        while works(check, self.store.step(Service::Dispatch, self.now))? == Next::Again {}
        let end = done.appended.physical_offset + i64::from(done.appended.wrote_bytes);
        ensure(self.store.dispatched_offset() == end, check, || {
            format!("dispatched up to {} of {end}", self.store.dispatched_offset())
        })
    }

    fn is_shortage(&self) -> bool {
        matches!(self.failure, Failure::Shortage | Failure::TooLarge)
    }

    /// The machine works again: acknowledged messages are read and survive a kill and power cuts, and a close that succeeds is
    /// complete.
    fn end(mut self, random: &mut Random) -> Checked {
        let synced_again = self.env.synced_again();
        ensure(synced_again.is_none(), "a failed sync is not tried again", || {
            format!("{synced_again:?}")
        })?;
        self.env.set_fault(None);
        if self.is_shortage() {
            self.heal()?;
        }
        self.refuses_everything()?;
        for entry in &self.model.entries[..self.model.acked] {
            let check = "what was acknowledged is read after a failure";
            let stored = works(check, self.store.reader().message_at(entry.physical_offset))?;
            ensure(stored.view().bytes() == entry.bytes, check, || {
                format!("not at {}", entry.physical_offset)
            })?;
        }
        let mut all = self.model.expect();
        all.exact = Some(self.model.entries.len());
        self.examiner.image(&self.env.copy(), &all, random.next(), 0)?;
        for _ in 0..CUTS {
            let (cut, report) = self.env.crash(random.next());
            let expect = self.model.expect().torn(&report);
            self.examiner.image(&cut, &expect, random.next(), 0)?;
        }
        let closed = self.store.close();
        let synced_again = self.env.synced_again();
        ensure(synced_again.is_none(), "a failed sync is not tried again", || {
            format!("{synced_again:?}")
        })?;
        if self.is_shortage() {
            works("a shortage that is over keeps no store from being closed", closed.clone())?;
        }
        if closed.is_ok() {
            self.model.acked = self.model.entries.len();
            return self.examiner.closed(&self.env, &self.model, random);
        }
        let has_abort = super::files::Files::of(&self.env, root()).get("abort").is_some();
        ensure(has_abort, "abort is there while a writer is", || {
            "a close failed and removed it".to_owned()
        })
    }
}
