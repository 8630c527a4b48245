//! A tap: a slave whose reports acknowledge nothing that an append of its master waits for.
//!
//! A master counts the first report as an acknowledgement, too. So a tap asks for a record that is older than any wait, and repeats that
//! report. What it asks for has to be in the log of the master: a broker sends nothing from below its begin on, and without an error, and
//! it counts a report past its end as an acknowledgement of what it appends later. So a tap asks the broker port for both first.

use std::io;
use std::ops::Range;
use std::time::Duration;

use super::line::Line;
use super::remoting::{NOT_SUPPORTED, RUNTIME_INFO, RemotingCommand};
use super::replica_store::ReplicaStore;
use super::settings_follower::exchange;
use super::timed_stream::TimedStream;
use crate::error::{Error, Result};
use crate::format::decode_settings;

/// The longest wait for a connection, and then for the answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The start of a tap without a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapStart {
    /// The begin of the master's log.
    Earliest,
    /// The start of the master's last segment.
    Latest,
    /// The start of the segment that contains this physical offset.
    Offset(i64),
}

/// The options of a tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tap {
    /// The start without a store.
    pub start: TapStart,
    /// The longest wait of an append of the master for its slaves.
    pub age: Duration,
}

/// The request of a slave.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Request {
    /// The start of the first record that is asked for.
    pub(super) asked: i64,
    /// The first report.
    pub(super) from: i64,
    /// The physical offset from which on the master sends its log; `None` for any start of a segment.
    pub(super) next: Option<i64>,
    /// True if no earlier record can be asked for.
    pub(super) is_first: bool,
    /// The time to wait before the report.
    pub(super) pause: Duration,
}

impl Request {
    /// Returns the request of a slave for a record that begins at least `distance` bytes before the end of its log.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(super) fn of_slave(store: &ReplicaStore, distance: i64) -> Result<Self> {
        let asked = store.record_before_end(distance)?;
        let is_empty = asked == store.end();
        // A report of 0 asks for the newest segment, whatever the store has.
        let from = if is_empty { asked } else { asked.max(1) };
        Ok(Self {
            asked,
            from,
            next: (!is_empty).then_some(from),
            is_first: store.is_first_record(asked),
            pause: Duration::ZERO,
        })
    }
}

impl Tap {
    /// Refuses an offset that no master has, and one whose log may end before it.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(super) fn expect_valid(&self, has_broker: bool) -> Result<()> {
        let what = match self.start {
            TapStart::Offset(at) if at < 0 => format!("the start is {at}: a physical offset is 0 or more"),
            TapStart::Offset(at) if at > 0 && !has_broker => {
                format!("the start is {at}: only the broker port of the master says whether its log has that")
            }
            _ => return Ok(()),
        };
        Err(Error::Invalid { what })
    }

    /// Returns true if it needs the bounds of the master's log before it can ask a broker for its start.
    pub(super) fn needs_bounds(&self) -> bool {
        !matches!(self.start, TapStart::Latest | TapStart::Offset(0))
    }

    /// Returns the request for a record that begins at least `distance` bytes before the end of the log, and that no append waits for.
    /// Without a store it is that for the start. `master_log` are the bounds of the master's log, if they are known.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the master has removed what is asked for, [`Error::Invalid`] for a start past its end. Those of reading
    /// the log.
    pub(super) fn request(
        &self,
        store: &ReplicaStore,
        distance: i64,
        master: &str,
        master_log: Option<&Range<i64>>,
    ) -> Result<Request> {
        let (begin, end) = master_log.map_or((0, i64::MAX), |log| (log.start, log.end));
        if store.store().is_none() {
            return self.first_request(store, master, begin..end);
        }
        // The start of a log that a crash of the master has shortened is not past its end.
        let asked = store.record_before_end(distance.max(store.end().saturating_sub(end)))?;
        let old = store.record_of_age(i64::try_from(self.age.as_millis()).unwrap_or(i64::MAX))?;
        let asked = old.map_or_else(|| store.begin(), |old| old.min(asked));
        if begin > store.end() {
            return Err(store.below_begin(master, store.end(), begin));
        }
        Ok(Request {
            is_first: asked <= begin || store.is_first_record(asked),
            ..self.request_at(asked.max(begin), old.is_some() && asked >= begin)
        })
    }

    fn first_request(&self, store: &ReplicaStore, master: &str, master_log: Range<i64>) -> Result<Request> {
        let at = match self.start {
            // A report of 0 acknowledges nothing.
            TapStart::Latest => return Ok(Request::default()),
            TapStart::Earliest => master_log.start,
            TapStart::Offset(at) => store.start_of_segment(at),
        };
        if at < master_log.start {
            return Err(store.below_begin(master, at, master_log.start));
        }
        if at > master_log.end {
            let what = format!(
                "the start is {at}, and the log of the master at {master} ends at {}",
                master_log.end
            );
            return Err(Error::Invalid { what });
        }
        if !store.may_begin_at(at) {
            return Err(store.wrong_start(at));
        }
        Ok(self.request_at(at, false))
    }

    /// Returns the request for a record at this physical offset. Unless it is old it is when the report is sent. No report asks for byte
    /// 0, and a report of 1 acknowledges nothing.
    fn request_at(&self, asked: i64, is_old: bool) -> Request {
        let from = asked.max(1);
        Request {
            asked,
            from,
            next: Some(from),
            is_first: true,
            pause: if is_old || from == 1 { Duration::ZERO } else { self.age },
        }
    }
}

/// Asks the broker port of a master for the bounds of its log.
#[derive(Debug)]
pub(super) struct MasterBounds {
    /// "HOST:PORT"; `None` asks nothing.
    broker: Option<String>,
    line: Line,
}

impl MasterBounds {
    /// Asks `broker`.
    pub(super) fn new(broker: Option<String>) -> Self {
        Self {
            broker,
            line: Line::default(),
        }
    }

    /// Ends a question. The caller unparks its thread.
    pub(super) fn close(&self) {
        self.line.close();
    }

    /// Returns the bounds of the master's log. `None` without an address, and for a writer of this crate, which refuses a request for what
    /// it does not have.
    ///
    /// # Errors
    /// Those of the connection, and [`io::ErrorKind::InvalidData`] for an answer without them.
    pub(super) fn ask(&self) -> io::Result<Option<Range<i64>>> {
        let Some(broker) = &self.broker else {
            return Ok(None);
        };
        let Some(stream) = self.line.connect(broker, PATIENCE)? else {
            return Ok(None);
        };
        let stream = stream.of_process()?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let answer = exchange(
            &mut TimedStream::new(stream, PATIENCE),
            &RemotingCommand::request(RUNTIME_INFO, 0),
        );
        self.line.forget();
        let answer = answer?;
        if answer.code == NOT_SUPPORTED {
            return Ok(None);
        }
        let fields = decode_settings(&answer.body).ok();
        let bound = |name| fields.as_ref()?.get("table")?.get(name)?.as_str()?.parse::<i64>().ok();
        match (bound("commitLogMinOffset"), bound("commitLogMaxOffset")) {
            // A broker without a segment says -1.
            (Some(begin), Some(end)) => Ok(Some(begin.max(0)..end)),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer says neither commitLogMinOffset nor commitLogMaxOffset, the bounds of the log",
            )),
        }
    }
}
