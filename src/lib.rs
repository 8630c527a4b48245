//! `mqstore` opens, reads, queries and writes Apache RocketMQ-format message stores in-process, without a broker.
//!
//! The rooms stand in order, from the ground up: a module imports only from what is declared above it.

#[cfg(not(target_os = "linux"))]
compile_error!("mqstore builds on Linux: its locks, allocation and SIGBUS guard are not ported to other systems yet");

/// Pure bytes: every record, entry, header and name of the on-disk format, both ways.
pub mod format;
/// Remedies: what a caller can do about an error, as data.
pub mod remedy;
/// What can go wrong, told by what the caller can do about it.
pub mod error;
/// The options of a store, RocketMQ's names and defaults.
pub mod config;
/// Locks, atomics, parking: thread primitives that models replace.
mod sync;
/// An offset that only rises, and the threads that wait for it.
pub mod watermark;
/// A way out of long calls.
pub mod interrupt;
/// Files, mappings and the clock: the seam to the operating system. Never interprets a byte.
pub mod storage;
/// One file family each: commit log, consume queues, index files, checkpoint.
pub mod log;
/// What a crash left: where the log ends, what queues and index lack, and what a writer does with it.
pub mod recovery;
/// What runs beside the callers of a store: dispatching, flushing, stamping the checkpoint.
pub mod services;
/// Ordered pipeline of threads: parallel work, outputs in order, bounded memory.
mod pipeline;
/// Reading, from any process: writes nothing and takes no lock.
pub mod read;
/// The writing process, put together.
pub mod store;
/// Whether the files of a store agree with each other and with the format, and what makes them agree again.
pub mod check;
/// Batches of messages in and out through Arrow. Knows no Python.
#[cfg(feature = "arrow")]
mod arrow;
/// The Python classes: convert, release the interpreter, call, convert.
#[cfg(feature = "python")]
mod bindings;
