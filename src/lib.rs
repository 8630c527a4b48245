//! `mqstore` opens, reads, queries and writes Apache RocketMQ-format message stores in-process, without a broker.
//!
//! The modules are declared from the lowest to the highest: a module imports only from modules declared above it.

#[cfg(not(target_os = "linux"))]
compile_error!("mqstore builds on Linux: its locks, allocation and SIGBUS guard are not ported to other systems yet");

/// Pure bytes: every record, entry, header and name of the on-disk format, both ways.
pub mod format;
/// Remedies: what a caller can do about an error, as data.
pub mod remedy;
/// Errors, classified by what the caller can do about them.
pub mod error;
/// The options of a store, RocketMQ's names and defaults.
pub mod config;
/// Locks, atomics, parking: thread primitives that the interleaving models replace.
mod sync;
/// A monotonic offset, and the threads that wait for it.
pub mod watermark;
/// Interruption of long calls.
pub mod interrupt;
/// Files, mappings and the clock: the interface to the operating system. It never interprets a byte.
pub mod storage;
/// The file families: commit log, consume queues, index files, checkpoint.
pub mod log;
/// Recovery after a crash: the end of the log, the missing entries of queues and index, and the repairs of a writer.
pub mod recovery;
/// Background services of a store: dispatching, flushing, stamping the checkpoint.
pub mod services;
/// Ordered pipeline of threads: parallel work, outputs in order, bounded memory.
mod pipeline;
/// Reading, from any process: writes nothing and takes no lock.
pub mod read;
/// The writing process of a store.
pub mod store;
/// Verification of the files of a store against each other and the format, and their repair.
pub mod check;
/// A broker's work on a store, without a network: topics, consumer groups, retries, delayed messages.
pub mod broker;
/// Replication of the log to slaves.
pub mod ha;
/// Batches of messages in and out through Arrow. Independent of Python.
#[cfg(feature = "arrow")]
mod arrow;
/// The Python classes: convert, release the interpreter, call, convert.
#[cfg(feature = "python")]
mod bindings;
