//! The master of a store: sends what its log has in files to slaves, and takes their acknowledgements.
//!
//! A slave gets only committed bytes, never those of the transient store pool: after the death of this process no slave is ahead of the
//! files. A frame ends with the segment at the latest. A slave that asks for bytes that this log does not have gets nothing, and is
//! reported: it is ahead of the master, or below the begin of the log.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::iter;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::listener::{Listener, Service, address_of};
use super::timing::Timing;
use super::wire::{FIRST_HEARTBEAT, MAX_FRAME, SlaveReport, TransferHeader};
use crate::error::{Error, Result};
use crate::storage::{ClosedInChild, Part, RealSocket, Transfer, Unsent, UnsentCause};
use crate::store::{MessageStore, Replicas};
use crate::watermark::Wait;

/// The longest time that a close gives a slave to take the rest of the log.
const LAST_BYTES: Duration = Duration::from_secs(3);

/// The slaves' side of a store that is open for writing. Close it after the store.
#[derive(Debug)]
pub struct Master {
    sender: Arc<LogSender>,
    listener: Listener<LogSender>,
}

/// Sends the log of a store to slaves.
#[derive(Debug)]
struct LogSender {
    store: Arc<MessageStore>,
    timing: Timing,
}

impl Master {
    /// Listens for slaves where the options of the store say so; `None` if they do not.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) for a host that is no address; [`Error::Io`](crate::error::Error::Io) if the
    /// port is taken, or a thread cannot be started.
    pub fn start(store: &Arc<MessageStore>) -> Result<Option<Self>> {
        Self::start_with(store, Timing::default())
    }

    /// Same as [`Master::start`], with these times of a connection.
    ///
    /// # Errors
    /// Those of [`Master::start`].
    pub fn start_with(store: &Arc<MessageStore>, timing: Timing) -> Result<Option<Self>> {
        let config = store.config();
        let Some(port) = config.ha_listen_port.and_then(|port| u16::try_from(port).ok()) else {
            return Ok(None);
        };
        let sender = Arc::new(LogSender {
            store: store.clone(),
            timing,
        });
        let listener = Listener::start(address_of(config, port)?, sender.clone())?;
        Ok(Some(Self { sender, listener }))
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Ends all connections, after slaves had time to take what was committed. The store was closed before. A second call does nothing.
    pub fn close(&self) {
        let Some(connections) = self.listener.stop() else {
            return;
        };
        let deadline = Instant::now() + LAST_BYTES;
        let slaves: BTreeSet<_> = self.sender.replicas().connected().iter().map(|slave| slave.address).collect();
        for connection in connections {
            // What has not asked for the log is given no time.
            let is_slave = slaves.contains(&connection.peer());
            connection.end(is_slave.then_some(deadline));
        }
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.close();
    }
}

/// The end of a connection.
#[derive(Debug)]
enum Ended {
    /// The slave has left, or is silent.
    Gone,
    /// The slave gets nothing more, for this reason.
    Refused(String),
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<Unsent> for Ended {
    fn from(unsent: Unsent) -> Self {
        match unsent.cause {
            UnsentCause::Socket(error) => error.into(),
            UnsentCause::Store(error) => error.into(),
        }
    }
}

impl Service for LogSender {
    const THREADS: [&'static str; 2] = ["ha-acceptor", "ha-sender"];

    fn serve(&self, stream: &ClosedInChild<TcpStream>, peer: SocketAddr) {
        let ended = stream
            .of_process()
            .map_err(Ended::from)
            .and_then(|stream| self.feed(stream, peer));
        // The end of a connection is no event; what a slave did wrong is.
        if let Err(Ended::Refused(reason)) = ended {
            self.refuse(peer, reason);
        }
    }

    fn refuse(&self, peer: SocketAddr, reason: String) {
        self.replicas().refuse(peer, reason, self.store.now_ms());
    }
}

impl LogSender {
    fn replicas(&self) -> &Arc<Replicas> {
        self.store.replicas()
    }

