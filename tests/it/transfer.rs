//! Records that are sent to a socket: which calls they take, what each copies, and what a damaged file or a full socket does.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Read};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::read::{GetRequest, GetResult, MessageReader, StoredMessage, TagFilter};
use mqstore::storage::{Env, Part, RealSocket, Socket, Transfer, Unsent, UnsentCause};
use tempfile::{TempDir, tempdir};

use crate::child;
use crate::counting_env::CountingEnv;
use crate::store_writer::StoreWriter;

const HEADER: &[u8] = b"the header";
/// Bytes of a segment.
const SEGMENT: usize = 256 * 1024;

/// A store with two sealed segments of records of about 1 KiB, and a third one. Every second record has the tag "even".
struct Sent {
    dir: TempDir,
    env: CountingEnv,
    reader: MessageReader,
}

impl Sent {
    fn new() -> Self {
        let dir = tempdir().unwrap();
        let mut writer = StoreWriter::new(dir.path(), SEGMENT, 1000, 100, 2000);
        for n in 0..500_u32 {
            let tag = if n % 2 == 0 { "even" } else { "odd" };
            writer.put("orders", 0, &[n as u8; 1024], &[("TAGS", tag)]);
        }
        writer.finish(true);
        let env = CountingEnv::new();
        let seam: Arc<dyn Env> = Arc::new(env.clone());
        let reader = MessageReader::open(&seam, dir.path(), StoreConfig::default()).unwrap();
        Self { dir, env, reader }
    }

    fn get(&self, tags: &str, max_messages: usize) -> GetResult {
        let request = GetRequest {
            topic: "orders".to_owned(),
            queue_id: 0,
            offset: 0,
            max_messages,
            tags: TagFilter::parse(tags),
            bounded: false,
            errors: Errors::Raise,
        };
        self.reader.get::<Error>(&request, |_| Ok(true)).unwrap()
    }

    fn segment(&self) -> PathBuf {
        self.dir.path().join("commitlog/00000000000000000000")
    }
}

fn parts(result: &GetResult) -> Vec<Part<'_>> {
    let records = result.messages.iter().map(StoredMessage::part);
    std::iter::once(Part::Memory(HEADER)).chain(records).collect()
}

/// The header and the records, as the files have them.
fn expected(sent: &Sent, result: &GetResult) -> Vec<u8> {
    let mut log: Vec<_> = fs::read_dir(sent.dir.path().join("commitlog"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    log.sort();
    let log: Vec<u8> = log.iter().flat_map(|path| fs::read(path).unwrap()).collect();
    let mut bytes = HEADER.to_vec();
    for message in &result.messages {
        let at = message.view().physical_offset() as usize;
        bytes.extend(&log[at..at + message.view().size() as usize]);
    }
    bytes
}

/// A socket that notes each call, and may do something else in its place.
struct Noted<F> {
    socket: RealSocket<UnixStream>,
    calls: RefCell<Vec<String>>,
    instead: F,
}

/// A call of a socket, before it is made: its number, and the bytes that it asks for.
type Instead = fn(usize, usize) -> Option<io::Result<usize>>;

impl<F> std::fmt::Debug for Noted<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Noted")
    }
}

impl<F: Fn(usize, usize) -> Option<io::Result<usize>>> Noted<F> {
    fn note(&self, call: String, asked: usize) -> Option<io::Result<usize>> {
        let mut calls = self.calls.borrow_mut();
        calls.push(call);
        (self.instead)(calls.len() - 1, asked)
    }
}

