//! Examines the image that a crash left. It is read, opened for writing, crashed again inside that, continued and
//! closed, and compared with the model each time.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::Message;
use mqstore::read::MessageReader;
use mqstore::services::{Next, Service};
use mqstore::storage::Step;
use mqstore::store::{MessageStore, OpenMode};

use super::files::{Files, State};
use super::history::Geometry;
use super::model::{Checked, Entries, Expect, Found, Model, ensure, when, works};
use super::reading;
use super::torn::Torn;
use crate::simulated_env::{Image, Random, SimulatedEnv};

/// The store's directory on the machine.
pub(super) const STORE: &str = "/data/store";

/// Counts of the cases that a campaign tried.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) images: AtomicU64,
    /// Of those, power cuts inside a recovery, and inside a recovery of such an image.
    pub(super) nested: [AtomicU64; 2],
    /// With a sector that is neither old nor new, in the log, the index or a queue.
    pub(super) torn: AtomicU64,
    /// Images in which such a sector changes a message that nobody acknowledged.
    pub(super) garbled: AtomicU64,
    pub(super) faults: AtomicU64,
    /// Recoveries in which a call failed, and which the next recovery completed.
    pub(super) failed_recoveries: AtomicU64,
    /// Messages that consumers were given, and those that they were given again.
    pub(super) given: AtomicU64,
    pub(super) again: AtomicU64,
    /// Copies of delayed messages and retries.
    pub(super) delivered: AtomicU64,
    /// Ends of transactions, and ends that were refused because there was one.
    pub(super) ended: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Messages that a slave had when their append returned, and slaves that took over.
    pub(super) replicated: AtomicU64,
    pub(super) promoted: AtomicU64,
}

impl Counts {
    fn add(&self, depth: usize, torn: &Torn) {
        self.images.fetch_add(1, Ordering::Relaxed);
        self.torn.fetch_add(u64::from(torn.is_any()), Ordering::Relaxed);
        if let Some(nested) = depth.checked_sub(1).and_then(|deep| self.nested.get(deep)) {
            nested.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Depth at which images are examined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Care {
    /// Recoveries that are crashed inside each other.
    pub(super) deep: usize,
    /// One of this many images gets each of the longer checks.
    pub(super) one_in: u64,
}

/// Examines images of one store.
pub(super) struct Examiner<'a> {
    pub(super) geometry: Geometry,
    pub(super) care: Care,
    pub(super) counts: &'a Counts,
    pub(super) without: Option<Step>,
}

/// A store's path on the machine.
pub(super) fn root() -> &'static Path {
    Path::new(STORE)
}

/// Steps the dispatcher until everything is dispatched and written out.
pub(super) fn dispatch_all(store: &MessageStore) -> Result<(), Error> {
    let mut now = Instant::now();
    for _ in 0..2 {
        while store.step(Service::Dispatch, now)? == Next::Again {}
        // By this time the entries in memory are due.
        now += Duration::from_secs(1);
    }
    Ok(())
}

impl Examiner<'_> {
    /// Compares an image with what it may hold, and the images of its recovery, too, to the depth in `care`.
    pub(super) fn image(&self, image: &SimulatedEnv, expect: &Expect, seed: u64, depth: usize) -> Checked {
        self.counts.add(depth, &expect.torn);
        let mut random = Random::new(seed);
        let Some(found) = when("reading the image", self.read(image, expect, &mut random))? else {
            return self.make_anew(image, expect);
        };
        self.counts
            .garbled
            .fetch_add(u64::from(found.garbled.is_any()), Ordering::Relaxed);
        if found.count == 0 && lost_its_start(image, &expect.entries) {
            return self.salvage(image, expect);
        }
        // After a kill, data may still be lost until a recovery has made it durable.
        let is_durable = image.is_durable(Path::new("/"));
        let inside_expect = if is_durable {
            expect.exactly(found.clone())
        } else {
            Expect {
                exact: None,
                ..expect.clone()
            }
        };
        let expect = expect.exactly(found);
        let env = image.copy();
        if depth < self.care.deep {
            env.take_images(random.next(), random.pick(&[[6, 12, 24], [24, 48, 96]][depth.min(1)]));
        }
        let store = works("a crashed store opens", self.open(&env, expect.is_made))?;
        let calls = env.count();
        let inside = env.taken();
        when(
            "opened for writing",
            self.recovered(image, &env, &store, &expect, &mut random),
        )?;
        if random.one_in(self.care.one_in) {
            when("going on", self.go_on(&env, &store, &expect, &mut random))?;
        }
        env.stop();
        drop(store);
        if random.one_in(self.care.one_in) {
            self.recover_again(image, &expect, calls, &mut random)?;
        }
        for Image { env, seed, report, .. } in inside {
            let expect = inside_expect.clone();
            // If everything in an image is durable, a recovery changes no byte that counts.
            let expect = if is_durable { expect } else { expect.torn(&report) };
            when("crashed inside the recovery", self.image(&env, &expect, seed, depth + 1))?;
        }
        Ok(())
    }

