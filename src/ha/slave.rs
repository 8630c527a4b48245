//! The slave of a master: receives its log into a store, and acknowledges what it holds.
//!
//! A connection begins with a record that the store has already. Its bytes, and all that follow, are compared with those of the master:
//!
//! ```text
//!              the master sends nothing, or the first record differs:
//!              ask again, further back by doubling
//!                   +---------------+
//!                   v               |
//!   connects --> compares ----------+---> a later record differs: cut the log before it, durably, and connect again
//!                   |
//!                   | the end of this log, all of it equal
//!                   v
//!                follows: append, sync, acknowledge
//! ```
//!
//! No byte is cut before a record that both logs have is found. So a wrong address costs no message.
//!
//! A tap is a slave that repeats its first report in place of the acknowledgements.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::connection::{MasterConnection, Sent};
use super::line::Line;
use super::replica_store::{ReplicaStore, SlaveCut};
use super::settings_follower::{SettingsFollower, SettingsStatus};
use super::socket::spawn;
use super::tap::{MasterBounds, Request, Tap};
use super::timing::Timing;
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::read::MessageReader;
use crate::storage::{Env, Generation};
use crate::store::MessageStore;
use crate::sync::{Mutex, lock};
use crate::watermark::{Wait, Watermark};

/// The distance from the end of the log at which the second record that is asked for begins.
const FIRST_STEP_BACK: i64 = 4096;

/// The options of a slave.
#[derive(Debug, Clone)]
pub struct SlaveOptions {
    /// The address of the master, "HOST:PORT".
    pub master: String,
    /// The address at which the master answers for topics, groups and progress, "HOST:PORT"; `None` asks nothing.
    pub broker: Option<String>,
    /// The options of a tap, which acknowledges nothing; `None` for a slave that does.
    pub tap: Option<Tap>,
    /// True to sync before each acknowledgement.
    pub is_sync: bool,
    /// True to cut also what a writer has appended to the log, where the master has other bytes.
    pub discards_tail: bool,
    /// The sizes of a new store, and how its files are opened.
    pub config: StoreConfig,
    /// The times of the connection.
    pub timing: Timing,
}

/// The state of a slave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlaveState {
    /// No connection.
    Connecting,
    /// Connected: its log is compared with that of the master.
    Comparing,
    /// It holds what the master has sent, or is about to.
    Following,
    /// It has given up, for the reason in its status.
    Failed,
    /// It is closed.
    Closed,
}

impl SlaveState {
    /// Returns the stable name, for programs in other languages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Comparing => "comparing",
            Self::Following => "following",
            Self::Failed => "failed",
            Self::Closed => "closed",
        }
    }
}

/// The status of a slave.
#[derive(Debug, Clone)]
pub struct SlaveStatus {
    /// The state.
    pub state: SlaveState,
    /// The physical offset up to which it holds the log of the master, by what was compared or received since the start; `None` before.
    pub held: Option<i64>,
    /// The physical offset up to which this connection has received the log; `None` unless it follows.
    pub received: Option<i64>,
    /// The reason why it does not follow, if it is known.
    pub error: Option<Error>,
    /// The cuts of its log since the start, the oldest first.
    pub cuts: Vec<SlaveCut>,
}

impl SlaveStatus {
    /// Returns the bytes that have come and are not held yet; `None` if it does not follow. A master says where its log ends only when it
    /// has nothing to send: what is on its way is not counted.
    pub fn lag(&self) -> Option<i64> {
        Some((self.received? - self.held?).max(0))
    }
}

/// A running slave. Dropping it closes it and hides an error of the close, so call [`Slave::close`].
#[derive(Debug)]
pub struct Slave {
    shared: Arc<Shared>,
    threads: Mutex<Option<Threads>>,
    opened_in: Generation,
}

/// The threads of a slave.
#[derive(Debug)]
struct Threads {
    log: JoinHandle<Result<()>>,
    settings: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    options: SlaveOptions,
    path: PathBuf,
    line: Line,
    settings: SettingsFollower,
    bounds: MasterBounds,
    shown: Mutex<Shown>,
}

/// The part that callers of the handle see.
#[derive(Debug)]
struct Shown {
    status: SlaveStatus,
    /// The end of what this connection has compared with the log of the master, or received of it; `None` before, and without one.
    compared: Option<i64>,
    /// The end of what it holds. A cut replaces the watermark.
    held: Arc<Watermark>,
    store: Option<Arc<MessageStore>>,
}

