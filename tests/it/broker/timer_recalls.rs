//! Recalls of timer messages: they end the messages of their key and second, and no other.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mqstore::broker::{BrokerController, BrokerService, DelayStats, NeededBy, TimerBacklog, TimerFate};
use mqstore::error::Error;
use mqstore::format::{Message, TIMER_TOPIC, property};
use mqstore::read::MessageReader;
use mqstore::services::{Next, Service};
use mqstore::storage::Env;
use mqstore::store::{AppendResult, Incoming, MessageStore, OpenMode};

use super::delay::{Stepped, config};
use super::directory;
use super::timers::{TIMER_CHECK, and, append, deliver, delivered, persist, progress, read_backlog, timed, with_services};
use crate::counting_env::CountingEnv;

/// A timer message with a unique key that is to be delivered `ms` from now.
pub(super) fn keyed(open: &Stepped, ms: i64, key: &str, body: &str) -> Message<'static> {
    and(
        timed(property::TIMER_DELIVER_MS, open.env.now() + ms, body),
        &[(property::UNIQ_KEY, key)],
    )
}

fn append_keyed(open: &Stepped, ms: i64, key: &str, body: &str) -> AppendResult {
    open.store.append(keyed(open, ms, key, body)).unwrap()
}

/// A recall of the messages of a key that are due in the second of `ms` from now.
pub(super) fn recall(open: &Stepped, ms: i64, key: &str) -> Message<'static> {
    and(keyed(open, ms, "of the recall", "0"), &[(property::TIMER_DEL_UNIQKEY, key)])
}

/// A store whose clock shows a whole second.
fn at_a_second() -> Stepped {
    let mut open = Stepped::new();
    open.pass(1000 - open.env.now() % 1000);
    open
}

/// Lets an hour pass, and delivers what is due.
fn deliver_all(open: &mut Stepped) {
    open.pass(3_600_000);
    deliver(open);
}

#[test]
fn a_recall_ends_the_messages_of_its_key_and_second() {
    let mut open = at_a_second();
    append_keyed(&open, 5000, "k", "the last ms of the second");
    append_keyed(&open, 4001, "k", "the first ms");
    append_keyed(&open, 4000, "k", "the second before");
    append_keyed(&open, 5001, "k", "the second after");
    append_keyed(&open, 4500, "k 2", "another key");
    append(&open, 4500, "no key");
    let mut other = keyed(&open, 4500, "k", "another topic");
    other.topic = "others".into();
    open.store.append(other).unwrap();
    open.store.append(recall(&open, 4500, "orders+k")).unwrap();
    open.dispatch();
    deliver(&open);
    let stats = open.broker.delay_stats().unwrap().unwrap();
    assert_eq!((stats.waiting, stats.passed_over), (5, 0));
    deliver_all(&mut open);
    let expected = [
        "the second before",
        "another key",
        "no key",
        "another topic",
        "the second after",
    ];
    assert_eq!(delivered(&open), expected);
    let expected = DelayStats {
        waiting: 0,
        passed_over: 0,
        overdue: 0,
        next_due: None,
    };
    assert_eq!(open.broker.delay_stats().unwrap().unwrap(), expected);
}

#[test]
fn recalls_and_messages_of_one_second_may_take_turns() {
    let mut open = at_a_second();
    for round in 0..4 {
        append_keyed(&open, 5000, &format!("k {round}"), "recalled later");
        append_keyed(
            &open,
            4500,
            "k 0",
            if round == 0 { "recalled later" } else { "recalled before" },
        );
        append_keyed(&open, 4600, &format!("kept {round}"), &round.to_string());
        deliver(&open);
        open.store.append(recall(&open, 5000, &format!("orders+k {round}"))).unwrap();
        deliver(&open);
        let stats = open.broker.delay_stats().unwrap().unwrap();
        assert_eq!(stats.waiting, round + 1);
    }
    deliver_all(&mut open);
    assert_eq!(delivered(&open), ["0", "1", "2", "3"]);
}

#[test]
fn nothing_is_delivered_before_the_recalls_after_it_are_read() {
    let mut open = at_a_second();
    deliver(&open);
    append_keyed(&open, 5000, "k", "recalled");
    // More than a step of the service reads.
    for _ in 0..17_000 {
        append(&open, 3_000_000, "later");
    }
    open.store.append(recall(&open, 5000, "orders+k")).unwrap();
    open.dispatch();
    open.pass(6000);
    deliver(&open);
    assert_eq!(delivered(&open), Vec::<String>::new());
    assert_eq!(open.broker.delay_stats().unwrap().unwrap().waiting, 17_000);
}

