//! Two machines, a `SYNC_MASTER` and its slave, under kills, power cuts, changes of roles and a bad network: no message whose append
//! returned `PUT_OK` is lost, and both logs are equal once the network is whole. The seed draws the operations; the threads of both ends
//! and the sockets between them are real, so a run of the same seed may differ.

mod network;

use std::mem::replace;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mqstore::config::{BrokerRole, FlushDiskType, StoreConfig};
use mqstore::format::Message;
use mqstore::ha::{Master, Slave, SlaveOptions, SlaveState, Timing};
use mqstore::store::{MessageStore, OpenMode, PutStatus};

use super::campaign::{Drawn, Plan, assert_none_fails, at_least, seeds};
use super::examine::{Care, Counts, Examiner, root};
use super::files::Files;
use super::history::{Geometry, History};
use super::model::{Checked, Violation, ensure, works};
use super::run::machine;
use crate::simulated_env::{Random, SimulatedEnv};
use network::Network;

/// Longer than anything takes that comes at all.
const LONG: Duration = Duration::from_secs(30);
const LOST: &str = "no message whose append returned PUT_OK is lost";

/// An event. A machine that goes comes back at once.
#[derive(Debug, Clone)]
enum Operation {
    /// The master appends messages of these sizes, and waits for the slave.
    Append(Vec<usize>),
    /// The master appends messages, and waits for nothing.
    AppendOnly(Vec<usize>),
    /// The process of the slave is killed.
    KillSlave,
    /// The power of the slave goes.
    CutSlave,
    /// The process of the master is killed. It comes back as the master, or the slave takes over.
    KillMaster {
        is_failover: bool,
    },
    /// The power of the master goes. The slave takes over if it has what was acknowledged.
    CutMaster,
    /// Both are closed, and change their roles.
    Switch,
    Partition,
    Heal,
    Delay(Duration),
    /// The connection ends after this many bytes of the log.
    CutConnection(i64),
    /// The slave's end of the connection is gone, and the master does not know.
    HalfOpen,
}

impl Drawn for Operation {
    fn draw(random: &mut Random, count: usize) -> Vec<Self> {
        let sizes = |random: &mut Random| (0..=random.below(3)).map(|_| random.pick(&[10, 200, 900, 2500])).collect();
        let mut draw = || match random.below(24) {
            0..8 => Self::Append(sizes(random)),
            8..11 => Self::AppendOnly(sizes(random)),
            11 => Self::KillSlave,
            12 => Self::CutSlave,
            13 => Self::KillMaster { is_failover: true },
            14 => Self::KillMaster { is_failover: false },
            15 => Self::CutMaster,
            16 => Self::Switch,
            17 => Self::Partition,
            18..20 => Self::Heal,
            20 => Self::Delay(Duration::from_micros(random.below(2000))),
            21..23 => Self::CutConnection(random.below(4000) as i64),
            _ => Self::HalfOpen,
        };
        (0..count).map(|_| draw()).collect()
    }

    fn carry_out(
        history: &History<Self>,
        examiner: &Examiner<'_>,
        seed: u64,
        _one_in: u64,
        mut told: Option<&mut Vec<String>>,
    ) -> Checked {
        let mut pair = Pair::begin(history.geometry, seed, examiner)?;
        for operation in &history.operations {
            if let Some(told) = &mut told {
                told.push(format!("{operation:?}"));
            }
            pair.operate(operation)?;
        }
        pair.end()
    }
}

/// The machine of a master, and its processes.
struct MasterNode {
    env: SimulatedEnv,
    store: Arc<MessageStore>,
    master: Master,
}

/// The machine of a slave, and its process.
struct SlaveNode {
    env: SimulatedEnv,
    slave: Slave,
}

