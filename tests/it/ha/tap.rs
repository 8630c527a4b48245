//! A tap with masters that the test plays.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mqstore::format::{BLANK_SIZE, Check, Record, read_record};
use mqstore::ha::{Slave, SlaveOptions, Tap, TapStart};

use super::played_master::{Script, header, report};
use super::slave::{Pair, env, failure, options, wait_for, wait_for_error};
use super::{LONG, SEGMENT, asynchronous, wait_until};
use crate::played_broker::PlayedBroker;

/// Older than any message of a test.
const ALL: Duration = Duration::from_secs(3600);
/// The place of the store time in a record.
const STORE_TIME: Range<usize> = 56..64;

fn tap(start: TapStart, age: Duration, broker: Option<&PlayedBroker>) -> impl Fn(SlaveOptions) -> SlaveOptions {
    let broker = broker.map(|broker| broker.address.to_string());
    move |options| SlaveOptions {
        tap: Some(Tap { start, age }),
        broker: broker.clone(),
        ..options
    }
}

fn size_at(log: &[u8], at: usize) -> usize {
    i32::from_be_bytes(log[at..at + 4].try_into().unwrap()) as usize
}

/// The starts of the records.
fn records(log: &[u8]) -> Vec<usize> {
    let (mut starts, mut at) = (Vec::new(), 0);
    loop {
        match read_record(&log[at..], Check::Structure) {
            Record::Message(view) => {
                starts.push(at);
                at += view.size() as usize;
            }
            Record::Blank { size } => at += size as usize,
            _ => return starts,
        }
    }
}

fn store_time_at(log: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(log[at..][STORE_TIME].try_into().unwrap())
}

/// Sends the log from the request on, and waits until the tap has all of it.
fn serve(script: &Script, slave: &Slave, until: usize) -> (TcpStream, i64) {
    let (stream, asked) = script.accept();
    script.send(&stream, asked as usize..until);
    wait_for(slave, until as i64);
    assert!(script.held()[..until] == script.log[..until]);
    (stream, asked)
}

/// Starts another tap on the same store, as after a kill.
fn again(script: &Script, change: impl Fn(SlaveOptions) -> SlaveOptions) -> Slave {
    script.slave.close().unwrap();
    let address = script.listener.local_addr().unwrap().to_string();
    let slave = Slave::start(&env(), &script.dir.path().join("slave"), change(options(address)));
    slave.unwrap()
}

#[test]
fn a_tap_has_byte_0_and_its_report_never_rises() {
    let script = Script::with(tap(TapStart::Earliest, ALL, None));
    let (stream, asked) = serve(&script, &script.slave, script.log.len());
    assert_eq!(asked, 1, "0 asks for the newest segment");
    assert_eq!(script.slave.status().lag(), Some(0));
    for _ in 0..5 {
        assert_eq!(report(&stream), 1);
    }
    script.slave.close().unwrap();
}

#[test]
fn a_tap_of_the_newest_segment_acknowledges_nothing() {
    let script = Script::with(tap(TapStart::Latest, ALL, None));
    let (stream, asked) = script.accept();
    assert_eq!(asked, 0);
    script.send(&stream, 2 * SEGMENT as usize..script.log.len());
    wait_for(&script.slave, script.log.len() as i64);
    assert!(script.held()[..script.log.len() - 2 * SEGMENT as usize] == script.log[2 * SEGMENT as usize..]);
    for _ in 0..5 {
        assert_eq!(report(&stream), 0);
    }
    script.slave.close().unwrap();
}

#[test]
fn a_tap_continues_in_the_middle_of_any_record() {
    let script = Script::with(tap(TapStart::Earliest, ALL, None));
    let size = size_at(&script.log, 0);
    for until in [2, 50, size - 1, size, size + 1, 30 * size] {
        let (stream, asked) = script.accept();
        assert_eq!(asked, 1);
        script.send(&stream, 1..until);
        if until > size {
            wait_for(&script.slave, size as i64);
        }
        // A pause of the sender: what came is taken first.
        assert_eq!(report(&stream), 1);
    }
    serve(&script, &script.slave, script.log.len());
    script.slave.close().unwrap();
}

