//! A connection to a master: the pieces of its log as they come, and the reports of the receiver.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::wire::{SlaveReport, TransferHeader};
use crate::storage::ClosedInChild;

/// The bytes that are read at once.
const BUFFER: usize = 512 * 1024;
/// The longest wait of one read: a report is at most that late.
const READ_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection to a master.
#[derive(Debug)]
pub(super) struct MasterConnection {
    stream: Arc<ClosedInChild<TcpStream>>,
    buffer: Vec<u8>,
    /// The bytes of the buffer that were not returned yet.
    unread: Range<usize>,
    /// The physical offset of the next bytes of the frame, and their number.
    frame: (i64, usize),
    reported_at: Instant,
    /// The time of the last bytes.
    heard_at: Instant,
    has_frame: bool,
    silence: Duration,
}

/// The next event of a connection.
#[derive(Debug)]
pub(super) enum Sent<'b> {
    /// Bytes of the log: a frame, or a piece of one.
    Log { physical_offset: i64, bytes: &'b [u8] },
    /// The master is alive, and would send the log from here on.
    Heartbeat { physical_offset: i64 },
    /// No byte has come for a moment.
    Nothing,
}

impl MasterConnection {
    /// Uses a stream. The connection counts as dead after `silence` without a byte from the master.
    ///
    /// # Errors
    /// Those of the socket.
    pub(super) fn new(stream: Arc<ClosedInChild<TcpStream>>, silence: Duration) -> io::Result<Self> {
        let socket = stream.of_process()?;
        // An acknowledgement is a small message, and a master waits for it.
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(READ_TIMEOUT.min(silence)))?;
        socket.set_write_timeout(Some(silence))?;
        let now = Instant::now();
        Ok(Self {
            stream,
            buffer: vec![0; BUFFER],
            unread: 0..0,
            frame: (0, 0),
            reported_at: now,
            heard_at: now,
            has_frame: false,
            silence,
        })
    }

    /// Reports a physical offset: the first one asks for the log from there on, and each later one acknowledges the log up to there.
    ///
    /// # Errors
    /// Those of the socket.
    pub(super) fn report(&mut self, max_physical_offset: i64) -> io::Result<()> {
        self.reported_at = Instant::now();
        self.stream
            .of_process()?
            .write_all(&SlaveReport { max_physical_offset }.encode())
    }

    /// Returns true if nothing was reported for this time.
    pub(super) fn is_report_due(&self, interval: Duration) -> bool {
        self.reported_at.elapsed() >= interval
    }

    /// Returns true if everything that was read was returned: it is time to report.
    pub(super) fn is_drained(&self) -> bool {
        self.unread.is_empty()
    }

    /// Returns true if the master has sent a frame.
    pub(super) fn has_frame(&self) -> bool {
        self.has_frame
    }

    /// Waits a moment for bytes, and returns the next event.
    ///
    /// # Errors
    /// Those of the socket; [`io::ErrorKind::UnexpectedEof`] at the end of the connection, [`io::ErrorKind::TimedOut`] after the silence of
    /// the master, [`io::ErrorKind::InvalidData`] for a frame that no master sends.
    pub(super) fn receive(&mut self) -> io::Result<Sent<'_>> {
        while self.frame.1 == 0 {
            if let Some(header) = self.unread().first_chunk::<{ TransferHeader::LEN }>() {
                let header = TransferHeader::decode(*header);
                self.unread.start += TransferHeader::LEN;
                return self.begin_frame(header);
            }
            if !self.read_more()? {
                return Ok(Sent::Nothing);
            }
        }
        if self.unread.is_empty() && !self.read_more()? {
            return Ok(Sent::Nothing);
        }
        let (physical_offset, left) = self.frame;
        let len = left.min(self.unread.len());
        self.frame = (physical_offset.saturating_add(len as i64), left - len);
        let piece = self.unread.start..self.unread.start + len;
        self.unread.start = piece.end;
        Ok(Sent::Log {
            physical_offset,
            bytes: self.buffer.get(piece).unwrap_or_default(),
        })
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.unread.clone()).unwrap_or_default()
    }

    fn begin_frame(&mut self, header: TransferHeader) -> io::Result<Sent<'_>> {
        let TransferHeader { physical_offset, size } = header;
        let size = usize::try_from(size).ok().filter(|_| physical_offset >= 0);
        let Some(size) = size else {
            let what = format!("a frame of {} bytes at {physical_offset}: this is no master", header.size);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        self.has_frame = true;
        self.frame = (physical_offset, size);
        Ok(if header.is_heartbeat() {
            Sent::Heartbeat { physical_offset }
        } else {
            Sent::Log {
                physical_offset,
                bytes: &[],
            }
        })
    }

    /// Reads into the buffer, and returns true if something came.
    fn read_more(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        let free = self.buffer.get_mut(self.unread.end..).unwrap_or_default();
        match self.stream.of_process()?.read(free) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the master has closed the connection",
            )),
            Ok(read) => {
                self.heard_at = Instant::now();
                self.unread.end += read;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if self.heard_at.elapsed() < self.silence {
                    return Ok(false);
                }
                let what = format!("the master was silent for {} s", self.silence.as_secs_f64());
                Err(io::Error::new(io::ErrorKind::TimedOut, what))
            }
            Err(error) => Err(error),
        }
    }
}