/// The end of a connection.
#[derive(Debug)]
enum Ended {
    /// The slave is closed.
    Closed,
    /// The connection was lost, or the store had a shortage: try again after a pause.
    Lost(Error),
    /// The master sent nothing from the record that was asked for: heartbeats, or the end of the connection for this reason.
    Absent(Option<Error>),
    /// The logs differ at this physical offset.
    Differ(i64),
    /// It cannot continue.
    Failed(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        // A segment that was not created within `wait_time_out` is there for a later append.
        let is_late = kind_of(&error) == Some(io::ErrorKind::TimedOut);
        if is_late || error.is_shortage() {
            Self::Lost(error)
        } else {
            Self::Failed(error)
        }
    }
}

/// Returns the kind of the system's answer, if the error is one.
fn kind_of(error: &Error) -> Option<io::ErrorKind> {
    match error {
        Error::Io { source, .. } => Some(source.kind()),
        _ => None,
    }
}

impl Slave {
    /// Opens the store at `path`, if there is one, and follows the master. Without a store one is made when the first bytes come.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address without a port. Those of [`MessageStore::open`].
    pub fn start(env: &Arc<dyn Env>, path: &Path, options: SlaveOptions) -> Result<Self> {
        expect_address("master", &options.master, "where it listens for slaves")?;
        if let Some(broker) = &options.broker {
            expect_address("broker", broker, "the listen port of the master")?;
        }
        if let Some(tap) = &options.tap {
            tap.expect_valid(options.broker.is_some())?;
        }
        let store = ReplicaStore::open(env, path, options.config.clone())?;
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            line: Line::default(),
            settings: SettingsFollower::new(options.broker.clone(), options.timing),
            bounds: MasterBounds::new(options.broker.clone()),
            options,
            shown: Mutex::new(Shown {
                status: SlaveStatus {
                    state: SlaveState::Connecting,
                    held: None,
                    received: None,
                    error: None,
                    cuts: Vec::new(),
                },
                compared: None,
                held: Arc::default(),
                store: store.store().cloned(),
            }),
        });
        let mut follower = Follower {
            shared: shared.clone(),
            store,
            distance: 0,
            request: Request::default(),
            master_log: None,
            bounds_asked_at: Instant::now(),
        };
        let log = spawn("ha-slave", move || {
            follower.run();
            follower.store.close()
        })?;
        let slave = Self {
            shared: shared.clone(),
            threads: Mutex::new(Some(Threads { log, settings: None })),
            opened_in: Generation::current(),
        };
        if shared.settings.broker().is_some() {
            // If it cannot be started, the drop closes the slave.
            let thread = spawn("ha-settings", move || shared.settings.run(|| shared.compared()))?;
            if let Some(threads) = &mut *lock(&slave.threads) {
                threads.settings = Some(thread);
            }
        }
        Ok(slave)
    }

    /// Returns the directory of its store.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Returns the address of the master.
    pub fn master(&self) -> &str {
        &self.shared.options.master
    }

    /// Returns the address that it asks for settings; `None` if it asks nothing.
    pub fn broker(&self) -> Option<&str> {
        self.shared.settings.broker()
    }

    /// Returns the status of the settings.
    pub fn settings(&self) -> SettingsStatus {
        self.shared.settings.status()
    }

    /// Returns the status.
    pub fn status(&self) -> SlaveStatus {
        lock(&self.shared.shown).status.clone()
    }

    /// Returns the reader of its store; `None` before the first bytes. A cut of the log makes a new one.
    pub fn reader(&self) -> Option<Arc<MessageReader>> {
        lock(&self.shared.shown).store.as_ref().map(|store| store.reader().clone())
    }

    /// Waits until it holds the record at this physical offset, as it acknowledges it: synced, if it syncs.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Closed`]; the reason why it has given up; those of [`interrupt::check`].
    pub fn wait(&self, physical_offset: i64, deadline: Option<Instant>) -> Result<()> {
        let target = physical_offset.saturating_add(1);
        loop {
            if self.opened_in != Generation::current() {
                return Err(Error::Closed);
            }
            let (held, failure) = {
                let shown = lock(&self.shared.shown);
                let failure = shown
                    .status
                    .error
                    .clone()
                    .filter(|_| shown.status.state == SlaveState::Failed);
                (shown.held.clone(), failure)
            };
            let slice = Instant::now() + interrupt::INTERVAL;
            match held.wait(target, Some(deadline.map_or(slice, |deadline| deadline.min(slice)))) {
                Wait::Reached => return Ok(()),
                Wait::Poisoned(cause) => return Err(failure.unwrap_or(cause)),
                Wait::TimedOut => {}
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(Error::TimedOut {
                    what: format!("the slave does not hold the log up to physical offset {physical_offset} yet"),
                });
            }
            interrupt::check_after_wait()?;
        }
    }

    /// Ends the connection, and closes the store. A second call does nothing.
    ///
    /// # Errors
    /// Those of [`MessageStore::close`].
    pub fn close(&self) -> Result<()> {
        // A child of fork has neither the thread nor the socket.
        if self.opened_in != Generation::current() {
            return Ok(());
        }
        let Some(Threads { log, settings }) = lock(&self.threads).take() else {
            return Ok(());
        };
        self.shared.settings.close();
        if let Some(settings) = settings {
            // It uses the store until then.
            settings.thread().unpark();
            let _ = settings.join();
        }
        self.shared.line.close();
        self.shared.bounds.close();
        log.thread().unpark();
        let closed = log.join().unwrap_or(Err(Error::Closed));
        let mut shown = lock(&self.shared.shown);
        (shown.status.state, shown.status.received) = (SlaveState::Closed, None);
        shown.held.poison(Error::Closed);
        drop(shown);
        closed
    }

    /// Returns true once it is closed, and in a child of the process that started it.
    pub fn is_closed(&self) -> bool {
        self.opened_in != Generation::current() || self.status().state == SlaveState::Closed
    }
}

