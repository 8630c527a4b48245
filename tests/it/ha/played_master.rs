//! Our slave with masters that the test plays.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::ha::{Slave, SlaveOptions, Timing};
use mqstore::recovery::ReplicaLog;
use mqstore::store::{MessageStore, OpenMode};
use tempfile::TempDir;

use super::slave::{Pair, TIMING, copy_dir, env, failure, log_bytes, options, wait_for, wait_for_error};
use super::{LONG, SEGMENT, asynchronous};

/// A master that the test plays.
pub(super) struct Script {
    pub(super) listener: TcpListener,
    pub(super) log: Vec<u8>,
    pub(super) slave: Slave,
    pub(super) dir: TempDir,
}

impl Script {
    /// Starts a slave of a log of 100 messages in several segments.
    fn start(timing: Timing) -> Self {
        Self::with(|options| SlaveOptions { timing, ..options })
    }

    /// Starts a slave with changed options of a log of 100 messages in several segments.
    pub(super) fn with(change: impl FnOnce(SlaveOptions) -> SlaveOptions) -> Self {
        let pair = Pair::new();
        let master = pair.master("master", asynchronous());
        master.append(0..100);
        let end = master.end();
        master.close();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let slave = pair.slave(change(options(address)));
        Self {
            listener,
            log: pair.log("master", end),
            slave,
            dir: pair.dir,
        }
    }

    /// Accepts the slave, and returns its request.
    pub(super) fn accept(&self) -> (TcpStream, i64) {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let asked = report(&stream);
        (stream, asked)
    }

    pub(super) fn send(&self, mut stream: &TcpStream, range: std::ops::Range<usize>) {
        stream.write_all(&self.frame(range)).unwrap();
    }

    pub(super) fn frame(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        let mut frame = header(range.start as i64, range.len() as i32);
        frame.extend(&self.log[range]);
        frame
    }

    pub(super) fn held(&self) -> Vec<u8> {
        log_bytes(&self.dir.path().join("slave"), i64::MAX)
    }

    /// Accepts connections, and sends the log, until the slave holds all of it.
    fn serve_all(&self) {
        let (stream, asked) = self.accept();
        self.send(&stream, asked as usize..self.log.len());
        wait_for(&self.slave, self.log.len() as i64);
        assert!(self.held()[..self.log.len()] == self.log[..]);
        self.slave.close().unwrap();
    }
}

pub(super) fn header(offset: i64, size: i32) -> Vec<u8> {
    let mut header = offset.to_be_bytes().to_vec();
    header.extend(size.to_be_bytes());
    header
}

pub(super) fn report(mut stream: &TcpStream) -> i64 {
    let mut report = [0; 8];
    stream.read_exact(&mut report).unwrap();
    i64::from_be_bytes(report)
}

/// Reads reports until one is `end` or more.
fn acknowledged(stream: &TcpStream, end: i64) -> i64 {
    loop {
        let reported = report(stream);
        if reported >= end {
            return reported;
        }
    }
}

#[test]
fn a_log_in_pieces_of_any_size_is_received_whole() {
    for (frame, written) in [(1, 1), (1, 13), (700, 5), (SEGMENT as usize, 4096), (100_000, 100_000)] {
        let script = Script::start(TIMING);
        let (mut stream, asked) = script.accept();
        assert_eq!(asked, 0);
        let until = if frame == 1 { 3000 } else { script.log.len() };
        let frames: Vec<u8> = (0..until)
            .step_by(frame)
            .flat_map(|at| script.frame(at..(at + frame).min(until)))
            .collect();
        for piece in frames.chunks(written) {
            stream.write_all(piece).unwrap();
        }
        let end = acknowledged(&stream, until as i64 - 1000);
        assert!(end <= until as i64);
        drop(stream);
        script.serve_all();
    }
}

#[test]
fn a_slave_acknowledges_only_whole_records() {
    let script = Script::start(TIMING);
    let (stream, _) = script.accept();
    script.send(&stream, 0..5);
    // An idle slave repeats its offset.
    assert_eq!((report(&stream), report(&stream)), (0, 0));
    let size = i32::from_be_bytes(script.log[..4].try_into().unwrap()) as usize;
    script.send(&stream, 5..size + 3);
    assert_eq!(acknowledged(&stream, 1), size as i64);
    drop(stream);
    let (_, asked) = script.accept();
    assert_eq!(
        asked, 1,
        "the last record begins at 0, and a report of 0 asks for the newest segment"
    );
    script.slave.close().unwrap();
}

