//! The slaves of a store: how much of its log each holds, and the wait of an append for them.
//!
//! A slave acknowledges what this process has sent to it. Its first report says only what it holds, and a log that was cut by a crash may
//! hold something else there (`RocketMQ` #10666), so that report acknowledges nothing. So each slave holds a range of offsets, from those
//! that it was sent first to those that it has acknowledged last, and an append waits until a range that enough slaves hold has all of it.
//! *Replicated* is a watermark, the end of the last such range: it wakes the appends that wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::config::{BrokerRole, StoreConfig};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::log::Appended;
use crate::store::append_result::PutStatus;
use crate::sync::{Mutex, lock};
use crate::watermark::{Wait, Watermark};

/// The refused slaves that are remembered.
const REFUSALS: usize = 16;
/// The ranges of held offsets that are remembered. A slave that comes back begins one.
const RANGES: usize = 64;

/// The slaves of a store.
#[derive(Debug)]
pub struct Replicas {
    is_waited_for: bool,
    /// The number of slaves that an append waits for.
    needed: usize,
    /// A slave that is this far behind, in bytes, does not count as available.
    max_gap: i64,
    timeout: Duration,
    replicated: Watermark,
    /// The number of acknowledgements.
    reports: Watermark,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: u64,
    connected: BTreeMap<u64, Slave>,
    refused: VecDeque<RefusedSlave>,
    /// Physical offsets that enough slaves were sent and have acknowledged, the latest at the end. No range is inside another one.
    held: VecDeque<Range<i64>>,
}

/// A connected slave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slave {
    /// Its address.
    pub address: SocketAddr,
    /// The time of the connection, in ms.
    pub connected_at: i64,
    /// The physical offset from which on it gets the log.
    pub from: i64,
    /// The physical offset up to which it has acknowledged the log; `from` before its first acknowledgement.
    pub acknowledged: i64,
}

/// A slave that gets nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSlave {
    /// Its address.
    pub address: SocketAddr,
    /// The time at which it was refused, in ms.
    pub refused_at: i64,
    /// The reason.
    pub reason: String,
}

impl Replicas {
    /// Creates the list of slaves of a store whose log ends at `end`: none is connected.
    pub(super) fn new(config: &StoreConfig, end: i64) -> Self {
        let in_sync = config.in_sync_replicas.unwrap_or(2);
        Self {
            is_waited_for: config.broker_role == BrokerRole::SyncMaster && in_sync > 1,
            needed: usize::try_from(in_sync.saturating_sub(1)).unwrap_or(usize::MAX),
            max_gap: i64::try_from(config.ha_max_gap_not_in_sync).unwrap_or(i64::MAX),
            timeout: Duration::from_millis(config.slave_timeout),
            replicated: Watermark::new(end),
            reports: Watermark::default(),
            state: Mutex::default(),
        }
    }

    /// Returns true if appends wait for slaves.
    #[inline]
    pub(super) fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// Adds a slave that gets the log from the physical offset `from` on. Returns the number of the connection.
    pub fn connect(&self, address: SocketAddr, from: i64, now_ms: i64) -> u64 {
        let mut state = lock(&self.state);
        state.connections += 1;
        let slave = Slave {
            address,
            connected_at: now_ms,
            from,
            acknowledged: from,
        };
        let connection = state.connections;
        state.connected.insert(connection, slave);
        connection
    }

    /// Takes account of an acknowledgement: the slave of this connection holds what it was sent, up to the physical offset `end`.
    pub fn acknowledge(&self, connection: u64, end: i64) {
        let mut state = lock(&self.state);
        if let Some(slave) = state.connected.get_mut(&connection) {
            slave.acknowledged = slave.acknowledged.max(end);
        }
        for held in state.held_by(self.needed, end) {
            state.remember(held);
        }
        let replicated = state.held.iter().map(|held| held.end).max();
        // With the lock, so that each of two calls counts.
        self.reports.advance(self.reports.get() + 1);
        drop(state);
        self.replicated.advance(replicated.unwrap_or_default());
    }

    /// Removes the slave of this connection.
    pub fn disconnect(&self, connection: u64) {
        lock(&self.state).connected.remove(&connection);
    }

    /// Remembers a slave that gets nothing.
    pub fn refuse(&self, address: SocketAddr, reason: String, now_ms: i64) {
        let mut state = lock(&self.state);
        if state.refused.len() == REFUSALS {
            state.refused.pop_front();
        }
        state.refused.push_back(RefusedSlave {
            address,
            refused_at: now_ms,
            reason,
        });
    }

    /// Returns the connected slaves, in the order in which they connected.
    pub fn connected(&self) -> Vec<Slave> {
        lock(&self.state).connected.values().cloned().collect()
    }

