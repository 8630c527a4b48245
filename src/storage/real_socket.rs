//! A stream socket of the system.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;
use std::{mem, ptr};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, SocketType, sendmsg, sockopt};

use super::env::Socket;

/// A stream socket.
#[derive(Debug)]
pub struct RealSocket<S>(S);

impl<S: AsFd> RealSocket<S> {
    /// Uses a socket of the caller.
    ///
    /// # Errors
    /// `InvalidInput` for a socket of another type than a stream; those of the system for anything but a socket.
    pub fn new(socket: S) -> io::Result<Self> {
        if sockopt::socket_type(&socket)? != SocketType::STREAM {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self(socket))
    }
}

impl RealSocket<OwnedFd> {
    /// Duplicates the descriptor of a socket that belongs to other code. If that code closes it, the number may become that of
    /// another file, and the duplicate still leads to the socket.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn duplicate(descriptor: RawFd) -> io::Result<Self> {
        // SAFETY: the call uses no memory of this process; a number that is no descriptor is an error.
        let duplicate = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
        if duplicate < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and nothing else owns it.
        Self::new(unsafe { OwnedFd::from_raw_fd(duplicate) })
    }
}

impl<S: AsFd + std::fmt::Debug> Socket for RealSocket<S> {
    fn send(&self, parts: &[IoSlice<'_>], has_more: bool) -> io::Result<usize> {
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, has_more);
        Ok(sendmsg(&self.0, parts, &mut SendAncillaryBuffer::default(), flags)?)
    }

    fn send_file(&self, file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<usize> {
        let mut at = at;
        match without_sigpipe(|| sendfile(&self.0, file, Some(&mut at), len)) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Err(io::ErrorKind::Unsupported.into()),
            sent => Ok(sent?),
        }
    }

    fn wait_writable(&self, timeout: Duration) -> io::Result<()> {
        let mut waited = [PollFd::new(&self.0, PollFlags::OUT)];
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        poll(&mut waited, Some(&timeout))?;
        Ok(())
    }
}

/// Calls `send`, which raises the signal SIGPIPE in this thread if the peer has left: unlike `sendmsg`, `sendfile` has no flag against it. The
/// signal is blocked for the call, and taken after it.
fn without_sigpipe<T>(send: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // SAFETY: the sets are initialized by the first two calls or by zeros, which are a valid set, and outlive the calls.
    let (pipe, before, is_pending) = unsafe {
        let (mut pipe, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
            (mem::zeroed(), mem::zeroed(), mem::zeroed());
        libc::sigemptyset(&raw mut pipe);
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
        // It can have come before the call only if the thread had blocked it.
        let is_pending = libc::sigismember(&raw const before, libc::SIGPIPE) == 1
            && libc::sigpending(&raw mut pending) == 0
            && libc::sigismember(&raw const pending, libc::SIGPIPE) == 1;
        (pipe, before, is_pending)
    };
    let sent = send();
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above.
    unsafe {
        if matches!(sent, Err(Errno::PIPE)) && !is_pending {
            libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const none);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
    sent
}
