//! A TCP port of a store: one thread accepts connections, and each connection gets a thread that serves it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::socket::{hang_up, spawn};
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::storage::{ClosedInChild, Generation};
use crate::sync::{Mutex, lock};

/// The most connections at a time.
const MAX_CONNECTIONS: usize = 64;

/// The work on the connections of a port.
pub(super) trait Service: fmt::Debug + Send + Sync + 'static {
    /// The names of the thread that accepts, and of those that serve.
    const THREADS: [&'static str; 2];

    /// Serves a connection until its peer or [`Listener::stop`] ends it.
    fn serve(&self, stream: &ClosedInChild<TcpStream>, peer: SocketAddr);

    /// Notes a peer that is not served, and the reason.
    fn refuse(&self, peer: SocketAddr, reason: String);
}

/// A port, its connections and its threads.
#[derive(Debug)]
pub(super) struct Listener<S> {
    shared: Arc<Shared<S>>,
    address: SocketAddr,
    acceptor: Mutex<Option<Acceptor>>,
    opened_in: Generation,
}

#[derive(Debug)]
struct Shared<S> {
    service: Arc<S>,
    /// Set at the close.
    is_closing: AtomicBool,
    connections: Mutex<Vec<Connection>>,
}

/// The thread that accepts connections.
#[derive(Debug)]
struct Acceptor {
    /// The listener's socket, to end the wait of the thread. A close may find that no file can be opened, so it is opened before.
    listening: ClosedInChild<TcpStream>,
    thread: JoinHandle<()>,
}

/// A connection, and the thread that serves it.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Arc<ClosedInChild<TcpStream>>,
    peer: SocketAddr,
    thread: JoinHandle<()>,
}

impl Connection {
    /// Returns the address of the other end.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Ends the connection, at the deadline at the latest.
    pub(super) fn end(self, deadline: Option<Instant>) {
        while !self.thread.is_finished() && deadline.is_some_and(|deadline| Instant::now() < deadline) {
            thread::sleep(Duration::from_millis(1));
        }
        hang_up(&self.stream);
        let _ = self.thread.join();
    }
}

/// Returns the address of a port of this store: on the host that its options name.
///
/// # Errors
/// [`Error::Invalid`] for a host that is no address.
pub(super) fn address_of(config: &StoreConfig, port: u16) -> Result<SocketAddr> {
    let host = config.ha_listen_host.parse().map_err(|_| Error::Invalid {
        what: format!("ha_listen_host is {:?}: expected an IP address", config.ha_listen_host),
    })?;
    Ok(SocketAddr::new(host, port))
}

impl<S: Service> Listener<S> {
    /// Listens at `address`.
    ///
    /// # Errors
    /// [`Error::Io`] if the port is taken, or a thread cannot be started.
    pub(super) fn start(address: SocketAddr, service: Arc<S>) -> Result<Self> {
        let (address, listener, listening) =
            listen(address).map_err(|error| Error::io("listen for slaves at", address.to_string(), error))?;
        let shared = Arc::new(Shared {
            service,
            is_closing: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let accepting = shared.clone();
        let [name, _] = S::THREADS;
        let thread = spawn(name, move || accepting.accept(&listener))?;
        Ok(Self {
            shared,
            address,
            acceptor: Mutex::new(Some(Acceptor { listening, thread })),
            opened_in: Generation::current(),
        })
    }

    /// Returns the address at which it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl<S> Listener<S> {
    /// Stops listening, and returns the connections, which are still served. A second call, and one in a child of fork, which has neither
    /// the threads nor the sockets, returns `None`.
    pub(super) fn stop(&self) -> Option<Vec<Connection>> {
        if self.opened_in != Generation::current() {
            return None;
        }
        let Acceptor { listening, thread } = lock(&self.acceptor).take()?;
        self.shared.is_closing.store(true, Ordering::SeqCst);
        hang_up(&listening);
        let _ = thread.join();
        Some(std::mem::take(&mut *lock(&self.shared.connections)))
    }
}

impl<S> Drop for Listener<S> {
    fn drop(&mut self) {
        for connection in self.stop().into_iter().flatten() {
            connection.end(None);
        }
    }
}

/// Returns a listener with its address, and its socket.
fn listen(address: SocketAddr) -> io::Result<(SocketAddr, ClosedInChild<TcpListener>, ClosedInChild<TcpStream>)> {
    let listener = ClosedInChild::open(|| TcpListener::bind(address))?;
    let opened = listener.of_process()?;
    let socket = ClosedInChild::open(|| Ok(TcpStream::from(OwnedFd::from(opened.try_clone()?))))?;
    Ok((opened.local_addr()?, listener, socket))
}

impl<S: Service> Shared<S> {
    fn accept(&self, listener: &ClosedInChild<TcpListener>) {
        loop {
            let accepted = listener.of_process().and_then(TcpListener::accept);
            if self.is_closing.load(Ordering::SeqCst) {
                return;
            }
            match accepted {
                // A child that forks between the two keeps the connection open: the peer notices by its own timeout.
                Ok((stream, peer)) => match ClosedInChild::open(|| Ok(stream)) {
                    Ok(stream) => self.begin(Arc::new(stream), peer),
                    Err(error) => self.service.refuse(peer, error.to_string()),
                },
                // Too many open files, for example: the peer stays in the queue of the listener.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Starts the thread of a new connection.
    fn begin(&self, stream: Arc<ClosedInChild<TcpStream>>, peer: SocketAddr) {
        let mut connections = lock(&self.connections);
        connections.retain(|connection| !connection.thread.is_finished());
        if connections.len() >= MAX_CONNECTIONS {
            self.service.refuse(peer, format!("{MAX_CONNECTIONS} connections are open"));
            return;
        }
        let (service, served) = (self.service.clone(), stream.clone());
        let serve = move || {
            service.serve(&served, peer);
            hang_up(&served);
        };
        let [_, name] = S::THREADS;
        match spawn(name, serve) {
            Ok(thread) => connections.push(Connection { stream, peer, thread }),
            Err(error) => self.service.refuse(peer, error.to_string()),
        }
    }
}
