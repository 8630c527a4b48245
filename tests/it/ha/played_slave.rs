//! Our master with odd slaves that the test plays: pieces of reports, silence, and ends in the middle of a frame.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::ha::Timing;

use super::{LONG, Node, Slave, asynchronous, wait_until};

/// A master with messages in several segments, and the end of its log.
fn filled() -> (Node, i64) {
    let node = Node::open(asynchronous());
    for n in 0..100 {
        node.append(&vec![n; 700]);
    }
    let end = node.store.appended_offset();
    (node, end)
}

/// A connection that has reported nothing.
fn silent(node: &Node) -> Slave {
    let stream = TcpStream::connect(node.master.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_nodelay(true).unwrap();
    Slave {
        stream,
        end: 1,
        bytes: Vec::new(),
    }
}

/// Takes the log up to `end`, and acknowledges nothing.
fn take_silently(slave: &mut Slave, end: i64) {
    while slave.end < end {
        let (offset, bytes) = slave.frame().unwrap();
        assert_eq!(offset, slave.end);
        slave.end += bytes.len() as i64;
        slave.bytes.extend(bytes);
    }
}

fn acknowledged(node: &Node) -> i64 {
    node.store.replicas().connected()[0].acknowledged
}

#[test]
fn a_report_that_comes_in_two_halves_is_one_report() {
    let (node, end) = filled();
    let mut slave = silent(&node);
    let send = |slave: &mut Slave, report: i64, is_early: &dyn Fn() -> bool| {
        let bytes = report.to_be_bytes();
        slave.stream.write_all(&bytes[..4]).unwrap();
        // Long enough for a master that takes the half for a report.
        thread::sleep(Duration::from_millis(50));
        assert!(!is_early());
        slave.stream.write_all(&bytes[4..]).unwrap();
    };
    send(&mut slave, 1, &|| !node.store.replicas().connected().is_empty());
    node.wait_for_slaves(1);
    take_silently(&mut slave, end);
    assert_eq!(slave.bytes, node.log(end)[1..]);
    send(&mut slave, end, &|| acknowledged(&node) != 1);
    wait_until(|| acknowledged(&node) == end);
    assert_eq!(node.store.replicas().refused(), []);
}

#[test]
fn of_two_reports_at_once_the_later_one_acknowledges() {
    let (node, end) = filled();
    let mut slave = node.slave(1);
    take_silently(&mut slave, end);
    slave
        .stream
        .write_all(&[(end / 2).to_be_bytes(), end.to_be_bytes()].concat())
        .unwrap();
    wait_until(|| acknowledged(&node) == end);
}

#[test]
fn of_two_first_reports_at_once_the_earlier_one_is_the_request() {
    let (node, end) = filled();
    for (second, is_taken) in [(1_i64, true), (end + 1, false)] {
        let mut slave = silent(&node);
        slave
            .stream
            .write_all(&[1_i64.to_be_bytes(), second.to_be_bytes()].concat())
            .unwrap();
        if is_taken {
            take_silently(&mut slave, end);
            assert_eq!((acknowledged(&node), &slave.bytes[..]), (1, &node.log(end)[1..]));
            continue;
        }
        // It acknowledges what it was not sent.
        while slave.frame_or_end().is_some() {}
        assert!(node.refusal().contains("it acknowledges the log up to"));
    }
}

#[test]
fn a_slave_that_is_silent_is_left() {
    let timing = Timing {
        heartbeat: Duration::from_millis(50),
        silence: Duration::from_millis(300),
        ..Timing::default()
    };
    let node = Node::open_with(asynchronous(), timing);
    node.append(b"x");
    // The first slave asks for nothing, and the second one asks once and takes what comes.
    for asks in [false, true] {
        let begun = Instant::now();
        let mut slave = silent(&node);
        if asks {
            slave.report(1);
            assert!(slave.log_frame().is_some());
        }
        while slave.frame_or_end().is_some() {
            assert!(begun.elapsed() < LONG);
        }
        assert!(begun.elapsed() >= timing.silence);
        node.wait_for_slaves(0);
    }
    assert_eq!(node.store.replicas().refused(), []);
}

#[test]
fn a_slave_that_closes_in_the_middle_of_a_frame_or_report_is_gone() {
    let (node, end) = filled();
    let mut slave = node.slave(1);
    node.wait_for_slaves(1);
    slave.stream.read_exact(&mut [0; 500]).unwrap();
    drop(slave);
    node.wait_for_slaves(0);
    for first in [&[][..], &1_i64.to_be_bytes()] {
        let mut slave = silent(&node);
        slave.stream.write_all(first).unwrap();
        slave.stream.write_all(&end.to_be_bytes()[..4]).unwrap();
        slave.stream.shutdown(Shutdown::Write).unwrap();
        while slave.frame_or_end().is_some() {}
        node.wait_for_slaves(0);
    }
    assert_eq!(
        (node.store.replicas().replicated(), node.store.replicas().refused()),
        (0, Vec::new())
    );
    let mut next = node.slave(1);
    next.take_until(end);
    assert_eq!(next.bytes, node.log(end)[1..]);
}
