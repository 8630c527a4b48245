//! Records of which one bit of topic, queue id or queue offset was flipped, repaired.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use mqstore::check::FindingId;
use mqstore::format::Message;
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use super::{env, repaired};
use crate::damage::bases::{append, tiny};
use crate::damage::fields::{fields, record_starts};
use crate::damage::image::Image;
use crate::verifying::table::{MESSAGES, edit};
use crate::verifying::{copy, told, verified};

const SEGMENT: &str = "commitlog/00000000000000004096";

/// The bits of the fields that name the place of record `n` of the second segment: positions in the segment.
fn bits_of_place(root: &Path, n: usize) -> Vec<(&'static str, usize, u8)> {
    let bytes = std::fs::read(root.join(SEGMENT)).unwrap();
    let starts = record_starts(&bytes);
    let place = ["topic", "queue id", "queue offset"];
    let of_record = fields(Path::new(SEGMENT), &bytes)
        .into_iter()
        .filter(|field| (starts[n]..starts[n + 1]).contains(&field.at) && place.contains(&field.name));
    of_record
        .flat_map(|field| (field.at..field.at + field.width).map(move |at| (field.name, at)))
        .flat_map(|(name, at)| (0..8).map(move |bit| (name, at, 1 << bit)))
        .collect()
}

#[test]
fn repair_corrects_a_flipped_bit_of_a_place_and_keeps_every_offset() {
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    append(&intact, OpenMode::New, 0..MESSAGES);
    let log = |root: &Path| -> BTreeMap<_, _> {
        let image = Image::of(root);
        let segments = image.files().filter(|(path, _)| path.starts_with("commitlog"));
        segments.map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect()
    };
    let (mut wrong, mut corrected) = (String::new(), 0);
    for (n, is_copy) in [(0, false), (4, true), (9, false)] {
        // Every seventh bit meets each byte and each bit of a byte.
        for (field, at, bit) in bits_of_place(&intact, n).into_iter().step_by(7) {
            let root = dir.path().join("store");
            let into = is_copy.then(|| dir.path().join("into"));
            copy(&intact, &root);
            edit(&root.join(SEGMENT), |bytes| bytes[at] ^= bit);
            let report = repaired(&root, false, into.as_deref()).unwrap();
            let mended = into.as_deref().unwrap_or(&root);
            let case = format!("record {n}, {field}, byte {at}, bit {bit:#x}");
            if !report.left.is_empty() || log(mended) != log(&intact) || !verified(mended).findings.is_empty() {
                let _ = writeln!(wrong, "--- {case}: {report:?}");
            }
            corrected += 1;
            for made in [Some(&root), into.as_ref()].into_iter().flatten() {
                std::fs::remove_dir_all(made).unwrap();
            }
        }
    }
    assert_eq!(wrong, "");
    assert!(corrected > 60, "{corrected}");
}

#[test]
fn repair_corrects_a_queue_id_that_a_recovery_has_trusted() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    let store = MessageStore::open(&env(), &root, tiny(), OpenMode::New).unwrap();
    let mut starts = Vec::new();
    for n in 0..10 {
        let message = Message {
            topic: "jobs".into(),
            body: vec![n; 100].into(),
            ..Message::default()
        };
        starts.push(store.append(message).unwrap().appended.physical_offset as usize);
    }
    store.close().unwrap();
    // The writer died before it wrote the queue, and the queue id of a record is damaged since.
    std::fs::write(root.join("abort"), b"").unwrap();
    std::fs::remove_dir_all(root.join("consumequeue")).unwrap();
    edit(&root.join(format!("commitlog/{:020}", 0)), |bytes| {
        bytes[starts[4] + 14] = 0xff;
    });
    let store = MessageStore::open(&env(), &root, tiny(), OpenMode::Existing).unwrap();
    store.close().unwrap();
    assert!(crate::reading::open(&root).message_in_queue("jobs", 0, 4).is_err());
    let found = verified(&root);
    let is_contradicted = |finding: &mqstore::check::Finding| finding.id == FindingId::QueuePlaceContradicted;
    assert!(found.findings.iter().any(is_contradicted), "{}", told(&found));
    let report = repaired(&root, false, None).unwrap();
    assert!(report.refusal.is_none() && report.left.is_empty(), "{report:?}");
    assert_eq!(told(&verified(&root)), "");
    let message = crate::reading::open(&root).message_in_queue("jobs", 0, 4).unwrap();
    assert_eq!(message.view().body()[0], 4);
}

