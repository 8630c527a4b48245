//! A writer ends while another of its threads makes a segment: the next writer loses nothing.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::store::{MessageStore, OpenMode};

use super::services::stepped_with;
use super::{Place, SEGMENT, bodies, io_error, message, open, put, small, wait_for_segments};
use crate::counting_env::CountingEnv;

/// The end of the first writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A sync fails, and the store is closed after that.
    Poisoned,
    /// The close panics.
    Panics,
}

/// The maker of the segments of the first writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MadeBy {
    /// The thread that appends, for the store runs no services.
    Caller,
    Service,
}

impl MadeBy {
    /// The name of the thread.
    fn thread(self) -> &'static str {
        match self {
            Self::Caller => "rolling",
            Self::Service => "mqstore-allocator",
        }
    }
}

/// A writer with a thread that is stopped before a call of a roll.
struct Stopped {
    store: Arc<MessageStore>,
    rolling: JoinHandle<Result<(), Error>>,
    /// Dropped to release it.
    go: Sender<()>,
}

/// Stops the thread of a new writer that makes a segment before the call with this number; `None` if making one takes fewer calls.
fn stop_in_roll(place: &Place, number: usize, end: End, made_by: MadeBy) -> Option<Stopped> {
    let config = StoreConfig {
        flush_interval_commit_log: 1_000_000,
        ..small()
    };
    let (env, store) = match made_by {
        MadeBy::Caller => stepped_with(place, config),
        MadeBy::Service => place.create_counting(config),
    };
    put(&store, "t", &[0; 10_000]);
    if made_by == MadeBy::Service {
        wait_for_segments(&env, 2);
    }
    // The service has made the second segment already. The first message in it asks for the third, the next one needs that.
    let rolls = if made_by == MadeBy::Service { 2 } else { 1 };
    let later = format!("{:020}", (rolls + 1) * SEGMENT);
    let (stands, stopped, go) = stop_at(&env, number, end, made_by.thread(), later);
    let store = Arc::new(store);
    let appending = store.clone();
    let roll = move || {
        let appended = (0..rolls).try_for_each(|_| appending.append(message("t", 0, &[1; 10_000])).map(drop));
        drop(stands);
        appended
    };
    let rolling = thread::Builder::new().name("rolling".to_owned()).spawn(roll).unwrap();
    if stopped.recv().is_err() {
        rolling.join().unwrap().unwrap();
        return None;
    }
    // The message in the second segment.
    while (rolls == 2) && store.appended_offset() <= SEGMENT as i64 {
        thread::sleep(Duration::from_millis(1));
    }
    Some(Stopped { store, rolling, go })
}

/// Stops the thread of this name before its call with this number, unless it then makes the `later` segment. A sync of the log by any
/// other thread fails.
fn stop_at(
    env: &CountingEnv,
    number: usize,
    end: End,
    name: &'static str,
    later: String,
) -> (Arc<Sender<()>>, Receiver<()>, Sender<()>) {
    let (stands, stopped) = channel();
    let (go, may_go) = channel::<()>();
    let stands = Arc::new(stands);
    let (told, state) = (Arc::downgrade(&stands), Mutex::new((0, may_go)));
    env.before_changes(move |change| {
        if thread::current().name() == Some(name) {
            if change == "clock" {
                return Ok(());
            }
            let mut state = state.lock().unwrap();
            // More than any number, from that segment on.
            state.0 = if change.contains(&later) {
                usize::MAX / 2
            } else {
                state.0 + 1
            };
            if let (true, Some(told)) = (state.0 == number + 1, told.upgrade()) {
                let _ = told.send(());
                let _ = state.1.recv();
            }
        } else if change.starts_with("sync LogRange") {
            assert!(end != End::Panics, "planted");
            return Err(io_error());
        }
        Ok(())
    });
    (stands, stopped, go)
}

fn open_again(place: &Place) -> Result<MessageStore, Error> {
    open(&place.store, StoreConfig::default(), OpenMode::Existing)
}

#[test]
fn a_writer_that_ends_inside_a_roll_costs_the_next_writer_nothing() {
    for (end, made_by) in [End::Poisoned, End::Panics]
        .into_iter()
        .flat_map(|end| [MadeBy::Caller, MadeBy::Service].map(|by| (end, by)))
    {
        for number in 0.. {
            let place = Place::new();
            let Some(stopped) = stop_in_roll(&place, number, end, made_by) else {
                assert!(number >= 7, "{number} calls");
                break;
            };
            let case = format!("{end:?}, {made_by:?}, before call {number}");
            if end == End::Poisoned {
                assert!(matches!(stopped.store.flush(), Err(Error::Poisoned { .. })), "{case}");
            }
            let (closed, is_closed) = channel();
            let closing = stopped.store.clone();
            let closing = thread::spawn(move || closed.send(closing.close()).unwrap());
            while matches!(stopped.store.expect_appended(-1), Err(Error::Invalid { .. })) {
                thread::yield_now();
            }
            let is_first_over = is_closed.recv_timeout(Duration::from_millis(50)).is_ok();
            // The first writer holds the lock as long as it may change anything. It may give the lock up just now.
            let second = match open_again(&place) {
                Ok(second) => Some(second),
                Err(Error::Locked { .. }) if !is_first_over => None,
                Err(error) => panic!("{case}: {error}"),
            };
            let mut acked = vec![vec![0; 10_000]];
            if made_by == MadeBy::Service {
                acked.push(vec![1; 10_000]);
            }
            let mut append = |store: &MessageStore| {
                for n in 2..5 {
                    put(store, "t", &[n; 10_000]);
                    acked.push(vec![n; 10_000]);
                }
                store.flush().unwrap();
            };
            second.iter().for_each(&mut append);
            drop(stopped.go);
            let rolled = stopped.rolling.join().unwrap();
            assert!(
                matches!(rolled, Err(Error::Poisoned { .. } | Error::Closed)),
                "{case}: {rolled:?}"
            );
            closing.join().unwrap();
            let second = second.unwrap_or_else(|| open_again(&place).unwrap());
            append(&second);
            second.close().unwrap();
            assert_eq!(bodies(&place.reader(), "t", 0), acked, "{case}");
            assert!(
                !super::names(&place.store).iter().any(|name| name.starts_with("mqstore-new")),
                "{case}"
            );
        }
    }
}

#[test]
fn a_new_segment_never_takes_the_place_of_a_file() {
    let place = Place::new();
    let (_, store) = stepped_with(&place, small());
    put(&store, "t", &[0; 10_000]);
    let foreign: PathBuf = place.at("commitlog").join(format!("{SEGMENT:020}"));
    fs::write(&foreign, b"somebody else's").unwrap();
    for _ in 0..2 {
        let refused = store.append(message("t", 0, &[1; 10_000])).unwrap_err();
        assert!(
            matches!(&refused, Error::Io { path, source, .. } if *path == foreign && source.raw_os_error() == Some(17)),
            "{refused:?}"
        );
        assert_eq!(fs::read(&foreign).unwrap(), b"somebody else's");
    }
    fs::remove_file(&foreign).unwrap();
    put(&store, "t", &[1; 10_000]);
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 2);
}
