//! Whole records stored in the bodies of messages: a mirrored log, a backup, an attack. Each names the offset at which it is stored.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::check::{RepairRequest, repair};
use mqstore::config::{Errors, Recovery, StoreConfig};
use mqstore::format::{Message, PREPARED, ROLLBACK, encode_properties};
use mqstore::read::{Filled, MessageReader, OnDamage, Order, Scan, ScanRequest, Transactions};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::TempDir;

use super::{SEGMENT, contents, copy, edit, hits, real};
use crate::store_writer::StoreWriter;
use crate::verifying::verified;

/// Bytes of a record before its body.
const HEAD: i64 = 88;
const MESSAGES: usize = 40;
/// The carrier that is damaged.
const DAMAGED: usize = 12;

/// The files of the store beside its log.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Derived {
    All,
    IndexOnly,
    QueuesOnly,
    None,
}

/// Messages of `orders/0`, whose bodies hold one to three whole records.
struct Carriers {
    dir: TempDir,
    offsets: Vec<i64>,
    end: i64,
}

/// A message of this topic, encoded for this offset of the log, with a store time after that of every real message.
fn forged(topic: &str, physical_offset: i64, properties: &[u8]) -> Vec<u8> {
    let message = Message {
        physical_offset,
        topic: topic.into(),
        store_time: 1_800_000_000_000,
        queue_offset: 3,
        body: vec![b'f'; 100].into(),
        properties: properties.to_vec().into(),
        ..Message::default()
    };
    message.encode().unwrap()
}

impl Carriers {
    fn new(clean: bool) -> Self {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let mut writer = StoreWriter::small(dir.path());
        let mut offsets = Vec::new();
        for n in 0..MESSAGES {
            writer.wait_for_blocked(1500);
            let mut body = vec![b'x'; 60];
            for record in 0..=n % 3 {
                let topic = ["forged", "orders"][record % 2];
                body.extend(forged(topic, writer.end() + HEAD + body.len() as i64, b""));
            }
            body.extend([b'y'; 50]);
            offsets.push(writer.put("orders", 0, &body, &[("KEYS", &format!("k{n}")), ("TAGS", "tag")]));
        }
        writer.finish(clean);
        let end = writer.end();
        Self { dir, offsets, end }
    }

    fn segment(&self, root: &Path, n: usize) -> (PathBuf, usize) {
        let start = self.offsets[n] / SEGMENT * SEGMENT;
        (
            root.join(format!("commitlog/{start:020}")),
            (self.offsets[n] - start) as usize,
        )
    }

    /// A copy in which `change` was made to the bytes from record `n` on.
    fn damaged(&self, n: usize, derived: Derived, change: impl FnOnce(&mut [u8])) -> TempDir {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        copy(self.dir.path(), dir.path());
        let (path, at) = self.segment(dir.path(), n);
        edit(&path, |bytes| change(&mut bytes[at..]));
        if matches!(derived, Derived::IndexOnly | Derived::None) {
            fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
        }
        if matches!(derived, Derived::QueuesOnly | Derived::None) {
            fs::remove_dir_all(dir.path().join("index")).unwrap();
        }
        dir
    }

    /// The start and the end of record `n`.
    fn extent(&self, n: usize) -> (i64, i64) {
        (self.offsets[n], self.offsets.get(n + 1).copied().unwrap_or(self.end))
    }

    /// Expects a store that has every message but `n`, each in its place.
    fn expect_others(&self, root: &Path, recovery: Recovery, n: usize, case: &str) {
        let reader = reader(root, recovery);
        assert_eq!(reader.topics().unwrap(), ["orders"], "{case}");
        assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..MESSAGES as i64, "{case}");
        for (other, offset) in self.offsets.iter().enumerate() {
            let read = reader.message_in_queue("orders", 0, other as i64);
            if other == n {
                assert!(read.is_err(), "{case}: {n} is read");
            } else {
                assert_eq!(read.unwrap().view().physical_offset(), *offset, "{case}: {other}");
            }
        }
        assert_eq!(reader.physical_bounds().end, self.end, "{case}");
    }
}

fn reader(root: &Path, recovery: Recovery) -> Arc<MessageReader> {
    let config = StoreConfig {
        recovery,
        ..StoreConfig::default()
    };
    Arc::new(MessageReader::open(&real(), root, config).unwrap())
}

/// Physical offsets of all messages, by a scan that passes over damage.
fn scanned(root: &Path, order: Order, reverse: bool) -> Vec<i64> {
    scanned_by(reader(root, Recovery::Heal), order, reverse)
}

