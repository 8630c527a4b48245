//! The transfer of bytes to a socket: long runs of a file by `sendfile`, which copies nothing in this process, and scattered records and
//! memory by one gathering `sendmsg`.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::env::{Env, File, Socket};
use super::mapped_file::{MappedFile, SelectedBuffer};
use crate::error::{Error, Result};
use crate::interrupt;

/// The shortest run that is sent by `sendfile`: below it, the copy of a `sendmsg` costs less than the calls of its own.
const LEAST_RUN: usize = 32 * 1024;
/// The most parts of one `sendmsg` (`IOV_MAX`).
const MOST_GATHERED: usize = 1024;
/// The longest timeout: later moments may not exist.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// The bytes that are copied at once where `sendfile` does not work.
const PIECE: usize = 64 * 1024;

/// Consecutive bytes of a transfer.
#[derive(Debug, Clone)]
pub enum Part<'b> {
    /// Bytes in memory.
    Memory(&'b [u8]),
    /// Positions in a file that no process writes any more.
    File(&'b Arc<MappedFile>, Range<usize>),
}

impl SelectedBuffer {
    /// Returns the bytes as a part of a transfer.
    pub fn part(&self) -> Part<'_> {
        match self {
            Self::Mapped { file, range } => Part::File(file, range.clone()),
            Self::Owned(bytes) => Part::Memory(bytes),
        }
    }
}

impl Part<'_> {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(_, range) => range.len(),
        }
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the part without its first `count` bytes.
    #[must_use]
    pub fn after(&self, count: usize) -> Self {
        match self {
            Self::Memory(bytes) => Self::Memory(bytes.get(count..).unwrap_or_default()),
            Self::File(file, range) => Self::File(file, range.start.saturating_add(count).min(range.end)..range.end),
        }
    }

    /// Returns the end of its positions; 0 for memory.
    fn end(&self) -> usize {
        match self {
            Self::Memory(_) => 0,
            Self::File(_, range) => range.end,
        }
    }

    /// Returns true if `next` can be sent with this part: a batch is memory, and then ranges of one file.
    fn is_batched_with(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Memory(_), _) => true,
            (Self::File(file, _), Self::File(next, _)) => Arc::ptr_eq(file, next),
            (Self::File(..), Self::Memory(_)) => false,
        }
    }
}

/// A transfer that ended early.
#[derive(Debug)]
pub struct Unsent {
    /// The bytes that the socket has taken, from the first part on.
    pub sent: u64,
    /// The reason.
    pub cause: UnsentCause,
}

/// The reason why a transfer ended early.
#[derive(Debug)]
pub enum UnsentCause {
    /// The socket: `WouldBlock` if its buffer is full and nothing is waited for, `TimedOut` at the deadline.
    Socket(io::Error),
    /// The file is damaged, or the caller has interrupted the transfer.
    Store(Error),
}

impl From<Error> for UnsentCause {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// A mapped file, and the same file opened again, if it is still there.
type Opened = (Arc<MappedFile>, Option<Arc<dyn File>>);

/// Sends parts to sockets. It keeps the last file open, for the next part of it.
#[derive(Debug)]
pub struct Transfer<'e> {
    env: &'e dyn Env,
    opened: Option<Opened>,
}

impl<'e> Transfer<'e> {
    /// Creates a transfer of the files of `env`.
    pub fn new(env: &'e dyn Env) -> Self {
        Self { env, opened: None }
    }

    /// Sends the parts in order, and returns their bytes. `timeout` bounds the waits for a socket that does not block; without it a socket
    /// whose buffer is full ends the transfer.
    ///
    /// # Errors
    /// [`Unsent`], with the number of bytes that went.
    pub fn send(&mut self, socket: &dyn Socket, timeout: Option<Duration>, parts: &[Part<'_>]) -> Result<u64, Unsent> {
        let mut stream = Stream {
            socket,
            deadline: timeout.map(|timeout| Instant::now() + timeout.min(LONGEST)),
            sent: 0,
        };
        let mut batches = parts.chunk_by(Part::is_batched_with).peekable();
        while let Some(batch) = batches.next() {
            let sent = self.send_batch(&mut stream, batch, batches.peek().is_some());
            sent.map_err(|cause| Unsent {
                sent: stream.sent,
                cause,
            })?;
        }
        Ok(stream.sent)
    }

    fn send_batch(&mut self, stream: &mut Stream<'_>, batch: &[Part<'_>], has_more: bool) -> Result<(), UnsentCause> {
        let Some(Part::File(mapped, _)) = batch.last() else {
            return stream.send_runs(&runs_of(batch, |_| false), None, has_more);
        };
        let file = self.reopened(mapped);
        let file = file.as_deref();
        let end = batch.iter().map(Part::end).max().unwrap_or(0);
        mapped.expect_whole(file, end)?;
        let runs = runs_of(batch, |run| {
            !mapped.is_in_memory() || (file.is_some() && run.len() >= LEAST_RUN)
        });
        let sent = stream.send_runs(&runs, file, has_more);
        // Also after an error, which may come from the loss, and after bytes that were zeros when they were sent.
        mapped.expect_whole(file, end)?;
        sent.map_err(|cause| match cause {
            UnsentCause::Socket(error) if is_of_file(&error) => Error::io("read", mapped.path(), error).into(),
            cause => cause,
        })
    }

    /// Returns the file of a mapping, if it is still there.
    fn reopened(&mut self, mapped: &Arc<MappedFile>) -> Option<Arc<dyn File>> {
        match &self.opened {
            Some((known, file)) if Arc::ptr_eq(known, mapped) => file.clone(),
            _ => {
                let file = mapped.reopen(self.env);
                self.opened = Some((Arc::clone(mapped), file.clone()));
                file
            }
        }
    }
}