impl Drop for Slave {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn expect_address(name: &str, address: &str, meaning: &str) -> Result<()> {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(port) if port > 0 => Ok(()),
        _ => Err(Error::Invalid {
            what: format!("the {name} is {address:?}: expected HOST:PORT, {meaning}"),
        }),
    }
}

impl Shared {
    fn is_closing(&self) -> bool {
        self.line.is_closed()
    }

    /// Returns the store, and the end of the log that it has as the master has it now. A master that comes back may have another log.
    fn compared(&self) -> Option<(Arc<MessageStore>, i64)> {
        let shown = lock(&self.shown);
        shown.store.clone().zip(shown.compared)
    }

    fn lost(&self, error: io::Error) -> Ended {
        Ended::Lost(Error::io("follow the master at", self.options.master.as_str(), error))
    }

    fn show(&self, change: impl FnOnce(&mut SlaveStatus)) {
        change(&mut lock(&self.shown).status);
    }
}

/// Returns true if the master has ended the connection.
fn has_hung_up(error: &Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        kind_of(error),
        Some(BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
    )
}

/// The thread of a slave.
#[derive(Debug)]
struct Follower {
    shared: Arc<Shared>,
    store: ReplicaStore,
    /// The distance from the end of the log at which the next record that is asked for begins.
    distance: i64,
    /// The request of this connection.
    request: Request,
    /// The bounds of the master's log, which only a tap asks for; `None` if they are not known.
    master_log: Option<Range<i64>>,
    bounds_asked_at: Instant,
}

impl Follower {
    fn run(&mut self) {
        while !self.shared.is_closing() {
            let ended = self.connect_and_follow();
            lock(&self.shared.shown).compared = None;
            self.shared.line.forget();
            self.store.forget_tail();
            match self.recover(ended) {
                Ok(()) => {}
                Err(Ended::Lost(error)) => {
                    self.distance = 0;
                    self.show_error(SlaveState::Connecting, error);
                    self.shared.line.pause(self.shared.options.timing.pause);
                }
                Err(Ended::Failed(error)) => {
                    self.show_error(SlaveState::Failed, error);
                    while !self.shared.is_closing() {
                        thread::park();
                    }
                }
                Err(_) => return,
            }
        }
    }

    fn show_error(&self, state: SlaveState, error: Error) {
        self.shared
            .show(|status| (status.state, status.received, status.error) = (state, None, Some(error)));
    }

    /// Prepares the next connection, which follows at once.
    fn recover(&mut self, ended: Ended) -> std::result::Result<(), Ended> {
        let master = self.shared.options.master.clone();
        let Request { asked, is_first, .. } = self.request;
        match ended {
            Ended::Absent(reason) if is_first => return Err(Ended::Lost(self.store.other_log(&master, reason.as_ref()))),
            Ended::Absent(_) => self.step_back(),
            Ended::Differ(at) => {
                let end = self.store.last_end_before(asked, at)?;
                if end > asked {
                    let shared = self.shared.clone();
                    return shared.settings.during_cut(|| self.cut(end));
                }
                if is_first {
                    return Err(Ended::Failed(self.store.other_log(&master, None)));
                }
                self.step_back();
            }
            ended => return Err(ended),
        }
        Ok(())
    }