/// Recalls 100 of the timer messages of a second, one by one. Returns the bytes of the log that were read for it, and the length of the
/// log before.
fn read_for_recalls(timers: usize) -> (u64, u64) {
    let (_dir, path) = directory();
    let env = CountingEnv::new();
    // A whole second.
    let now = 1_700_000_000_000;
    env.set_now(now);
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let store = Arc::new(MessageStore::open_stepped(&seam, &path, config(), OpenMode::Append).unwrap());
    let broker = BrokerController::new_stepped(&store);
    let keyed = |key: &str| {
        and(
            timed(property::TIMER_DELIVER_MS, now + 5000, "a"),
            &[(property::UNIQ_KEY, key)],
        )
    };
    let step = || {
        while store.step(Service::Dispatch, Instant::now()).unwrap() == Next::Again {}
        while broker.step(BrokerService::DeliverTimers, Instant::now()).unwrap() == Next::Again {}
    };
    for key in 0..timers {
        store.append(keyed(&format!("k {key}"))).unwrap();
    }
    step();
    let of_log = || env.bytes_read_below(&path.join("commitlog"));
    let (log_end, before) = (store.reader().physical_bounds().end.unsigned_abs(), of_log());
    for key in 0..100 {
        let key = format!("orders+k {key}");
        store
            .append(and(keyed("of the recall"), &[(property::TIMER_DEL_UNIQKEY, &key)]))
            .unwrap();
        store.append(keyed("later")).unwrap();
        step();
    }
    assert_eq!(broker.delay_stats().unwrap().unwrap().waiting, timers as u64);
    (of_log() - before, log_end)
}

#[test]
fn each_recall_of_a_second_does_not_read_all_its_messages() {
    let ((few, len), (many, longer)) = (read_for_recalls(1000), read_for_recalls(2000));
    // A round reads the same whatever waits, and the first recall each message once.
    assert!(many - few < 5 * (longer - len), "{few} of {len} bytes, {many} of {longer}");
}

#[test]
fn a_key_without_a_topic_recalls_nothing() {
    let mut open = at_a_second();
    append_keyed(&open, 5000, "k", "a");
    open.store.append(recall(&open, 5000, "k")).unwrap();
    deliver_all(&mut open);
    assert_eq!(delivered(&open), ["a"]);
}

#[test]
fn a_recall_ends_a_message_that_is_stored_after_it() {
    let mut open = at_a_second();
    open.store.append(recall(&open, 5000, "orders+k")).unwrap();
    deliver(&open);
    persist(&mut open);
    let mut open = open.killed();
    append_keyed(&open, 5000, "k", "a");
    append_keyed(&open, 5000, "k 2", "b");
    deliver_all(&mut open);
    assert_eq!(delivered(&open), ["b"]);
}

#[test]
fn a_recall_that_comes_after_the_delivery_changes_nothing() {
    let mut open = at_a_second();
    append_keyed(&open, 1200, "k", "a");
    open.pass(1300);
    deliver(&open);
    open.store.append(recall(&open, 600, "orders+k")).unwrap();
    deliver_all(&mut open);
    assert_eq!(delivered(&open), ["a"]);
    let mut open = open.killed();
    deliver_all(&mut open);
    assert_eq!(delivered(&open), ["a"]);
}

#[test]
fn a_recalled_message_stays_recalled_after_a_kill_at_any_time() {
    for persists in 0..4 {
        let mut open = at_a_second();
        open.store.append(recall(&open, 5000, "orders+k")).unwrap();
        // It keeps the progress before the next.
        append_keyed(&open, 3_000_000, "later", "later");
        append_keyed(&open, 5000, "k", "recalled");
        append_keyed(&open, 4100, "k 2", "a");
        deliver(&open);
        for ms in [0, 4100, 1000].into_iter().take(persists) {
            open.pass(ms);
            deliver(&open);
            persist(&mut open);
        }
        let mut open = open.killed();
        let first = [None, Some(0), Some(0), Some(1)][persists];
        assert_eq!(progress(&open).map(|progress| progress.first), first);
        deliver_all(&mut open);
        assert_eq!(delivered(&open), ["a", "later"], "{persists} persists");
        // Nothing is left to be read again.
        persist(&mut open);
        assert_eq!(progress(&open).unwrap().first, 4);
    }
}

#[test]
fn the_progress_stays_before_a_recall_until_its_second_has_passed() {
    let mut open = at_a_second();
    open.store.append(recall(&open, 5000, "orders+k")).unwrap();
    append_keyed(&open, 5000, "k", "recalled");
    append_keyed(&open, 1000, "k 2", "a");
    open.pass(1000);
    // The next step is at the end of the second.
    assert_eq!(deliver(&open).map(|until| until.as_millis()), Some(4000));
    persist(&mut open);
    assert_eq!(progress(&open).unwrap().first, 0);
    open.pass(4000);
    assert_eq!(deliver(&open), None);
    persist(&mut open);
    assert_eq!(progress(&open).unwrap().first, 3);
    assert_eq!(delivered(&open), ["a"]);
}

