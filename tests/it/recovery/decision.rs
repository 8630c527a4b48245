//! The decision table: one test for each row.

use std::fs;
use std::sync::Arc;

use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{Check, Checkpoint, CqUnit};
use mqstore::log::{ConsumeQueueStore, LogFiles};
use mqstore::read::MessageReader;
use mqstore::recovery::{
    Exit, Families, Intent, LastShutdown, OUTCOMES, Opener, ReplicaNote, RowExit, StoreState, WriterRecords, expect_recoverable,
    plan,
};
use mqstore::remedy::Remedy;
use mqstore::storage::{Env, RealEnv, install_guard};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::TempDir;

use super::{Crashed, SEGMENT, contents, copy, edit, names, real};

#[test]
fn the_rows_that_refuse_a_store_are_those_of_the_document_in_its_order() {
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/DURABILITY.md")).unwrap();
    let (_, section) = document.split_once("## Opening a store after a crash").unwrap();
    let documented: Vec<[String; 4]> = section
        .lines()
        .skip_while(|line| !line.starts_with("| exit"))
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>())
        .filter(|cells| cells[5] == "`recovery::expect_recoverable`" && cells[3].starts_with("refused"))
        .map(|cells| [1, 2, 3, 4].map(|at| cells[at].clone()))
        .collect();
    assert_eq!(documented.len(), OUTCOMES.len());
    for (row, [exit, found, _, salvage]) in OUTCOMES.iter().zip(&documented) {
        let name = match row.exit {
            RowExit::Any => "any",
            RowExit::Clean => "clean",
            RowExit::Crash => "crash",
            RowExit::Rebuild => "rebuild",
        };
        assert_eq!(name, exit, "{found}");
        assert!(found.starts_with(row.found), "{found:?} does not begin with {:?}", row.found);
        assert_eq!(row.refuses_salvage, salvage.starts_with("refused"), "{found}");
    }
}

#[test]
fn after_a_clean_exit_nothing_is_changed_but_the_stamps() {
    let store = Crashed::new(300, true);
    let before = contents(store.path());
    let report = store.recover();
    assert!(report.clean_exit);
    assert_eq!((report.undispatched, report.queue_entries_ahead, report.bytes_cut), (0, 0, 0));
    let mut after = contents(store.path());
    for new in ["checkpoint", "lock", "config/mqstore.json", "config/mqstore.flushed"] {
        assert!(after.remove(std::path::Path::new(new)).is_some(), "{new}");
    }
    assert!(before == after);
}

#[test]
fn after_an_abnormal_exit_whole_records_are_kept_and_the_store_is_clean() {
    let store = Crashed::new(300, false);
    let report = store.recover();
    assert!(!report.clean_exit && !store.at("abort").exists());
    store.expect_messages(300);
    assert!(store.reader().recovery().clean_exit);
}

#[test]
fn a_crash_without_a_log_leaves_an_empty_store_unless_queues_have_entries() {
    let store = Crashed::new(0, false);
    assert_eq!(store.recover().log_end, 0);
    store.expect_messages(0);

    let store = Crashed::new(100, false);
    fs::remove_dir_all(store.at("commitlog")).unwrap();
    fs::create_dir(store.at("commitlog")).unwrap();
    store.refused_at();
    let salvaged = store.open_with(Recovery::Salvage).unwrap();
    salvaged.close().unwrap();
    assert_eq!(names(&store.at("consumequeue/orders/0")), [""; 0]);
    assert_eq!(names(&store.at("index")), [""; 0]);
}

#[test]
fn a_store_whose_log_directory_is_gone_is_refused_whatever_else_is_left() {
    for clean in [true, false] {
        for gone in [
            &["index", "checkpoint"][..],
            &["consumequeue"],
            &["consumequeue", "index"],
            &["checkpoint"],
            &[],
        ] {
            let store = Crashed::new(100, clean);
            store.stamp(store.last_store_time);
            fs::remove_dir_all(store.at("commitlog")).unwrap();
            for name in gone {
                let path = store.at(name);
                if path.is_dir() {
                    fs::remove_dir_all(path).unwrap();
                } else {
                    fs::remove_file(path).unwrap();
                }
            }
            let before = contents(store.path());
            let read = MessageReader::open(&real(), store.path(), StoreConfig::default()).map(|_| ());
            for mode in [OpenMode::Existing, OpenMode::Append] {
                for recovery in [Recovery::Heal, Recovery::Salvage] {
                    let config = StoreConfig {
                        recovery,
                        ..StoreConfig::default()
                    };
                    let written = MessageStore::open(&real(), store.path(), config, mode).map(|_| ());
                    for refused in [&read, &written] {
                        let Err(Error::NotAStore { found, .. }) = refused else {
                            panic!("{gone:?}: {refused:?}");
                        };
                        assert!(found.ends_with("put it back"), "{found}");
                    }
                }
            }
            assert!(contents(store.path()) == before);
        }
    }
}

