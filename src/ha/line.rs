//! A connection to a master that another thread may end, also while it is made, and the pause before the next one.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use super::socket::{hang_up, spawn};
use crate::storage::ClosedInChild;
use crate::sync::{Mutex, lock};

/// A connection that one thread uses and another one may end.
#[derive(Debug, Default)]
pub(super) struct Line {
    is_closed: AtomicBool,
    stream: Mutex<Option<Arc<ClosedInChild<TcpStream>>>>,
}

impl Line {
    /// Returns true once it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Ends the connection, and makes no other. The caller unparks the thread that uses it.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        if let Some(stream) = &*lock(&self.stream) {
            hang_up(stream);
        }
    }

    /// Connects, and returns `None` once it is closed. The thread that connects may outlive it by the timeout of the system.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn connect(&self, address: &str, timeout: Duration) -> io::Result<Option<Arc<ClosedInChild<TcpStream>>>> {
        let (address, waiting) = (address.to_owned(), thread::current());
        let (send, connected) = sync_channel(1);
        let connect = move || {
            let _ = send.send(connect_to(&address, timeout));
            waiting.unpark();
        };
        spawn("ha-connector", connect).map_err(|error| io::Error::other(error.to_string()))?;
        loop {
            if let Ok(stream) = connected.try_recv() {
                let stream = Arc::new(ClosedInChild::open(|| stream)?);
                *lock(&self.stream) = Some(stream.clone());
                return Ok((!self.is_closed()).then_some(stream));
            }
            if self.is_closed() {
                return Ok(None);
            }
            thread::park();
        }
    }

    /// Forgets the connection, which has ended.
    pub(super) fn forget(&self) {
        *lock(&self.stream) = None;
    }

    /// Waits for this time, until it is closed at the latest.
    pub(super) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_closed() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }
}

fn connect_to(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut refused = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}