    /// Opens the store for writing; a store that was created knows its sizes.
    pub(super) fn open(&self, env: &SimulatedEnv, is_made: bool) -> Result<MessageStore, Error> {
        env.leave_out(self.without);
        MessageStore::open_stepped(&env.shared(), root(), self.config(is_made), OpenMode::Append)
    }

    fn config(&self, is_made: bool) -> StoreConfig {
        if is_made {
            self.geometry.recorded()
        } else {
            self.geometry.config()
        }
    }

    /// A log that lost its unsynced start looks like one whose start was damaged. It is refused, and opens when asked to
    /// keep what is whole.
    fn salvage(&self, image: &SimulatedEnv, expect: &Expect) -> Checked {
        ensure(expect.acked == 0, "acknowledged messages are there", || {
            "the log's first one is lost".to_owned()
        })?;
        let config = StoreConfig {
            recovery: Recovery::Salvage,
            ..self.config(expect.is_made)
        };
        let opened = MessageStore::open_stepped(&image.copy().shared(), root(), config, OpenMode::Append);
        works("a log without its start can be salvaged", opened.map(drop))
    }

    /// Opens the image read-only. `None` if there is no store, and need not be one.
    pub(super) fn read(&self, image: &SimulatedEnv, expect: &Expect, random: &mut Random) -> Checked<Option<Found>> {
        let env = image.copy();
        let opened = MessageReader::open(&env.shared(), root(), self.config(expect.is_made));
        if matches!(opened, Err(Error::NotAStore { .. } | Error::NoSuchDirectory { .. })) && !expect.is_made {
            return Ok(None);
        }
        let reader = works("a crashed store opens for reading", opened)?;
        let found = reading::check(&reader, expect, self.geometry.segment, random)?;
        let is_same = env.is_durable(Path::new("/")) || Files::of(&env, root()).difference(&Files::of(image, root())).is_none();
        ensure(is_same, "reading changes nothing", || "the disk differs".to_owned())?;
        let report = reader.recovery();
        let stamped = Files::of(image, root()).checkpoint().physic_msg_timestamp;
        if report.clean_exit {
            let is_closed = report.undispatched == 0 && expect.entries.len() == found.count;
            ensure(is_closed, "abort is there after a crash", || format!("{report:?}"))?;
            ensure(stamped == report.last_store_time, "a closed store has its stamp", || {
                format!("it stamps {stamped}, the last message is of {}", report.last_store_time)
            })?;
        }
        let mark = Files::of(image, root()).mark();
        ensure(
            mark.is_none_or(|mark| mark.flushed <= report.log_end),
            "the mark is not above what is on disk",
            || format!("{mark:?}, the log ends at {}", report.log_end),
        )?;
        ensure(
            stamped <= report.last_store_time || found.garbled.is_any(),
            "the checkpoint covers only messages that are there",
            || format!("it stamps {stamped}, the last message is of {}", report.last_store_time),
        )?;
        Ok(Some(found))
    }

    /// The power went before there was a store: one can be made.
    fn make_anew(&self, image: &SimulatedEnv, expect: &Expect) -> Checked {
        ensure(expect.acked == 0, "acknowledged messages are there", || {
            "there is no store".to_owned()
        })?;
        let env = image.copy();
        let store = works("a store can be made where one was begun", self.open(&env, false))?;
        works("a store can be made where one was begun", store.append(one_more(0)).map(drop))
    }

    /// Checks the invariants of a crashed store that was opened for writing.
    pub(super) fn recovered(
        &self,
        image: &SimulatedEnv,
        env: &SimulatedEnv,
        store: &MessageStore,
        expect: &Expect,
        random: &mut Random,
    ) -> Checked {
        let found = reading::check(store.reader(), expect, self.geometry.segment, random)?;
        let entries = &found.entries[..found.count];
        let files = Files::of(env, root());
        files.check(entries, &found.garbled, self.geometry, State::Open)?;
        let end = entries.last().map_or(0, |entry| entry.end() as usize);
        let (before, after) = (Files::of(image, root()).log(), files.log());
        let is_same = before.get(..end) == after.get(..end);
        ensure(is_same, "a recovery changes no byte below the end", || {
            format!("the log ends at {end}")
        })?;
        if random.one_in(self.care.one_in) {
            let again = env.copy();
            let second = works("a recovered store opens again", self.open(&again, expect.is_made))?;
            let difference = files.difference(&Files::of(&again, root()));
            ensure(difference.is_none(), "a recovery repeats itself", || {
                difference.unwrap_or_default()
            })?;
            reading::check(second.reader(), expect, self.geometry.segment, random)?;
        }
        if random.one_in(self.care.one_in) {
            let (cut, report) = env.crash(random.next());
            when("after a power cut", self.read(&cut, expect, random))?;
            let is_torn = Torn::of(&report).has_queues();
            let past = Files::of(&cut, root())
                .entry_past(entries, &found.garbled)
                .filter(|_| !is_torn);
            let check = "no queue entry on disk points past the recovered end";
            ensure(past.is_none(), check, || past.unwrap_or_default())?;
        }
        Ok(())
    }

