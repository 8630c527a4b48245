//! Readers of the directory of a slave that cuts its log: they read the log that they have opened, or say that it was cut.

use std::fs;
use std::ops::Range;

use mqstore::check::{VerifyRequest, verify};
use mqstore::config::{Errors, StoreConfig};
use mqstore::error::{Error, Result};
use mqstore::ha::Slave;
use mqstore::read::{GetMessageStatus, GetRequest, MessageReader, StoredMessage, TagFilter};

use super::slave::{Pair, copy_dir, env, wait_for, with_a_stale_tail};
use super::{SEGMENT, asynchronous, wait_until};
use crate::child;
use crate::queries::by_key;

/// Messages that both logs have, that the slave loses, and that it gets instead: in one segment, and over several. All of one size, so that
/// each new message is where a lost one was, at the same place of its queue.
const CASES: [(u8, u8, u8); 4] = [(5, 3, 6), (5, 3, 1), (30, 60, 65), (18, 60, 3)];

/// Runs a test in a process of its own. Which files stay mapped is decided for all stores of a process, and with them which reads are
/// refused after a cut.
fn expect_passed(program: &str) {
    let done = child::run(program);
    let output = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{output}{}", String::from_utf8_lossy(&done.stderr));
}

fn open(pair: &Pair) -> MessageReader {
    MessageReader::open(&env(), &pair.at("slave"), StoreConfig::default()).unwrap()
}

fn body(message: &StoredMessage) -> u8 {
    message.view().body()[0]
}

/// The number of the message that is at a queue offset in the log with the tail.
fn old_number(kept: u8, queue_offset: i64) -> u8 {
    let n = queue_offset as u8;
    if n < kept { n } else { 100 + n - kept }
}

