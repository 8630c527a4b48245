//! Carries out a history on one thread, and examines every image taken on the way.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mqstore::config::FlushDiskType;
use mqstore::error::Error;
use mqstore::format::Message;
use mqstore::read::MessageReader;
use mqstore::services::{Next, Service};
use mqstore::storage::Step;
use mqstore::store::{AppendResult, MessageStore};

use super::campaign::Drawn;
use super::examine::{Examiner, STORE, lost_its_start, root};
use super::files::Files;
use super::history::{Draft, History, Operation, operations, producer_batch};
use super::model::{Checked, Entry, Expect, Model, ensure, when, works};
use super::torn::Torn;
use crate::simulated_env::{CrashReport, Image, Random, SimulatedEnv};

/// Syncs that may be slow. No append has to wait for them.
const STALLED: [Step; 6] = [
    Step::LogRange,
    Step::QueueFiles,
    Step::IndexFile,
    Step::IndexDirectory,
    Step::Checkpoint,
    Step::CheckpointRenamed,
];

/// Events during a slow sync.
struct Meanwhile {
    /// Its duration by the wall clock.
    took: i64,
    message: Message<'static>,
    appended: Result<AppendResult, Error>,
    /// The machine as other processes see it at that time.
    live: SimulatedEnv,
    /// The end of the log for its own reader.
    end: i64,
}

/// A history under way.
pub(super) struct Run<'a> {
    examiner: &'a Examiner<'a>,
    random: Random,
    /// One of this many calls is preceded by a power cut on a copy of the machine.
    one_in: u64,
    env: SimulatedEnv,
    store: Option<Arc<MessageStore>>,
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
    /// A reader in another process, with the messages that the store had when it opened.
    reader: Option<(MessageReader, Expect)>,
    model: Model,
    /// Messages that were appended and wait in the pool: no crash leaves them.
    waiting: Vec<(Message<'static>, AppendResult)>,
    now: Instant,
    is_made: bool,
    /// A log for people, if it was asked for.
    told: Option<&'a mut Vec<String>>,
}

impl Drawn for Operation {
    fn draw(random: &mut Random, count: usize) -> Vec<Self> {
        operations(random, count)
    }

    fn carry_out(
        history: &History<Self>,
        examiner: &Examiner<'_>,
        seed: u64,
        one_in: u64,
        told: Option<&mut Vec<String>>,
    ) -> Checked {
        Run::new(examiner, seed, one_in, told).all(history)
    }
}

impl<'a> Run<'a> {
    fn new(examiner: &'a Examiner<'a>, seed: u64, one_in: u64, told: Option<&'a mut Vec<String>>) -> Self {
        let env = machine();
        if told.is_some() {
            env.log_calls();
        }
        Self {
            examiner,
            random: Random::new(seed),
            one_in,
            env,
            store: None,
            meanwhile: Arc::default(),
            reader: None,
            model: Model::default(),
            waiting: Vec::new(),
            now: Instant::now(),
            is_made: false,
            told,
        }
    }

    /// Does everything in order.
    fn all(&mut self, history: &History) -> Checked {
        self.start()?;
        for operation in &history.operations {
            self.tell(|| format!("{operation:?}"));
            self.operate(operation)?;
            self.model.ack(self.store().flushed_offset());
            self.examine_now()?;
        }
        self.close()
    }

    fn store(&self) -> &MessageStore {
        self.store.as_ref().expect("the store is open")
    }