    /// A store that was recovered takes messages, keeps them over a power cut, and closes.
    pub(super) fn go_on(&self, env: &SimulatedEnv, store: &MessageStore, expect: &Expect, random: &mut Random) -> Checked {
        let check = "a recovered store takes messages";
        let mut model = Model {
            entries: expect.entries.clone(),
            acked: 0,
            torn: expect.torn.clone(),
        };
        model.keep(expect.acked);
        works(check, dispatch_all(store))?;
        reading::check(store.reader(), &model.expect(), self.geometry.segment, random)?;
        Files::of(env, root()).check(&model.entries, model.torn.garbled(), self.geometry, State::Open)?;
        // As long as the lost message: a stale record after it would then look like the next one.
        let lost = expect.entries.get(expect.acked).map(|lost| lost.bytes.len());
        let shortest = one_more(0).encoded_len();
        let len = lost.and_then(|lost| lost.checked_sub(shortest)).unwrap_or(random.index(900));
        let messages = [one_more(len)];
        for message in &messages {
            let done = works(check, store.append(message.clone()))?;
            works(check, store.commit())?;
            model.add(store.reader(), std::slice::from_ref(message), &[done])?;
        }
        model.ack(works(check, store.flush())?);
        let (cut, report) = env.crash(random.next());
        let expect = model.expect().torn(&report);
        when("after a power cut", self.read(&cut, &expect, random))?;
        if random.one_in(2) {
            works(check, store.close())?;
            when("closed", self.closed(env, &model, random))?;
        }
        Ok(())
    }

    /// Checks of a closed store: no crash loses anything, and derived files can be made again.
    pub(super) fn closed(&self, env: &SimulatedEnv, model: &Model, random: &mut Random) -> Checked {
        let files = Files::of(env, root());
        files.check(&model.entries, model.torn.garbled(), self.geometry, State::Closed)?;
        let (cut, _) = env.crash(random.next());
        let difference = files.difference(&Files::of(&cut, root()));
        ensure(difference.is_none(), "a power cut changes nothing in a closed store", || {
            difference.unwrap_or_default()
        })?;
        let mut expect = model.expect();
        expect.acked = model.entries.len();
        ensure(
            env.is_durable(root()),
            "a power cut changes nothing in a closed store",
            || "not all of it is durable".to_owned(),
        )?;
        let has_abort = Files::of(&cut, root()).get("abort").is_some();
        ensure(!has_abort, "a power cut changes nothing in a closed store", || {
            "abort is there again".to_owned()
        })?;
        if random.one_in(self.care.one_in) {
            self.without_derived_files(&cut, &expect, random)?;
        }
        self.read(&cut, &expect, random).map(drop)
    }

    fn without_derived_files(&self, image: &SimulatedEnv, expect: &Expect, random: &mut Random) -> Checked {
        let env = image.copy();
        for (path, _) in env.files(root()) {
            let derived = ["consumequeue", "index", "checkpoint"]
                .iter()
                .any(|name| path.starts_with(root().join(name)));
            if derived {
                env.remove(&path);
            }
        }
        let check = "a store without derived files opens";
        let reader = works(check, MessageReader::open(&env.shared(), root(), self.geometry.recorded()))?;
        reading::check(&reader, expect, self.geometry.segment, random)?;
        let store = works(check, self.open(&env, true))?;
        works(check, dispatch_all(&store))?;
        reading::check(store.reader(), expect, self.geometry.segment, random)?;
        works("a store without derived files closes", store.close())?;
        Files::of(&env, root()).check(&expect.entries, expect.torn.garbled(), self.geometry, State::Closed)
    }
}

/// Returns true if the log has bytes and its first message is missing.
pub(super) fn lost_its_start(env: &SimulatedEnv, entries: &Entries) -> bool {
    let log = Files::of(env, root()).log();
    entries.first().is_some_and(|first| !log.starts_with(&first.bytes)) && log.iter().any(|byte| *byte != 0)
}

/// A message beyond those of the history.
fn one_more(len: usize) -> Message<'static> {
    Message {
        topic: "orders".into(),
        body: vec![b'+'; len].into(),
        properties: mqstore::format::encode_properties([("KEYS", "more")], true).unwrap().into(),
        ..Message::default()
    }
}