#[test]
fn repair_changes_no_record_to_which_its_own_entry_leads() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    let store = MessageStore::open(&env(), &root, tiny(), OpenMode::New).unwrap();
    // Topics of one length, so that records have one size.
    for n in 0..20 {
        let message = Message {
            topic: ["orders", "prices"][n % 2].into(),
            body: vec![n as u8; 100].into(),
            ..Message::default()
        };
        store.append(message).unwrap();
    }
    store.close().unwrap();
    // The record of orders/0@4 is damaged, and its entry leads to a message of prices/0, which its own entry names, too.
    let file = |topic| root.join(format!("consumequeue/{topic}/0/{:020}", 0));
    let (own, other) = (file("orders"), file("prices"));
    let entry_of_other = std::fs::read(other).unwrap()[80..100].to_vec();
    let mut damaged = 0;
    edit(&own, |bytes| {
        damaged = i64::from_be_bytes(bytes[80..88].try_into().unwrap());
        bytes[80..100].copy_from_slice(&entry_of_other);
    });
    let segment = format!("commitlog/{:020}", damaged / 4096 * 4096);
    edit(&root.join(&segment), |bytes| bytes[(damaged % 4096) as usize + 4] ^= 1);
    let found = verified(&root);
    assert!(
        found
            .findings
            .iter()
            .all(|finding| finding.id != FindingId::QueuePlaceContradicted),
        "{}",
        told(&found)
    );
    let report = repaired(&root, false, None).unwrap();
    assert!(report.refusal.is_none() && report.lost.len() == 1, "{report:?}");
    let reader = crate::reading::open(&root);
    assert_eq!(reader.queue_bounds("prices", 0).unwrap(), 0..10);
    assert_eq!(reader.message_in_queue("prices", 0, 4).unwrap().view().body()[0], 9);
}

/// A store in which the record of `orders/0@3` names queue offset 7, and the queue file with the entries 5 to 9 is missing.
fn store_with_a_doubtful_place(dir: &Path) -> (PathBuf, [usize; 2]) {
    let root = dir.join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let reader = crate::reading::open(&root);
    let at = |offset| reader.message_in_queue("orders", 0, offset).unwrap().view().physical_offset() as usize;
    let (third, seventh) = (at(3), at(7));
    assert!(seventh < 4096);
    edit(&root.join("commitlog/00000000000000000000"), |bytes| bytes[third + 27] ^= 4);
    std::fs::remove_file(root.join("consumequeue/orders/0/00000000000000000100")).unwrap();
    (root, [third, seventh])
}

#[test]
fn repair_corrects_a_place_that_another_message_of_the_log_has() {
    let dir = tempdir().unwrap();
    let (root, [third, seventh]) = store_with_a_doubtful_place(dir.path());
    let report = repaired(&root, false, None).unwrap();
    assert!(report.left.is_empty() && report.lost.is_empty(), "{report:?}");
    let reader = crate::reading::open(&root);
    for (offset, at) in [(3, third), (7, seventh)] {
        let message = reader.message_in_queue("orders", 0, offset).unwrap();
        assert_eq!(message.view().physical_offset() as usize, at);
    }
}

