//! Answers of 32 messages to a peer over loopback TCP: a header, and then the records, in a row or scattered in the log. The limit makes the
//! calls alone that move the bytes: `send` and `sendfile`, or one `writev` of a mapping. The peer takes the bytes and drops them.

use std::fs::{self, File};
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::COMMIT_LOG_DIR;
use mqstore::read::{GetResult, StoredMessage};
use mqstore::storage::{Part, RealEnv, RealSocket, Transfer};
use serde_json::json;

use super::queue_read::{BODY, reader};
use super::read_get::pull;
use crate::harness::machine::each;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, fill, open};
use crate::harness::{Bench, Contender, Row, Target};

/// They fit into one segment.
const MESSAGES: usize = 50_000;
/// The default of a RocketMQ consumer.
const PULLED: usize = 32;
/// About the size of the header of a pull's answer.
const HEADER: [u8; 128] = [1; 128];

pub fn run(bench: &Bench) {
    for (records, queues) in [("in a row", 1), ("scattered", 2)] {
        let dir = bench.dir();
        let path = dir.path().join("store");
        let count = bench.size(MESSAGES, 200);
        let store = open(&path, StoreConfig::default());
        fill(&store, &Workload::of_bodies(BODY), count, queues);
        store.close().unwrap();
        let answers = answers(&path);
        let row = Row {
            name: "send_to",
            params: json!({"body": BODY, "messages": PULLED, "records": records}),
            unit: "ns a message",
            target: Target::of_limit(0.8),
            waits_for_disk: false,
        };
        let contenders = vec![
            Contender::new(OURS, || ours(&answers)),
            Contender::new(LIMIT, || limit(&path, &answers, queues == 1)),
            Contender::new("a read and a send for each record", || read_and_send(&path, &answers)),
        ];
        bench.measure(&row, contenders);
    }
}

fn answers(path: &Path) -> Vec<GetResult> {
    let (reader, mut offset, mut answers) = (reader(path), 0, Vec::new());
    loop {
        let answer = reader.get(&pull(offset, PULLED), |_| Ok::<_, Error>(true)).unwrap();
        if answer.messages.is_empty() {
            return answers;
        }
        offset = answer.next_begin_offset;
        answers.push(answer);
    }
}

/// Measures `send` with a connection, until the peer has taken everything.
fn over_loopback(answers: &[GetResult], send: impl FnOnce(&mut TcpStream)) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    let peer: JoinHandle<()> = thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while far.read(&mut buffer).unwrap() > 0 {}
    });
    let begun = Instant::now();
    send(&mut near);
    drop(near);
    peer.join().unwrap();
    each(begun.elapsed(), answers.iter().map(|answer| answer.messages.len()).sum())
}

fn ours(answers: &[GetResult]) -> f64 {
    let env = RealEnv::new();
    over_loopback(answers, |near| {
        let socket = RealSocket::new(&*near).unwrap();
        for answer in answers {
            let records = answer.messages.iter().map(StoredMessage::part);
            let parts: Vec<_> = std::iter::once(Part::Memory(&HEADER)).chain(records).collect();
            // As a call of Python does: each opens the file.
            Transfer::new(&env).send(&socket, None, &parts).unwrap();
        }
    })
}

/// The positions of the records in the only segment.
fn ranges(answer: &GetResult) -> Vec<Range<usize>> {
    let views = answer.messages.iter().map(StoredMessage::view);
    views
        .map(|view| view.physical_offset() as usize..view.physical_offset() as usize + view.size() as usize)
        .collect()
}

fn segment(path: &Path) -> File {
    let mut names = fs::read_dir(path.join(COMMIT_LOG_DIR)).unwrap();
    let name = names.next().unwrap().unwrap().path();
    assert!(names.next().is_none(), "there is one segment");
    File::open(name).unwrap()
}

fn limit(path: &Path, answers: &[GetResult], is_in_a_row: bool) -> f64 {
    let file = segment(path);
    // SAFETY: no process changes the file.
    let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    over_loopback(answers, |near| {
        for answer in answers {
            let ranges = ranges(answer);
            if is_in_a_row {
                near.write_all(&HEADER).unwrap();
                send_file(near, &file, ranges[0].start..ranges[ranges.len() - 1].end);
                continue;
            }
            let records = ranges.iter().map(|range| &map[range.clone()]);
            let mut slices: Vec<_> = std::iter::once(&HEADER[..]).chain(records).map(IoSlice::new).collect();
            let mut rest = slices.as_mut_slice();
            while !rest.is_empty() {
                let sent = near.write_vectored(rest).unwrap();
                IoSlice::advance_slices(&mut rest, sent);
            }
        }
    })
}

fn send_file(near: &TcpStream, file: &File, range: Range<usize>) {
    let (mut at, end) = (range.start as libc::off_t, range.end as libc::off_t);
    while at < end {
        // SAFETY: both descriptors are open, and `at` outlives the call.
        let sent = unsafe { libc::sendfile(near.as_raw_fd(), file.as_raw_fd(), &raw mut at, (end - at) as usize) };
        assert!(sent > 0);
    }
}

fn read_and_send(path: &Path, answers: &[GetResult]) -> f64 {
    let file = segment(path);
    let mut record = Vec::new();
    over_loopback(answers, |near| {
        for answer in answers {
            near.write_all(&HEADER).unwrap();
            for range in ranges(answer) {
                record.resize(range.len(), 0);
                file.read_exact_at(&mut record, range.start as u64).unwrap();
                near.write_all(&record).unwrap();
            }
        }
    })
}
