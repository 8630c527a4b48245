//! Carries out a history of consumers on one thread, and lets the judge see every answer and every image.

mod transactions;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerController, BrokerService, Consumer, Start, TransactionChecker};
use mqstore::error::Error;
use mqstore::format::{DelayLevels, Message, SCHEDULE_TOPIC, encode_properties, property};
use mqstore::read::{MessageReader, StoredMessage};
use mqstore::services::{Next, Service};
use mqstore::store::{AppendResult, MessageStore};

use super::super::campaign::Drawn;
use super::super::examine::{Examiner, dispatch_all, root};
use super::super::files::Files;
use super::super::history::History;
use super::super::model::{Checked, Violation, ensure, when, works};
use super::super::run::machine;
use super::super::torn::Torn;
use super::history::{Choice, GROUPS, MEMBERS, Operation, operations};
use super::judge::{Judge, QueueName, written};
use crate::broker::delayed_log::{DelayedLog, every_message};
use crate::simulated_env::{CrashReport, Failure, Random, SimulatedEnv};

/// The clock of consumers is so far ahead of the machine's that no reading of that one decides anything.
const AHEAD: Duration = Duration::from_secs(3600);
/// Longer than the delay of each level that a history uses, and the most by which its clock is behind, in ms.
const LONGEST_DELAY: u64 = 40_000;

/// A store that is open, with a broker's work on it.
struct Open {
    store: Arc<MessageStore>,
    broker: BrokerController,
}

struct Member {
    consumer: Consumer,
    group: usize,
    id: u64,
    paused: BTreeSet<QueueName>,
}

/// A history under way.
struct Run<'a> {
    examiner: &'a Examiner<'a>,
    random: Random,
    /// One of this many calls is preceded by a power cut on a copy of the machine.
    one_in: u64,
    env: SimulatedEnv,
    open: Option<Open>,
    members: Vec<Member>,
    judge: Judge,
    /// The check of open transactions that runs.
    checker: Option<TransactionChecker>,
    now: Instant,
    /// The time in ms by which the wall clock is behind.
    behind: i64,
    /// Numbers of the next message and consumer.
    next: (u64, u64),
    /// The physical offset up to which the log was durable before the current operation.
    flushed: i64,
    /// A call of the current operation fails so.
    failure: Option<Failure>,
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
        let mut run = Run {
            examiner,
            random: Random::new(seed),
            one_in,
            env: machine(),
            open: None,
            members: Vec::new(),
            judge: Judge::default(),
            checker: None,
            now: Instant::now() + AHEAD,
            behind: 0,
            next: (0, 0),
            flushed: 0,
            failure: None,
            told,
        };
        run.all(history)
    }
}