/// A master and a slave.
struct Pair<'a> {
    geometry: Geometry,
    random: Random,
    counts: &'a Counts,
    /// One of this many acknowledgements is followed by a power cut of a copy of the slave.
    one_in: u64,
    /// The slave syncs before it acknowledges. Otherwise its power does not go.
    is_sync: bool,
    network: Network,
    master: MasterNode,
    slave: SlaveNode,
    /// The log as it was when the last message that counts was acknowledged: every later log begins with it.
    acknowledged: Vec<u8>,
    /// The slave has all of that.
    is_in_sync: bool,
    number: u64,
}

impl<'a> Pair<'a> {
    /// Starts a slave on a copy of a closed master.
    fn begin(geometry: Geometry, seed: u64, examiner: &Examiner<'a>) -> Checked<Self> {
        let env = machine();
        let store = works(
            "a store opens",
            MessageStore::open(&env.shared(), root(), geometry.config(), OpenMode::New),
        )?;
        works("a message is appended", store.append(message(0, 10)))?;
        works("a store closes", store.close())?;
        let network = Network::new().expect("the loopback works");
        let mut random = Random::new(seed);
        let is_sync = !random.one_in(4);
        let copy = env.copy();
        Ok(Self {
            geometry,
            counts: examiner.counts,
            one_in: examiner.care.one_in,
            is_sync,
            master: MasterNode::start(env, geometry, &network)?,
            slave: SlaveNode::start(copy, geometry, is_sync, &network)?,
            network,
            random,
            acknowledged: Vec::new(),
            is_in_sync: false,
            number: 0,
        })
    }

    fn operate(&mut self, operation: &Operation) -> Checked {
        match operation {
            Operation::Append(sizes) => self.append(sizes, None)?,
            Operation::AppendOnly(sizes) => self.append(sizes, Some(false))?,
            Operation::KillSlave => self.restart_slave(SimulatedEnv::kill)?,
            Operation::CutSlave if self.is_sync => {
                let seed = self.random.next();
                self.restart_slave(|env| cut(env, seed))?;
            }
            Operation::CutSlave => {}
            Operation::KillMaster { is_failover } => {
                let down = self.master_down(SimulatedEnv::kill);
                self.restart_master(down, *is_failover && self.is_in_sync)?;
            }
            Operation::CutMaster => {
                let seed = self.random.next();
                let down = self.master_down(|env| cut(env, seed));
                self.restart_master(down, self.is_in_sync)?;
            }
            Operation::Switch => self.switch()?,
            Operation::Partition => self.network.partition(),
            Operation::Heal => self.network.heal(),
            Operation::Delay(delay) => self.network.delay(*delay),
            Operation::CutConnection(bytes) => self.network.cut_after(*bytes),
            Operation::HalfOpen => self.network.half_open(),
        }
        self.expect_no_failure()
    }

    fn append(&mut self, sizes: &[usize], durable: Option<bool>) -> Checked {
        for size in sizes {
            self.number += 1;
            let appender = self.master.store.appender(durable);
            let appended = works("a message is appended", appender.append(message(self.number, *size)))?;
            if durable.is_none() && appended.status == PutStatus::PutOk {
                let end = self.master.store.appended_offset() as usize;
                self.is_acknowledged(end)?;
            }
        }
        Ok(())
    }

    /// Expects that the slave has the log of the master up to this offset.
    fn is_acknowledged(&mut self, end: usize) -> Checked {
        let check = "a slave has what it acknowledges";
        let log = self.master.log(end);
        ensure(self.slave.log(end) == log, check, || format!("not up to {end}"))?;
        if self.is_sync && self.random.one_in(self.one_in) {
            let (cut, _) = self.slave.env.crash(self.random.next());
            let promoted = works(
                check,
                MessageStore::open(&cut.shared(), root(), self.geometry.recorded(), OpenMode::Append),
            )?;
            drop(promoted);
            ensure(Files::of(&cut, root()).log().starts_with(&log), check, || {
                format!("not after a power cut, up to {end}")
            })?;
            self.counts.images.fetch_add(1, Ordering::Relaxed);
        }
        self.counts.replicated.fetch_add(1, Ordering::Relaxed);
        (self.acknowledged, self.is_in_sync) = (log, true);
        Ok(())
    }

