//! Reads from a socket up to a deadline: a peer that sends a byte from time to time gets no more time than a silent one.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The reading half of a socket, up to a deadline.
#[derive(Debug)]
pub(super) struct TimedStream<'s> {
    socket: &'s TcpStream,
    deadline: Instant,
    /// The time from the first byte to the deadline, until that byte has come.
    after_first: Option<Duration>,
}

impl<'s> TimedStream<'s> {
    /// Reads for this time from now on.
    pub(super) fn new(socket: &'s TcpStream, time: Duration) -> Self {
        Self {
            socket,
            deadline: Instant::now() + time,
            after_first: None,
        }
    }

    /// Waits for the first byte for `idle`, and from then on reads for `time`.
    pub(super) fn after_idle(socket: &'s TcpStream, idle: Duration, time: Duration) -> Self {
        Self {
            after_first: Some(time),
            ..Self::new(socket, idle)
        }
    }

    /// Returns the socket.
    pub(super) fn socket(&self) -> &'s TcpStream {
        self.socket
    }
}

impl Read for TimedStream<'_> {
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] at the deadline; those of the socket.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the peer has not sent a whole frame in time");
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        self.socket.set_read_timeout(Some(left))?;
        let read = self.socket.read(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => late(),
            _ => error,
        })?;
        if let Some(time) = self.after_first.take_if(|_| read > 0) {
            self.deadline = Instant::now() + time;
        }
        Ok(read)
    }
}