    fn step_back(&mut self) {
        self.distance = self.distance.saturating_mul(2).max(FIRST_STEP_BACK);
    }

    /// Cuts the log where the master has other bytes.
    fn cut(&mut self, at: i64) -> std::result::Result<(), Ended> {
        let options = &self.shared.options;
        if !options.discards_tail {
            self.store.expect_received(at, &options.master)?;
        }
        let cut = self.store.cut(at);
        self.publish_store();
        let mut shown = lock(&self.shared.shown);
        shown.status.cuts.extend(cut.as_ref().ok());
        // A record past the cut is not held any more.
        shown.held = Arc::new(Watermark::new(shown.held.get().min(at)));
        shown.status.held = shown.status.held.map(|held| held.min(at));
        drop(shown);
        self.distance = 0;
        cut?;
        Ok(())
    }

    fn publish_store(&self) {
        lock(&self.shared.shown).store = self.store.store().cloned();
    }

    /// Asks for the log from a record on that the store has, and follows until something ends it.
    fn connect_and_follow(&mut self) -> Ended {
        if let Err(ended) = self.prepare() {
            return ended;
        }
        let shared = self.shared.clone();
        shared.line.pause(self.request.pause);
        let silence = shared.options.timing.silence;
        let connected = shared
            .line
            .connect(&shared.options.master, silence)
            .and_then(|stream| stream.map(|stream| MasterConnection::new(stream, silence)).transpose());
        let mut connection = match connected {
            Ok(Some(connection)) => connection,
            Ok(None) => return Ended::Closed,
            Err(error) => return shared.lost(error),
        };
        shared.show(|status| status.state = SlaveState::Comparing);
        let ended = self.follow(&mut connection).unwrap_or_else(|ended| ended);
        match ended {
            _ if shared.is_closing() => Ended::Closed,
            // A master of mqstore closes the connection of a slave that asks for what it does not have.
            Ended::Lost(error) if !connection.has_frame() && self.store.end() > 0 && has_hung_up(&error) => {
                Ended::Absent(Some(error))
            }
            ended => ended,
        }
    }

    /// Chooses the record to ask for before the connection: a master that waits for the request for long sends a heartbeat first.
    fn prepare(&mut self) -> std::result::Result<(), Ended> {
        if self.store.open_again()? {
            self.publish_store();
        }
        let shared = self.shared.clone();
        self.request = match &shared.options.tap {
            None => Request::of_slave(&self.store, self.distance)?,
            Some(tap) => {
                let asked = self.ask_bounds();
                if let Err(error) = asked
                    && self.store.store().is_none()
                    && tap.needs_bounds()
                {
                    return Err(Ended::Lost(error));
                }
                let master = &shared.options.master;
                tap.request(&self.store, self.distance, master, self.master_log.as_ref())?
            }
        };
        Ok(())
    }

    /// Asks for the bounds of the master's log. A failure keeps those that are known.
    fn ask_bounds(&mut self) -> Result<()> {
        self.bounds_asked_at = Instant::now();
        let broker = self.shared.options.broker.as_deref().unwrap_or_default();
        let asked = self.shared.bounds.ask();
        self.master_log = asked.map_err(|error| Error::io("ask for the bounds of the log at", broker, error))?;
        Ok(())
    }

