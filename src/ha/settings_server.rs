//! The settings of a master for its slaves: answers the requests of a slave of `RocketMQ` for topics, groups and progress.
//!
//! The answers are the files on disk, so that a slave gets no progress past a message that this master can lose. An answer has fields of
//! this crate: the end of the durable log at that time, and a checksum of the bytes before it. Brokers ignore them.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::listener::{Listener, Service, address_of};
use super::log_tail::LogTail;
use super::remoting::{LOG_CHECKSUM, LOG_END, NOT_SUPPORTED, RemotingCommand, SUCCESS, SYSTEM_ERROR, code_of};
use super::timed_stream::TimedStream;
use super::wire::SILENCE;
use crate::broker::{BrokerController, ReplicatedFile};
use crate::error::Result;
use crate::storage::ClosedInChild;
use crate::store::MessageStore;

/// The most bytes of a request: those that are answered have no body.
const MAX_REQUEST: usize = 64 * 1024;
/// The distance to the second port, at which slaves of `RocketMQ` ask for the topics (`MixAll.brokerVIPChannel`).
const VIP_DISTANCE: u16 = 2;
/// The free ports that are tried until the second one is free, too.
const ATTEMPTS: u32 = 32;

/// The port at which slaves ask for settings. Close it before the broker and the store.
#[derive(Debug)]
pub struct SettingsServer {
    /// At the port and at the second one, which the lowest ports do not have.
    listeners: Vec<Listener<Answerer>>,
}

/// The times after which the connection of a slave is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimes {
    /// Without a request. Clients of `RocketMQ` close it after 120 s.
    pub idle: Duration,
    /// From the first byte of a request to its last, and without room for bytes of an answer.
    pub frame: Duration,
}

impl Default for RequestTimes {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(150),
            frame: SILENCE,
        }
    }
}

#[derive(Debug)]
struct Answerer {
    store: Arc<MessageStore>,
    broker: Arc<BrokerController>,
    times: RequestTimes,
}

impl SettingsServer {
    /// Listens where the options of the store say so; `None` if they do not.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) for a host that is no address; [`Error::Io`](crate::error::Error::Io) if a port
    /// is taken, or a thread cannot be started.
    pub fn start(store: &Arc<MessageStore>, broker: &Arc<BrokerController>, times: RequestTimes) -> Result<Option<Self>> {
        let Some(port) = store.config().listen_port.and_then(|port| u16::try_from(port).ok()) else {
            return Ok(None);
        };
        let answerer = Arc::new(Answerer {
            store: store.clone(),
            broker: broker.clone(),
            times,
        });
        let start = |port| Listener::start(address_of(store.config(), port)?, answerer.clone());
        let mut attempts = 0;
        loop {
            let first = start(port)?;
            attempts += 1;
            let second = first.address().port().checked_sub(VIP_DISTANCE).filter(|second| *second > 0);
            match second.map(start).transpose() {
                Ok(second) => {
                    let listeners = std::iter::once(first).chain(second).collect();
                    return Ok(Some(Self { listeners }));
                }
                Err(_) if port == 0 && attempts < ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listeners.first().map(Listener::address)
    }

    /// Ends all connections. A second call does nothing.
    pub fn close(&self) {
        for connection in self.listeners.iter().filter_map(Listener::stop).flatten() {
            connection.end(None);
        }
    }
}

impl Service for Answerer {
    const THREADS: [&'static str; 2] = ["settings-acceptor", "settings-server"];

    fn serve(&self, stream: &ClosedInChild<TcpStream>, peer: SocketAddr) {
        let served = stream.of_process().and_then(|stream| self.answer_all(stream));
        // The end of a connection is no event; bytes that are no request are.
        if let Err(error) = served
            && error.kind() == io::ErrorKind::InvalidData
        {
            self.refuse(peer, error.to_string());
        }
    }

    fn refuse(&self, peer: SocketAddr, reason: String) {
        self.store.replicas().refuse(peer, reason, self.store.now_ms());
    }
}

impl Answerer {
    fn answer_all(&self, mut stream: &TcpStream) -> io::Result<()> {
        let RequestTimes { idle, frame } = self.times;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(frame))?;
        while let Some(request) = RemotingCommand::read(&mut TimedStream::after_idle(stream, idle, frame), MAX_REQUEST)? {
            if request.is_answer() {
                let what = "an answer that nobody has asked for: this is no slave";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            if request.is_one_way() {
                continue;
            }
            let too_large = |error: io::Error| request.answer(SYSTEM_ERROR, Some(error.to_string())).encode();
            let frame = self.answer(&request).encode().or_else(too_large)?;
            stream.write_all(&frame)?;
        }
        Ok(())
    }

    fn answer(&self, request: &RemotingCommand) -> RemotingCommand {
        let Some(file) = ReplicatedFile::ALL.into_iter().find(|file| code_of(*file) == request.code) else {
            let remark = format!("request code {} not supported: this is a store of mqstore", request.code);
            return request.answer(NOT_SUPPORTED, Some(remark));
        };
        // The end after the file was read: every record that settles its progress is before it.
        let settings = self.broker.settings_on_disk(file);
        let settings = settings.and_then(|body| Ok((body, LogTail::of(&self.store, self.store.flushed_offset())?)));
        match settings {
            Ok((body, LogTail { end, checksum })) => {
                let mut answer = request.answer(SUCCESS, None);
                answer.ext_fields.insert(LOG_END.to_owned(), end.to_string());
                let checksum = checksum.map(|checksum| (LOG_CHECKSUM.to_owned(), checksum.to_string()));
                answer.ext_fields.extend(checksum);
                answer.body = body;
                answer
            }
            Err(error) => request.answer(SYSTEM_ERROR, Some(error.to_string())),
        }
    }
}