fn scanned_by(reader: Arc<MessageReader>, order: Order, reverse: bool) -> Vec<i64> {
    let request = ScanRequest {
        order,
        reverse,
        transactions: Transactions::All,
        ..ScanRequest::default()
    };
    let mut scan = Scan::new(reader, request, OnDamage::new(Errors::Skip)).unwrap();
    let mut found = Vec::new();
    let filled = scan.fill(|picked| {
        found.push(picked.view.physical_offset());
        Ok(true)
    });
    assert!(matches!(filled, Ok(Filled::End)), "{filled:?}");
    found.sort_unstable();
    found
}

fn ends(stretches: &[Range<i64>]) -> Vec<(i64, i64)> {
    stretches.iter().map(|stretch| (stretch.start, stretch.end)).collect()
}

/// Every bit of the total size, of the magic and of the body length.
fn length_bits() -> impl Iterator<Item = (usize, u8)> {
    let bytes = (0..8).chain(84..88);
    bytes.flat_map(|at| (0..8).map(move |bit| (at, 1 << bit)))
}

#[test]
fn a_flipped_length_of_a_record_with_nested_records_loses_it_alone() {
    let store = Carriers::new(false);
    for n in [0, DAMAGED, MESSAGES - 1] {
        for derived in [Derived::All, Derived::IndexOnly, Derived::QueuesOnly, Derived::None] {
            for (at, bit) in length_bits() {
                let case = format!("record {n}, byte {at}, bit {bit:#x}, {derived:?}");
                let dir = store.damaged(n, derived, |record| record[at] ^= bit);
                let salvaging = reader(dir.path(), Recovery::Salvage);
                let lost = &salvaging.recovery().lost;
                let is_last = n == MESSAGES - 1;
                let expected = if is_last { vec![] } else { vec![store.extent(n)] };
                assert_eq!(ends(lost), expected, "{case}");
                let end = if is_last { store.offsets[n] } else { store.end };
                assert_eq!(salvaging.physical_bounds().end, end, "{case}");
                if !is_last && derived != Derived::None && derived != Derived::IndexOnly {
                    store.expect_others(dir.path(), Recovery::Salvage, n, &case);
                }
            }
        }
    }
}

#[test]
fn an_overwritten_head_of_a_record_with_nested_records_loses_it_alone() {
    let store = Carriers::new(false);
    for derived in [Derived::All, Derived::QueuesOnly, Derived::IndexOnly] {
        for n in [0, DAMAGED, DAMAGED + 1, DAMAGED + 2] {
            let case = format!("{derived:?}, record {n}");
            let dir = store.damaged(n, derived, |record| record[..HEAD as usize].fill(0xAA));
            let salvaging = reader(dir.path(), Recovery::Salvage);
            assert_eq!(ends(&salvaging.recovery().lost), [store.extent(n)], "{case}");
            if derived != Derived::IndexOnly {
                store.expect_others(dir.path(), Recovery::Salvage, n, &case);
            }
        }
    }
}

#[test]
fn a_record_that_overlaps_the_next_real_one_is_not_part_of_the_log() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let mut put = |n: usize| {
        // No checksum covers properties: this record claims those of the next ones as its own.
        let mut stored = forged("orders", writer.end() + HEAD + 60, b"");
        let reach = 400_u16;
        let (at, size) = (stored.len() - 2, stored.len() as u32 + u32::from(reach));
        stored[at..].copy_from_slice(&reach.to_be_bytes());
        stored[..4].copy_from_slice(&size.to_be_bytes());
        let body = [&[b'x'; 60][..], &stored].concat();
        writer.put("orders", 0, &body, &[("KEYS", &format!("k{n}"))])
    };
    let offsets: Vec<i64> = (0..MESSAGES).map(&mut put).collect();
    writer.finish(false);
    let store = Carriers {
        dir,
        offsets,
        end: writer.end(),
    };
    for derived in [Derived::All, Derived::QueuesOnly, Derived::IndexOnly] {
        let dir = store.damaged(DAMAGED, derived, |record| record[..HEAD as usize].fill(0xAA));
        let salvaging = reader(dir.path(), Recovery::Salvage);
        assert_eq!(ends(&salvaging.recovery().lost), [store.extent(DAMAGED)], "{derived:?}");
    }
}