#[test]
fn a_shortened_newest_segment_opens_after_it_is_extended_as_advised() {
    for clean in [true, false] {
        let store = Crashed::new(300, clean);
        store.stamp(store.last_store_time);
        let (path, at) = store.segment(store.offsets[294]);
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(at as u64)
            .unwrap();
        let refused = store.open().unwrap_err();
        assert_eq!(refused.remedy(), Some(Remedy::ExtendCopy), "{refused}");
        let length = format!("{SEGMENT} bytes were expected");
        assert!(refused.to_string().contains(&length), "{refused}");
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(SEGMENT as u64)
            .unwrap();
        assert_eq!(store.open().is_err(), clean, "only a clean one says that more was on disk");
        store.open_with(Recovery::Salvage).unwrap().close().unwrap();
        store.expect_messages(294);
    }
}

#[test]
fn queues_ahead_of_the_log_are_cut_on_disk_before_the_log_is() {
    let store = Crashed::new(300, false);
    let (path, at) = store.segment(store.offsets[294]);
    super::edit(&path, |bytes| bytes[at..].fill(0));
    let queues: Vec<usize> = names(&store.at("consumequeue/orders/0"))
        .iter()
        .map(|name| name.parse().unwrap())
        .collect();
    assert_eq!(queues, [0, 1000, 2000]);
    let (env, opened) = store.open_counting();
    let opened = opened.unwrap();
    assert_eq!(opened.reader().recovery().queue_entries_ahead, 6);
    opened.close().unwrap();
    store.expect_messages(294);
    for queue in 0..2 {
        let last = fs::read(store.at(&format!("consumequeue/orders/{queue}/00000000000000002000"))).unwrap();
        assert!(last[47 * 20..].iter().all(|byte| *byte == 0));
    }
    let changes = env.changes();
    let position = |what: &str| changes.iter().position(|change| change.starts_with(what)).unwrap();
    assert!(position("sync directory AbortCreated") < position("sync QueuesCut"));
    assert!(position("sync QueuesCut") < position("sync LogRewritten"));
}

#[test]
fn a_queue_file_that_loses_its_only_entries_goes_and_none_of_zeros_stays() {
    for kept in [200, 201, 100, 2, 1] {
        let store = Crashed::new(202, false);
        let (path, at) = store.segment(store.offsets[kept as usize]);
        super::edit(&path, |bytes| bytes[at..].fill(0));
        for later in names(&store.at("commitlog")) {
            if later.parse::<i64>().unwrap() > store.offsets[kept as usize] {
                super::edit(&store.at("commitlog").join(later), |bytes| bytes.fill(0));
            }
        }
        store.recover();
        store.expect_messages(kept);
        for queue in 0..2 {
            let dir = store.at(&format!("consumequeue/orders/{queue}"));
            let files = names(&dir);
            assert_eq!(
                files.len(),
                ((kept + 1 - queue) / 2 + 49) as usize / 50,
                "{kept} kept, queue {queue}: {files:?}"
            );
            for file in files {
                assert!(fs::read(dir.join(file)).unwrap()[..20].iter().any(|byte| *byte != 0));
            }
        }
    }
}

#[test]
fn queues_that_lag_the_log_get_the_missing_entries_byte_for_byte() {
    for missing in [1, 3, 49, 50, 51, 149] {
        for clean in [true, false] {
            let store = Crashed::new(300, clean);
            let complete = contents(&store.at("consumequeue"));
            for queue in 0..2 {
                store.lose_entries(queue, 150 - missing);
            }
            assert_eq!(store.recover().undispatched, 2 * missing as u64, "{missing}, clean {clean}");
            assert!(contents(&store.at("consumequeue")) == complete, "{missing}, clean {clean}");
            store.expect_messages(300);
        }
    }
}