impl<F: Fn(usize, usize) -> Option<io::Result<usize>>> Socket for Noted<F> {
    fn send(&self, parts: &[IoSlice<'_>], has_more: bool) -> io::Result<usize> {
        let asked: usize = parts.iter().map(|part| part.len()).sum();
        let more = if has_more { " more" } else { "" };
        let instead = self.note(format!("sendmsg {} {asked}{more}", parts.len()), asked);
        match instead {
            // A part of them.
            Some(Ok(len)) => self.socket.send(&[IoSlice::new(&parts[0][..len.min(parts[0].len())])], true),
            Some(error) => error,
            None => self.socket.send(parts, has_more),
        }
    }

    fn send_file(&self, file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<usize> {
        match self.note(format!("sendfile {len}"), len) {
            Some(Ok(0)) => Ok(0),
            Some(Ok(part)) => self.socket.send_file(file, at, part),
            Some(error) => error,
            None => self.socket.send_file(file, at, len),
        }
    }

    fn wait_writable(&self, timeout: Duration) -> io::Result<()> {
        self.calls.borrow_mut().push("poll".to_owned());
        self.socket.wait_writable(timeout)
    }
}

/// A socket, and a thread that takes all that comes.
fn socket<F>(instead: F) -> (Noted<F>, JoinHandle<Vec<u8>>) {
    let (near, mut far) = UnixStream::pair().unwrap();
    let taken = thread::spawn(move || {
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let socket = Noted {
        socket: RealSocket::new(near).unwrap(),
        calls: RefCell::default(),
        instead,
    };
    (socket, taken)
}

/// Sends an answer. Returns the outcome, the calls, and the bytes that the peer got.
fn send(
    sent: &Sent,
    parts: &[Part<'_>],
    timeout: Option<Duration>,
    instead: impl Fn(usize, usize) -> Option<io::Result<usize>>,
) -> (Result<u64, Unsent>, Vec<String>, Vec<u8>) {
    let (socket, taken) = socket(instead);
    let outcome = Transfer::new(&sent.env).send(&socket, timeout, parts);
    let calls = socket.calls.take();
    drop(socket);
    (outcome, calls, taken.join().unwrap())
}

const AS_IT_IS: Instead = |_, _| None;

/// The bytes that memory copies of the log's files while `work` runs: `read_at`, and reads of mappings.
fn copied<T>(sent: &Sent, work: impl FnOnce() -> T) -> (T, u64) {
    let log = sent.dir.path().join("commitlog");
    let before = sent.env.bytes_read_below(&log);
    let done = work();
    (done, sent.env.bytes_read_below(&log) - before)
}

#[test]
fn a_run_of_records_takes_one_sendfile_and_copies_nothing() {
    let sent = Sent::new();
    let result = sent.get("*", 100);
    let all = expected(&sent, &result);
    let ((outcome, calls, taken), copied) = copied(&sent, || send(&sent, &parts(&result), None, AS_IT_IS));
    assert_eq!(outcome.unwrap(), all.len() as u64);
    assert!(taken == all, "the header goes first, and the records are those of the log");
    let run = all.len() - HEADER.len();
    assert_eq!(calls, [format!("sendmsg 1 {} more", HEADER.len()), format!("sendfile {run}")]);
    assert_eq!(copied, 0);
}

#[test]
fn scattered_records_and_the_header_take_one_sendmsg() {
    let sent = Sent::new();
    let result = sent.get("even", 32);
    let all = expected(&sent, &result);
    let ((outcome, calls, taken), copied) = copied(&sent, || send(&sent, &parts(&result), None, AS_IT_IS));
    assert_eq!((outcome.unwrap(), taken == all), (all.len() as u64, true));
    assert_eq!(calls, [format!("sendmsg 33 {}", all.len())]);
    assert_eq!(
        copied as usize,
        all.len() - HEADER.len(),
        "the system copies each record once"
    );
}

#[test]
fn an_answer_over_segments_takes_a_sendfile_for_each() {
    let sent = Sent::new();
    let result = sent.get("*", 500);
    let all = expected(&sent, &result);
    let (outcome, calls, taken) = send(&sent, &parts(&result), None, AS_IT_IS);
    assert_eq!((outcome.unwrap(), taken == all), (all.len() as u64, true));
    let kinds: Vec<_> = calls.iter().map(|call| call.split(' ').next().unwrap()).collect();
    let sealed = result.messages.iter().filter(|message| message.is_mapped()).count();
    assert!(sealed > 400 && kinds[..3] == ["sendmsg", "sendfile", "sendfile"], "{calls:?}");
}

#[test]
fn more_parts_than_the_system_gathers_take_several_calls() {
    let sent = Sent::new();
    let bytes: Vec<u8> = (0..3000_u32).map(|n| n as u8).collect();
    let many: Vec<_> = bytes.chunks(1).map(Part::Memory).collect();
    let (outcome, calls, taken) = send(&sent, &many, None, AS_IT_IS);
    assert_eq!((outcome.unwrap(), taken == bytes), (3000, true));
    assert_eq!(calls, ["sendmsg 1024 1024 more", "sendmsg 1024 1024 more", "sendmsg 952 952"]);
}

#[test]
fn an_empty_answer_makes_no_call() {
    let sent = Sent::new();
    let (outcome, calls, taken) = send(&sent, &[Part::Memory(b"")], None, AS_IT_IS);
    assert_eq!((outcome.unwrap(), calls.len(), taken.len()), (0, 0, 0));
}

#[test]
fn interrupted_and_partial_calls_continue_where_they_ended() {
    let sent = Sent::new();
    for tags in ["*", "even"] {
        let result = sent.get(tags, 100);
        let all = expected(&sent, &result);
        let instead = |call: usize, asked: usize| match call % 3 {
            0 => Some(Err(ErrorKind::Interrupted.into())),
            1 if asked > 7 => Some(Ok(asked / 3)),
            _ => None,
        };
        let (outcome, calls, taken) = send(&sent, &parts(&result), None, instead);
        assert_eq!((outcome.unwrap(), taken == all), (all.len() as u64, true), "{tags}");
        assert!(calls.len() > 2, "{calls:?}");
    }
}

/// The number of bytes that went, and the error of the file or the kind of that of the socket.
fn failed(outcome: Result<u64, Unsent>) -> (u64, Result<ErrorKind, Error>) {
    let Unsent { sent, cause } = outcome.unwrap_err();
    match cause {
        UnsentCause::Socket(error) => (sent, Ok(error.kind())),
        UnsentCause::Store(error) => (sent, Err(error)),
    }
}

#[test]
fn a_full_socket_ends_the_call_or_is_waited_for() {
    let sent = Sent::new();
    let result = sent.get("*", 100);
    let all = expected(&sent, &result);
    let full_twice = |call: usize, asked: usize| match call {
        1 => Some(Ok(asked / 2)),
        2 | 4 => Some(Err(ErrorKind::WouldBlock.into())),
        _ => None,
    };
    let (outcome, _, taken) = send(&sent, &parts(&result), None, full_twice);
    let half = HEADER.len() + (all.len() - HEADER.len()) / 2;
    assert!(matches!(failed(outcome), (went, Ok(ErrorKind::WouldBlock)) if went == half as u64));
    assert!(taken == all[..half]);

    let (outcome, calls, taken) = send(&sent, &parts(&result), Some(Duration::from_secs(60)), full_twice);
    assert_eq!((outcome.unwrap(), taken == all), (all.len() as u64, true));
    assert_eq!(calls[3], "poll");

    let never = |call: usize, _| (call > 0).then(|| Err(ErrorKind::WouldBlock.into()));
    let (outcome, ..) = send(&sent, &parts(&result), Some(Duration::from_millis(120)), never);
    assert!(matches!(failed(outcome), (10, Ok(ErrorKind::TimedOut))));
}

#[test]
fn a_file_system_without_sendfile_is_read_and_sent() {
    let sent = Sent::new();
    let result = sent.get("*", 100);
    let all = expected(&sent, &result);
    let instead = |call: usize, _| (call % 2 == 1).then(|| Err(ErrorKind::Unsupported.into()));
    let (outcome, calls, taken) = send(&sent, &parts(&result), None, instead);
    assert_eq!((outcome.unwrap(), taken == all), (all.len() as u64, true));
    assert_eq!(calls[2], "sendmsg 1 65536 more");
}

#[test]
fn a_file_that_ends_early_is_an_error() {
    let sent = Sent::new();
    let result = sent.get("*", 100);
    let short = |call: usize, asked: usize| match call {
        1 => Some(Ok(asked / 2)),
        2 => Some(Ok(0)),
        _ => None,
    };
    let (outcome, _, taken) = send(&sent, &parts(&result), None, short);
    let (went, error) = failed(outcome);
    assert_eq!(went, taken.len() as u64);
    assert!(matches!(error, Err(Error::Io { .. })), "{error:?}");
}

/// Cuts a file to a length that is inside a page.
fn cut(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

#[test]
fn records_of_a_file_that_was_cut_short_are_not_sent() {
    for tags in ["*", "even"] {
        let sent = Sent::new();
        let result = sent.get(tags, 50);
        cut(&sent.segment(), 5000);
        let (outcome, calls, taken) = send(&sent, &parts(&result), None, AS_IT_IS);
        let (went, error) = failed(outcome);
        assert_eq!((went, calls.len(), taken.len()), (0, 0, 0));
        assert!(matches!(error, Err(Error::Corrupt { offset: 5000, .. })), "{error:?}");
    }
}

#[test]
fn a_cut_during_the_call_is_an_error_that_counts_what_went() {
    for tags in ["*", "even"] {
        let sent = Sent::new();
        let result = sent.get(tags, 100);
        let all = expected(&sent, &result);
        let path = sent.segment();
        let last = result.messages.last().unwrap().view();
        // Inside the page of the last record: its end is zeros, and no page is lost.
        let len = last.physical_offset() as u64 + u64::from(last.size()) - 1;
        let cuts = |call: usize, _: usize| {
            if call == usize::from(tags == "*") {
                cut(&path, len);
            }
            None
        };
        let (outcome, _, taken) = send(&sent, &parts(&result), None, cuts);
        let (went, error) = failed(outcome);
        assert_eq!(went, taken.len() as u64);
        assert!(went >= all.len() as u64 - 1);
        assert!(
            matches!(error, Err(Error::Corrupt { offset, .. }) if offset == len),
            "{error:?}"
        );
    }
}

#[test]
fn pages_that_are_lost_during_a_call_are_an_error_and_no_signal() {
    let sent = Sent::new();
    let result = sent.get("even", 100);
    let path = sent.segment();
    let cuts = |_, _: usize| {
        cut(&path, 8192);
        None
    };
    let (outcome, _, taken) = send(&sent, &parts(&result), None, cuts);
    let (went, error) = failed(outcome);
    assert_eq!(went, taken.len() as u64);
    assert!(matches!(error, Err(Error::Corrupt { offset: 8192, .. })), "{error:?}");
}

#[test]
fn records_of_a_removed_file_are_sent_from_its_mapping() {
    for is_replaced in [false, true] {
        let sent = Sent::new();
        let result = sent.get("*", 100);
        let all = expected(&sent, &result);
        fs::remove_file(sent.segment()).unwrap();
        if is_replaced {
            fs::write(sent.segment(), vec![7; SEGMENT]).unwrap();
        }
        let (outcome, calls, taken) = send(&sent, &parts(&result), None, AS_IT_IS);
        assert_eq!((outcome.unwrap(), taken == all), (all.len() as u64, true));
        assert_eq!(calls, [format!("sendmsg 2 {}", all.len())]);
    }
}

#[test]
fn a_transfer_opens_a_file_once_for_all_of_its_parts() {
    let sent = Sent::new();
    let result = sent.get("even", 100);
    let opened = || sent.env.opened().iter().filter(|path| **path == sent.segment()).count();
    let before = opened();
    let mut transfer = Transfer::new(&sent.env);
    let (socket, taken) = socket(AS_IT_IS);
    for part in parts(&result) {
        transfer.send(&socket, None, &[part]).unwrap();
    }
    drop(socket);
    assert_eq!(
        (opened() - before, taken.join().unwrap() == expected(&sent, &result)),
        (1, true)
    );
}

#[test]
fn a_peer_that_has_left_is_an_error_and_no_signal() {
    let done = child::run("transfer::child_sends_to_a_peer_that_has_left");
    assert!(done.status.success(), "{done:?}");
}

/// A process that SIGPIPE ends. Those of Rust and Python ignore the signal.
#[test]
#[ignore = "a child's program"]
#[expect(unsafe_code, reason = "the disposition of a signal")]
fn child_sends_to_a_peer_that_has_left() {
    if !child::is_child() {
        return;
    }
    // SAFETY: no handler runs code.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let sent = Sent::new();
    for tags in ["*", "even"] {
        let result = sent.get(tags, 100);
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let socket = RealSocket::new(near).unwrap();
        // No header: it would find the peer gone by itself.
        let outcome = Transfer::new(&sent.env).send(&socket, None, &parts(&result)[1..]);
        assert!(matches!(failed(outcome), (0, Ok(ErrorKind::BrokenPipe))), "{tags}");
    }
}

#[test]
fn another_socket_than_a_stream_is_refused() {
    let datagrams = UnixDatagram::unbound().unwrap();
    assert_eq!(RealSocket::new(datagrams).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(RealSocket::duplicate(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
}

#[test]
fn a_part_loses_its_first_bytes() {
    let sent = Sent::new();
    let result = sent.get("*", 1);
    let lengths = |part: &Part<'_>| [0, 1, 5000].map(|count| part.after(count).len());
    let size = result.messages[0].view().size() as usize;
    assert_eq!(lengths(&result.messages[0].part()), [size, size - 1, 0]);
    assert_eq!(lengths(&Part::Memory(b"abc")), [3, 2, 0]);
    let range: Range<usize> = match result.messages[0].part().after(3) {
        Part::File(_, range) => range,
        Part::Memory(_) => panic!("a record of a sealed segment is mapped"),
    };
    assert_eq!(range, 3..size);
}
