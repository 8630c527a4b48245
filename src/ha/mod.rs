//! Replication of the log over TCP, in the protocol of `RocketMQ`'s default HA service: a master sends the bytes of its log, and a slave
//! reports how far it holds them.

/// The messages of the protocol.
mod wire;
/// The master.
mod master;

pub use master::Master;
pub use wire::{SlaveReport, TransferHeader};