    /// Sends the log to a slave, and takes its reports.
    fn feed(&self, stream: &TcpStream, address: SocketAddr) -> std::result::Result<(), Ended> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timing.silence))?;
        stream.set_write_timeout(Some(self.timing.silence))?;
        let mut report = [0; SlaveReport::LEN];
        (&*stream).read_exact(&mut report)?;
        let from = self.start_of(SlaveReport::decode(report).max_physical_offset)?;
        let connection = self.replicas().connect(address, from, self.store.now_ms());
        let sent = AtomicI64::new(from);
        let ended = thread::scope(|scope| {
            let take_reports = || {
                if let Err(Ended::Refused(reason)) = self.take_reports(stream, connection, &sent) {
                    self.refuse(address, reason);
                }
                // The sender may be asleep until the next heartbeat.
                self.replicas().disconnect(connection);
                // Ends the sends.
                let _ = stream.shutdown(Shutdown::Both);
            };
            let reports = thread::Builder::new()
                .name("mqstore-ha-reports".to_owned())
                .spawn_scoped(scope, take_reports)
                .map_err(|error| Ended::Refused(format!("no thread can be started for it: {error}")))?;
            let outcome = self.send_log(stream, from, &sent);
            let _ = stream.shutdown(Shutdown::Both);
            let _ = reports.join();
            outcome
        });
        self.replicas().disconnect(connection);
        ended
    }

    /// Returns the physical offset from which on a slave gets the log that asks for it from `asked` on. An empty slave (0) gets it from the
    /// start of the last segment on, as from `RocketMQ`.
    fn start_of(&self, asked: i64) -> std::result::Result<i64, Ended> {
        let log = self.store.reader().log();
        let (begin, end) = (log.first_offset(), self.store.committed_offset());
        if asked == 0 {
            return Ok(log.start_of_segment(end).max(begin));
        }
        if asked < 0 {
            return Err(Ended::Refused(format!(
                "it asks for the log from {asked} on, where no log begins"
            )));
        }
        if asked > end {
            let ahead = format!("it holds the log up to {asked}, and is ahead: the log of this master ends at {end}");
            return Err(Ended::Refused(ahead));
        }
        if asked < begin {
            return Err(self.below_begin(asked));
        }
        Ok(asked)
    }

    fn below_begin(&self, asked: i64) -> Ended {
        let begin = self.store.reader().log().first_offset();
        Ended::Refused(format!(
            "it asks for the log from {asked} on, which was removed: the log of this master begins at {begin}"
        ))
    }

    /// Sends the log from a physical offset on, until the store is closed and all of it is sent. A heartbeat says where the log ends, at
    /// once if the slave has asked for that, and soon after the last frame: what the slave has there may be a tail that this log has lost.
    fn send_log(&self, stream: &TcpStream, from: i64, sent: &AtomicI64) -> std::result::Result<(), Ended> {
        let (log, committed) = (self.store.reader().log(), self.store.committed());
        let (socket, mut transfer) = (RealSocket::new(stream)?, Transfer::new(self.store.env()));
        let (mut next, mut patience) = (from, Duration::ZERO);
        loop {
            let wait = committed.wait(next + 1, Some(Instant::now() + patience));
            let end = committed.get().min(log.end_of_segment(next)).min(next + MAX_FRAME);
            let size = usize::try_from(end - next).unwrap_or_default();
            if size == 0 && matches!(wait, Wait::Poisoned(_)) {
                return Ok(());
            }
            let header = TransferHeader {
                physical_offset: next,
                size: size as i32,
            };
            let header = header.encode();
            // A heartbeat may be about a segment that is not there yet.
            let segment = (size > 0).then(|| log.segment_at(next)).transpose();
            // A forced trim does not wait for slaves.
            let segment = segment.map_err(|error| {
                if next < log.first_offset() {
                    self.below_begin(next)
                } else {
                    error.into()
                }
            })?;
            let bytes = segment.iter().map(|(file, at)| Part::File(file, *at..at + size));
            let frame: Vec<_> = iter::once(Part::Memory(&header)).chain(bytes).collect();
            // Before the send, so that no acknowledgement comes first.
            sent.store(end, Ordering::SeqCst);
            transfer.send(&socket, None, &frame)?;
            (next, patience) = (end, if size > 0 { FIRST_HEARTBEAT } else { self.timing.heartbeat });
        }
    }

    fn take_reports(&self, stream: &TcpStream, connection: u64, sent: &AtomicI64) -> std::result::Result<(), Ended> {
        let (mut buffer, mut kept) = ([0; 1024], 0);
        loop {
            let room = buffer.get_mut(kept..).unwrap_or_default();
            let read = match (&*stream).read(room) {
                Ok(0) => return Err(Ended::Gone),
                Ok(read) => read,
                // A signal, also SIGCONT.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            kept += read;
            let Some((report, taken)) = SlaveReport::last_of(buffer.get(..kept).unwrap_or_default()) else {
                continue;
            };
            let end = report.max_physical_offset;
            buffer.copy_within(taken..kept, 0);
            kept -= taken;
            let known = sent.load(Ordering::SeqCst);
            if end > known {
                let reason = format!("it acknowledges the log up to {end}, and was sent it up to {known}");
                return Err(Ended::Refused(reason));
            }
            self.replicas().acknowledge(connection, end);
        }
    }
}
