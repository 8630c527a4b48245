//! The settings of a slave: asks its master for topics, groups and progress, and merges the answers into the files of the store.
//!
//! An answer waits until the slave holds the log up to the end that the master's log had when it answered. Then every record that settles
//! the progress is there. An answer from before a cut of the log is dropped: it is about another log. So is one whose checksum of the log is
//! not that of the slave's own.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::line::Line;
use super::log_tail::LogTail;
use super::remoting::{LOG_CHECKSUM, LOG_END, MAX_FRAME, RUNTIME_INFO, RemotingCommand, SUCCESS, code_of};
use super::timed_stream::TimedStream;
use super::timing::Timing;
use crate::broker::{ReceivedSettings, ReplicatedFile};
use crate::error::{Error, Result};
use crate::format::decode_settings;
use crate::store::MessageStore;
use crate::sync::{Mutex, lock};

/// The longest wait for a connection: that of a slave of `RocketMQ`.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time between two checks whether the slave holds enough of the log.
const SLICE: Duration = Duration::from_millis(20);

/// The settings of a slave.
#[derive(Debug, Clone, Default)]
pub struct SettingsStatus {
    /// The time in ms at which they were last taken; `None` before.
    pub taken_at: Option<i64>,
    /// The reason why the last answer was not taken, or did not come.
    pub error: Option<Error>,
}

/// Asks the broker port of a master for settings.
#[derive(Debug)]
pub(super) struct SettingsFollower {
    /// "HOST:PORT"; `None` asks nothing.
    broker: Option<String>,
    timing: Timing,
    line: Line,
    /// The number of cuts of the log. The lock is held while the log is cut, and while settings files are written.
    cuts: Mutex<u64>,
    status: Mutex<SettingsStatus>,
}

/// The answers of a master.
#[derive(Debug)]
struct Answered {
    settings: ReceivedSettings,
    /// The end of its log, before which everything is stored that the progress passes.
    log: LogTail,
    /// The number of cuts before the question.
    cuts: u64,
}

impl SettingsFollower {
    /// Asks `broker`, each `timing.settings`, once [`SettingsFollower::run`] is called.
    pub(super) fn new(broker: Option<String>, timing: Timing) -> Self {
        Self {
            broker,
            timing,
            line: Line::default(),
            cuts: Mutex::default(),
            status: Mutex::default(),
        }
    }

    /// Returns the address that it asks.
    pub(super) fn broker(&self) -> Option<&str> {
        self.broker.as_deref()
    }

    /// Returns the status.
    pub(super) fn status(&self) -> SettingsStatus {
        lock(&self.status).clone()
    }

    /// Ends [`SettingsFollower::run`]. The caller unparks its thread.
    pub(super) fn close(&self) {
        self.line.close();
    }

    /// Cuts the log while no settings are written. What was answered before is about another log.
    pub(super) fn during_cut<T>(&self, cut: impl FnOnce() -> T) -> T {
        let mut cuts = lock(&self.cuts);
        *cuts += 1;
        cut()
    }