    fn operate(&mut self, operation: &Operation) -> Checked {
        match operation {
            Operation::Append(draft) => self.append(std::slice::from_ref(draft), |store, mut messages, done| {
                done.push(store.append(messages.remove(0))?);
                Ok(())
            }),
            Operation::AppendAll(drafts) => self.append(drafts, |store, messages, done| {
                store.appender(None).append_all(messages, done)
            }),
            Operation::ProducerBatch(drafts) => {
                let batch = producer_batch(drafts);
                self.append(drafts, |store, _, done| {
                    store.appender(None).append_producer_batch(&batch, None, done)
                })
            }
            Operation::Flush => self.flush(),
            Operation::WaitDurable => self.wait_durable(),
            Operation::Dispatch(ms) => self.step(Service::Dispatch, *ms),
            Operation::FlushStep(ms) => self.step(Service::Flush, *ms),
            Operation::Commit(ms) => self.step(Service::Commit, *ms),
            Operation::Allocate => self
                .step(Service::Allocate, 0)
                .and_then(|()| self.step(Service::CreateQueueFiles, 0)),
            Operation::Stall(draft, ms) => {
                self.stall(draft.message(), *ms);
                Ok(())
            }
            Operation::Read => self.read(),
            Operation::Clock(ms) => {
                self.env.set_now(self.env.now() + ms);
                self.now += Duration::from_millis(ms.unsigned_abs());
                Ok(())
            }
            Operation::Reopen => {
                self.close()?;
                self.open()
            }
            Operation::Kill => self.kill(),
            Operation::PowerCut(seed) => self.power_cut(*seed),
        }
    }