    /// Returns the slaves that were refused last, the latest at the end.
    pub fn refused(&self) -> Vec<RefusedSlave> {
        lock(&self.state).refused.iter().cloned().collect()
    }

    /// Returns the physical offset up to which enough slaves hold what was appended since the open.
    pub fn replicated(&self) -> i64 {
        self.replicated.get()
    }

    /// Waits until enough slaves hold the log up to the end of an append that began at the time `begun`, or until it is sure that they do
    /// not in time: `RocketMQ`'s `handleHA`.
    ///
    /// # Errors
    /// Those of [`interrupt::check`].
    pub(super) fn wait(&self, appended: Appended, begun: Instant) -> Result<PutStatus> {
        if self.available(appended) != PutStatus::PutOk {
            return Ok(PutStatus::SlaveNotAvailable);
        }
        let deadline = begun + self.timeout;
        loop {
            let slice = Some(deadline.min(Instant::now() + interrupt::INTERVAL));
            // Read first, so that no acknowledgement is missed.
            let seen = self.reports.get();
            let mut wait = self.replicated.wait(appended.end(), slice);
            if matches!(wait, Wait::Reached) {
                if lock(&self.state).holds(appended) {
                    return Ok(PutStatus::PutOk);
                }
                // What follows is held by a slave that came later, and the others may still acknowledge this.
                wait = self.reports.wait(seen + 1, slice);
            }
            match wait {
                Wait::Reached | Wait::TimedOut if Instant::now() < deadline => interrupt::check_after_wait()?,
                Wait::Reached | Wait::TimedOut | Wait::Poisoned(_) => return Ok(PutStatus::FlushSlaveTimeout),
            }
        }
    }

    /// Returns [`PutStatus::SlaveNotAvailable`] if too few slaves are connected that are sent the message, or they are far behind it:
    /// `RocketMQ`'s `isSlaveOK`.
    pub(super) fn available(&self, appended: Appended) -> PutStatus {
        let state = lock(&self.state);
        if state.holds(appended) {
            return PutStatus::PutOk;
        }
        let near = state
            .connected
            .values()
            .filter(|slave| slave.from <= appended.physical_offset && appended.end() - slave.acknowledged < self.max_gap);
        let is_enough = near.map(Slave::host).collect::<BTreeSet<_>>().len() >= self.needed;
        if is_enough {
            PutStatus::PutOk
        } else {
            PutStatus::SlaveNotAvailable
        }
    }

    /// Ends every wait, for the close of the store.
    pub(super) fn close(&self) {
        self.replicated.poison(Error::Closed);
        self.reports.poison(Error::Closed);
    }
}

impl State {
    /// Returns the slaves that have acknowledged something.
    fn reporting(&self) -> impl Iterator<Item = &Slave> {
        self.connected.values().filter(|slave| slave.acknowledged > slave.from)
    }

    /// Returns the physical offsets that this number of slaves was sent and has acknowledged, by ends up to this one.
    fn held_by(&self, needed: usize, up_to: i64) -> Vec<Range<i64>> {
        let ends = self.reporting().map(|slave| slave.acknowledged).filter(|end| *end <= up_to);
        let held = ends.filter_map(|end| {
            let far = self.reporting().filter(|slave| slave.acknowledged >= end);
            let start = start_of(far, needed)?;
            Some(start..end)
        });
        held.collect()
    }

    fn remember(&mut self, held: Range<i64>) {
        let is_inside = |inner: &Range<i64>, outer: &Range<i64>| outer.start <= inner.start && inner.end <= outer.end;
        if held.is_empty() || self.held.iter().any(|known| is_inside(&held, known)) {
            return;
        }
        self.held.retain(|known| !is_inside(known, &held));
        if self.held.len() == RANGES {
            self.held.pop_front();
        }
        self.held.push_back(held);
    }

    /// Returns true if enough slaves hold what was appended, all of it.
    fn holds(&self, appended: Appended) -> bool {
        let is_in = |held: &Range<i64>| held.start <= appended.physical_offset && appended.end() <= held.end;
        self.held.iter().rev().any(is_in)
    }
}

/// Returns the first physical offset that slaves of this number of hosts were sent; `None` if there are fewer hosts.
fn start_of<'s>(slaves: impl Iterator<Item = &'s Slave>, hosts: usize) -> Option<i64> {
    let mut starts: BTreeMap<IpAddr, i64> = BTreeMap::new();
    for slave in slaves {
        let start = starts.entry(slave.host()).or_insert(slave.from);
        *start = slave.from.min(*start);
    }
    let mut starts: Vec<_> = starts.into_values().collect();
    starts.sort_unstable();
    starts.get(hosts.checked_sub(1)?).copied()
}

impl Slave {
    /// Returns the host. Two connections of one host count as one slave: the protocol has no other name for it.
    fn host(&self) -> IpAddr {
        self.address.ip()
    }
}