#[test]
fn every_reader_and_writer_resumes_at_the_next_real_record() {
    for clean in [true, false] {
        let store = Carriers::new(clean);
        let others: Vec<i64> = (0..MESSAGES).filter(|n| *n != DAMAGED).map(|n| store.offsets[n]).collect();
        for (at, bit) in [(0, 1), (1, 1), (2, 4), (3, 1), (4, 1), (7, 4), (85, 0x80), (87, 2), (20, 0)] {
            let case = format!("clean {clean}, byte {at}, bit {bit:#x}");
            let dir = store.damaged(DAMAGED, Derived::All, |record| match bit {
                0 => record[..HEAD as usize].fill(0xAA),
                _ => record[at] ^= bit,
            });
            if clean {
                for (order, reverse) in [(Order::Log, false), (Order::Log, true), (Order::Queue, false)] {
                    assert_eq!(scanned(dir.path(), order, reverse), others, "{case}, {order:?}, {reverse}");
                }
            }
            let before = contents(dir.path());
            let report = verified(dir.path());
            assert!(!report.is_ok(), "{case}");
            assert!(contents(dir.path()) == before, "{case}");
            let copied = TempDir::new_in("/dev/shm").unwrap();
            let into = copied.path().join("copy");
            let request = RepairRequest {
                is_dry_run: false,
                into: Some(&into),
            };
            let repaired = repair(&real(), dir.path(), &StoreConfig::default(), request, |_, _| Ok(())).unwrap();
            assert_eq!(ends(&repaired.lost), [store.extent(DAMAGED)], "{case}");
            store.expect_others(&into, Recovery::Heal, DAMAGED, &format!("{case}, repaired"));
            let config = StoreConfig {
                recovery: Recovery::Salvage,
                ..StoreConfig::default()
            };
            MessageStore::open(&real(), dir.path(), config, OpenMode::Existing)
                .unwrap()
                .close()
                .unwrap();
            store.expect_others(dir.path(), Recovery::Heal, DAMAGED, &format!("{case}, salvaged"));
            let last = reader(dir.path(), Recovery::Heal);
            assert_eq!(hits(&last, "k39"), [store.offsets[39]], "{case}");
        }
    }
}

/// Messages of the queues `orders/0` and `lost/0`, two by two. Each body ends with the bytes that end the body of a longer record: a
/// topic and no properties.
struct TwoTopics {
    dir: TempDir,
    offsets: Vec<i64>,
}

impl TwoTopics {
    fn new(clean: bool) -> Self {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let mut writer = StoreWriter::small(dir.path());
        let properties = encode_properties([("TAGS", "tag")], true).unwrap();
        let put = |n: usize| {
            writer.append(Message {
                topic: ["orders", "lost"][n % 4 / 2].into(),
                body: [format!("body {n:02}").as_bytes(), END_OF_RECORD].concat().into(),
                properties: properties.clone().into(),
                ..Message::default()
            })
        };
        let offsets = (0..MESSAGES).map(put).collect();
        writer.finish(clean);
        Self { dir, offsets }
    }

    fn change(&self, change: impl FnOnce(&mut [u8])) {
        edit(&self.dir.path().join("commitlog/00000000000000000000"), |bytes| change(bytes));
    }

    /// The extents of these messages.
    fn extents(&self, numbers: &[usize]) -> Vec<(i64, i64)> {
        numbers.iter().map(|n| (self.offsets[*n], self.offsets[n + 1])).collect()
    }

    fn lost(&self) -> Vec<(i64, i64)> {
        ends(&reader(self.dir.path(), Recovery::Salvage).recovery().lost)
    }
}

/// The topic `tttt` and no properties.
const END_OF_RECORD: &[u8] = b"\x04tttt\0\0";

#[test]
fn a_message_without_a_queue_entry_between_two_damaged_ones_is_kept() {
    for (first, second, is_overwritten) in [
        (12, 15, false),
        (13, 15, false),
        (13, 19, false),
        (13, 16, true),
        (13, 17, true),
        (13, 20, true),
    ] {
        let case = format!("{first}, {second}, {is_overwritten}");
        for clean in [false, true] {
            let store = TwoTopics::new(clean);
            let root = store.dir.path();
            fs::remove_dir_all(root.join("consumequeue/lost")).unwrap();
            let [head, other_head] = [first, second].map(|n| store.offsets[n] as usize);
            store.change(|bytes| {
                bytes[head + 4] ^= 1;
                if is_overwritten {
                    bytes[other_head..other_head + HEAD as usize].fill(0xAA);
                } else {
                    bytes[other_head] ^= 1;
                }
            });
            if clean {
                assert_eq!(verified(root).messages, MESSAGES as u64 - 2, "{case}");
                continue;
            }
            assert_eq!(store.lost(), store.extents(&[first, second]), "{case}");
            let mut others = store.offsets.clone();
            others.remove(second);
            others.remove(first);
            let salvaging = reader(root, Recovery::Salvage);
            assert_eq!(scanned_by(salvaging, Order::Log, false), others, "{case}");
        }
    }
}