impl Run<'_> {
    fn all(&mut self, history: &History<Operation>) -> Checked {
        self.start(false)?;
        self.watch();
        for operation in &history.operations {
            self.tell(|| format!("{operation:?}"));
            self.operate(operation)?;
            self.observe()?;
            self.examine_taken()?;
        }
        when("in the end", self.finish())?;
        let (given, again) = self.judge.given;
        self.examiner.counts.given.fetch_add(given, Ordering::Relaxed);
        self.examiner.counts.again.fetch_add(again, Ordering::Relaxed);
        let (ended, refused) = self.judge.transactions.ended;
        self.examiner.counts.ended.fetch_add(ended, Ordering::Relaxed);
        self.examiner.counts.refused.fetch_add(refused, Ordering::Relaxed);
        Ok(())
    }

    fn store(&self) -> &Arc<MessageStore> {
        &self.open.as_ref().expect("the store is open").store
    }

    fn broker(&self) -> &BrokerController {
        &self.open.as_ref().expect("the store is open").broker
    }

    fn operate(&mut self, operation: &Operation) -> Checked {
        match operation {
            Operation::Produce {
                topic,
                queue_id,
                tag,
                delay_level,
                body,
                count,
            } => {
                let queue = ((*topic).to_owned(), *queue_id);
                (0..*count).try_for_each(|_| self.produce(&queue, tag, *delay_level, *body))
            }
            Operation::Half {
                topic,
                queue_id,
                tag,
                body,
            } => self.send_half(&((*topic).to_owned(), *queue_id), tag, *body),
            Operation::End { number, how, durable } => self.end_chosen(*number, *how, *durable),
            Operation::Check { ms, answers } => self.check(*ms, *answers),
            Operation::Flush => {
                let flushed = self.store().flush();
                self.outcome("flush", flushed).map(drop)
            }
            Operation::Dispatch(ms) => self.step(Service::Dispatch, *ms),
            Operation::FlushStep(ms) => self.step(Service::Flush, *ms),
            Operation::CommitStep(ms) => self.step(Service::Commit, *ms),
            Operation::Allocate => self
                .step(Service::Allocate, 0)
                .and_then(|()| self.step(Service::CreateQueueFiles, 0)),
            Operation::Join(group, start) => self.join(*group, start),
            Operation::Keep(ms) => self.keep(*ms),
            Operation::Deliver(ms) => self.deliver(*ms),
            Operation::PersistDelays(ms) => {
                self.pass(*ms);
                let persisted = self.broker().step(BrokerService::PersistDelays, self.now);
                self.outcome("the progress of the delivery is persisted", persisted).map(drop)
            }
            Operation::Wait(ms) => {
                self.pass(*ms);
                Ok(())
            }
            Operation::Clock(behind) => {
                let before = std::mem::replace(&mut self.behind, *behind);
                self.env.set_now(self.env.now() + before - behind);
                Ok(())
            }
            Operation::Reopen => self.reopen(),
            Operation::Kill => self.kill(),
            Operation::PowerCut(seed) => self.power_cut(*seed),
            Operation::Failing(fault, operation) => {
                self.env.set_fault(Some(*fault));
                self.failure = Some(fault.failure).filter(|failure| *failure != Failure::Short);
                self.operate(operation)?;
                self.env.set_fault(None);
                self.failure = None;
                if self.is_poisoned() { self.kill() } else { Ok(()) }
            }
            of_member => self.consume(of_member),
        }
    }

    fn consume(&mut self, operation: &Operation) -> Checked {
        if self.members.is_empty() {
            return Ok(());
        }
        let at = |member: &usize| member % self.members.len();
        match operation {
            Operation::Leave(member) => self.leave(at(member)),
            Operation::Drop(member) => {
                let gone = self.members.remove(at(member));
                self.judge.leaves(gone.id, self.now);
                Ok(())
            }
            Operation::Poll { member, most } => self.poll(at(member), *most).map(drop),
            Operation::Ack { member, choice } => self.ack(at(member), *choice),
            Operation::Nack {
                member,
                number,
                delay_level,
            } => self.nack(at(member), *number, *delay_level),
            Operation::Seek { member, number } => self.seek(at(member), *number),
            Operation::Pause { member, number } => self.pause(at(member), *number),
            Operation::Resume(member) => {
                let member = at(member);
                let member = &mut self.members[member];
                member.consumer.resume(member.paused.iter().cloned());
                member.paused.clear();
                Ok(())
            }
            Operation::Commit(member) => {
                self.judge.may_persist();
                let committed = self.members[at(member)].consumer.commit();
                if self.outcome("a durable commit", committed)?.is_some() {
                    self.examine_taken()?;
                    self.judge.persisted();
                }
                Ok(())
            }
            other => panic!("{other:?} needs no consumer"),
        }
    }

    /// The fault of an operation ends with the calls of the store. An error must come from it.
    fn outcome<T>(&self, check: &'static str, result: Result<T, Error>) -> Checked<Option<T>> {
        self.env.set_fault(None);
        match result {
            Err(_) if self.failure.is_some() => Ok(None),
            result => works(check, result).map(Some),
        }
    }

    fn is_poisoned(&self) -> bool {
        let at_once = Some(Instant::now());
        let outcomes = [
            self.store().expect_appended(-1),
            self.store().wait_dispatched(i64::MAX - 1, at_once),
            self.store().wait_durable(i64::MAX - 1, at_once),
        ];
        outcomes.iter().any(|outcome| matches!(outcome, Err(Error::Poisoned { .. })))
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.env.set_now(self.env.now() + ms as i64);
    }

    fn produce(&mut self, queue: &QueueName, tag: &str, delay_level: i32, body: usize) -> Checked {
        let id = self.next.0;
        self.next.0 += 1;
        let level = delay_level.to_string();
        let delayed = (delay_level > 0).then_some((property::DELAY, level.as_str()));
        let properties = [(property::TAGS, tag)].into_iter().chain(delayed);
        let message = Message {
            topic: queue.0.clone().into(),
            queue_id: queue.1,
            body: format!("{id}:{}", "x".repeat(body)).into_bytes().into(),
            properties: encode_properties(properties, true).unwrap().into(),
            ..Message::default()
        };
        let done = self.store().append(message);
        let stored = self.outcome("append", done)?;
        let place = |done: AppendResult| (done.appended.queue_offset, done.appended.end());
        let queue = match delayed {
            Some(_) => (SCHEDULE_TOPIC.to_owned(), delay_level - 1),
            None => queue.clone(),
        };
        self.judge.produced(id, queue, stored.map(place));
        Ok(())
    }

    fn step(&mut self, service: Service, ms: u64) -> Checked {
        self.pass(ms);
        let stepped = loop {
            match self.store().step(service, self.now) {
                Ok(Next::Again) => {}
                other => break other,
            }
        };
        self.outcome("a service works", stepped).map(drop)
    }

    /// Delivers what is due.
    fn deliver(&mut self, ms: u64) -> Checked {
        self.pass(ms);
        let fault = self.env.pause_fault();
        self.settle()?;
        self.env.resume_fault(fault);
        let delivered = deliver_due(self.broker(), self.now);
        self.outcome("delayed messages are delivered", delivered).map(drop)
    }

    /// Makes everything readable and dispatches it.
    fn settle(&mut self) -> Checked {
        works("a commit", self.store().commit())?;
        let mut again = true;
        while again {
            again = works("a service works", self.store().step(Service::Dispatch, self.now))? == Next::Again;
        }
        Ok(())
    }

    fn join(&mut self, group: usize, start: &Start) -> Checked {
        if self.members.iter().filter(|member| member.group == group).count() == MEMBERS {
            return Ok(());
        }
        // Without a thread a join would wait for the dispatcher in vain.
        let fault = self.env.pause_fault();
        self.settle()?;
        self.env.resume_fault(fault);
        let of = &GROUPS[group];
        self.judge.may_persist();
        let joined = self.broker().consumer(Some(of.name), of.subscription(), start);
        let joined = self.outcome("a consumer joins", joined)?;
        // Also if it fails: the start of the group is set once.
        let (store, shown) = (self.store().clone(), self.topics_of(group)?);
        self.judge.begins(group, *start == Start::Latest, &shown, store.reader())?;
        self.judge.may_persist();
        let Some(consumer) = joined else { return Ok(()) };
        self.examine_taken()?;
        self.judge.joins(group);
        let id = self.next.1;
        self.next.1 += 1;
        let paused = BTreeSet::new();
        self.members.push(Member {
            consumer,
            group,
            id,
            paused,
        });
        Ok(())
    }

    /// Returns the topics in which the store shows progress of a group.
    fn topics_of(&self, group: usize) -> Checked<BTreeSet<String>> {
        let offsets = match self.broker().consumer_offsets() {
            Err(Error::NotFound { .. }) => return Ok(BTreeSet::new()),
            offsets => works("progress is shown", offsets)?.content,
        };
        let own = offsets.into_iter().filter(|offset| offset.group == GROUPS[group].name);
        Ok(own.map(|offset| offset.topic).collect())
    }

    fn leave(&mut self, at: usize) -> Checked {
        self.judge.may_persist();
        let member = self.members.remove(at);
        let closed = member.consumer.close();
        self.judge.leaves(member.id, self.now);
        if self.outcome("a consumer closes", closed)?.is_some() {
            self.examine_taken()?;
            self.judge.persisted();
        }
        Ok(())
    }

    /// Returns the number of messages.
    fn poll(&mut self, at: usize, most: usize) -> Checked<usize> {
        let member = &self.members[at];
        let taken = member.consumer.take(most, self.now);
        let (group, id, paused) = (member.group, member.id, member.paused.clone());
        self.judge.times_out(self.now);
        let Some(messages) = self.outcome("a poll", taken)? else {
            return Ok(0);
        };
        let place = |message: &StoredMessage| {
            let view = message.view();
            (view.topic().into_owned(), view.queue_id(), view.queue_offset())
        };
        self.tell(|| {
            format!(
                "  {} {:?}",
                GROUPS[group].name,
                messages.iter().map(place).collect::<Vec<_>>()
            )
        });
        ensure(messages.len() <= most, "a poll gives what was asked for", || {
            format!("{} of {most}", messages.len())
        })?;
        for (topic, queue_id, offset) in messages.iter().map(place) {
            ensure(
                !paused.contains(&(topic.clone(), queue_id)),
                "a paused queue gives nothing",
                || format!("{topic} {queue_id} {offset}"),
            )?;
        }
        let store = self.store().clone();
        self.judge.gives(group, id, &messages, self.now, store.reader())?;
        Ok(messages.len())
    }

    fn ack(&mut self, at: usize, choice: Choice) -> Checked {
        let (group, id) = (self.members[at].group, self.members[at].id);
        let held = || self.judge.places(group, Some(id), false);
        let one = |places: Vec<(QueueName, i64)>, number: u64| {
            let at = number as usize % places.len().max(1);
            places.get(at).cloned().into_iter().collect()
        };
        let places: Vec<_> = match choice {
            Choice::All => held(),
            Choice::First => held().into_iter().take(1).collect(),
            Choice::Last => held().pop().into_iter().collect(),
            Choice::OfAnyone(number) => one(self.judge.places(group, None, false), number),
            Choice::Again(number) => one(self.judge.places(group, None, true), number),
            Choice::Unknown(number) => self.judge.unknown(group, number).into_iter().collect(),
        };
        self.tell(|| format!("  {} {places:?}", GROUPS[group].name));
        let these = places
            .iter()
            .map(|((topic, queue_id), offset)| (topic.as_str(), *queue_id, *offset));
        let counted = self.members[at].consumer.ack(these);
        match self.outcome("an acknowledgement", counted)? {
            Some(counted) => self.judge.acks(group, &places, counted),
            None => Ok(()),
        }
    }

    fn nack(&mut self, at: usize, number: u64, delay_level: Option<i32>) -> Checked {
        let (group, id) = (self.members[at].group, self.members[at].id);
        let places = match number % 8 {
            0 => self.judge.places(group, None, true),
            1 => self.judge.places(group, None, false),
            _ => self.judge.places(group, Some(id), false),
        };
        let Some(place) = places.get((number / 8) as usize % places.len().max(1)).cloned() else {
            return Ok(());
        };
        self.tell(|| format!("  {} {place:?}", GROUPS[group].name));
        let fault = self.env.pause_fault();
        let (queue, offset) = &place;
        let stored = works(
            "a message is read",
            self.store().reader().message_in_queue(&queue.0, queue.1, *offset),
        )?;
        self.env.resume_fault(fault);
        let taken = self.members[at].consumer.nack(&stored.view(), delay_level, self.now);
        match self.outcome("a message is sent back", taken)? {
            Some(is_taken) => self.judge.nacks(group, &place, delay_level, self.now, is_taken),
            None => Ok(()),
        }
    }

    fn seek(&mut self, at: usize, number: u64) -> Checked {
        let group = self.members[at].group;
        let fault = self.env.pause_fault();
        let store = self.store().clone();
        let mut queues = Vec::new();
        for topic in GROUPS[group].all_topics() {
            let ids = works("queues are listed", store.reader().queue_ids(&topic))?;
            queues.extend(ids.into_iter().map(|id| (topic.clone(), id)));
        }
        let Some(queue) = queues.get(number as usize % queues.len().max(1)) else {
            return Ok(());
        };
        let bounds = works("queues are listed", store.reader().queue_bounds(&queue.0, queue.1))?;
        let to = bounds.start + (number / 16) as i64 % (bounds.end - bounds.start + 1);
        self.tell(|| format!("  {} {queue:?} {to}", GROUPS[group].name));
        self.env.resume_fault(fault);
        let sought = self.members[at].consumer.seek(&queue.0, queue.1, to);
        match self.outcome("a seek", sought)? {
            Some(()) => self.judge.seeks(group, queue, to, store.reader()),
            None => Ok(()),
        }
    }

    fn pause(&mut self, at: usize, number: u64) -> Checked {
        let positions = self.members[at].consumer.positions();
        let Some(positions) = self.outcome("positions", positions)? else {
            return Ok(());
        };
        if let Some(position) = positions.get(number as usize % positions.len().max(1)) {
            let queue = (position.topic.clone(), position.queue_id);
            self.members[at].consumer.pause([queue.clone()]);
            self.members[at].paused.insert(queue);
        }
        Ok(())
    }

    /// The keeper gives back what was held too long, and persists, if it is time.
    fn keep(&mut self, ms: u64) -> Checked {
        self.pass(ms);
        let kept = self.broker().step(BrokerService::Keep, self.now);
        self.judge.times_out(self.now);
        self.outcome("the keeper works", kept)?;
        self.observe()?;
        self.judge.may_persist();
        Ok(())
    }

    fn observe(&mut self) -> Checked {
        for member in &self.members {
            let positions = works("positions", member.consumer.positions())?;
            self.judge.observe(member.group, positions)?;
        }
        Ok(())
    }

    /// Opens the store, and a broker's work on it.
    fn start(&mut self, is_made: bool) -> Checked {
        let store = Arc::new(works("a store opens", self.examiner.open(&self.env, is_made))?);
        let broker = BrokerController::new_stepped(&store);
        self.open = Some(Open { store, broker });
        Ok(())
    }

    fn reopen(&mut self) -> Checked {
        self.judge.may_persist();
        let closed = self.broker().close();
        let closed = closed.and(self.store().close());
        let is_closed = self.outcome("a close", closed)?.is_some();
        self.examine_taken()?;
        if !is_closed {
            return self.kill();
        }
        self.judge.persisted();
        let env = self.env.copy();
        self.env.stop();
        self.continue_on(env, false)
    }

    fn kill(&mut self) -> Checked {
        self.examine_taken()?;
        let env = self.env.kill();
        self.continue_on(env, false)
    }

    fn power_cut(&mut self, seed: u64) -> Checked {
        self.examine_taken()?;
        // While nothing is durable, the start of the log may be lost: other tests salvage it.
        let opens = |env: &SimulatedEnv| self.flushed > 0 || self.examiner.open(&env.copy(), true).is_ok();
        let is_whole = |(env, report): &(SimulatedEnv, CrashReport)| !Torn::of(report).is_any() && opens(env);
        let crashed = (seed..seed + 100).map(|seed| self.env.crash(seed)).find(is_whole);
        let Some((env, report)) = crashed else { return Ok(()) };
        for line in &report.lines {
            self.tell(|| format!("  {line}"));
        }
        self.env.stop();
        self.examine(&env, &report, seed)?;
        self.continue_on(env, true)
    }

    /// Continues with what a crash or a close left.
    fn continue_on(&mut self, env: SimulatedEnv, is_cut: bool) -> Checked {
        self.members.clear();
        self.checker = None;
        self.open = None;
        self.env = env;
        self.watch();
        let progress = written(&Files::of(&self.env, root()))?;
        self.start(true)?;
        self.restart_transactions()?;
        let store = self.store().clone();
        self.judge.restart(progress, is_cut, store.reader());
        Ok(())
    }

    fn watch(&mut self) {
        if self.told.is_some() {
            self.env.log_calls();
        }
        self.env.take_images(self.random.next(), self.one_in);
    }

    fn reader(&self, env: &SimulatedEnv) -> Result<MessageReader, Error> {
        MessageReader::open(&env.copy().shared(), root(), self.examiner.geometry.recorded())
    }

    /// Examines the images since the last time.
    fn examine_taken(&mut self) -> Checked {
        if let Some(told) = &mut self.told {
            let calls = self.env.take_log();
            told.extend(calls.into_iter().map(|call| format!("  {call}")));
        }
        for image in self.env.taken() {
            let outcome = self.examine(&image.env, &image.report, image.seed);
            if outcome.is_err() {
                self.tell(|| format!("the power goes before call {} (seed {}):", image.call, image.seed));
                for line in &image.report.lines {
                    self.tell(|| format!("  {line}"));
                }
            }
            outcome?;
        }
        self.flushed = self.store().flushed_offset();
        Ok(())
    }

    fn examine(&self, env: &SimulatedEnv, report: &CrashReport, seed: u64) -> Checked {
        // A message that nobody acknowledged may be another one then: other tests examine that.
        if Torn::of(report).is_any() {
            return Ok(());
        }
        let reader = match self.reader(env) {
            // While nothing is durable, the start of the log may be lost, and its rest not.
            Err(Error::Corrupt { .. }) if self.flushed == 0 => return Ok(()),
            opened => works("a crashed store opens for reading", opened)?,
        };
        self.examiner.counts.images.fetch_add(1, Ordering::Relaxed);
        let log = self.log(&reader)?;
        let files = Files::of(env, root());
        self.judge.examine(&reader, &log, &files, self.flushed)?;
        self.examine_transactions(&Arc::new(reader), &log, &files)?;
        if Random::new(seed).one_in(self.examiner.care.one_in) {
            self.deliver_all(env)?;
        }
        Ok(())
    }

    fn log(&self, reader: &MessageReader) -> Checked<Vec<StoredMessage>> {
        works("the log is read", every_message(reader, self.examiner.geometry.segment))
    }

    /// Opens an image for writing, lets every delayed message become due, and checks that each has one copy.
    fn deliver_all(&self, env: &SimulatedEnv) -> Checked {
        let env = env.copy();
        env.set_now(env.now() + LONGEST_DELAY as i64);
        let opened = self.examiner.open(&env, true);
        if matches!(opened, Err(Error::Corrupt { .. })) && self.flushed == 0 {
            return Ok(());
        }
        let store = Arc::new(works("a crashed store opens", opened)?);
        let broker = BrokerController::new_stepped(&store);
        works("delayed messages are delivered", dispatch_all(&store))?;
        works("delayed messages are delivered", deliver_due(&broker, self.now))?;
        works("a flush", store.flush())?;
        self.expect_delivered(store.reader()).map(drop)
    }

    /// Checks that each delayed message has one copy, and returns their number.
    fn expect_delivered(&self, reader: &MessageReader) -> Checked<usize> {
        let found = DelayedLog::of(&self.log(reader)?, &DelayLevels::default());
        let delivered = found.check_delivered();
        let check = "each delayed message is delivered once";
        delivered.map(|()| found.copies()).map_err(|what| Violation { check, what })
    }

    /// Checks that the groups consume everything in a bounded number of polls once no call fails, and that a close keeps that.
    fn finish(&mut self) -> Checked {
        for group in 0..GROUPS.len() {
            if !self.members.iter().any(|member| member.group == group) {
                self.join(group, &Start::Earliest)?;
            }
        }
        // An append that failed may still be in the pool.
        works("flush", self.store().flush())?;
        self.settle()?;
        self.end_all()?;
        works("flush", self.store().flush())?;
        self.settle()?;
        for member in &mut self.members {
            member.consumer.resume(std::mem::take(&mut member.paused));
        }
        let bound = 2 * self.next.0 as usize + 10;
        let (mut rounds, mut idle) = (0, 0);
        // The first round may only find out what was held for too long.
        while idle < 3 {
            rounds += 1;
            ensure(rounds <= bound, "a healthy group consumes everything", || {
                format!("not in {bound} rounds")
            })?;
            // An ordered queue waits for a message that failed, and a dispatcher that found no room tries again after a time.
            self.deliver(LONGEST_DELAY)?;
            // With `SYNC_FLUSH` a copy is read once it is durable.
            works("flush", self.store().flush())?;
            self.settle()?;
            idle += 1;
            for at in 0..self.members.len() {
                self.ack(at, Choice::All)?;
                if self.poll(at, 32)? > 0 {
                    idle = 0;
                }
                self.ack(at, Choice::All)?;
            }
        }
        self.observe()?;
        works("flush", self.store().flush())?;
        self.settle()?;
        let store = self.store().clone();
        self.judge.expect_consumed(store.reader(), &self.log(store.reader())?)?;
        let delivered = self.expect_delivered(store.reader())?;
        self.examiner.counts.delivered.fetch_add(delivered as u64, Ordering::Relaxed);
        self.judge.may_persist();
        works("a close", self.broker().close())?;
        works("a close", self.store().close())?;
        self.examine_taken()?;
        self.judge.persisted();
        let seed = self.random.next();
        let (cut, report) = self.env.crash(seed);
        self.examine(&cut, &report, seed)
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(told) = &mut self.told {
            told.push(line());
        }
    }
}

/// Steps the delivery until nothing more is due.
fn deliver_due(broker: &BrokerController, now: Instant) -> Result<(), Error> {
    while broker.step(BrokerService::Deliver, now)? == Next::Again {}
    Ok(())
}