    /// Asks until it is closed. `compared` returns the store, and the end of the log that both have, once both are known.
    pub(super) fn run(&self, compared: impl Fn() -> Option<(Arc<MessageStore>, i64)>) {
        let Some(broker) = &self.broker else { return };
        let mut waiting: Option<Answered> = None;
        while !self.line.is_closed() {
            let deadline = Instant::now() + self.timing.settings;
            match self.ask(broker) {
                // A slave that is far behind would never reach the newest end, so the oldest answer goes first.
                Ok(Some(answered)) => {
                    let older = waiting
                        .take()
                        .filter(|older| older.log.end <= answered.log.end && older.cuts == answered.cuts);
                    waiting = self.take(older.unwrap_or(answered), deadline, &compared);
                }
                Ok(None) => return,
                Err(error) => lock(&self.status).error = Some(Error::io("take the settings of the master at", broker, error)),
            }
            self.line.forget();
            self.line.pause(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Asks once; `None` once it is closed.
    fn ask(&self, broker: &str) -> io::Result<Option<Answered>> {
        let cuts = *lock(&self.cuts);
        let Some(stream) = self.line.connect(broker, PATIENCE)? else {
            return Ok(None);
        };
        let stream = stream.of_process()?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let answered = ask_all(&mut TimedStream::new(stream, self.timing.settings_answer)).map(|(settings, log)| Answered {
            settings,
            log,
            cuts,
        });
        if self.line.is_closed() {
            return Ok(None);
        }
        answered.map(Some)
    }

    /// Merges the answer once the slave holds enough of the log. Returns it if that is not so before the deadline.
    fn take(
        &self,
        answered: Answered,
        deadline: Instant,
        compared: &impl Fn() -> Option<(Arc<MessageStore>, i64)>,
    ) -> Option<Answered> {
        loop {
            let cuts = lock(&self.cuts);
            if answered.cuts != *cuts {
                return None;
            }
            if let Some((store, end)) = compared()
                && end >= answered.log.end
            {
                self.show(&store, answered.merge(&store));
                return None;
            }
            drop(cuts);
            if self.line.is_closed() || Instant::now() >= deadline {
                return Some(answered);
            }
            self.line.pause(SLICE);
        }
    }

    fn show(&self, store: &MessageStore, merged: Result<()>) {
        let mut status = lock(&self.status);
        match merged {
            Ok(()) => (status.taken_at, status.error) = (Some(store.now_ms()), None),
            Err(error) => status.error = Some(error),
        }
    }
}

impl Answered {
    /// Merges the settings into the files of a store that has the log of the master.
    fn merge(self, store: &MessageStore) -> Result<()> {
        let end = self.log.end;
        if self.log.is_of_another_log(LogTail::of(store, end)?) {
            let what = format!(
                "the settings that the master has answered are of another log, which differs before physical offset {end}: none was taken; \
                 do they come from the broker port of this master?"
            );
            return Err(Error::Invalid { what });
        }
        self.settings.merge(store, end)
    }
}

/// Returns the settings of a master, and the end of its log after them.
fn ask_all(stream: &mut TimedStream<'_>) -> io::Result<(ReceivedSettings, LogTail)> {
    let (mut settings, mut log) = (ReceivedSettings::default(), None);
    for (opaque, file) in (1..).zip(ReplicatedFile::ALL) {
        let answer = exchange(stream, &RemotingCommand::request(code_of(file), opaque))?;
        if answer.code != SUCCESS {
            let why = answer.remark.unwrap_or_default();
            return Err(io::Error::other(format!(
                "request {} failed with {}: {why}",
                code_of(file),
                answer.code
            )));
        }
        let malformed = |malformed: crate::format::Malformed| {
            let what = format!(
                "the answer to request {}, at {}: {}",
                code_of(file),
                malformed.at,
                malformed.reason
            );
            io::Error::new(io::ErrorKind::InvalidData, what)
        };
        settings.add(file, &answer.body).map_err(malformed)?;
        log = log.max(log_of(&answer));
    }
    let log = match log {
        Some(log) => log,
        None => ask_log_end(stream)?,
    };
    Ok((settings, log))
}

/// Returns the end of the master's log, and its checksum, that an answer states.
fn log_of(answer: &RemotingCommand) -> Option<LogTail> {
    let field = |name| answer.ext_fields.get(name);
    let end = field(LOG_END)?.parse().ok()?;
    let checksum = field(LOG_CHECKSUM).and_then(|checksum| checksum.parse().ok());
    Some(LogTail { end, checksum })
}

/// Asks a broker of `RocketMQ` where its log ends. Without the answer nobody knows when its progress may be taken.
fn ask_log_end(stream: &mut TimedStream<'_>) -> io::Result<LogTail> {
    let answer = exchange(stream, &RemotingCommand::request(RUNTIME_INFO, 0))?;
    let fields = decode_settings(&answer.body).ok().filter(|_| answer.code == SUCCESS);
    let end = fields.and_then(|fields| fields.get("table")?.get("commitLogMaxOffset")?.as_str()?.parse().ok());
    let log = end.map(|end| LogTail { end, checksum: None });
    log.ok_or_else(|| {
        let what = format!(
            "request {RUNTIME_INFO} was answered with {} and no commitLogMaxOffset, where the log of the master ends: its progress was not taken",
            answer.code
        );
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Sends a request, and returns its answer.
pub(super) fn exchange(stream: &mut TimedStream<'_>, request: &RemotingCommand) -> io::Result<RemotingCommand> {
    stream.socket().write_all(&request.encode()?)?;
    match RemotingCommand::read(stream, MAX_FRAME)? {
        Some(answer) if answer.is_answer() && answer.opaque == request.opaque => Ok(answer),
        Some(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the answer is to another request: this is no broker",
        )),
        None => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the broker has closed the connection: is this its listening port?",
        )),
    }
}