#[test]
fn damage_before_what_the_checkpoint_covers_is_refused_untouched() {
    for (damaged, is_inside) in [(100, true), (200, true), (201, false), (299, false)] {
        let store = Crashed::new(300, false);
        // Messages are 10 ms apart: this is the time of number 201.
        store.stamp(store.last_store_time - 98 * 10);
        store.damage(damaged);
        if is_inside {
            let (path, at) = store.segment(store.offsets[damaged]);
            assert_eq!(store.refused_at().0, path, "{damaged}");
            assert!(store.refused_at().1 >= at as u64);
            let refused = store.open().unwrap_err();
            assert_eq!(refused.remedy(), Some(Remedy::SalvageOrRead), "{refused}");
        } else {
            let report = store.recover();
            assert_eq!(report.log_end, store.offsets[damaged]);
            store.expect_messages(damaged as i32);
        }
    }
}

/// Overwrites the store time of the message with this number, which no checksum covers.
fn store_at(store: &Crashed, number: usize, time: i64) {
    let (path, at) = store.segment(store.offsets[number]);
    edit(&path, |bytes| bytes[at + 56..at + 64].copy_from_slice(&time.to_be_bytes()));
}

#[test]
fn one_wrong_store_time_does_not_make_interior_damage_a_torn_end() {
    let probe = Crashed::new(300, false).last_store_time;
    let time_of = |number: i64| probe - (299 - number) * 10;
    let in_two_days = real().now_ms() + 2 * 86_400_000;
    for number in [0, 98, 99, 101, 102, 200] {
        // Later than the stamp, before it but later than most or all that it covers after the damage, and earlier than all messages.
        for wrong in [in_two_days, time_of(299) + 1000, time_of(200) + 5, time_of(201) + 2, 1] {
            let store = Crashed::new(300, false);
            store.stamp(time_of(201) + 3);
            store_at(&store, number, wrong);
            store.damage(100);
            let (path, at) = store.segment(store.offsets[100]);
            assert_eq!(store.refused_at(), (path, at as u64), "{wrong} at {number}");
            let salvaged = store.open_with(Recovery::Salvage).unwrap();
            let report = salvaged.reader().recovery();
            // The first message after the damage counts as stale if it seems to be older than those before.
            let next = if (number, wrong) == (101, 1) { 102 } else { 101 };
            assert_eq!(report.lost.len(), 1, "{wrong} at {number}");
            assert_eq!(report.lost[0], store.offsets[100]..store.offsets[next], "{wrong} at {number}");
            assert_eq!(report.last_offset, store.offsets[299], "{wrong} at {number}");
            salvaged.close().unwrap();
        }
    }
}

#[test]
fn damage_before_a_clock_was_set_back_is_refused_if_the_stamp_covers_it() {
    let store = Crashed::new(300, false);
    let time_of = |number: usize| store.last_store_time - (299 - number as i64) * 10;
    for number in 100..300 {
        store_at(&store, number, time_of(number) - 3_600_000);
    }
    store.stamp(time_of(299) - 3_600_000);
    store.damage(99);
    let (path, at) = store.segment(store.offsets[99]);
    assert_eq!(store.refused_at(), (path, at as u64));
}

#[test]
fn stale_records_after_messages_without_a_stamp_are_no_covered_messages() {
    let store = Crashed::new(300, false);
    let time_of = |number: i64| store.last_store_time - (299 - number) * 10;
    store.stamp(time_of(201));
    store_at(&store, 299, time_of(150));
    store.damage(298);
    assert_eq!(store.recover().log_end, store.offsets[298]);
    store.expect_messages(298);
}

#[test]
fn a_store_without_the_last_message_of_its_own_stamp_is_refused_untouched() {
    let store = Crashed::new(300, false);
    store.stamp(store.last_store_time);
    store.damage(299);
    // A broker with a pool of buffers stamps messages that never reached the file.
    let broker_s = TempDir::new_in("/dev/shm").unwrap();
    copy(store.path(), broker_s.path());
    let stamps = fs::read(store.at("checkpoint")).unwrap();
    edit(&store.at("checkpoint"), |bytes| {
        let ours = Checkpoint {
            keys_stamp: store.last_store_time,
            queue_entries: 300,
            logics_physical_offset: store.offsets[299],
            ..Checkpoint::decode(&stamps)
        };
        *bytes = ours.encode().to_vec();
    });
    let (path, at) = store.segment(store.offsets[299]);
    assert_eq!(store.refused_at(), (path, at as u64));
    let refused = store.open().unwrap_err();
    assert_eq!(refused.remedy(), Some(Remedy::SalvageOrRead), "{refused}");
    store.open_with(Recovery::Salvage).unwrap().close().unwrap();
    store.expect_messages(299);

    let broker_s = Crashed {
        dir: broker_s,
        offsets: store.offsets.clone(),
        last_store_time: store.last_store_time,
    };
    broker_s.recover();
    broker_s.expect_messages(299);
}