    fn follow(&mut self, connection: &mut MasterConnection) -> std::result::Result<Ended, Ended> {
        let shared = self.shared.clone();
        let lost = |error| shared.lost(error);
        let Request {
            asked, from, mut next, ..
        } = self.request;
        let is_empty = asked == self.store.end();
        connection.report(from).map_err(lost)?;
        let (mut acknowledged, is_tap) = (from, shared.options.tap.is_some());
        loop {
            let (reached, is_end) = match connection.receive().map_err(lost)? {
                Sent::Nothing => (next, false),
                Sent::Heartbeat { physical_offset } => {
                    self.expect_next(next, physical_offset)?;
                    if next == Some(from) && from < self.store.end() {
                        return Ok(Ended::Absent(None));
                    }
                    self.expect_kept(physical_offset)?;
                    (Some(physical_offset), true)
                }
                Sent::Log { physical_offset, bytes } => {
                    self.expect_next(next, physical_offset)?;
                    self.take(physical_offset, bytes)?;
                    let end = physical_offset.checked_add(bytes.len() as i64);
                    let end = end.ok_or_else(|| Ended::Failed(self.store.wrong_start(physical_offset)))?;
                    (Some(end), false)
                }
            };
            next = reached;
            let Some(reached) = reached.filter(|_| connection.is_drained()) else {
                continue;
            };
            // Before both logs are compared up to the end of one of them, the offset may be inside a record, or the record another one.
            let is_compared = is_end || (reached >= self.store.end() && (is_empty || reached > from));
            let held = if is_compared { self.hold(reached)? } else { acknowledged };
            let reached = if is_tap { from } else { held.max(acknowledged) };
            if reached > acknowledged || connection.is_report_due(shared.options.timing.heartbeat) {
                acknowledged = reached;
                connection.report(acknowledged).map_err(lost)?;
            }
        }
    }

    /// Refuses a frame that does not follow the last one. The first one of an empty log begins a segment.
    fn expect_next(&self, next: Option<i64>, sent: i64) -> std::result::Result<(), Ended> {
        match next {
            Some(next) if sent == next => Ok(()),
            Some(next) => {
                let what = format!("the master sent its log from {sent} on, {next} was expected");
                Err(self.shared.lost(io::Error::new(io::ErrorKind::InvalidData, what)))
            }
            None if self.store.may_begin_at(sent) => Ok(()),
            None => Err(Ended::Failed(self.store.wrong_start(sent))),
        }
    }

    /// Checks, if this is a tap, that the master has the byte that comes next: a broker that has removed it sends heartbeats without an end.
    fn expect_kept(&mut self, next: i64) -> std::result::Result<(), Ended> {
        let options = &self.shared.options;
        if options.tap.is_none() {
            return Ok(());
        }
        if self.bounds_asked_at.elapsed() >= options.timing.settings {
            // The settings report a broker that does not answer.
            let _ = self.ask_bounds();
        }
        let master = &self.shared.options.master;
        match &self.master_log {
            Some(log) if log.start > next => Err(Ended::Failed(self.store.below_begin(master, next, log.start))),
            None if next == 1 && self.store.received_end() == 0 => {
                let what =
                    "it sends nothing from the start of its log on: it is empty, or has removed that; name its listening port";
                Err(self.shared.lost(io::Error::new(io::ErrorKind::NotFound, what)))
            }
            _ => Ok(()),
        }
    }

    /// Compares or appends bytes of the master's log.
    fn take(&mut self, at: i64, bytes: &[u8]) -> std::result::Result<(), Ended> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.store.store().is_none() {
            // No request has the start of a log in it: the first byte of a size, which is 0.
            let begun = self.store.begin_at(if at == 1 { 0 } else { at });
            self.publish_store();
            begun?;
        }
        if at == 1 && self.store.received_end() == 0 {
            self.store.append(&[0])?;
        }
        let known = usize::try_from(self.store.received_end() - at).unwrap_or(0).min(bytes.len());
        let (own, new) = bytes.split_at_checked(known).unwrap_or((bytes, &[]));
        if let Some(difference) = self.store.first_difference(at, own)? {
            return Err(Ended::Differ(difference));
        }
        match self.store.append(new) {
            // The log of the master is damaged there: it may be repaired.
            Err(error @ Error::Corrupt { .. }) => Err(Ended::Lost(error)),
            appended => Ok(appended?),
        }
    }

    /// Makes durable, if it has to be, what was compared or received up to `next`, and shows it. Returns the end of what is held.
    fn hold(&self, next: i64) -> Result<i64> {
        let Some(store) = self.store.store() else {
            self.shared
                .show(|status| (status.state, status.error) = (SlaveState::Following, None));
            return Ok(0);
        };
        let held = next.min(store.appended_offset());
        let mut shown = lock(&self.shared.shown);
        let is_following = next >= store.appended_offset();
        let is_new = shown.status.held != Some(held);
        shown.status.received = is_following.then_some(next);
        drop(shown);
        if is_new && self.shared.options.is_sync && store.flushed_offset() < held {
            store.flush()?;
        }
        let mut shown = lock(&self.shared.shown);
        (shown.status.held, shown.compared) = (Some(held), Some(held));
        if is_following {
            (shown.status.state, shown.status.error) = (SlaveState::Following, None);
        }
        shown.held.advance(held);
        Ok(held)
    }
}
