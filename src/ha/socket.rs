//! The sockets and threads of both ends.

use std::net::{Shutdown, TcpStream};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::storage::ClosedInChild;

/// Ends the reads and writes of a connection, and the accepts of a listener.
pub(super) fn hang_up(stream: &ClosedInChild<TcpStream>) {
    let _ = stream.of_process().and_then(|stream| stream.shutdown(Shutdown::Both));
}

/// Starts a thread.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn spawn<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    let spawned = thread::Builder::new().name(format!("mqstore-{name}")).spawn(run);
    spawned.map_err(|error| Error::io("start a thread for", name, error))
}