/// Returns true for an error that no socket causes: the file ends, or a page of it cannot be read.
fn is_of_file(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof || matches!(error.raw_os_error(), Some(libc::EFAULT | libc::EIO))
}

/// Bytes of one batch that are sent together.
enum Run<'b> {
    Memory(&'b [u8]),
    File(Range<usize>),
}

impl<'b> Run<'b> {
    fn memory(&self) -> Option<&'b [u8]> {
        match self {
            Self::Memory(bytes) => Some(bytes),
            Self::File(_) => None,
        }
    }
}

/// Returns the runs of a batch. Those of which `is_of_file` returns false are sent from memory.
fn runs_of<'b>(batch: &[Part<'b>], is_of_file: impl Fn(&Range<usize>) -> bool) -> Vec<Run<'b>> {
    let mut joined: Vec<Part<'b>> = Vec::with_capacity(batch.len());
    for part in batch.iter().filter(|part| !part.is_empty()) {
        match (joined.last_mut(), part) {
            (Some(Part::File(_, run)), Part::File(_, next)) if run.end == next.start => run.end = next.end,
            _ => joined.push(part.clone()),
        }
    }
    let run_of = |part| match part {
        Part::Memory(bytes) => Run::Memory(bytes),
        Part::File(file, range) => {
            let bytes = if is_of_file(&range) { None } else { file.bytes(range.clone()) };
            bytes.map_or(Run::File(range), Run::Memory)
        }
    };
    joined.into_iter().map(run_of).collect()
}

/// A socket, and the bytes that it has taken.
struct Stream<'s> {
    socket: &'s dyn Socket,
    deadline: Option<Instant>,
    sent: u64,
}

impl Stream<'_> {
    fn send_runs(&mut self, runs: &[Run<'_>], file: Option<&dyn File>, has_more: bool) -> Result<(), UnsentCause> {
        let mut rest = runs;
        while let Some((first, after)) = rest.split_first() {
            if let Run::File(range) = first {
                self.send_file(file, range)?;
                rest = after;
                continue;
            }
            let gathered = rest.iter().map_while(Run::memory).take(MOST_GATHERED);
            let mut slices: Vec<_> = gathered.map(IoSlice::new).collect();
            rest = rest.get(slices.len()..).unwrap_or_default();
            self.gather(&mut slices, has_more || !rest.is_empty())?;
        }
        Ok(())
    }

    fn gather(&mut self, mut slices: &mut [IoSlice<'_>], has_more: bool) -> Result<(), UnsentCause> {
        while !slices.is_empty() {
            let asked = slices.iter().map(|slice| slice.len()).sum();
            let sent = self.take(asked, |socket| socket.send(slices, has_more))?;
            IoSlice::advance_slices(&mut slices, sent);
        }
        Ok(())
    }

    fn send_file(&mut self, file: Option<&dyn File>, range: &Range<usize>) -> Result<(), UnsentCause> {
        let (mut at, end) = (range.start, range.end);
        while at < end {
            let len = end - at;
            let sent = self.take(len, |socket| match file.and_then(File::descriptor) {
                Some(descriptor) => socket.send_file(descriptor, at as u64, len),
                None => Err(io::ErrorKind::Unsupported.into()),
            });
            at += match (sent, file) {
                (Err(UnsentCause::Socket(error)), Some(file)) if error.kind() == io::ErrorKind::Unsupported => {
                    self.copy(file, at, len.min(PIECE))?
                }
                (sent, _) => sent?,
            };
        }
        Ok(())
    }

    /// Sends bytes of a file through memory.
    fn copy(&mut self, file: &dyn File, at: usize, len: usize) -> Result<usize, UnsentCause> {
        let mut piece = vec![0; len];
        let read = file.read_full_at(&mut piece, at as u64).map_err(UnsentCause::Socket)?;
        if read < len {
            return Err(UnsentCause::Socket(io::ErrorKind::UnexpectedEof.into()));
        }
        self.gather(&mut [IoSlice::new(&piece)], true)?;
        Ok(len)
    }

    /// Makes a call that sends `asked` bytes until it has sent some of them, and returns their number.
    fn take(&mut self, asked: usize, mut call: impl FnMut(&dyn Socket) -> io::Result<usize>) -> Result<usize, UnsentCause> {
        let sent = loop {
            match call(self.socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupt::check_now()?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(error)?,
                // Only a file that ends there sends nothing.
                Ok(0) => return Err(UnsentCause::Socket(io::ErrorKind::UnexpectedEof.into())),
                sent => break sent.map_err(UnsentCause::Socket)?,
            }
        };
        self.sent += sent as u64;
        // A call on a socket that blocks returns early only after a signal, and the next one may wait for ever.
        if sent < asked && self.deadline.is_none() {
            interrupt::check_now()?;
        }
        Ok(sent)
    }

    /// Waits a moment for room in the buffer of the socket.
    fn wait(&self, full: io::Error) -> Result<(), UnsentCause> {
        let Some(deadline) = self.deadline else {
            return Err(UnsentCause::Socket(full));
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(UnsentCause::Socket(io::ErrorKind::TimedOut.into()));
        }
        match self.socket.wait_writable(left.min(interrupt::INTERVAL)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupt::check_now()?,
            waited => waited.map_err(UnsentCause::Socket)?,
        }
        Ok(interrupt::check_after_wait()?)
    }
}
