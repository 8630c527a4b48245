//! `recovery="salvage"`: what is whole is kept on both sides of any damage, and the log is one chain again.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use mqstore::check::{FindingId, VerifyRequest};
use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{BLANK_SIZE, Check, Message, Record, read_record};
use mqstore::log::{ConsumeQueueStore, LastWriter, LogFiles, RecordStarts};
use mqstore::read::MessageReader;
use mqstore::recovery::Missing;
use mqstore::remedy::Remedy;
use tempfile::TempDir;

use super::{Crashed, SEGMENT, contents, edit, hits, names, real};
use crate::store_writer::StoreWriter;
use crate::verifying::{told, verified_by};

/// An answer of the queue: a body, or that the message is lost.
fn left(store: &Crashed, queue: i32) -> Vec<Option<String>> {
    let reader = store.reader();
    let bounds = reader.queue_bounds("orders", queue).unwrap();
    let read = |offset| match reader.message_in_queue("orders", queue, offset) {
        Ok(message) => Some(String::from_utf8(message.view().body().to_vec()).unwrap()),
        Err(Error::Corrupt { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    bounds.map(read).collect()
}

/// Every byte of the segments belongs to a record or a BLANK, up to the log's end, and names its own offset.
fn expect_one_chain(store: &Crashed) {
    let end = store.reader().physical_bounds().end;
    for name in names(&store.at("commitlog")) {
        let bytes = fs::read(store.at("commitlog").join(&name)).unwrap();
        let start: i64 = name.parse().unwrap();
        let mut at = 0;
        while at < bytes.len() && start + (at as i64) < end {
            match read_record(&bytes[at..], Check::Body) {
                Record::Message(view) => {
                    assert_eq!(view.physical_offset(), start + at as i64);
                    at += view.size() as usize;
                }
                Record::Blank { size } => {
                    assert_eq!(size as usize, bytes.len() - at);
                    at = bytes.len();
                }
                other => panic!("{other:?} at {}", start + at as i64),
            }
        }
    }
}

#[test]
fn what_is_whole_on_both_sides_of_damage_is_kept_and_the_rest_is_filled() {
    for clean in [true, false] {
        for damaged in [vec![0], vec![1], vec![100, 101, 102], vec![50, 200, 298], (0..299).collect()] {
            let store = Crashed::new(300, clean);
            store.stamp(store.last_store_time);
            for n in &damaged {
                store.damage(*n);
            }
            let opened = store.open_with(Recovery::Salvage).unwrap();
            let lost = opened.reader().recovery().lost.clone();
            assert!(!lost.is_empty() && lost.iter().all(|lost| store.offsets.contains(&lost.start)));
            opened.close().unwrap();
            expect_one_chain(&store);
            for queue in 0..2 {
                let expected: Vec<_> = (queue..300)
                    .step_by(2)
                    .map(|n| (!damaged.contains(&n)).then(|| format!("body {n}")))
                    .collect();
                assert!(
                    left(&store, queue as i32) == expected,
                    "{damaged:?}, queue {queue}: {:?}",
                    left(&store, queue as i32)
                );
            }
            let reader = store.reader();
            assert!(reader.recovery().clean_exit && reader.recovery().lost.is_empty());
            assert!(matches!(
                reader.message_at(store.offsets[damaged[0]]),
                Err(Error::NotFound { .. })
            ));
            assert_eq!(hits(&reader, "k299"), [store.offsets[299]]);
            let again = store.open().unwrap();
            again.close().unwrap();
        }
    }
}

#[test]
fn queues_that_are_gone_are_rebuilt_around_what_is_lost() {
    let store = Crashed::new(300, false);
    fs::remove_dir_all(store.at("consumequeue/orders/0")).unwrap();
    store.damage(100);
    store.damage(102);
    store.open_with(Recovery::Salvage).unwrap().close().unwrap();
    let found = left(&store, 0);
    assert_eq!(found.len(), 150);
    let lost: Vec<usize> = (0..150).filter(|n| found[*n].is_none()).collect();
    assert_eq!(lost, [50, 51]);
    let queue = fs::read(store.at("consumequeue/orders/0/00000000000000001000")).unwrap();
    // No entry is zero: a broker would cut the queue there.
    assert!(queue.chunks(20).all(|entry| entry[8..12] != [0; 4]));
}

#[test]
fn a_lost_segment_end_and_a_lost_segment_are_passed_over() {
    for (from, to) in [
        (SEGMENT - 2000, SEGMENT),
        (SEGMENT - 2000, SEGMENT + 300),
        (SEGMENT, 2 * SEGMENT),
        (10_000, 2 * SEGMENT + 10),
    ] {
        let store = Crashed::new(600, false);
        for start in [0, SEGMENT, 2 * SEGMENT] {
            edit(&store.segment(start).0, |bytes| {
                let part = (from - start).clamp(0, SEGMENT) as usize..(to - start).clamp(0, SEGMENT) as usize;
                bytes[part].fill(0xAA);
            });
        }
        store.open_with(Recovery::Salvage).unwrap().close().unwrap();
        expect_one_chain(&store);
        for queue in 0..2 {
            let found = left(&store, queue);
            assert_eq!(found.len(), 300, "{from}..{to}");
            for (n, body) in (queue..600).step_by(2).zip(found) {
                let offset = store.offsets[n as usize];
                let next = store.offsets.get(n as usize + 1).map_or(i64::MAX, |next| *next);
                if offset >= to || next <= from {
                    assert_eq!(body, Some(format!("body {n}")), "{from}..{to}");
                } else {
                    assert!(body.is_none() || offset + 91 > to - BLANK_SIZE as i64, "{n}: {body:?}");
                }
            }
        }
    }
}

#[test]
fn a_reader_that_salvages_reads_both_sides_and_changes_nothing() {
    let store = Crashed::new(300, false);
    store.damage(100);
    let before = contents(store.path());
    let heal = store.reader();
    assert_eq!(heal.recovery().log_end, store.offsets[100]);
    let reader = store.reader_with(Recovery::Salvage);
    let lost: Vec<_> = reader.recovery().lost.iter().map(|lost| (lost.start, lost.end)).collect();
    assert_eq!(lost, [(store.offsets[100], store.offsets[101])]);
    let offset = store.offsets[299];
    assert_eq!(reader.message_at(offset).unwrap().view().body(), b"body 299");
    assert_eq!(
        reader.message_in_queue("orders", 1, 149).unwrap().view().physical_offset(),
        offset
    );
    assert!(matches!(reader.message_in_queue("orders", 0, 50), Err(Error::Corrupt { .. })));
    assert!(contents(store.path()) == before);
}

/// Shortens a segment that later ones follow.
fn cut_short(store: &Crashed, start: i64) {
    let file = OpenOptions::new().write(true).open(store.segment(start).0).unwrap();
    file.set_len(SEGMENT as u64 / 2).unwrap();
}

#[test]
fn salvage_is_named_whatever_number_of_damages_a_crashed_log_has() {
    for damaged in [vec![100], vec![100, 200], vec![100, 200, 250]] {
        for is_cut_short in [false, true] {
            let store = Crashed::new(300, false);
            for n in &damaged {
                store.damage(*n);
            }
            if is_cut_short {
                cut_short(&store, SEGMENT);
            }
            let salvaged = store.reader_with(Recovery::Salvage);
            let (first, end) = (store.offsets[101], salvaged.physical_bounds().end);
            let Missing {
                what: missing,
                at: place,
                remedy,
            } = store.reader().recovery().missing.clone().unwrap();
            let follow = format!(
                "whole messages follow in {} bytes, the first at {first}: they are not read",
                end - first
            );
            let (path, at) = store.segment(store.offsets[100]);
            assert!(
                missing.starts_with(&format!("{} at byte {at}: ", path.display())),
                "{missing}"
            );
            assert_eq!(place, Some((path, at as u64)));
            assert!(missing.contains(&follow), "{missing}");
            // A gap stops a writer that salvages, too.
            let expected = if is_cut_short {
                Remedy::SalvageOrPutBack
            } else {
                Remedy::SalvagePastEnd
            };
            assert_eq!(remedy, Some(expected), "{missing}");
            assert_eq!(store.open_with(Recovery::Salvage).is_err(), is_cut_short);
            let Missing {
                what: passed_over,
                at: None,
                ..
            } = salvaged.recovery().missing.clone().unwrap()
            else {
                panic!("the text begins with what was passed over");
            };
            assert!(passed_over.contains("bytes inside the log are damaged"), "{passed_over}");
            for text in [missing, passed_over] {
                assert_eq!(text.contains("the segment ends here"), is_cut_short, "{text}");
            }
        }
    }
}

#[test]
fn quick_verify_names_the_damage_that_ends_a_crashed_log_before_a_gap() {
    let store = Crashed::new(300, false);
    store.damage(100);
    cut_short(&store, SEGMENT);
    for deep in [false, true] {
        let request = VerifyRequest {
            deep,
            ..VerifyRequest::default()
        };
        let report = verified_by(&real(), store.path(), request).unwrap();
        let (path, at) = store.segment(store.offsets[100]);
        let at_damage = report
            .findings
            .iter()
            .filter(|finding| (&finding.file, finding.offset) == (&path, at as u64));
        let found: Vec<_> = at_damage.map(|finding| finding.id).collect();
        let expected = if deep {
            FindingId::LogDamagedRecord
        } else {
            FindingId::LogEndsEarly
        };
        assert_eq!(found, [expected], "{}", told(&report));
    }
}

#[test]
fn a_stale_record_after_the_damage_is_not_salvaged() {
    let store = Crashed::new(300, false);
    let (path, at) = store.segment(store.offsets[299]);
    // Stored before the message before the damage: an earlier crash has cut it.
    edit(&path, |bytes| {
        bytes[at + 56..at + 64].copy_from_slice(&1_i64.to_be_bytes());
    });
    store.damage(298);
    let opened = store.open_with(Recovery::Salvage).unwrap();
    assert_eq!(opened.reader().recovery().log_end, store.offsets[298]);
    opened.close().unwrap();
    store.expect_messages(298);
}

#[test]
fn a_log_whose_every_byte_imitates_a_record_ends_the_search_with_an_error() {
    const MIB: usize = 1 << 20;
    let store = Crashed::new(1, false);
    let mut head = fs::read(store.segment(0).0).unwrap();
    head.truncate(88);
    // Each record has a length of 32 MiB, and the checksum of another body.
    head[..4].copy_from_slice(&(32 * MIB as u32).to_be_bytes());
    head[84..].copy_from_slice(&(32 * MIB as u32 - 91).to_be_bytes());
    let imitated: Vec<u8> = (0..64 * MIB as u64)
        .step_by(head.len())
        .flat_map(|at| [&head[..28], &at.to_be_bytes(), &head[36..]].concat())
        .take(64 * MIB)
        .collect();
    fs::write(store.segment(0).0, imitated).unwrap();
    let log = LogFiles::load(real(), &store.at("commitlog"), None).unwrap();
    let queues = ConsumeQueueStore::load(real(), store.path(), None).unwrap();
    let crashed = LastWriter {
        named: [None; 2],
        has_closed: false,
    };
    let starts = RecordStarts::new(&log, &queues, None, crashed);
    let refused = starts.next_record(0, 1, 0).unwrap_err();
    assert!(refused.to_string().contains("look like the start of a record"), "{refused}");
}

#[test]
fn a_crashed_log_opens_though_bytes_after_its_end_imitate_records() {
    const MIB: usize = 1 << 20;
    let store = Crashed::new(3, false);
    let (path, end) = store.segment(store.offsets[2]);
    let mut segment = fs::read(&path).unwrap();
    let mut head = segment[end..end + 88].to_vec();
    head[..4].copy_from_slice(&(16 * MIB as u32).to_be_bytes());
    head[84..].copy_from_slice(&(16 * MIB as u32 - 91).to_be_bytes());
    segment.truncate(end);
    while segment.len() < 32 * MIB {
        let at = segment.len() as u64;
        segment.extend([&head[..28], &at.to_be_bytes(), &head[36..]].concat());
    }
    segment.truncate(32 * MIB);
    // Zeros at the end count as never written.
    *segment.last_mut().unwrap() = 1;
    fs::write(&path, segment).unwrap();
    let opened = store.open().unwrap();
    let report = opened.reader().recovery();
    assert_eq!(report.log_end, store.offsets[2]);
    let missing = &report.missing.as_ref().unwrap().what;
    let expected = format!("{} bytes that follow were not searched for whole messages", 32 * MIB - end);
    assert!(missing.contains(&expected), "{missing}");
    opened.close().unwrap();
    store.expect_messages(2);
}

#[test]
fn a_crashed_log_is_not_searched_again_for_each_imitated_stretch() {
    const MIB: usize = 1 << 20;
    const STRETCHES: i64 = 8;
    let store = Crashed::new(3, false);
    let (path, end) = store.segment(store.offsets[2]);
    let mut segment = fs::read(&path).unwrap();
    let mut head = segment[end..end + 88].to_vec();
    head[..4].copy_from_slice(&(16 * MIB as u32).to_be_bytes());
    head[84..].copy_from_slice(&(16 * MIB as u32 - 91).to_be_bytes());
    segment.truncate(end);
    // A search reads 1 GiB for each stretch.
    for _ in 0..STRETCHES {
        segment.extend([b'x'; 100]);
        for _ in 0..64 {
            let at = segment.len() as u64;
            segment.extend([&head[..28], &at.to_be_bytes(), &head[36..]].concat());
        }
        segment.extend(forged(segment.len() as i64));
    }
    segment.resize(32 * MIB, 0);
    fs::write(&path, segment).unwrap();
    let opened = store.open().unwrap();
    let report = opened.reader().recovery();
    let missing = &report.missing.as_ref().unwrap().what;
    assert!(missing.contains("bytes were not searched for more"), "{missing}");
    assert!((1..STRETCHES).contains(&report.cut.count()), "{}", report.cut.count());
    opened.close().unwrap();
}

#[test]
fn a_crashed_log_is_searched_for_a_quarter_gigabyte_and_says_so() {
    const SEARCHED: u64 = 256 << 20;
    for (at, is_searched) in [(SEARCHED - 4096, true), (SEARCHED + 4096, false)] {
        let store = Crashed::new(3, false);
        let (path, end) = store.segment(store.offsets[2]);
        let at = end as u64 + at;
        // Holes take no space and no time.
        let segment = OpenOptions::new().write(true).open(&path).unwrap();
        segment.set_len(end as u64).unwrap();
        segment.set_len(2 * SEARCHED).unwrap();
        segment.write_all_at(&forged(at as i64), at).unwrap();
        let opened = store.open().unwrap();
        let report = opened.reader().recovery();
        assert_eq!(report.log_end, store.offsets[2]);
        assert_eq!(report.cut.count(), i64::from(is_searched));
        let missing = &report.missing.as_ref().unwrap().what;
        assert_eq!(
            missing.contains("bytes that follow were not searched"),
            !is_searched,
            "{missing}"
        );
        opened.close().unwrap();
    }
}

/// A message of topic `forged`, encoded for this offset of the log.
fn forged(physical_offset: i64) -> Vec<u8> {
    let message = Message {
        physical_offset,
        topic: "forged".into(),
        store_time: 1_800_000_000_000,
        body: vec![b'f'; 200].into(),
        ..Message::default()
    };
    message.encode().unwrap()
}

/// Messages whose bodies hold a record that names its own offset and a later time.
fn with_forged_bodies(dir: &Path, count: usize) -> Vec<i64> {
    let mut writer = StoreWriter::small(dir);
    let mut put = |_| {
        // A record has 88 bytes before its body.
        let forged = forged(writer.end() + 88 + 60);
        let body = [&[b'x'; 60][..], &forged, &[b'y'; 50]].concat();
        writer.put("orders", 0, &body, &[("KEYS", "k")])
    };
    let offsets = (0..count).map(&mut put).collect();
    writer.finish(false);
    offsets
}

#[test]
fn a_record_forged_in_a_damaged_body_is_ignored_and_the_next_one_kept() {
    // In the body, in its checksum, in the length of the topic, in the length of the properties.
    for (at, damaged) in [(100, 1), (8, 1), (495, 1), (503, 1), (100, 3), (495, 3)] {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let offsets = with_forged_bodies(dir.path(), 10);
        for n in 4..4 + damaged {
            edit(&dir.path().join("commitlog/00000000000000000000"), |bytes| {
                bytes[offsets[n] as usize + at] ^= 1;
            });
        }
        let config = StoreConfig {
            recovery: Recovery::Salvage,
            ..StoreConfig::default()
        };
        let reader = MessageReader::open(&real(), dir.path(), config).unwrap();
        let lost: Vec<_> = reader.recovery().lost.iter().map(|lost| (lost.start, lost.end)).collect();
        assert_eq!(lost, [(offsets[4], offsets[4 + damaged])], "byte {at}");
        assert_eq!(reader.topics().unwrap(), ["orders"]);
        assert_eq!(reader.physical_bounds().end, offsets[9] + offsets[1]);
    }
}

/// Lost messages, in a stretch of the log.
fn wipe(store: &Crashed, from: i64, to: i64) {
    for start in (0..=to).step_by(SEGMENT as usize).filter(|start| from < start + SEGMENT) {
        edit(&store.segment(start).0, |bytes| {
            let part = (from - start).clamp(0, SEGMENT) as usize..(to - start).clamp(0, SEGMENT) as usize;
            bytes[part].fill(0xAA);
        });
    }
}

#[test]
fn a_queue_with_lost_last_messages_keeps_its_offsets_through_salvages() {
    let store = Crashed::new(300, false);
    wipe(&store, store.offsets[290], store.offsets[299]);
    let expected = [0, 1].map(|queue| {
        let body = |n| (n < 290 || n == 299).then(|| format!("body {n}"));
        (queue..300).step_by(2).map(body).collect::<Vec<_>>()
    });
    let in_memory = store.reader_with(Recovery::Salvage);
    let bounds = |reader: &MessageReader| [0, 1].map(|queue| reader.queue_bounds("orders", queue).unwrap());
    assert_eq!(bounds(&in_memory), [0..150, 0..150]);
    store.open_with(Recovery::Salvage).unwrap().close().unwrap();
    assert_eq!([0, 1].map(|queue| left(&store, queue)), expected);
    // The next writer dies.
    fs::write(store.at("abort"), "").unwrap();
    assert_eq!([0, 1].map(|queue| left(&store, queue)), expected);
    let opened = store.open().unwrap();
    assert_eq!(bounds(opened.reader()), [0..150, 0..150]);
    opened.close().unwrap();
    assert_eq!([0, 1].map(|queue| left(&store, queue)), expected);
}

#[test]
fn messages_lost_after_a_damaged_segment_end_get_a_salvage_record() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let mut offsets = vec![writer.put("orders", 0, b"", &[])];
    let shortest = writer.end();
    while writer.end() < 2 * SEGMENT {
        // The last record of the first segment leaves 40 bytes: no salvage record is so short.
        let left = SEGMENT - 40 - writer.end();
        let body = if (shortest..3 * shortest).contains(&left) {
            left - shortest
        } else {
            0
        };
        offsets.push(writer.put("orders", 0, &vec![b'x'; body as usize], &[]));
    }
    writer.finish(false);
    let store = Crashed {
        dir,
        last_store_time: writer.last_store_time,
        offsets,
    };
    let first = store.offsets.partition_point(|offset| *offset < SEGMENT);
    wipe(&store, SEGMENT - 40, store.offsets[first + 10]);
    store.open_with(Recovery::Salvage).unwrap().close().unwrap();
    expect_one_chain(&store);
    let found = left(&store, 0);
    assert_eq!(found.len(), store.offsets.len());
    let lost: Vec<usize> = (0..found.len()).filter(|n| found[*n].is_none()).collect();
    assert_eq!(lost, (first..first + 10).collect::<Vec<_>>());
    for (_, queue) in contents(&store.at("consumequeue")) {
        // A broker cuts a queue at an entry of size 0.
        let ends = queue.chunks(20).rposition(|entry| entry[8..12] != [0; 4]).unwrap();
        assert!(queue.chunks(20).take(ends).all(|entry| entry[8..12] != [0; 4]));
    }
}