    /// Ends the process of the slave, and starts it on the machine that is left.
    fn restart_slave(&mut self, end: impl FnOnce(&SimulatedEnv) -> SimulatedEnv) -> Checked {
        let env = end(&self.slave.env);
        let slave = SlaveNode::start(env, self.geometry, self.is_sync, &self.network)?;
        drop(replace(&mut self.slave, slave));
        Ok(())
    }

    /// Ends the process of the master. Returns the machine that is left.
    fn master_down(&mut self, end: impl FnOnce(&SimulatedEnv) -> SimulatedEnv) -> SimulatedEnv {
        let env = end(&self.master.env);
        self.network.lead_to(None);
        env
    }

    /// Starts the master on the machine that is left, or the slave takes over and the old master becomes its slave.
    fn restart_master(&mut self, down: SimulatedEnv, is_failover: bool) -> Checked {
        if !is_failover {
            let master = MasterNode::start(down, self.geometry, &self.network)?;
            drop(replace(&mut self.master, master));
            return self.expect_acknowledged();
        }
        works("a slave closes", self.slave.slave.close())?;
        self.change_roles(self.slave.env.clone(), down)
    }

    /// Closes both while they are in sync, and changes their roles.
    fn switch(&mut self) -> Checked {
        self.catch_up()?;
        let master = &self.master;
        works("a master closes", master.store.close())?;
        self.network.lead_to(None);
        master.master.close();
        works("a slave closes", self.slave.slave.close())?;
        self.change_roles(self.slave.env.clone(), self.master.env.clone())
    }

    fn change_roles(&mut self, master: SimulatedEnv, slave: SimulatedEnv) -> Checked {
        let master = MasterNode::start(master, self.geometry, &self.network)?;
        drop(replace(&mut self.master, master));
        let slave = SlaveNode::start(slave, self.geometry, self.is_sync, &self.network)?;
        drop(replace(&mut self.slave, slave));
        self.is_in_sync = false;
        self.counts.promoted.fetch_add(1, Ordering::Relaxed);
        self.expect_acknowledged()
    }

    /// Heals the network, and waits until the slave has all of the log.
    fn catch_up(&mut self) -> Checked {
        self.network.heal();
        let (store, slave) = (&self.master.store, &self.slave.slave);
        works("a store flushes", store.flush())?;
        let end = store.appended_offset();
        let waited = slave.wait(end - 1, Some(Instant::now() + LONG));
        waited.map_err(|error| Violation {
            check: "a slave follows once the network is whole",
            what: format!("{error}: {:?}", slave.status()),
        })?;
        self.is_in_sync = true;
        Ok(())
    }

    fn expect_acknowledged(&self) -> Checked {
        let log = self.master.log(self.acknowledged.len());
        ensure(log == self.acknowledged, LOST, || {
            let same = log
                .iter()
                .zip(&self.acknowledged)
                .take_while(|(own, acked)| own == acked)
                .count();
            format!("{} bytes were acknowledged, {same} are there", self.acknowledged.len())
        })
    }

    fn expect_no_failure(&self) -> Checked {
        let status = self.slave.slave.status();
        ensure(status.state != SlaveState::Failed, "a slave does not give up", || {
            format!("{:?}", status.error)
        })
    }

    /// Both logs are the same at the end. A slave that is ahead keeps its tail until the master sends other bytes there.
    fn end(&mut self) -> Checked {
        self.catch_up()?;
        while self.master.store.appended_offset() <= self.slave.end() {
            self.append(&[900], Some(false))?;
        }
        self.catch_up()?;
        let end = self.master.store.appended_offset();
        works("a master closes", self.master.store.close())?;
        self.network.lead_to(None);
        works("a slave closes", self.slave.slave.close())?;
        self.expect_acknowledged()?;
        ensure(
            self.slave.log(usize::MAX) == self.master.log(usize::MAX),
            "both logs are the same",
            || format!("they differ, {end} bytes were appended"),
        )
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        self.network.close();
    }
}

