//! The slaves of a store: how much of its log each holds, and the wait of an append for them.
//!
//! *Replicated* is a watermark: the end of the log that enough slaves have acknowledged. A slave acknowledges what this process has sent to
//! it. Its first report says only what it holds, and a log that was cut by a crash may hold something else there (`RocketMQ` #10666), so
//! that report acknowledges nothing.

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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: u64,
    connected: BTreeMap<u64, Slave>,
    refused: VecDeque<RefusedSlave>,
    /// Physical offsets past *replicated* that a slave held before it connected: no acknowledgement is about them.
    unproven: Range<i64>,
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
    /// The slaves of a store whose log ends at `end`: none is connected.
    pub(super) fn new(config: &StoreConfig, end: i64) -> Self {
        let in_sync = config.in_sync_replicas.unwrap_or(2);
        Self {
            is_waited_for: config.broker_role == BrokerRole::SyncMaster && in_sync > 1,
            needed: usize::try_from(in_sync.saturating_sub(1)).unwrap_or(usize::MAX),
            max_gap: i64::try_from(config.ha_max_gap_not_in_sync).unwrap_or(i64::MAX),
            timeout: Duration::from_millis(config.slave_timeout),
            replicated: Watermark::new(end),
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
        let replicated = self.replicated.get();
        if from > replicated {
            let start = if state.unproven.is_empty() {
                replicated
            } else {
                state.unproven.start
            };
            state.unproven = start..state.unproven.end.max(from);
        }
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
        let replicated = state.held_by(self.needed);
        drop(state);
        self.replicated.advance(replicated);
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

    /// Returns the first physical offset that a connected slave still needs; `i64::MAX` without one.
    pub(super) fn lowest(&self) -> i64 {
        let state = lock(&self.state);
        state
            .connected
            .values()
            .map(|slave| slave.acknowledged)
            .min()
            .unwrap_or(i64::MAX)
    }

    /// Waits until enough slaves hold the log up to the end of an append that began at the time `begun`, or until it is sure that they do
    /// not in time: `RocketMQ`'s `handleHA`.
    ///
    /// # Errors
    /// Those of [`interrupt::check`].
    pub(super) fn wait(&self, appended: Appended, begun: Instant) -> Result<PutStatus> {
        let end = appended.end();
        if self.available(appended) != PutStatus::PutOk {
            return Ok(PutStatus::SlaveNotAvailable);
        }
        let deadline = begun + self.timeout;
        loop {
            let slice = deadline.min(Instant::now() + interrupt::INTERVAL);
            match self.replicated.wait(end, Some(slice)) {
                Wait::Reached if self.is_proven(appended.physical_offset) => return Ok(PutStatus::PutOk),
                Wait::TimedOut if slice < deadline => interrupt::check_after_wait()?,
                Wait::Reached | Wait::TimedOut | Wait::Poisoned(_) => return Ok(PutStatus::FlushSlaveTimeout),
            }
        }
    }

    /// Returns true if a raise of *replicated* past this physical offset was for bytes that slaves were sent.
    fn is_proven(&self, physical_offset: i64) -> bool {
        !lock(&self.state).unproven.contains(&physical_offset)
    }

    /// Returns [`PutStatus::SlaveNotAvailable`] if too few slaves are connected, or they are far behind an append: `RocketMQ`'s `isSlaveOK`.
    pub(super) fn available(&self, appended: Appended) -> PutStatus {
        let end = appended.end();
        if self.replicated.get() >= end {
            return PutStatus::PutOk;
        }
        let state = lock(&self.state);
        let near = state
            .connected
            .values()
            .filter(|slave| end - slave.acknowledged < self.max_gap);
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
    }
}

impl State {
    /// Returns the physical offset up to which this number of slaves has acknowledged the log; 0 if there are fewer.
    fn held_by(&self, needed: usize) -> i64 {
        let mut ends: BTreeMap<IpAddr, i64> = BTreeMap::new();
        for slave in self.connected.values().filter(|slave| slave.acknowledged > slave.from) {
            let end = ends.entry(slave.host()).or_default();
            *end = slave.acknowledged.max(*end);
        }
        let mut ends: Vec<_> = ends.into_values().collect();
        ends.sort_unstable_by_key(|end| std::cmp::Reverse(*end));
        needed
            .checked_sub(1)
            .and_then(|last| ends.get(last).copied())
            .unwrap_or_default()
    }
}

impl Slave {
    /// Two connections of one host count as one slave: the protocol has no other name for it.
    fn host(&self) -> IpAddr {
        self.address.ip()
    }
}