/// Returns true if the read was refused because the log was cut. Another message than the expected one fails the test.
fn is_refused(read: Result<u8>, expected: u8, what: &str) -> bool {
    match read {
        Ok(found) => {
            assert_eq!(found, expected, "{what}");
            false
        }
        Err(Error::LogCut { .. }) => true,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Reads all messages of the log with the tail in every way, and returns the number of reads that were refused.
fn read_old(reader: &MessageReader, kept: u8, count: u8) -> usize {
    let mut refused = 0;
    for n in 0..i64::from(count) {
        let expected = old_number(kept, n);
        let read = reader.message_in_queue("orders", 0, n).map(|message| body(&message));
        refused += usize::from(is_refused(read, expected, &format!("queue offset {n}")));
        let position = reader.position("orders", 0, n);
        let at = position.and_then(|position| reader.message_at(position.unwrap().physical_offset));
        refused += usize::from(is_refused(
            at.map(|message| body(&message)),
            expected,
            &format!("offset of {n}"),
        ));
        let found = reader.query(&by_key("orders", &format!("key-{expected}"))).map(|found| {
            assert!(found.complete);
            found.hits.len() as u8
        });
        refused += usize::from(is_refused(found, 1, &format!("key-{expected}")));
    }
    let new = reader.query(&by_key("orders", "key-190")).map(|found| found.hits.len() as u8);
    refused += usize::from(is_refused(new, 0, "key-190"));
    refused + read_by_get(reader, kept, count)
}

fn read_by_get(reader: &MessageReader, kept: u8, count: u8) -> usize {
    let request = GetRequest {
        topic: "orders".to_owned(),
        queue_id: 0,
        offset: 0,
        max_messages: 1000,
        tags: TagFilter::default(),
        bounded: false,
        errors: Errors::Raise,
    };
    let mut found = Vec::new();
    let got = reader.get(&request, |message| {
        found.push((message.view().queue_offset(), body(message)));
        Ok::<_, Error>(true)
    });
    for (queue_offset, number) in &found {
        assert_eq!(*number, old_number(kept, *queue_offset));
    }
    match got {
        Ok(result) => {
            assert_eq!((result.status, found.len()), (GetMessageStatus::Found, usize::from(count)));
            0
        }
        Err(Error::LogCut { .. }) => 1,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_reader_beside_a_cut_reads_the_old_log_or_says_that_it_was_cut() {
    expect_passed("ha::beside_cut::child_reads_beside_a_cut");
}

#[test]
#[ignore = "the program of a child process"]
fn child_reads_beside_a_cut() {
    if !child::is_child() {
        return;
    }
    for (kept, lost, new) in CASES {
        for has_read in [true, false] {
            let pair = Pair::new();
            let common = with_a_stale_tail(&pair, kept, lost);
            let (reader, count) = (open(&pair), kept + lost);
            if has_read {
                assert_eq!(read_old(&reader, kept, count), 0);
            }
            let held: Vec<_> = (0..i64::from(if has_read { count } else { 0 }))
                .map(|n| reader.message_in_queue("orders", 0, n).unwrap())
                .collect();
            let master = pair.master("master", asynchronous());
            master.append(190..190 + new);
            let slave = pair.slave(pair.options());
            wait_for(&slave, master.end());
            for (n, message) in held.iter().enumerate() {
                assert_eq!(body(message), old_number(kept, n as i64), "a message that the reader holds");
            }
            let refused = read_old(&reader, kept, count);
            // What was mapped is read from the old files. What was not is refused.
            assert_eq!(refused == 0, has_read, "{refused} refused");
            for _ in 0..2 {
                match reader.refresh() {
                    Err(Error::LogCut { at, .. }) => assert_eq!(at, common),
                    refreshed => panic!("{refreshed:?}"),
                }
            }
            assert_eq!(read_old(&reader, kept, count) == 0, has_read);
            let fresh = open(&pair);
            assert_eq!(fresh.queue_bounds("orders", 0).unwrap(), 0..i64::from(kept + new));
            expect_new_log(&fresh, kept, new);
            slave.close().unwrap();
            master.close();
        }
    }
}

/// Checks the messages of a log that has `new` ones after the first `kept`.
fn expect_new_log(reader: &MessageReader, kept: u8, new: u8) {
    for n in 0..kept + new {
        let number = if n < kept { n } else { 190 + (n - kept) };
        let message = reader.message_in_queue("orders", 0, i64::from(n)).unwrap();
        assert_eq!(body(&message), number);
    }
}

#[test]
fn the_reader_of_a_slave_reads_the_log_before_a_cut_or_says_so() {
    expect_passed("ha::beside_cut::child_reads_by_the_reader_of_a_slave");
}

#[test]
#[ignore = "the program of a child process"]
fn child_reads_by_the_reader_of_a_slave() {
    if !child::is_child() {
        return;
    }
    let mut refused_unread = 0;
    for (kept, lost, new) in CASES {
        for has_read in [true, false] {
            let pair = Pair::new();
            with_a_stale_tail(&pair, kept, lost);
            let slave = pair.slave(pair.options());
            wait_until(|| slave.reader().is_some());
            let (reader, count) = (slave.reader().unwrap(), kept + lost);
            if has_read {
                assert_eq!(read_old(&reader, kept, count), 0);
            }
            let master = pair.master("master", asynchronous());
            master.append(190..190 + new);
            wait_for(&slave, master.end());
            let refused = read_old(&reader, kept, count);
            if has_read {
                assert_eq!(refused, 0);
            } else {
                refused_unread += refused;
            }
            let fresh = slave.reader().unwrap();
            wait_until(|| fresh.queue_bounds("orders", 0).unwrap() == (0..i64::from(kept + new)));
            expect_new_log(&fresh, kept, new);
            slave.close().unwrap();
            master.close();
        }
    }
    assert!(refused_unread > 0, "no read needed a file that it had not opened");
}

#[test]
fn a_reader_that_has_read_no_more_than_the_common_part_continues() {
    for has_tail in [false, true] {
        for (kept, lost, new) in CASES {
            let pair = Pair::new();
            let master = pair.master("master", asynchronous());
            let slave = pair.slave_from_the_start(&master, pair.options());
            master.append(0..kept);
            wait_for(&slave, master.end());
            let reader = open(&pair);
            assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..i64::from(kept));
            master.close();
            copy_dir(&pair.at("master"), &pair.at("older"));
            let master = pair.master("master", asynchronous());
            master.append(100..100 + lost);
            wait_for(&slave, master.end());
            master.close();
            slave.close().unwrap();
            if has_tail {
                assert!(reader.refresh().unwrap().bytes > 0);
            }
            fs::remove_dir_all(pair.at("master")).unwrap();
            fs::rename(pair.at("older"), pair.at("master")).unwrap();
            let master = pair.master("master", asynchronous());
            master.append(190..190 + new);
            let slave = pair.slave(pair.options());
            wait_for(&slave, master.end());
            let refreshed = reader.read_on();
            if has_tail {
                assert!(matches!(refreshed, Err(Error::LogCut { .. })), "{refreshed:?}");
            } else {
                let fresh = refreshed.unwrap().reopened.unwrap();
                assert_eq!(fresh.queue_bounds("orders", 0).unwrap(), 0..i64::from(kept + new));
                let first_new = fresh.message_in_queue("orders", 0, i64::from(kept)).unwrap();
                assert_eq!(body(&first_new), 190);
            }
            slave.close().unwrap();
            master.close();
        }
    }
}

/// Cuts the log of the slave: its next master has other messages after the common part, of which `name` is a copy.
fn cut_by(pair: &Pair, slave: &Slave, name: &str, numbers: Range<u8>) -> i64 {
    let master = pair.master(name, asynchronous());
    master.append(numbers.clone());
    let end = master.end();
    // The slave may have held more than this of the log before.
    wait_until(|| {
        let (reader, last) = (slave.reader().unwrap(), numbers.end - 1);
        let found = reader.query(&by_key("orders", &format!("key-{last}")));
        reader.physical_bounds().end == end && found.is_ok_and(|found| found.hits.len() == 1)
    });
    master.close();
    end
}

#[test]
fn verify_reports_no_damage_while_the_log_is_cut() {
    for (kept, lost, new) in CASES {
        let pair = Pair::new();
        with_a_stale_tail(&pair, kept, lost);
        let names = ["first", "second"].map(|name| {
            copy_dir(&pair.at("master"), &pair.at(name));
            name
        });
        let slave = pair.slave(pair.options());
        wait_until(|| slave.reader().is_some());
        let (reader, mut ends) = (open(&pair), Vec::new());
        let report = verify(&env(), &reader, VerifyRequest::default(), |done, all| {
            if let Some(name) = names.get(ends.len()).filter(|_| done == all) {
                let first = 150 + 50 * ends.len() as u8;
                ends.push(cut_by(&pair, &slave, name, first..first + new.min(40) + 1 - ends.len() as u8));
            }
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!(ends.len(), 2);
        assert!(report.is_ok(), "{:?}", report.findings);
        assert_eq!(report.covered, 0..ends[1]);
        slave.close().unwrap();
    }
}

#[test]
fn verify_of_a_log_that_is_cut_at_each_look_says_so() {
    let pair = Pair::new();
    with_a_stale_tail(&pair, 5, 3);
    let names: Vec<_> = (0..8).map(|n| format!("master-{n}")).collect();
    for name in &names {
        copy_dir(&pair.at("master"), &pair.at(name));
    }
    let slave = pair.slave(pair.options());
    wait_until(|| slave.reader().is_some());
    let (reader, mut looks) = (open(&pair), 0);
    let report = verify(&env(), &reader, VerifyRequest::default(), |done, all| {
        if done == all {
            cut_by(&pair, &slave, &names[looks], 150 + looks as u8..200 - looks as u8);
            looks += 1;
        }
        Ok(())
    });
    assert!(matches!(report, Err(Error::LogCut { .. })), "{report:?}");
    slave.close().unwrap();
}

#[test]
fn a_cut_leaves_no_entry_of_the_old_log_in_a_queue() {
    let pair = Pair::new();
    with_a_stale_tail(&pair, 10, 60);
    let master = pair.master("master", asynchronous());
    // The entries of the old log after these lead into the new one.
    master.append_sized(190..193, 12_000);
    let end = master.end();
    assert!(end > 3 * SEGMENT);
    let slave = pair.slave(pair.options());
    wait_for(&slave, end);
    slave.close().unwrap();
    master.close();
    let reader = open(&pair);
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..13);
    for n in 0..13 {
        reader.message_in_queue("orders", 0, n).unwrap();
    }
}
