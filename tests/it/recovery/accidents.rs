//! The classic accidents: a queue lost after the log was flushed, half a record at the end, and queues and log apart after a
//! power cut.

use std::fs;
use std::sync::Arc;

use mqstore::check::{RepairRequest, rebuild, repair};
use mqstore::config::{Errors, StoreConfig};
use mqstore::format::{Message, encode_lock_file, encode_properties};
use mqstore::read::{Filled, MessageReader, OnDamage, Scan, ScanRequest};
use mqstore::recovery::Missing;
use mqstore::remedy::Remedy;
use tempfile::TempDir;

use super::{Crashed, SEGMENT, contents, names, real};
use crate::queries::by_key;
use crate::store_writer::StoreWriter;

#[test]
fn a_queue_lost_after_a_flush_is_whole_again_after_any_power_cut() {
    for kept in [0, 1, 49, 50, 51, 99, 100, 149, 150] {
        let store = Crashed::new(300, false);
        let complete = contents(&store.at("consumequeue"));
        store.lose_entries(0, kept);
        let report = store.recover();
        assert_eq!(report.undispatched, 150 - kept as u64, "{kept} kept");
        store.expect_messages(300);
        assert!(contents(&store.at("consumequeue")) == complete, "{kept} kept");
    }
}

#[test]
fn any_single_queue_file_that_is_gone_is_rebuilt_dense() {
    for gone in 0..3 {
        for clean in [true, false] {
            let store = Crashed::new(300, clean);
            let complete = contents(&store.at("consumequeue"));
            // The queue of the log's last message, so that a clean exit shows it, too.
            let queue = store.at("consumequeue/orders/1");
            let is_seen = !clean || gone == 2;
            if !is_seen {
                continue;
            }
            fs::remove_file(queue.join(format!("{:020}", gone * 1000))).unwrap();
            store.recover();
            store.expect_messages(300);
            assert!(contents(&store.at("consumequeue")) == complete, "file {gone}, clean {clean}");
        }
    }
}

#[test]
fn half_a_record_at_every_byte_ends_the_log_before_it_and_leaves_zeros() {
    for (body, step) in [(0, 1), (100, 1), (3000, 37)] {
        let record = |writer: &mut StoreWriter, body: usize| {
            writer.append(Message {
                topic: "orders".into(),
                body: vec![b'x'; body].into(),
                properties: encode_properties([("KEYS", "k"), ("TAGS", "tag")], true).unwrap().into(),
                ..Message::default()
            })
        };
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let mut writer = StoreWriter::small(dir.path());
        for _ in 0..3 {
            record(&mut writer, 50);
        }
        let last = record(&mut writer, body) as usize;
        let end = record(&mut writer, 10) as usize;
        writer.finish(false);
        claim(&dir);
        let image = contents(dir.path());
        let segment = dir.path().join("commitlog/00000000000000000000");
        let whole = fs::read(&segment).unwrap();
        for half in (last..end).step_by(step).chain([end - 1]) {
            for (name, bytes) in &image {
                fs::write(dir.path().join(name), bytes).unwrap();
            }
            let mut torn = whole.clone();
            torn[half..].fill(0);
            fs::write(&segment, &torn).unwrap();
            let store = Opened(&dir);
            let report = store.recover();
            assert_eq!(report.log_end as usize, last, "{body} bytes, cut at {half}");
            assert_eq!(
                report.bytes_cut as usize,
                torn[last..].iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)
            );
            let after = fs::read(&segment).unwrap();
            assert!(
                after[..last] == whole[..last] && after[last..].iter().all(|byte| *byte == 0),
                "cut at {half}"
            );
            assert_eq!(store.count(), 3, "cut at {half}");
        }
    }
}

/// All records are ours: the zeros in a broker's record may be the producer's.
fn claim(dir: &TempDir) {
    fs::write(dir.path().join("lock"), encode_lock_file(0)).unwrap();
}

/// A store in a directory of its own.
struct Opened<'a>(&'a TempDir);

impl Opened<'_> {
    fn recover(&self) -> mqstore::recovery::RecoveryReport {
        let _ = fs::remove_file(self.0.path().join("checkpoint"));
        let config = mqstore::config::StoreConfig::default();
        let mode = mqstore::store::OpenMode::Existing;
        let store = mqstore::store::MessageStore::open(&super::real(), self.0.path(), config, mode).unwrap();
        let report = store.reader().recovery().clone();
        store.close().unwrap();
        report
    }

    fn count(&self) -> i64 {
        let reader =
            mqstore::read::MessageReader::open(&super::real(), self.0.path(), mqstore::config::StoreConfig::default()).unwrap();
        reader.queue_bounds("orders", 0).unwrap().end
    }
}

