//! Replication of the log over TCP, in the protocol of `RocketMQ`'s default HA service: a master sends the bytes of its log, and a slave
//! reports how far it holds them.

/// The messages of the protocol.
mod wire;
/// Sockets and threads.
mod socket;
/// A port, its connections and their threads.
mod listener;
/// The master.
mod master;
/// A connection to a master: takes frames, and reports an offset.
mod connection;
/// The store of a slave: opened, compared with the log of its master, cut.
mod replica_store;
/// The slave.
mod slave;

pub use master::Master;
pub use slave::{Slave, SlaveOptions, SlaveState, SlaveStatus, Timing};
pub use wire::{SlaveReport, TransferHeader};