impl MasterNode {
    fn start(env: SimulatedEnv, geometry: Geometry, network: &Network) -> Checked<Self> {
        let config = StoreConfig {
            broker_role: BrokerRole::SyncMaster,
            ha_listen_port: Some(0),
            slave_timeout: 10,
            ..geometry.recorded()
        };
        let check = "a master starts";
        let store = Arc::new(works(
            check,
            MessageStore::open(&env.shared(), root(), config, OpenMode::Append),
        )?);
        let master = works(check, Master::start(&store))?.expect("the options say so");
        network.lead_to(Some(master.address()));
        Ok(Self { env, store, master })
    }

    /// The first bytes of the log.
    fn log(&self, len: usize) -> Vec<u8> {
        log(&self.env, len)
    }
}

impl Drop for MasterNode {
    /// Ends the threads of a killed process, too: the master waits for the close of the store.
    fn drop(&mut self) {
        let _ = self.store.close();
        self.master.close();
    }
}

impl SlaveNode {
    fn start(env: SimulatedEnv, geometry: Geometry, is_sync: bool, network: &Network) -> Checked<Self> {
        let options = SlaveOptions {
            master: network.address().to_string(),
            broker: None,
            tap: None,
            is_sync,
            discards_tail: true,
            config: StoreConfig {
                flush_disk_type: FlushDiskType::Async,
                transient_store_pool_enable: false,
                ..geometry.recorded()
            },
            timing: Timing {
                pause: Duration::from_millis(2),
                heartbeat: Duration::from_millis(20),
                silence: Duration::from_secs(1),
                ..Timing::default()
            },
        };
        let slave = works("a slave starts", Slave::start(&env.shared(), root(), options))?;
        Ok(Self { env, slave })
    }

    /// The end of the log.
    fn end(&self) -> i64 {
        self.slave.reader().map_or(0, |reader| reader.physical_bounds().end)
    }

    /// The first bytes of the log.
    fn log(&self, len: usize) -> Vec<u8> {
        log(&self.env, len)
    }
}

fn log(env: &SimulatedEnv, len: usize) -> Vec<u8> {
    let mut log = Files::of(env, root()).log();
    log.truncate(len);
    log
}

/// Cuts the power of a machine, whose processes stop. Returns what is left.
fn cut(env: &SimulatedEnv, seed: u64) -> SimulatedEnv {
    env.stop();
    env.crash(seed).0
}

fn message(number: u64, size: usize) -> Message<'static> {
    Message {
        topic: "orders".into(),
        queue_id: (number % 3) as i32,
        flag: number as i32,
        body: vec![number as u8; size].into(),
        ..Message::default()
    }
}

#[test]
fn no_kill_or_cut_loses_what_a_slave_acknowledged() {
    let plan = Plan {
        longest: 24,
        one_in: 1,
        care: Care { deep: 0, one_in: 8 },
        without: None,
    };
    let test = "no_kill_or_cut_loses_what_a_slave_acknowledged";
    let counts = assert_none_fails::<Operation>(test, seeds(4_000_000, 2000), plan);
    let counts = [&counts.replicated, &counts.promoted, &counts.images];
    let [acknowledged, promoted, images] = counts.map(|count| count.load(Ordering::Relaxed));
    println!("acknowledged by a slave: {acknowledged}; promotions: {promoted}; power cuts of a slave after that: {images}");
    assert!(acknowledged >= at_least(1500), "{acknowledged} acknowledged");
    assert!(promoted >= at_least(700), "{promoted} promotions");
    assert!(images >= at_least(100), "{images} power cuts");
}