#[test]
fn a_tap_asks_for_a_record_that_no_append_waits_for() {
    let age = Duration::from_millis(200);
    let pair = Pair::new();
    let master = pair.master("master", asynchronous());
    master.append(0..50);
    let first = master.end() as usize;
    sleep(age);
    master.append(50..60);
    let end = master.end();
    master.close();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let script = Script {
        log: pair.log("master", end),
        slave: pair.slave(tap(TapStart::Earliest, age, None)(options(address))),
        dir: pair.dir,
        listener,
    };
    serve(&script, &script.slave, end as usize);
    let asked = script.accept().1 as usize;
    let records = records(&script.log);
    let (last_old, newest) = (records[49], records[59]);
    assert!(last_old < first && asked >= last_old && records.contains(&asked), "{asked}");
    assert!(store_time_at(&script.log, asked) + age.as_millis() as i64 <= store_time_at(&script.log, newest));
    script.slave.close().unwrap();
}

#[test]
fn a_tap_waits_until_its_first_record_is_old() {
    let age = Duration::from_millis(700);
    let script = Script::with(tap(TapStart::Latest, age, None));
    let (stream, _) = script.accept();
    let begin = SEGMENT as usize;
    let end = begin + size_at(&script.log, begin);
    script.send(&stream, begin..end);
    wait_for(&script.slave, end as i64);
    let begun = Instant::now();
    drop(stream);
    let (_, asked) = script.accept();
    assert_eq!(asked, SEGMENT);
    assert!(begun.elapsed() >= age);
    script.slave.close().unwrap();
}

#[test]
fn a_tap_below_the_begin_of_its_master_fails() {
    let broker = PlayedBroker::start();
    broker.set_log(0..100 * SEGMENT);
    let change = tap(TapStart::Earliest, Duration::ZERO, Some(&broker));
    let script = Script::with(&change);
    let end = records(&script.log)[2];
    let (mut stream, _) = serve(&script, &script.slave, end);
    // While it is connected: heartbeats at its end, as where nothing is new.
    broker.set_log(SEGMENT..100 * SEGMENT);
    let expected = format!("begins at physical offset {SEGMENT}, and this one would continue at {end}");
    let begun = Instant::now();
    while script.slave.status().error.is_none() {
        let _ = stream.write_all(&header(end as i64, 0));
        sleep(Duration::from_millis(20));
        assert!(begun.elapsed() < LONG);
    }
    assert!(failure(&script.slave).to_string().contains(&expected));
    // And at its start.
    let slave = again(&script, &change);
    assert!(failure(&slave).to_string().contains(&expected));
    slave.close().unwrap();
    assert!(script.held()[..end] == script.log[..end], "nothing is removed");
}

#[test]
fn a_tap_continues_where_its_master_still_has_the_log() {
    let broker = PlayedBroker::start();
    broker.set_log(0..100 * SEGMENT);
    let change = tap(TapStart::Earliest, ALL, Some(&broker));
    let script = Script::with(&change);
    let until = SEGMENT as usize + size_at(&script.log, SEGMENT as usize);
    serve(&script, &script.slave, until);
    script.slave.close().unwrap();
    // Its old records were removed.
    broker.set_log(SEGMENT..100 * SEGMENT);
    let slave = again(&script, tap(TapStart::Earliest, Duration::from_millis(50), Some(&broker)));
    let (_, asked) = serve(&script, &slave, script.log.len());
    assert_eq!(asked, SEGMENT);
    slave.close().unwrap();
}

#[test]
fn a_tap_reports_nothing_past_the_end_of_its_master() {
    let broker = PlayedBroker::start();
    broker.set_log(0..100 * SEGMENT);
    let change = tap(TapStart::Earliest, Duration::ZERO, Some(&broker));
    let script = Script::with(&change);
    serve(&script, &script.slave, script.log.len());
    // A crash of the master has shortened its log.
    let end = records(&script.log)[3];
    broker.set_log(0..end as i64);
    let slave = again(&script, change);
    let (_, asked) = script.accept();
    assert_eq!(asked, end as i64);
    slave.close().unwrap();
}