#[test]
fn a_size_that_reaches_over_a_record_with_a_queue_entry_is_ignored() {
    let store = TwoTopics::new(false);
    let intact = fs::read(store.dir.path().join("commitlog/00000000000000000000")).unwrap();
    let [at, next, after_next] = [12, 13, 14].map(|n| store.offsets[n]);
    // The lengths agree: the record ends in the middle of the next one, after its `END_OF_RECORD`.
    let body_len = (next - at) as u32 + b"body 13".len() as u32;
    let total_size = HEAD as u32 + body_len + END_OF_RECORD.len() as u32;
    store.change(|bytes| {
        let record = &mut bytes[at as usize..];
        record[..4].copy_from_slice(&total_size.to_be_bytes());
        record[4] ^= 1;
        record[84..88].copy_from_slice(&body_len.to_be_bytes());
    });
    assert_eq!(store.lost(), store.extents(&[12]), "lengths");
    store.change(|bytes| {
        bytes.copy_from_slice(&intact);
        bytes[at as usize..(at + HEAD) as usize].fill(0xAA);
    });
    // Message 12 is the seventh of its queue.
    edit(
        &store.dir.path().join("consumequeue/orders/0/00000000000000000000"),
        |bytes| {
            assert_eq!(bytes[120..128], at.to_be_bytes());
            bytes[128..132].copy_from_slice(&((after_next - at) as i32).to_be_bytes());
        },
    );
    assert_eq!(store.lost(), store.extents(&[12]), "queue entry");
}

/// A clean store of messages of one queue with these system flags. Returns their physical offsets.
fn with_transactions<const N: usize>(root: &Path, sys_flags: [i32; N]) -> [i64; N] {
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(SEGMENT as u64),
        ..StoreConfig::default()
    };
    let store = MessageStore::open(&real(), root, config, OpenMode::New).unwrap();
    let offsets = sys_flags.map(|sys_flag| {
        let message = Message {
            topic: "orders".into(),
            body: vec![b'x'; 200].into(),
            sys_flag,
            ..Message::default()
        };
        store.append(message).unwrap().appended.physical_offset
    });
    store.close().unwrap();
    offsets
}

#[test]
fn half_and_rolled_back_messages_after_a_damaged_record_are_kept() {
    for (sys_flag, damaged_byte, crashed) in [PREPARED, ROLLBACK]
        .into_iter()
        .flat_map(|sys_flag| [4, 140].map(|byte| (sys_flag, byte)))
        .flat_map(|(sys_flag, byte)| [false, true].map(|crashed| (sys_flag, byte, crashed)))
    {
        let case = format!("sysFlag {sys_flag}, byte {damaged_byte}, crashed {crashed}");
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let root = dir.path().join("store");
        let offsets = with_transactions(&root, [0, 0, sys_flag, sys_flag, 0]);
        if crashed {
            fs::write(root.join("abort"), b"").unwrap();
        }
        edit(&root.join("commitlog/00000000000000000000"), |bytes| {
            bytes[offsets[1] as usize + damaged_byte] ^= 1;
        });
        let others = [offsets[0], offsets[2], offsets[3], offsets[4]];
        assert_eq!(scanned(&root, Order::Log, false), others, "{case}");
        let into = dir.path().join("copy");
        let request = RepairRequest {
            is_dry_run: false,
            into: Some(&into),
        };
        let repaired = repair(&real(), &root, &StoreConfig::default(), request, |_, _| Ok(())).unwrap();
        assert_eq!(ends(&repaired.lost), [(offsets[1], offsets[2])], "{case}");
        let kept: Vec<i64> = scanned(&into, Order::Log, false);
        assert!(others.iter().all(|offset| kept.contains(offset)), "{case}: {kept:?}");
    }
}

