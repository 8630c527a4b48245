//! A loop that can be interrupted asks its caller often enough, and looks at the clock seldom.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::{Error, Result};
use mqstore::format::{Message, encode_properties};
use mqstore::interrupt::{INTERVAL, check, interruptible};
use mqstore::read::{Filled, MessageReader, OnDamage, Scan, ScanRequest, UsageBy};
use mqstore::services::ReadBarrier;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use mqstore::watermark::Watermark;
use tempfile::TempDir;

/// Runs a loop with turns of this length for this long; gives the longest time between two questions. A turn in which the machine does
/// not run the thread counts as an interval that is 20 ms longer than it should be.
fn longest_silence(turn: Duration, total: Duration) -> Duration {
    let silence = Rc::new(Cell::new(Duration::ZERO));
    let asked = silence.clone();
    let ask = move || {
        asked.set(Duration::ZERO);
        Ok(())
    };
    let mut longest = Duration::ZERO;
    interruptible(ask, || {
        let end = Instant::now() + total;
        let mut begun = Instant::now();
        while begun < end {
            check().unwrap();
            if !turn.is_zero() {
                sleep(turn);
            }
            let now = Instant::now();
            silence.set(silence.get() + (now - begun).min(turn + Duration::from_millis(20)));
            longest = longest.max(silence.get());
            begun = now;
        }
    });
    longest
}

#[test]
fn a_loop_checks_for_interrupts_whether_its_turns_are_short_or_long() {
    for turn in [0, 1, 10, 30] {
        let silence = longest_silence(Duration::from_millis(turn), Duration::from_millis(1500));
        // Asked every 50 ms. After short turns the clock is not looked at in each of the next 64.
        assert!(silence < Duration::from_millis(1200), "turns of {turn} ms: {silence:?}");
    }
}

#[test]
fn an_open_that_reads_the_log_can_be_interrupted_and_changes_nothing() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("store");
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, &path, StoreConfig::default(), OpenMode::New).unwrap();
    let messages = || {
        (0..20_000)
            .map(|_| Message {
                topic: "orders".into(),
                ..Message::default()
            })
            .collect::<Vec<_>>()
    };
    store.appender(None).append_all(messages(), &mut Vec::new()).unwrap();
    store.close().unwrap();
    std::fs::remove_dir_all(path.join("consumequeue")).unwrap();
    std::fs::write(path.join("abort"), b"").unwrap();
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let before = names();
    let no = || Err(Error::Closed);
    for _ in 0..3 {
        // Long enough ago for the first question.
        let read = interruptible(no, || {
            sleep(INTERVAL);
            MessageReader::open(&env, &path, StoreConfig::default()).map(drop)
        });
        assert!(matches!(read, Err(Error::Closed)), "{read:?}");
        let written = interruptible(no, || {
            sleep(INTERVAL);
            MessageStore::open(&env, &path, StoreConfig::default(), OpenMode::Existing).map(drop)
        });
        assert!(matches!(written, Err(Error::Closed)), "{written:?}");
        assert_eq!(names(), before);
    }
    let store = MessageStore::open(&env, &path, StoreConfig::default(), OpenMode::Existing).unwrap();
    assert_eq!(store.reader().queue_bounds("orders", 0).unwrap(), 0..20_000);
    store.close().unwrap();
}

#[test]
fn a_count_of_the_whole_log_can_be_interrupted() {
    let place = TempDir::new().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, &place.path().join("store"), StoreConfig::default(), OpenMode::New).unwrap();
    store.append(keyed()).unwrap();
    store.catch_up(Duration::from_secs(10)).unwrap();
    let reader = store.reader();
    let works: [&dyn Fn() -> Result<()>; 2] = [&|| reader.usage(&[UsageBy::Topic], Errors::Skip).map(drop), &|| {
        reader.index_files().map(drop)
    }];
    for work in works {
        work().unwrap();
        let counted = interruptible(
            || Err(Error::Closed),
            || {
                sleep(INTERVAL);
                work()
            },
        );
        assert!(matches!(counted, Err(Error::Closed)), "{counted:?}");
    }
    store.close().unwrap();
}

/// A message with a key.
fn keyed() -> Message<'static> {
    Message {
        topic: "orders".into(),
        properties: encode_properties([("KEYS", "k")], true).unwrap().into(),
        ..Message::default()
    }
}

#[test]
fn nobody_is_asked_outside_of_an_interruptible_call() {
    let asked = Rc::new(Cell::new(0));
    let count = asked.clone();
    interruptible(
        move || {
            count.set(count.get() + 1);
            Ok(())
        },
        || {},
    );
    for _ in 0..10_000 {
        check().unwrap();
    }
    assert_eq!(asked.get(), 0);
}

/// Returns how many times `wait` asks whether to continue, after checks so fast that the next 64 would not look at the clock.
fn asked_while(wait: impl FnOnce()) -> u32 {
    let asked = Rc::new(Cell::new(0));
    let count = asked.clone();
    let ask = move || {
        count.set(count.get() + 1);
        Ok(())
    };
    interruptible(ask, || {
        for _ in 0..127 {
            check().unwrap();
        }
        wait();
    });
    asked.get()
}

#[test]
fn a_scan_that_waits_because_of_its_rate_asks_after_its_naps() {
    let place = TempDir::new().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, &place.path().join("store"), StoreConfig::default(), OpenMode::New).unwrap();
    for _ in 0..2 {
        let message = Message {
            body: vec![0; 1 << 20].into(),
            ..keyed()
        };
        store.append(message).unwrap();
    }
    store.catch_up(Duration::from_secs(10)).unwrap();
    let request = ScanRequest {
        max_bytes_per_s: Some(2 << 20),
        ..ScanRequest::default()
    };
    let mut scan = Scan::new(store.reader().clone(), request, OnDamage::new(Errors::Raise)).unwrap();
    // Half a second: 25 naps.
    let asked = asked_while(|| assert!(matches!(scan.fill(|_| Ok(true)), Ok(Filled::Paused))));
    assert!(asked > 0);
    store.close().unwrap();
}

#[test]
fn a_read_that_waits_for_the_dispatcher_asks_after_each_wait() {
    let barrier = ReadBarrier::new(Arc::new(Watermark::new(1)), Arc::new(Watermark::new(0)));
    let asked = asked_while(|| assert!(!barrier.wait(INTERVAL * 4, |_| Ok(())).unwrap()));
    assert!(asked > 0);
}