#[test]
fn a_damaged_first_record_with_others_after_it_is_refused_untouched() {
    let store = Crashed::new(300, false);
    store.damage(0);
    assert_eq!(store.refused_at().0, store.segment(0).0);
    let refusal = store.open().unwrap_err().to_string();
    assert!(refusal.contains("no message starts here"), "{refusal}");

    let store = Crashed::new(1, false);
    store.damage(0);
    assert_eq!(store.recover().log_end, 0);
    store.expect_messages(0);
}

#[test]
fn a_missing_middle_segment_is_refused_to_writers_and_both_sides_are_read() {
    for clean in [true, false] {
        let store = Crashed::new(300, clean);
        let (gone, _) = store.segment(SEGMENT);
        fs::remove_file(&gone).unwrap();
        assert_eq!(store.refused_at(), (gone, 0));
        let reader = if clean {
            store.reader()
        } else {
            store.reader_with(Recovery::Salvage)
        };
        for offset in [store.offsets[0], store.offsets[299]] {
            assert_eq!(reader.message_at(offset).unwrap().view().physical_offset(), offset);
        }
    }
}

#[test]
fn a_shortened_middle_segment_is_refused_to_writers_and_read_where_whole() {
    for (clean, len) in [(true, 0), (false, 0), (true, 200), (false, 200), (true, 203), (false, 203)] {
        let store = Crashed::new(300, clean);
        let (path, _) = store.segment(SEGMENT);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(len).unwrap();
        assert_eq!(store.refused_at(), (path.clone(), len), "clean {clean}");
        let reader = store.reader_with(if clean { Recovery::Heal } else { Recovery::Salvage });
        let missing = reader.recovery().missing.clone().unwrap().what;
        assert!(missing.contains(&path.display().to_string()), "{missing}");
        let is_lost = |offset: i64| (SEGMENT..2 * SEGMENT).contains(&offset) && offset + 100 > SEGMENT + len as i64;
        for offset in &store.offsets {
            assert_eq!(
                reader.message_at(*offset).is_err(),
                is_lost(*offset),
                "clean {clean}, {len} bytes, {offset}"
            );
        }
        let read = (0..2).map(|queue| {
            let bounds = reader.queue_bounds("orders", queue).unwrap();
            bounds
                .filter(|offset| reader.message_in_queue("orders", queue, *offset).is_ok())
                .count()
        });
        let whole = store.offsets.iter().filter(|offset| !is_lost(**offset)).count();
        assert_eq!(read.sum::<usize>(), whole, "clean {clean}, {len} bytes");
    }
}

#[test]
fn a_clean_store_whose_queues_are_ahead_is_refused_untouched() {
    let store = Crashed::new(300, true);
    let path = store.at("consumequeue/orders/0/00000000000000003000");
    let ahead = CqUnit {
        physical_offset: 1 << 30,
        size: 100,
        tags_code: 0,
    };
    let mut bytes = ahead.encode().to_vec();
    bytes.resize(1000, 0);
    fs::write(path, bytes).unwrap();
    store.refused_at();
    store.open_with(Recovery::Salvage).unwrap().close().unwrap();
    store.expect_messages(300);
}

#[test]
fn segments_past_the_end_go_newest_first_and_durably() {
    let store = Crashed::new(300, false);
    let cut = store.offsets.iter().position(|offset| *offset > SEGMENT / 2).unwrap();
    store.damage(cut);
    let segments = names(&store.at("commitlog"));
    assert_eq!(segments.len(), 3);
    let (env, opened) = store.open_counting();
    let opened = opened.unwrap();
    assert!(opened.reader().recovery().bytes_cut > SEGMENT as u64);
    opened.close().unwrap();
    let changes = env.changes();
    let of_log: Vec<&str> = changes
        .iter()
        .filter(|change| change.starts_with("unlink") || change.contains("LogCut"))
        .filter_map(|change| change.split_once("commitlog").map(|(_, rest)| rest))
        .collect();
    assert_eq!(of_log, [&format!("/{}", segments[2]), "", &format!("/{}", segments[1]), ""]);
    assert_eq!(names(&store.at("commitlog")), segments[..1]);
    store.expect_messages(cut as i32);
}