#[test]
fn a_recall_of_a_time_that_has_passed_is_refused() {
    let open = at_a_second();
    let at = open.log().len();
    for ms in [0, -5000] {
        let error = open.store.append(recall(&open, ms, "orders+k")).unwrap_err();
        assert!(matches!(error, Error::IllegalMessage { .. }), "{error:?}");
        assert!(error.to_string().contains("of the timer to recall has passed"), "{error}");
    }
    assert_eq!(open.log().len(), at);
}

#[test]
fn no_due_message_is_delivered_before_all_recalls_are_read() {
    let mut open = at_a_second();
    append_keyed(&open, 1000, "k", "a");
    // More than one step reads.
    let fillers = (0..20_000).map(|_| Incoming::Sent(timed(property::TIMER_DELIVER_MS, open.env.now() + 3_600_000, "")));
    open.store
        .appender(Some(false))
        .append_all(fillers.collect::<Vec<_>>(), &mut Vec::new())
        .unwrap();
    open.store.append(recall(&open, 1000, "orders+k")).unwrap();
    open.pass(1000);
    deliver(&open);
    assert_eq!(delivered(&open), Vec::<String>::new());
}

#[test]
fn a_hand_over_stores_recalls_again_and_not_what_they_recall() {
    let open = at_a_second();
    append_keyed(&open, 60_000, "k", "recalled");
    append_keyed(&open, 60_000, "k 2", "a");
    open.store.append(recall(&open, 60_000, "orders+k")).unwrap();
    open.dispatch();
    assert_eq!(open.broker.hand_over().unwrap().timers, 1);
    open.dispatch();
    let log = open.log();
    let again: Vec<_> = log[3..].iter().map(|message| message.view().body().to_vec()).collect();
    assert_eq!(again, [b"0", b"a"]);
    assert!(log[3..].iter().all(|message| message.view().has_topic(TIMER_TOPIC)));
    let mut open = open.reopened(config());
    append_keyed(&open, 60_000, "k", "recalled, too");
    deliver_all(&mut open);
    assert_eq!(delivered(&open), ["a"]);
}

#[test]
fn a_recalled_message_and_its_recall_do_not_count_as_waiting() {
    for (ms, of_recall, needed) in [(0, TimerFate::Waiting, 2), (5000, TimerFate::Done, 1)] {
        let mut open = at_a_second();
        append_keyed(&open, 5000, "k", "recalled");
        append_keyed(&open, 60_000, "k 2", "a");
        open.store.append(recall(&open, 5000, "orders+k")).unwrap();
        open.pass(ms);
        deliver(&open);
        persist(&mut open);
        // A trim keeps a recall as long as it may end a message.
        let hold = open
            .broker
            .holds()
            .unwrap()
            .into_iter()
            .find(|hold| hold.by == NeededBy::Timers);
        assert_eq!(hold.map(|hold| hold.messages), Some(needed));
        let of_writer = (open.store.reader().clone(), open.broker.timer_backlog().unwrap());
        let check = |(reader, known): (Arc<MessageReader>, TimerBacklog)| {
            let fates = [0, 1, 2].map(|offset| known.fate(&reader, offset).unwrap());
            assert_eq!(fates, [TimerFate::Recalled, TimerFate::Waiting, of_recall]);
            let counts = (known.waiting(3), known.needed(3), known.unknown(), known.damaged);
            assert_eq!(counts, (1, needed, 0, 0));
        };
        check(of_writer);
        check(read_backlog(&open.env.kill()));
    }
}

#[test]
fn what_a_broker_has_left_recalled_is_not_delivered() {
    let open = at_a_second();
    append_keyed(&open, 5000, "k", "recalled");
    append_keyed(&open, 6000, "k 2", "a");
    open.store.append(recall(&open, 5000, "orders+k")).unwrap();
    open.close();
    open.env.put(Path::new(TIMER_CHECK), b"a broker's");
    let (reader, known) = read_backlog(&open.env);
    let fates = [0, 1, 2].map(|offset| known.fate(&reader, offset).unwrap());
    assert_eq!(fates, [TimerFate::Recalled, TimerFate::Waiting, TimerFate::Waiting]);
    let mut open = Stepped::open(open.env.clone(), with_services()).unwrap();
    deliver_all(&mut open);
    assert_eq!(delivered(&open), ["a"]);
    assert_eq!(open.broker.delay_stats().unwrap().unwrap().passed_over, 0);
    open.persist_by(BrokerService::PersistTimers);
}