#[test]
fn half_messages_after_one_without_its_head_are_kept_at_the_end() {
    // No queue entry names a damaged message or one after it, so nothing shows where the damage ends.
    for sys_flag in [PREPARED, ROLLBACK] {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let root = dir.path().join("store");
        let offsets = with_transactions(&root, [0, sys_flag, sys_flag, sys_flag]);
        edit(&root.join("commitlog/00000000000000000000"), |bytes| {
            bytes[offsets[1] as usize..(offsets[1] + HEAD) as usize].fill(0);
        });
        let kept = scanned_by(reader(&root, Recovery::Salvage), Order::Log, false);
        assert_eq!(kept, [offsets[0], offsets[2], offsets[3]], "sysFlag {sys_flag}");
    }
}

#[test]
fn a_salvage_reader_scans_all_messages_that_its_recovery_kept() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let root = dir.path().join("store");
    let half = PREPARED;
    let offsets = with_transactions(&root, [0, 0, half, half, half, 0, 0]);
    edit(&root.join("commitlog/00000000000000000000"), |bytes| {
        for damaged in [offsets[1], offsets[5]] {
            bytes[damaged as usize..(damaged + HEAD) as usize].fill(0);
        }
    });
    let salvaging = reader(&root, Recovery::Salvage);
    let lost = [(offsets[1], offsets[2]), (offsets[5], offsets[6])];
    assert_eq!(ends(&salvaging.recovery().lost), lost);
    let others = [offsets[0], offsets[2], offsets[3], offsets[4], offsets[6]];
    assert_eq!(scanned_by(salvaging, Order::Log, false), others);
}

#[test]
fn messages_of_an_earlier_topic_after_a_damaged_record_are_kept() {
    for (damaged, damaged_byte) in [(1, 4), (1, 140), (2, 4), (2, 140)] {
        let case = format!("record {damaged}, byte {damaged_byte}");
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let root = dir.path().join("store");
        let mut writer = StoreWriter::small(&root);
        let mut offsets: Vec<i64> = (0..6).map(|_| writer.put("orders", 0, &[b'x'; 200], &[])).collect();
        writer.delete_topic("orders");
        offsets.extend((0..6).map(|_| writer.put("orders", 0, &[b'y'; 200], &[])));
        writer.finish(false);
        edit(&root.join("commitlog/00000000000000000000"), |bytes| {
            bytes[offsets[damaged] as usize + damaged_byte] ^= 1;
        });
        let lost = reader(&root, Recovery::Salvage).recovery().lost.clone();
        assert_eq!(ends(&lost), [(offsets[damaged], offsets[damaged + 1])], "{case}");
    }
}

#[test]
fn verify_and_salvage_use_the_same_stamp_against_a_stored_record() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let root = dir.path().join("store");
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(SEGMENT as u64),
        ..StoreConfig::default()
    };
    let store = MessageStore::open(&real(), &root, config, OpenMode::New).unwrap();
    let append = |body: Vec<u8>| {
        let message = Message {
            topic: "orders".into(),
            body: body.into(),
            ..Message::default()
        };
        store.append(message).unwrap().appended
    };
    let carrier = append(vec![b'x'; 60]).end();
    // The record in the body ends inside the last one, which the stamp names.
    let mut stored = forged("orders", carrier + HEAD + 60, b"");
    let reach = 400_u16;
    let (at, size) = (stored.len() - 2, stored.len() as u32 + u32::from(reach));
    stored[at..].copy_from_slice(&reach.to_be_bytes());
    stored[..4].copy_from_slice(&size.to_be_bytes());
    let last = append([vec![b'x'; 60], stored].concat()).end();
    let end = append(vec![b'y'; 800]).end();
    store.close().unwrap();
    for derived in ["consumequeue", "index"] {
        fs::remove_dir_all(root.join(derived)).unwrap();
    }
    edit(&root.join("commitlog/00000000000000000000"), |bytes| {
        bytes[carrier as usize..(carrier + HEAD) as usize].fill(0xAA);
    });
    let salvaging = reader(&root, Recovery::Salvage);
    assert_eq!(ends(&salvaging.recovery().lost), [(carrier, last)]);
    assert_eq!(salvaging.physical_bounds().end, end);
    let report = verified(&root);
    assert_eq!(report.messages, 2);
    // A pass that takes the stored record for a message does not find the last one.
    let inside_last = last + 1..end;
    let found = report
        .findings
        .iter()
        .filter(|finding| finding.file.ends_with("commitlog/00000000000000000000"));
    let of_log: Vec<i64> = found.map(|finding| finding.last_offset as i64).collect();
    assert!(of_log.iter().any(|at| (carrier..last).contains(at)), "{of_log:?}");
    assert!(!of_log.iter().any(|at| inside_last.contains(at)), "{of_log:?}");
}