#[test]
fn bytes_that_do_not_follow_are_not_written() {
    let script = Script::start(TIMING);
    let (stream, _) = script.accept();
    let size = i32::from_be_bytes(script.log[..4].try_into().unwrap()) as usize;
    script.send(&stream, 0..10 * size);
    acknowledged(&stream, 10 * size as i64);
    let next = 10 * size as i64;
    let mut damaged = script.frame(10 * size..12 * size);
    damaged[200] ^= 1;
    let frames = [
        ("a hole", script.frame(11 * size..12 * size), "was expected"),
        ("bytes again", script.frame(9 * size..10 * size), "was expected"),
        ("a heartbeat of another offset", header(i64::MAX, 0), "was expected"),
        ("a heartbeat of the begin", header(0, 0), "sent its log from 0 on"),
        ("a size below 0", header(next, -1), "a frame of -1 bytes"),
        ("an offset below 0", header(-1, 4), "a frame of 4 bytes at -1"),
        ("a torn header", header(next, 8)[..7].to_vec(), "closed the connection"),
        (
            "zeros",
            [header(next, 100), vec![0; 100]].concat(),
            "zeros where a record begins",
        ),
        ("no record", [header(next, 100), vec![7; 100]].concat(), "is not a record"),
        ("a damaged record", damaged, "a damaged record"),
    ];
    drop(stream);
    for (name, frame, error) in &frames {
        let (mut stream, asked) = script.accept();
        assert_eq!(asked, 9 * size as i64, "the last record, before {name}");
        script.send(&stream, asked as usize..10 * size);
        acknowledged(&stream, next);
        stream.write_all(frame).unwrap();
        if *name == "a torn header" {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        // It hangs up, and has acknowledged no more.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        let reports = rest.chunks(8).map(|report| i64::from_be_bytes(report.try_into().unwrap()));
        assert!(reports.max().is_none_or(|last| last == next), "{name}");
        wait_for_error(&script.slave, error);
    }
    assert!(script.held()[10 * size..].iter().all(|byte| *byte == 0));
    script.serve_all();
}

#[test]
fn a_first_frame_off_a_segment_start_is_an_error() {
    // The last one begins a segment whose end no offset can name.
    for at in [1, 100, SEGMENT + 1, i64::MAX / SEGMENT * SEGMENT] {
        let script = Script::start(TIMING);
        let (mut stream, _) = script.accept();
        stream.write_all(&header(at, 0)).unwrap();
        let refused = failure(&script.slave).to_string();
        assert!(refused.contains(&format!("from physical offset {at} on")), "{refused}");
        assert!(!script.dir.path().join("slave").join("commitlog").exists());
        script.slave.close().unwrap();
    }
}

#[test]
fn a_silent_master_is_asked_for_the_same_record_again() {
    let script = Script::start(Timing {
        silence: Duration::from_millis(200),
        ..TIMING
    });
    let (stream, _) = script.accept();
    script.send(&stream, 0..script.log.len());
    acknowledged(&stream, script.log.len() as i64);
    drop(stream);
    let (silent, asked) = script.accept();
    let (_again, asked_again) = script.accept();
    assert_eq!(asked_again, asked);
    wait_for_error(&script.slave, "silent");
    drop(silent);
    script.slave.close().unwrap();
}

#[test]
fn an_empty_log_that_no_master_continues_says_where_it_begins() {
    let pair = Pair::new();
    let begin = OpenMode::Replica(ReplicaLog::BeginsAt(2 * SEGMENT));
    let store = MessageStore::open(&env(), &pair.at("slave"), pair.options().config, begin).unwrap();
    store.close().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let slave = pair.slave(options(listener.local_addr().unwrap().to_string()));
    drop(listener.accept().unwrap());
    wait_for_error(&slave, &format!("begins at {}", 2 * SEGMENT));
    slave.close().unwrap();
}

#[test]
fn a_silent_master_is_left_and_asked_again() {
    let script = Script::start(Timing {
        silence: Duration::from_millis(200),
        ..TIMING
    });
    let (half_open, _) = script.accept();
    script.send(&half_open, 0..100);
    wait_for_error(&script.slave, "silent");
    script.serve_all();
}

#[test]
fn a_slave_asks_further_back_by_doubling() {
    let script = Script::start(TIMING);
    let (stream, _) = script.accept();
    script.send(&stream, 0..script.log.len());
    acknowledged(&stream, script.log.len() as i64);
    drop(stream);
    let mut distances = Vec::new();
    loop {
        let (mut stream, asked) = script.accept();
        distances.push(script.log.len() as i64 - asked);
        // As a master whose log ends before it: heartbeats at that offset.
        stream.write_all(&header(asked, 0)).unwrap();
        if asked == 1 {
            break;
        }
    }
    assert!(distances[0] < 1000 && distances[1] >= 4096, "{distances:?}");
    assert!(
        distances[1..]
            .windows(2)
            .all(|pair| pair[1] >= pair[0] && pair[1] < 2 * pair[0] + 2000),
        "{distances:?}"
    );
    wait_for_error(&script.slave, "no record of this log");
    // It begins again with the last record.
    let (_, asked) = script.accept();
    assert_eq!(script.log.len() as i64 - asked, distances[0]);
    script.slave.close().unwrap();
}

#[test]
fn a_close_ends_a_wait_for_a_master_that_sends_nothing() {
    let script = Script::start(Timing::default());
    let _open = script.accept();
    let begun = Instant::now();
    script.slave.close().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
}

/// The first record of a log without the last separator of its properties, as some brokers write it.
fn without_last_separator(log: &[u8]) -> Vec<u8> {
    let size = i32::from_be_bytes(log[..4].try_into().unwrap()) as usize;
    let mut record = log[..size - 1].to_vec();
    record[..4].copy_from_slice(&(size as i32 - 1).to_be_bytes());
    let properties = "KEYS\u{1}key-0\u{2}".len();
    let at = size - properties - 2;
    assert_eq!(record[at..at + 2], (properties as u16).to_be_bytes());
    record[at..at + 2].copy_from_slice(&(properties as u16 - 1).to_be_bytes());
    record
}

#[test]
fn a_record_of_a_broker_survives_a_crash_of_the_slave() {
    let script = Script::start(TIMING);
    let (mut stream, _) = script.accept();
    let record = without_last_separator(&script.log);
    let end = record.len() as i64;
    stream.write_all(&[header(0, end as i32), record].concat()).unwrap();
    acknowledged(&stream, end);
    let (store, copy) = (script.dir.path().join("slave"), script.dir.path().join("copy"));
    copy_dir(&store, &copy);
    let promoted = MessageStore::open(&env(), &copy, StoreConfig::default(), OpenMode::Existing).unwrap();
    assert_eq!(promoted.appended_offset(), end);
    promoted.close().unwrap();
    script.slave.close().unwrap();
}