#[test]
fn a_tap_begins_where_its_master_says() {
    let end = 4 * SEGMENT + 100;
    for (start, begin, asked) in [
        (TapStart::Earliest, 2 * SEGMENT, Ok(2 * SEGMENT)),
        (TapStart::Earliest, 0, Ok(1)),
        (TapStart::Offset(2 * SEGMENT + 17), SEGMENT, Ok(2 * SEGMENT)),
        (TapStart::Offset(17), 0, Ok(1)),
        (
            TapStart::Offset(SEGMENT + 17),
            2 * SEGMENT,
            Err("begins at physical offset 32768"),
        ),
        (TapStart::Offset(9 * SEGMENT), 0, Err("ends at 65636")),
        (TapStart::Earliest, 100, Err("from physical offset 100 on")),
    ] {
        let broker = PlayedBroker::start();
        broker.set_log(begin..end);
        let script = Script::with(tap(start, Duration::from_millis(10), Some(&broker)));
        match asked {
            Ok(asked) => assert_eq!(script.accept().1, asked, "{start:?}"),
            Err(reason) => {
                let refused = failure(&script.slave).to_string();
                assert!(refused.contains(reason), "{start:?}: {refused}");
            }
        }
        script.slave.close().unwrap();
    }
}

#[test]
fn a_tap_that_cannot_know_what_its_master_has_says_so() {
    let script = Script::with(tap(TapStart::Earliest, ALL, None));
    let (mut stream, asked) = script.accept();
    assert_eq!(asked, 1);
    stream.write_all(&header(1, 0)).unwrap();
    wait_for_error(&script.slave, "sends nothing from the start of its log on");
    script.slave.close().unwrap();
    // A broker whose answer has no begin.
    let broker = PlayedBroker::start();
    broker.set_text(crate::played_broker::RUNTIME_INFO, "{}");
    let script = Script::with(tap(TapStart::Earliest, ALL, Some(&broker)));
    wait_for_error(&script.slave, "commitLogMinOffset");
    script.slave.close().unwrap();
    for (start, expected) in [(5, "only the broker port"), (-1, "0 or more")] {
        let path = script.dir.path().join("none");
        let wrong = tap(TapStart::Offset(start), ALL, None)(options("127.0.0.1:1".to_owned()));
        let refused = Slave::start(&env(), &path, wrong).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn stale_bytes_of_a_blank_are_kept_and_never_parsed() {
    let change = tap(TapStart::Earliest, ALL, None);
    let mut script = Script::with(&change);
    // After the size and the magic of the BLANK that ends the first segment, records of an older use of its file.
    let segment = SEGMENT as usize;
    let last = records(&script.log).into_iter().rfind(|start| *start < segment).unwrap();
    let stale = last + size_at(&script.log, last) + BLANK_SIZE;
    assert!(stale < segment);
    script.log.copy_within(..segment - stale, stale);
    serve(&script, &script.slave, script.log.len());
    let queue = || script.slave.reader().unwrap().queue_bounds("orders", 0).unwrap();
    wait_until(|| queue() == (0..100));
    // It compares them, too.
    let slave = again(&script, change);
    serve(&script, &slave, script.log.len());
    assert!(slave.status().cuts.is_empty());
    slave.close().unwrap();
}

#[test]
fn a_tap_cuts_what_its_master_has_lost() {
    let change = tap(TapStart::Earliest, ALL, None);
    let script = Script::with(&change);
    serve(&script, &script.slave, script.log.len());
    let slave = again(&script, change);
    let (mut stream, asked) = script.accept();
    assert_eq!(asked, 1);
    let records = records(&script.log);
    let mut other = script.frame(1..records[20]);
    let len = other.len();
    other[len - (records[20] - records[19])..].fill(7);
    stream.write_all(&other).unwrap();
    wait_until(|| slave.status().cuts.len() == 1);
    assert_eq!(slave.status().cuts[0].offset, records[19] as i64);
    slave.close().unwrap();
}