#[test]
fn queues_three_entries_ahead_of_or_before_the_log_agree_after_the_open() {
    for (queue_keeps, log_keeps) in [(150, 294), (147, 300), (147, 294), (147, 290)] {
        let store = Crashed::new(300, false);
        for queue in 0..2 {
            store.lose_entries(queue, queue_keeps);
        }
        if log_keeps < 300 {
            let (path, at) = store.segment(store.offsets[log_keeps]);
            super::edit(&path, |bytes| bytes[at..].fill(0));
        }
        store.recover();
        store.expect_messages(log_keeps as i32);
        let again = store.recover();
        assert!(again.clean_exit && again.undispatched == 0 && again.queue_entries_ahead == 0);
    }
}

#[test]
fn a_writer_reports_the_whole_messages_that_it_cuts_and_no_torn_end() {
    let store = Crashed::new(300, false);
    for n in [100, 200] {
        store.damage(n);
    }
    let read = store.reader().recovery().missing.clone().unwrap().what;
    let report = store.recover();
    let Missing { what, remedy, .. } = report.missing.unwrap();
    let first = store.offsets[101];
    let (read, _) = read.split_once("they are not read").unwrap();
    let removed = "this open removes them: 198 (orders/0@51-99, orders/0@101-149, orders/1@50-149)";
    assert_eq!(what, format!("{read}{removed}"));
    assert!(read.ends_with(&format!("the first at {first}: ")), "{read}");
    assert_eq!((report.log_end, report.cut.count(), remedy), (store.offsets[100], 198, None));
    store.expect_messages(100);
    // They are gone: the next open has nothing to report.
    assert_eq!(store.recover().missing, None);

    let torn = Crashed::new(300, false);
    torn.damage(299);
    let report = torn.recover();
    assert!(report.bytes_cut > 0 && report.missing.is_none() && report.cut.count() == 0);
}

#[test]
fn a_rebuild_refuses_a_crashed_log_of_which_it_would_remove_messages() {
    let store = Crashed::new(300, false);
    store.damage(100);
    let log = contents(&store.at("commitlog"));
    for is_dry_run in [true, false] {
        let refused = rebuild(&real(), &store.at(""), &StoreConfig::default(), is_dry_run, |_, _| Ok(()));
        let error = refused.unwrap_err();
        assert_eq!(error.remedy(), Some(Remedy::Repair), "{error}");
        let whole = "a rebuild would remove the whole messages after it: 199";
        assert!(error.to_string().contains(whole), "{error}");
    }
    assert!(contents(&store.at("commitlog")) == log);
    // A repair keeps what is whole on both sides.
    let request = RepairRequest {
        is_dry_run: false,
        into: None,
    };
    let report = repair(&real(), &store.at(""), &StoreConfig::default(), request, |_, _| Ok(())).unwrap();
    assert_eq!(report.refusal.map(|refusal| refusal.to_string()), None);
    let damaged = store.offsets[100]..store.offsets[101];
    assert_eq!(report.lost, std::slice::from_ref(&damaged));

    let torn = Crashed::new(300, false);
    torn.damage(299);
    rebuild(&real(), &torn.at(""), &StoreConfig::default(), false, |_, _| Ok(())).unwrap();
    torn.expect_messages(299);
}

#[test]
fn entries_of_an_earlier_crash_never_name_a_later_message() {
    let store = Crashed::new(100, false);
    // The first crash loses messages from 90 on, but not their entries.
    let (path, at) = store.segment(store.offsets[90]);
    let lost = fs::read(&path).unwrap()[at..].to_vec();
    super::edit(&path, |bytes| bytes[at..].fill(0));
    let queues = contents(&store.at("consumequeue"));
    let opened = store.open().unwrap();
    let other = Message {
        topic: "other".into(),
        body: vec![b'y'; 5000].into(),
        ..Message::default()
    };
    opened.append(other).unwrap();
    opened.close().unwrap();
    // The second: old entries point into the new message.
    for (name, bytes) in queues {
        fs::write(store.at("consumequeue").join(name), bytes).unwrap();
    }
    fs::write(store.at("abort"), "").unwrap();
    fs::remove_file(store.at("checkpoint")).unwrap();
    assert_eq!(store.recover().queue_entries_ahead, 10);
    let [even, odd] = store.bodies();
    assert_eq!((even.len(), odd.len()), (45, 45));
    assert!(lost.len() > 5000 || lost.iter().any(|byte| *byte != 0));
}