#[test]
fn what_a_crash_during_the_creation_leaves_opens_as_an_empty_store() {
    let steps: [&[&str]; 7] = [
        &["lock"],
        &["lock", "consumequeue/"],
        &["lock", "commitlog/", "consumequeue/", "index/"],
        &[
            "lock",
            "commitlog/",
            "consumequeue/",
            "index/",
            "config/",
            "config/mqstore-new-mqstore.json",
        ],
        &["lock", "commitlog/", "consumequeue/", "index/", "config/", "abort"],
        &["lock", "abort", "mqstore-new-00000000000000000000", "config/"],
        &[
            "lock",
            "commitlog/",
            "abort",
            "mqstore-new-checkpoint",
            "mqstore-new-00000000000000000000",
        ],
    ];
    for left in steps {
        for mode in [OpenMode::Existing, OpenMode::Append] {
            let dir = TempDir::new_in("/dev/shm").unwrap();
            for name in left {
                let path = dir.path().join(name);
                if name.ends_with('/') {
                    fs::create_dir(path).unwrap();
                } else {
                    fs::write(path, "").unwrap();
                }
            }
            let open = |mode| MessageStore::open(&real(), dir.path(), StoreConfig::default(), mode);
            if left.len() > 1 {
                assert!(matches!(open(OpenMode::New), Err(Error::Exists { .. })), "{left:?}");
            }
            let reader = MessageReader::open(&real(), dir.path(), StoreConfig::default()).unwrap();
            assert_eq!(reader.physical_bounds(), 0..0, "{left:?}");
            let store = open(mode).unwrap();
            store
                .append(mqstore::format::Message {
                    topic: "t".into(),
                    ..Default::default()
                })
                .unwrap();
            store.close().unwrap();
            let expected = ["checkpoint", "commitlog", "config", "consumequeue", "index", "lock"];
            assert!(
                !left.contains(&"abort") || names(dir.path()) == expected,
                "{left:?}: {:?}",
                names(dir.path())
            );
        }
    }
}

#[test]
fn recovering_twice_changes_nothing_more() {
    let store = Crashed::new(300, false);
    store.damage(250);
    store.lose_entries(1, 60);
    store.recover();
    let once = contents(store.path());
    fs::write(store.at("abort"), "").unwrap();
    let report = store.recover();
    assert!(!report.clean_exit);
    let twice = contents(store.path());
    for (path, bytes) in &once {
        assert!(twice.get(path) == Some(bytes), "{}", path.display());
    }
    assert_eq!(once.len(), twice.len());
}

#[test]
fn a_log_that_ends_at_a_page_that_cannot_be_read_is_refused() {
    let store = Crashed::new(300, false);
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    install_guard().unwrap();
    let log = LogFiles::load(env.clone(), &store.at("commitlog"), None).unwrap();
    let queues = ConsumeQueueStore::load(env, store.path(), None).unwrap();
    let second = log.starts().nth(1).unwrap();
    // The page is mapped and then cut off, as when a device fails.
    log.read(second, Check::Body).unwrap();
    let segment = store.at(&format!("commitlog/{second:020}"));
    fs::File::options().write(true).open(segment).unwrap().set_len(0).unwrap();
    for recovery in [Recovery::Heal, Recovery::Salvage] {
        let records = WriterRecords {
            shutdown: LastShutdown {
                exit: Exit::Crashed,
                note: None,
            },
            claim: None,
            flushed: None,
            checkpoint: Checkpoint::default(),
            replica: ReplicaNote::default(),
        };
        let families = Families {
            log: &log,
            queues: &queues,
            index: None,
        };
        let config = StoreConfig::default();
        let store = StoreState::new(families, records, Opener::Writer, Intent::of(recovery), &config);
        let report = plan(&store, 0).unwrap().report;
        assert!(
            matches!(expect_recoverable(&store, &report), Err(Error::Corrupt { .. })),
            "{report:?}"
        );
    }
}