#[test]
fn repair_corrects_a_place_that_is_not_between_its_neighbours() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let reader = crate::reading::open(&root);
    let message = reader.message_in_queue("orders", 0, 3).unwrap();
    let third = message.view().physical_offset() as usize;
    // No message has queue offset 3 + 256, and no entry leads to the record.
    assert!(reader.queue_bounds("orders", 0).unwrap().end < 256);
    edit(&root.join("commitlog/00000000000000000000"), |bytes| bytes[third + 26] ^= 1);
    std::fs::remove_dir_all(root.join("consumequeue/orders/0")).unwrap();
    let report = repaired(&root, false, None).unwrap();
    assert!(report.left.is_empty() && report.lost.is_empty(), "{report:?}");
    let message = crate::reading::open(&root).message_in_queue("orders", 0, 3).unwrap();
    assert_eq!(message.view().physical_offset() as usize, third);
}

#[test]
fn repair_salvages_a_record_whose_place_nothing_proves() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    let store = MessageStore::open(&env(), &root, tiny(), OpenMode::New).unwrap();
    for n in 0..12 {
        let message = Message {
            topic: "orders".into(),
            queue_id: n % 2,
            body: vec![n as u8; 100].into(),
            ..Message::default()
        };
        store.append(message).unwrap();
    }
    store.close().unwrap();
    let reader = crate::reading::open(&root);
    let at = |queue_id| {
        let message = reader.message_in_queue("orders", queue_id, 3).unwrap();
        message.view().physical_offset() as usize
    };
    let (doubtful, damaged) = (at(0), at(1));
    // The record names queue 1, where the message of that queue offset and its entry are damaged: both places fit.
    edit(&root.join("commitlog/00000000000000000000"), |bytes| {
        bytes[doubtful + 15] = 1;
        bytes[damaged + 4] ^= 1;
    });
    edit(&root.join("consumequeue/orders/1/00000000000000000000"), |bytes| {
        bytes[60..80].fill(0);
    });
    let before = Image::of(&root);
    let planned = repaired(&root, true, None).unwrap();
    assert!(before.files().eq(Image::of(&root).files()));
    let report = repaired(&root, false, None).unwrap();
    assert_eq!((&planned.changes, &planned.lost), (&report.changes, &report.lost));
    assert!(report.left.is_empty() && report.lost.len() == 2, "{report:?}");
    assert!(report.changes.iter().any(|change| change.what.starts_with("nothing proves")));
    let kept = std::fs::read(report.backup.unwrap().join("commitlog/00000000000000000000")).unwrap();
    assert_eq!(before.file(Path::new("commitlog/00000000000000000000")), Some(&*kept));
    let reader = crate::reading::open(&root);
    for queue_id in [0, 1] {
        assert_eq!(reader.queue_bounds("orders", queue_id).unwrap(), 0..6);
        for offset in [0, 1, 2, 4, 5] {
            let message = reader.message_in_queue("orders", queue_id, offset).unwrap();
            assert_eq!(i64::from(message.view().body()[0]), 2 * offset + i64::from(queue_id));
        }
    }
}

#[test]
fn a_renamed_queue_directory_changes_no_record() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let before = Image::of(&root);
    std::fs::rename(root.join("consumequeue/orders/0"), root.join("consumequeue/orders/3")).unwrap();
    let into = dir.path().join("into");
    let report = repaired(&root, false, Some(&into)).unwrap();
    assert!(report.refusal.is_none() && report.lost.is_empty(), "{report:?}");
    for (path, bytes) in before.files().filter(|(path, _)| path.starts_with("commitlog")) {
        assert_eq!(std::fs::read(into.join(path)).unwrap(), bytes, "{}", path.display());
    }
    let bounds = |root: &Path| crate::reading::open(root).queue_bounds("orders", 0).unwrap();
    append(&dir.path().join("other"), OpenMode::New, 0..MESSAGES);
    assert_eq!(bounds(&into), bounds(&dir.path().join("other")));
}

