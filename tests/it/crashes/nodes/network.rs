//! The network between a slave and its master: a relay on the loopback that cuts, delays and partitions connections. TCP neither loses nor
//! repeats bytes inside a connection; what a slave sent on an old connection may still reach the master after a new one was made.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The time after which a thread of the relay looks at the state of the network again.
const TURN: Duration = Duration::from_millis(1);

/// A network; it ends with its last clone's [`Network::close`].
#[derive(Clone)]
pub(super) struct Network {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The master's address; none while it is down.
    master: Mutex<Option<SocketAddr>>,
    lines: Mutex<Vec<Arc<Line>>>,
    /// No byte passes, and no connection ends.
    is_partitioned: AtomicBool,
    /// Each piece waits this long, in microseconds.
    delay: AtomicU64,
    /// The bytes from the master after which a connection ends; negative for none.
    bytes_left: AtomicI64,
    is_closed: AtomicBool,
}

/// A connection of a slave, and the one to the master that it leads to.
struct Line {
    slave: TcpStream,
    master: TcpStream,
    /// The slave's end is gone, and the master does not know.
    is_half_open: AtomicBool,
}

impl Line {
    fn end(&self) {
        let _ = self.slave.shutdown(Shutdown::Both);
        let _ = self.master.shutdown(Shutdown::Both);
    }
}

impl Network {
    pub(super) fn new() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let network = Self {
            address: listener.local_addr()?,
            state: Arc::default(),
        };
        network.state.bytes_left.store(-1, Ordering::SeqCst);
        let state = network.state.clone();
        thread::spawn(move || state.accept(&listener));
        Ok(network)
    }

    /// The address at which a slave finds the master, whichever it is.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections to this master, or to none, and ends those that are there.
    pub(super) fn lead_to(&self, master: Option<SocketAddr>) {
        *self.state.master.lock().unwrap() = master;
        self.end_lines();
    }

    /// No byte passes from now on.
    pub(super) fn partition(&self) {
        self.state.is_partitioned.store(true, Ordering::SeqCst);
    }

    /// All bytes pass again. Connections of the time before have ended.
    pub(super) fn heal(&self) {
        self.end_lines();
        self.state.delay.store(0, Ordering::SeqCst);
        self.state.bytes_left.store(-1, Ordering::SeqCst);
        self.state.is_partitioned.store(false, Ordering::SeqCst);
    }

    /// Each piece takes this long from now on.
    pub(super) fn delay(&self, delay: Duration) {
        self.state.delay.store(delay.as_micros() as u64, Ordering::SeqCst);
    }

    /// A connection ends after this many more bytes from the master, wherever in a frame that is.
    pub(super) fn cut_after(&self, bytes: i64) {
        self.state.bytes_left.store(bytes, Ordering::SeqCst);
    }

    /// The slave's end of each connection is gone. What it has reported reaches the master later, which keeps its end.
    pub(super) fn half_open(&self) {
        for line in &*self.state.lines.lock().unwrap() {
            line.is_half_open.store(true, Ordering::SeqCst);
            let _ = line.slave.shutdown(Shutdown::Both);
        }
    }

    fn end_lines(&self) {
        for line in std::mem::take(&mut *self.state.lines.lock().unwrap()) {
            line.end();
        }
    }

    pub(super) fn close(&self) {
        self.state.is_closed.store(true, Ordering::SeqCst);
        self.end_lines();
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for slave in listener.incoming() {
            if self.is_closed.load(Ordering::SeqCst) {
                return;
            }
            let master = *self.master.lock().unwrap();
            let (Ok(slave), Some(master)) = (slave, master) else {
                continue;
            };
            if let Ok(master) = TcpStream::connect(master) {
                self.begin(slave, master);
            }
        }
    }

    /// Starts the two threads of a connection.
    fn begin(self: &Arc<Self>, slave: TcpStream, master: TcpStream) {
        for stream in [&slave, &master] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(TURN)).unwrap();
        }
        let line = Arc::new(Line {
            slave,
            master,
            is_half_open: AtomicBool::new(false),
        });
        self.lines.lock().unwrap().push(line.clone());
        let (state, log) = (self.clone(), line.clone());
        thread::spawn(move || {
            let _ = state.carry_log(&log);
            if !log.is_half_open.load(Ordering::SeqCst) {
                log.end();
            }
        });
        let state = self.clone();
        thread::spawn(move || {
            let _ = state.carry_reports(&line);
            if !line.is_half_open.load(Ordering::SeqCst) {
                line.end();
            }
        });
    }

    fn carry_log(&self, line: &Line) -> io::Result<()> {
        let mut piece = [0; 1500];
        loop {
            let bytes = self.next_piece(&line.master, &mut piece)?;
            let left = self.bytes_left.load(Ordering::SeqCst);
            if left >= 0 {
                let passing = bytes.len().min(left as usize);
                self.bytes_left.store(left - passing as i64, Ordering::SeqCst);
                if passing < bytes.len() {
                    self.bytes_left.store(-1, Ordering::SeqCst);
                    (&line.slave).write_all(&bytes[..passing])?;
                    return Ok(());
                }
            }
            (&line.slave).write_all(bytes)?;
        }
    }

    fn carry_reports(&self, line: &Line) -> io::Result<()> {
        let mut piece = [0; 64];
        loop {
            let bytes = self.next_piece(&line.slave, &mut piece)?;
            if line.is_half_open.load(Ordering::SeqCst) {
                thread::sleep(5 * TURN);
            }
            (&line.master).write_all(bytes)?;
        }
    }

    /// Returns the next bytes of an end of a line, when the network lets them pass.
    fn next_piece<'b>(&self, mut from: &TcpStream, piece: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let read = loop {
            match from.read(piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => break read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
        };
        while self.is_partitioned.load(Ordering::SeqCst) && !self.is_closed.load(Ordering::SeqCst) {
            thread::sleep(TURN);
        }
        thread::sleep(Duration::from_micros(self.delay.load(Ordering::SeqCst)));
        Ok(&piece[..read])
    }
}