    /// Appends; the batch that is one is described by its drafts.
    fn append(
        &mut self,
        drafts: &[Draft],
        append: impl FnOnce(&MessageStore, Vec<Message<'static>>, &mut Vec<AppendResult>) -> Result<(), Error>,
    ) -> Checked {
        let mut end = self.store().appended_offset();
        let message = |draft: &Draft| {
            let message = draft.message_at(end);
            end += message.encoded_len() as i64;
            message
        };
        let messages: Vec<Message<'static>> = drafts.iter().map(message).collect();
        let mut done = Vec::new();
        let before = self.model.expect();
        let outcome = append(self.store(), messages.clone(), &mut done);
        if !matches!(outcome, Err(Error::IllegalMessage { .. })) {
            works("append", outcome)?;
        }
        let store = self.store.clone().expect("the store is open");
        if self.is_sync() {
            let end = done.last().map_or(0, |last| last.appended.end());
            ensure(
                store.flushed_offset() >= end,
                "an append waits until its message is durable",
                || format!("it ends at {end}, the log is durable up to {}", store.flushed_offset()),
            )?;
        }
        self.waiting.extend(messages.into_iter().zip(done));
        self.examine_taken(before.acked)
    }

    /// Adds what waited in the pool to the model once it is committed. What is committed in part is committed whole.
    fn settle(&mut self) -> Checked {
        let Some(store) = self.store.clone() else { return Ok(()) };
        let end = |store: &MessageStore| store.reader().physical_bounds().end;
        let Some((_, first)) = self.waiting.first().filter(|(_, first)| first.appended.end() <= end(&store)) else {
            return Ok(());
        };
        if end(&store) < store.appended_offset() {
            works("a commit", store.commit())?;
        }
        let first = first.appended.physical_offset;
        let (messages, done): (Vec<_>, Vec<_>) = self.waiting.drain(..).unzip();
        ensure(
            done.last().is_some_and(|last| last.appended.end() <= end(&store)),
            "what is committed is read",
            || format!("from {first} on, up to {}", end(&store)),
        )?;
        self.model.add(store.reader(), &messages, &done)
    }

    fn is_sync(&self) -> bool {
        self.examiner.geometry.flush_disk_type == FlushDiskType::Sync
    }

    fn flush(&mut self) -> Checked {
        let acked = self.model.acked;
        let end = self.store().appended_offset();
        let flushed = works("flush", self.store().flush())?;
        self.add_meanwhile()?;
        ensure(flushed >= end, "a flush covers all", || {
            format!("it covers {flushed}, the log ends at {end}")
        })?;
        self.model.ack(flushed);
        self.examine_taken(acked)
    }

    fn wait_durable(&mut self) -> Checked {
        let Some(last) = self.store().appended_offset().checked_sub(1).filter(|last| *last >= 0) else {
            return Ok(());
        };
        let (acked, end) = (self.model.acked, last + 1);
        // The first call registers a waiter. Only a step of the flusher can end the wait.
        let at_once = Some(Instant::now());
        if let Err(Error::TimedOut { .. }) = self.store().wait_durable(last, at_once) {
            works("the flusher works", self.store().step(Service::Flush, self.now))?;
        }
        works(
            "a wait ends when the flusher has worked",
            self.store().wait_durable(last, at_once),
        )?;
        self.settle()?;
        self.model.ack(end);
        self.examine_taken(acked)
    }

    /// Another caller appends during the next, slow sync.
    fn stall(&mut self, message: Message<'static>, ms: i64) {
        let (store, told) = (
            Arc::downgrade(self.store.as_ref().expect("the store is open")),
            self.meanwhile.clone(),
        );
        self.env.stall(&STALLED, move |env| {
            env.set_now(env.now() + ms);
            let Some(store) = store.upgrade() else { return };
            // It cannot wait for the sync that waits for it.
            let appended = store.appender(Some(false)).append(message.clone());
            *told.lock().unwrap() = Some(Meanwhile {
                took: ms,
                message,
                appended,
                live: env.copy(),
                end: store.committed_offset(),
            });
        });
    }

    /// Adds what was appended during a slow sync. A reader saw all of it at that time.
    fn add_meanwhile(&mut self) -> Checked {
        let Some(Meanwhile {
            took,
            message,
            appended,
            live,
            end,
        }) = self.meanwhile.lock().unwrap().take()
        else {
            return Ok(());
        };
        self.now += Duration::from_millis(took.unsigned_abs());
        match appended {
            Err(Error::Closed) => {}
            appended => {
                let done = works("append while a sync takes its time", appended)?;
                let store = self.store.clone().expect("the store is open");
                if self.is_sync() {
                    works("what was appended is made durable, and so can be read", store.flush())?;
                }
                self.waiting.push((message, done));
            }
        }
        self.settle()?;
        let mut expect = self.expect(self.model.acked);
        // Another process sees what is not durable, too, but not what waits in the pool.
        let is_there = |entry: &&Arc<Entry>| entry.end() <= end;
        expect.exact = Some(self.model.entries.iter().filter(is_there).count());
        when(
            "while a sync takes its time",
            self.examiner.read(&live, &expect, &mut self.random),
        )
        .map(drop)
    }

    /// A reader in another process sees everything appended so far, changes nothing, and keeps that snapshot.
    fn read(&mut self) -> Checked {
        let segment = self.examiner.geometry.segment;
        if let Some((reader, expect)) = self.reader.take() {
            when(
                "a reader of before",
                super::reading::check(&reader, &expect, segment, &mut self.random),
            )?;
        }
        let before = Files::of(&self.env, root());
        let opened = MessageReader::open(&self.env.shared(), root(), self.examiner.geometry.recorded());
        let reader = works("a store that is written to opens for reading", opened)?;
        let mut expect = self.expect(self.model.entries.len());
        expect.exact = Some(self.model.entries.len());
        when(
            "a reader beside the writer",
            super::reading::check(&reader, &expect, segment, &mut self.random),
        )?;
        let difference = before.difference(&Files::of(&self.env, root()));
        ensure(difference.is_none(), "reading changes nothing", || {
            difference.unwrap_or_default()
        })?;
        self.reader = Some((reader, expect));
        Ok(())
    }

    fn step(&mut self, service: Service, ms: u64) -> Checked {
        self.now += Duration::from_millis(ms);
        while works("a service works", self.store().step(service, self.now))? == Next::Again {}
        self.examine_taken(self.model.acked)
    }

    fn close(&mut self) -> Checked {
        let acked = self.model.acked;
        works("close", self.store().close())?;
        self.env.end_stall();
        self.examine_taken(acked)?;
        ensure(self.waiting.is_empty(), "a close commits everything", || {
            format!("{:?}", self.waiting)
        })?;
        self.store = None;
        self.model.acked = self.model.entries.len();
        self.examiner.closed(&self.env, &self.model, &mut self.random)
    }

    /// The first open.
    fn start(&mut self) -> Checked {
        self.watch();
        self.open()?;
        self.is_made = true;
        Ok(())
    }

    /// Opens the store as the model has it.
    fn open(&mut self) -> Checked {
        let store = works("the store opens", self.examiner.open(&self.env, self.is_made))?;
        self.store = Some(Arc::new(store));
        self.examine_taken(self.model.acked)
    }

    fn kill(&mut self) -> Checked {
        let env = self.env.kill();
        self.reopen_on(env, self.model.entries.len())
    }

    fn power_cut(&mut self, seed: u64) -> Checked {
        // After a log with another message than was appended, or without its start, the model cannot continue:
        // these are examined on their own.
        let mut crashed = (seed..).map(|seed| self.env.crash(seed));
        let (env, report) = crashed.find(|(env, report)| self.goes_on(env, report)).expect("an image");
        for line in report.lines {
            self.tell(|| format!("  {line}"));
        }
        self.env.stop();
        self.reopen_on(env, self.model.acked)
    }

    fn goes_on(&self, env: &SimulatedEnv, report: &CrashReport) -> bool {
        if lost_its_start(env, &self.model.entries) {
            return false;
        }
        let opened = MessageReader::open(&env.copy().shared(), root(), self.examiner.geometry.recorded());
        let held = opened
            .ok()
            .and_then(|reader| super::reading::walk(&reader, self.examiner.geometry.segment).ok());
        let held = held.map(|found| Torn::of(report).held(&self.model.entries, &found, self.model.acked));
        // Checks that a wrong state is found when the history continues.
        !held.is_some_and(|held| held.is_ok_and(|held| held.garbled.is_any() || held.garbled.is_index_torn))
    }

    /// Continues with what a crash left: at least `least` messages.
    fn reopen_on(&mut self, env: SimulatedEnv, least: usize) -> Checked {
        self.store = None;
        self.waiting.clear();
        self.reader = None;
        self.env.end_stall();
        self.env = env;
        if self.told.is_some() {
            self.env.log_calls();
        }
        self.watch();
        let acked = self.model.acked;
        let opened = works("a crashed store opens", self.examiner.open(&self.env, self.is_made))?;
        let mut expect = self.expect(least);
        let segment = self.examiner.geometry.segment;
        let count = super::reading::check(opened.reader(), &expect, segment, &mut self.random)?.count;
        self.store = Some(Arc::new(opened));
        // During the recovery no more messages were acknowledged than before it.
        self.examine_taken(acked)?;
        expect.acked = count;
        self.model.keep(count);
        Files::of(&self.env, root()).check(
            &self.model.entries,
            self.model.torn.garbled(),
            self.examiner.geometry,
            super::files::State::Open,
        )
    }

    fn expect(&self, acked: usize) -> Expect {
        Expect {
            acked,
            is_made: self.is_made,
            ..self.model.expect()
        }
    }

    fn watch(&mut self) {
        self.env.take_images(self.random.next(), self.one_in);
    }

    /// Examines the images since the last time, when `acked` messages were acknowledged.
    fn examine_taken(&mut self, acked: usize) -> Checked {
        self.add_meanwhile()?;
        self.settle()?;
        if let Some(told) = &mut self.told {
            let calls = self.env.take_log();
            told.extend(calls.into_iter().map(|call| format!("  {call}")));
        }
        for image in self.env.taken() {
            self.examine(&image, acked)?;
        }
        Ok(())
    }

    /// A power cut between two operations.
    fn examine_now(&mut self) -> Checked {
        if !self.random.one_in(self.one_in) {
            return Ok(());
        }
        let seed = self.random.next();
        let (env, report) = self.env.crash(seed);
        let call = self.env.count();
        self.examine(&Image { env, report, seed, call }, self.model.acked)
    }

    fn examine(&mut self, image: &Image, acked: usize) -> Checked {
        let expect = self.expect(acked).torn(&image.report);
        let seed = image.seed;
        let outcome = self.examiner.image(&image.env, &expect, seed, 0);
        if outcome.is_err() {
            self.tell(|| format!("the power goes before call {} (seed {seed}):", image.call));
            for line in &image.report.lines {
                self.tell(|| format!("  {line}"));
            }
        }
        outcome
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(told) = &mut self.told {
            told.push(line());
        }
    }
}

/// A machine with the directory in which stores are made.
pub(super) fn machine() -> SimulatedEnv {
    let env = SimulatedEnv::new();
    let parent = Path::new(STORE).parent().unwrap();
    env.make_dir(parent);
    env
}