#[test]
fn a_damaged_place_does_not_change_the_next_message() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let reader = crate::reading::open(&root);
    let end = reader.queue_bounds("orders", 0).unwrap().end;
    let at = reader
        .message_in_queue("orders", 0, end - 2)
        .unwrap()
        .view()
        .physical_offset() as usize;
    let segment = root.join(format!("commitlog/{:020}", at / 4096 * 4096));
    let intact = std::fs::read(&segment).unwrap();
    // The last message but one names the queue offset of the last one, and no queue has an entry of either.
    edit(&segment, |bytes| {
        let field = at % 4096 + 20..at % 4096 + 28;
        bytes[field].copy_from_slice(&(end - 1).to_be_bytes());
    });
    std::fs::remove_dir_all(root.join("consumequeue")).unwrap();
    let report = repaired(&root, false, None).unwrap();
    assert!(report.left.is_empty() && report.lost.is_empty(), "{report:?}");
    assert_eq!(std::fs::read(&segment).unwrap(), intact);
}

#[test]
fn repair_corrects_a_place_that_names_a_lost_message() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let at = |offset| {
        crate::reading::open(&root)
            .message_in_queue("orders", 0, offset)
            .unwrap()
            .view()
            .physical_offset()
    };
    let (third, seventh) = (at(3) as usize, at(7) as usize);
    let flip = |at: usize, bit: u8| {
        edit(&root.join(format!("commitlog/{:020}", at / 4096 * 4096)), |bytes| {
            bytes[at % 4096] ^= bit;
        });
    };
    flip(seventh + 4, 1);
    assert_eq!(repaired(&root, false, None).unwrap().lost.len(), 1);
    // Queue offset 3 becomes 7.
    flip(third + 27, 4);
    let report = repaired(&root, false, None).unwrap();
    assert!(report.left.is_empty() && report.lost.is_empty(), "{report:?}");
    assert_eq!(at(3) as usize, third);
}

/// Repairs a store whose record of `orders/0@5` names queue offset 2 and has no entry, while the records of other queue offsets are damaged.
/// Returns the findings that are left, and the queue offset that leads to the record, if one does.
fn repaired_beside_damage(damaged: &[i64]) -> (Vec<FindingId>, Option<i64>) {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let reader = crate::reading::open(&root);
    let at = |offset| reader.message_in_queue("orders", 0, offset).unwrap().view().physical_offset() as usize;
    let edit_record = |at: usize, change: &dyn Fn(&mut [u8])| {
        edit(&root.join(format!("commitlog/{:020}", at / 4096 * 4096)), |bytes| {
            change(&mut bytes[at % 4096..]);
        });
    };
    let doubtful = at(5);
    for offset in damaged {
        edit_record(at(*offset), &|record| record[4] ^= 1);
    }
    edit_record(doubtful, &|record| record[20..28].copy_from_slice(&2_i64.to_be_bytes()));
    // The file begins with the entry of queue offset 5.
    edit(&root.join(format!("consumequeue/orders/0/{:020}", 100)), |bytes| {
        bytes[..20].fill(0);
    });
    drop(reader);
    let report = repaired(&root, false, None).unwrap();
    assert_eq!(report.lost.len(), damaged.len(), "{report:?}");
    let reader = crate::reading::open(&root);
    let leads = |offset: &i64| {
        let message = reader.message_in_queue("orders", 0, *offset);
        message.is_ok_and(|message| message.view().physical_offset() as usize == doubtful)
    };
    let found = reader.queue_bounds("orders", 0).unwrap().find(leads);
    (report.left.iter().map(|finding| finding.id).collect(), found)
}

#[test]
fn a_place_before_a_lost_message_is_proven_unless_one_is_lost_before_it() {
    assert_eq!(repaired_beside_damage(&[]), (vec![], Some(5)));
    assert_eq!(repaired_beside_damage(&[6]), (vec![], Some(5)));
    // It may be the message of queue offset 4, too.
    assert_eq!(
        repaired_beside_damage(&[4, 6]),
        (vec![FindingId::LogDuplicateQueueOffset], None)
    );
}
