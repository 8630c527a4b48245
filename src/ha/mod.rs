//! Replication of the log over TCP, in the protocol of `RocketMQ`'s default HA service: a master sends the bytes of its log, and a slave
//! reports how far it holds them.

/// The messages of the protocol.
mod wire;
/// The times of a slave.
mod timing;
/// Reads from a socket up to a deadline.
mod timed_stream;
/// The frames of requests for settings.
mod remoting;
/// Sockets and threads.
mod socket;
/// A port, its connections and their threads.
mod listener;
/// The master.
mod master;
/// The end of a log, and what names it.
mod log_tail;
/// The settings of the master, which slaves ask for.
mod settings_server;
/// A connection that another thread may end.
mod line;
/// The settings of a slave, taken from its master.
mod settings_follower;
/// A connection to a master: takes frames, and reports an offset.
mod connection;
/// The store of a slave: opened, compared with the log of its master, cut.
mod replica_store;
/// A tap: the requests of a slave that acknowledges nothing.
mod tap;
/// The slave.
mod slave;

pub use master::Master;
pub use remoting::RemotingCommand;
pub use replica_store::SlaveCut;
pub use settings_follower::SettingsStatus;
pub use settings_server::{RequestTimes, SettingsServer};
pub use slave::{Slave, SlaveOptions, SlaveState, SlaveStatus};
pub use tap::{Tap, TapStart};
pub use timing::Timing;
pub use wire::{SlaveReport, TransferHeader};