#[test]
fn an_entry_that_leads_to_another_queues_message_goes_despite_equal_size() {
    for number in [145, 144] {
        let store = Crashed::new(290, false);
        let other = fs::read(store.at("consumequeue/orders/1/00000000000000002000")).unwrap()[44 * 20..45 * 20].to_vec();
        super::edit(&store.at("consumequeue/orders/0/00000000000000002000"), |bytes| {
            bytes[(number - 100) * 20..][..20].copy_from_slice(&other);
        });
        assert_eq!(store.recover().queue_entries_ahead, 1, "{number}");
        store.expect_messages(290);
    }
}

#[test]
fn our_record_with_a_zeroed_sector_is_torn_even_inside_the_log() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let put = |writer: &mut StoreWriter, value: &str| writer.put("orders", 0, b"body", &[("KEYS", "k"), ("long", value)]);
    put(&mut writer, "x");
    let torn = put(&mut writer, &"v".repeat(2000)) as usize;
    put(&mut writer, "x");
    writer.finish(false);
    claim(&dir);
    let segment = dir.path().join("commitlog/00000000000000000000");
    let mut bytes = fs::read(&segment).unwrap();
    let sector = (torn + 600) / 512 * 512;
    bytes[sector..sector + 512].fill(0);
    fs::write(&segment, bytes).unwrap();
    let store = Opened(&dir);
    assert_eq!(store.recover().log_end as usize, torn);
    assert_eq!(store.count(), 1);
}

#[test]
fn unfinished_files_of_a_writer_that_died_are_gone_after_the_open() {
    let store = Crashed::new(10, false);
    let left = [
        "mqstore-new-00000000000000016384",
        "mqstore-new-checkpoint",
        "config/mqstore-new-mqstore.json",
        "consumequeue/orders/mqstore-new-0-00000000000000001000",
    ];
    fs::create_dir(store.at("config")).unwrap();
    for name in left {
        fs::write(store.at(name), "half").unwrap();
    }
    fs::write(store.at("commitlog").join(format!("{SEGMENT:020}")), "").unwrap();
    store.recover();
    store.expect_messages(10);
    assert!(left.iter().all(|name| !store.at(name).exists()));
    assert_eq!(names(&store.at("consumequeue/orders")), ["0", "1"]);
}

#[test]
fn an_empty_segment_of_a_broker_that_was_killed_as_it_made_it_goes() {
    let store = Crashed::new(300, false);
    let next = (store.offsets[299] / super::SEGMENT + 1) * super::SEGMENT;
    let empty = store.at(&format!("commitlog/{next:020}"));
    fs::write(&empty, "").unwrap();
    store.recover();
    store.expect_messages(300);
    assert!(!empty.exists());
}

#[test]
fn other_files_in_the_log_directory_stay_and_disturb_nobody() {
    let store = Crashed::new(100, false);
    fs::write(store.at("commitlog/.00000000000000000000.swp"), "x").unwrap();
    fs::write(store.at("commitlog/\u{fc}.txt"), "x").unwrap();
    fs::create_dir(store.at("commitlog/sub")).unwrap();
    store.recover();
    store.expect_messages(100);
    assert!(store.at("commitlog/sub").exists() && store.at("commitlog/\u{fc}.txt").exists());
}

#[test]
fn a_reader_warns_of_whole_messages_after_the_damage_in_a_crashed_log() {
    for damaged in [100, 298, 299] {
        let store = Crashed::new(300, false);
        store.damage(damaged);
        let (end, next) = (store.offsets[damaged], store.offsets.get(damaged + 1));
        let reader = Arc::new(MessageReader::open(&real(), store.path(), StoreConfig::default()).unwrap());
        let report = reader.recovery();
        assert_eq!(report.log_end, end);
        let missing = report.missing.clone().map_or(String::new(), |missing| missing.what);
        // A torn last record is how a crash ends a log.
        let expected = next.map_or(String::new(), |next| format!("the first at {next}"));
        assert_eq!(missing.is_empty(), next.is_none(), "{damaged}: {missing}");
        assert!(missing.contains(&expected), "{missing}");
        let mut scan = Scan::new(Arc::clone(&reader), ScanRequest::default(), OnDamage::new(Errors::Raise)).unwrap();
        while !matches!(scan.fill(|_| Ok(true)).unwrap(), Filled::End) {}
        assert_eq!(scan.is_complete(), next.is_none());
        assert_eq!(reader.query(&by_key("orders", "k7")).unwrap().complete, next.is_none());
    }
}
