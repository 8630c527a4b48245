//! A rebuild: what it keeps, its concurrent readers, and the processes that exclude it.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::check::{Fix, RepairRequest, repair};
use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{CqUnit, Message, encode_properties, segment_name};
use mqstore::read::{MessageReader, QueryResult};
use mqstore::remedy::Remedy;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::{tempdir, tempdir_in};

use super::{rebuilt, repaired};
use crate::counting_env::CountingEnv;
use crate::damage::bases::{append, tiny};
use crate::damage::image::Image;
use crate::golden::golden_dir;
use crate::queries::by_key;
use crate::reading::open;
use crate::verifying::table::MESSAGES;
use crate::verifying::{copy, told, verified};

/// Of each message: its place, and the ways by which its queue and its keys lead to it.
fn answers(reader: &MessageReader) -> Vec<String> {
    let mut answers = Vec::new();
    for topic in reader.topics().unwrap() {
        for queue_id in reader.queue_ids(&topic).unwrap_or_default() {
            let bounds = reader.queue_bounds(&topic, queue_id).unwrap();
            answers.push(format!("{topic}/{queue_id}: {bounds:?}"));
            for offset in bounds {
                let message = reader.message_in_queue(&topic, queue_id, offset).unwrap();
                let view = message.view();
                let found = view
                    .keys()
                    .first()
                    .map(|key| offsets(&reader.query(&by_key(&topic, key)).unwrap()));
                answers.push(format!("{offset}: {} {found:?}", view.physical_offset()));
            }
        }
    }
    answers
}

fn offsets(result: &QueryResult) -> Vec<i64> {
    assert!(result.complete);
    result.hits.iter().map(|hit| hit.physical_offset).collect()
}

fn intact(root: &Path) {
    append(root, OpenMode::New, 0..MESSAGES);
}

#[test]
fn any_flipped_byte_of_a_derived_file_costs_no_answer_after_a_rebuild() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..24);
    let expected = answers(&open(&root));
    let image = Image::of(&root);
    let derived = |path: &&Path| path.starts_with("consumequeue") || path.starts_with("index") || path.ends_with("checkpoint");
    let files: Vec<_> = image.files().filter(|(path, _)| derived(path)).collect();
    assert!(files.len() > 8);
    for (number, (path, bytes)) in files.into_iter().enumerate() {
        for at in (number % 20..bytes.len().min(1000)).step_by(89) {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1 << (at % 8);
            fs::write(root.join(path), &flipped).unwrap();
            rebuilt(&root, false).unwrap();
            assert_eq!(answers(&open(&root)), expected, "{} at {at}", path.display());
            let report = verified(&root);
            assert!(report.findings.is_empty(), "{} at {at}: {}", path.display(), told(&report));
            put_back(&root, &image);
        }
    }
}

#[test]
fn a_rebuild_gives_an_entry_each_of_its_bytes_again() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..24);
    let image = Image::of(&root);
    let path = Path::new("consumequeue/orders/0").join(segment_name(0));
    let bytes = image.file(&path).unwrap();
    // The sign bit of the tags code, too: with it the code would be an address in consumequeue_ext.
    for at in 20..40 {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 0x80;
        fs::write(root.join(&path), &flipped).unwrap();
        rebuilt(&root, false).unwrap();
        assert!(fs::read(root.join(&path)).unwrap() == bytes, "{at}");
        put_back(&root, &image);
    }
}

fn put_back(root: &Path, image: &Image) {
    fs::remove_dir_all(root).unwrap();
    for (path, bytes) in image.files() {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn the_stores_of_every_version_answer_the_same_after_a_rebuild_of_nothing() {
    for name in ["491_multifile", "498_mixed", "533_mixed", "551_mixed"] {
        let dir = tempdir().unwrap();
        let root = dir.path().join(name);
        copy(&golden_dir().join(name), &root);
        let expected = answers(&open(&root));
        for gone in ["consumequeue", "index"] {
            fs::remove_dir_all(root.join(gone)).unwrap();
        }
        fs::remove_file(root.join("checkpoint")).unwrap();
        rebuilt(&root, false).unwrap();
        assert_eq!(answers(&open(&root)), expected, "{name}");
        let report = verified(&root);
        assert!(report.is_ok(), "{name}: {}", told(&report));
    }
}

/// The first segment expires, and with it every message of the first queue.
#[test]
fn a_queue_without_messages_keeps_its_offsets_for_the_next_message() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, &root, tiny(), OpenMode::New).unwrap();
    let message = |topic: &'static str| Message {
        topic: topic.into(),
        body: vec![7; 300].into(),
        ..Message::default()
    };
    for topic in [["old"; 7], ["new"; 7]].concat().into_iter().chain(["new"; 14]) {
        store.append(message(topic)).unwrap();
    }
    store.close().unwrap();
    fs::remove_file(root.join("commitlog").join(segment_name(0))).unwrap();
    let expected = open(&root).queue_bounds("old", 0).unwrap();
    assert_eq!(expected, 7..7);
    let live = open(&root).queue_bounds("new", 0).unwrap();
    rebuilt(&root, false).unwrap();
    assert_eq!(open(&root).queue_bounds("old", 0).unwrap(), expected);
    assert_eq!(open(&root).queue_bounds("new", 0).unwrap(), live);
    let store = MessageStore::open(&env, &root, tiny(), OpenMode::Existing).unwrap();
    assert_eq!(store.append(message("old")).unwrap().appended.queue_offset, 7);
    store.close().unwrap();
}

#[test]
fn a_reader_continues_during_a_rebuild_and_never_answers_wrong() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    let (asked, fresh) = (open(&root), open(&root));
    let expected = answers(&asked);
    // A message that is found wrong before the rebuild, and right after it.
    let file = root.join("consumequeue/orders/0").join(segment_name(0));
    let mut bytes = fs::read(&file).unwrap();
    let unit = CqUnit::decode(bytes[60..80].try_into().unwrap());
    bytes[60..80].copy_from_slice(&CqUnit { tags_code: 1, ..unit }.encode());
    fs::write(&file, bytes).unwrap();
    rebuilt(&root, false).unwrap();
    assert_eq!(answers(&asked), expected);
    assert_eq!(answers(&fresh), expected);
}

#[test]
fn a_reader_keeps_the_segment_that_a_repair_replaces() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    let reader = open(&root);
    let (damaged, whole) = (0, reader.message_in_queue("orders", 0, 1).unwrap());
    let segment = root.join("commitlog").join(segment_name(0));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[90] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    assert!(matches!(reader.message_at(damaged), Err(Error::Corrupt { .. })));
    let before = whole.view().bytes().to_vec();
    let report = repaired(&root, false, None).unwrap();
    assert_eq!((report.lost.len(), report.left.len()), (1, 0));
    assert!(matches!(reader.message_at(damaged), Err(Error::Corrupt { .. })));
    assert_eq!(whole.view().bytes(), before);
    assert!(matches!(open(&root).message_at(damaged), Err(Error::NotFound { .. })));
}

#[test]
fn a_store_that_is_written_to_is_neither_rebuilt_nor_repaired_nor_copied() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    fs::write(root.join("config/x.json"), b"no JSON").unwrap();
    let lock = RealEnv::new().lock(&root.join("lock")).unwrap();
    let before = Image::of(&root);
    assert!(matches!(rebuilt(&root, false), Err(Error::Locked { .. })));
    assert!(matches!(repaired(&root, false, None), Err(Error::Locked { .. })));
    let into = dir.path().join("into");
    assert!(matches!(repaired(&root, false, Some(&into)), Err(Error::Locked { .. })));
    assert!(repaired(&root, true, None).is_ok());
    let after = Image::of(&root);
    assert!(before.files().eq(after.files()) && !into.exists());
    drop(lock);
    fs::create_dir(&into).unwrap();
    fs::write(into.join("x"), b"x").unwrap();
    assert!(matches!(repaired(&root, false, Some(&into)), Err(Error::Exists { .. })));
    let report = repaired(&root, false, None).unwrap();
    assert_eq!(report.changes.len(), 1);
    assert_eq!(report.found.findings[0].id.facts().fix, Fix::SetAside);
}

#[test]
fn a_store_is_not_copied_into_itself_or_another_store() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    let before = Image::of(&root);
    let other = dir.path().join("other");
    copy(&root, &other);
    for into in [
        root.join("copy"),
        root.clone(),
        other.join("consumequeue/copy"),
        other.join("commitlog"),
    ] {
        for is_dry_run in [true, false] {
            let outcome = repaired(&root, is_dry_run, Some(&into));
            assert!(
                matches!(outcome, Err(Error::Invalid { .. } | Error::Exists { .. })),
                "{outcome:?}"
            );
        }
    }
    assert!(before.files().eq(Image::of(&root).files()));
    assert!(before.files().eq(Image::of(&other).files()));
    let beside = root.join("commitlog/../../beside");
    assert!(repaired(&root, false, Some(&beside)).unwrap().left.is_empty());
}

/// Only the checksum of the whole record covers it.
/// Makes a store of four messages with `__CRC32#`, and replaces the first byte of the first `wanted` in its log by `by`. Returns the
/// store and its damaged segment.
fn damaged_with_crc(dir: &Path, wanted: &[u8], by: u8) -> (PathBuf, Vec<u8>) {
    let root = dir.join("store");
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let config = StoreConfig {
        enabled_append_prop_crc: true,
        ..tiny()
    };
    let store = MessageStore::open(&env, &root, config, OpenMode::New).unwrap();
    for _ in 0..4 {
        let message = Message {
            topic: "topic".into(),
            body: b"body".as_slice().into(),
            properties: encode_properties([("region", "eu")], true).unwrap().into(),
            ..Message::default()
        };
        store.append(message).unwrap();
    }
    store.close().unwrap();
    let segment = root.join("commitlog").join(segment_name(0));
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(wanted.len()).position(|found| found == wanted).unwrap();
    bytes[at] = by;
    fs::write(&segment, &bytes).unwrap();
    (root, bytes)
}

#[test]
fn a_record_that_contradicts_its_own_checksum_is_salvaged_as_damage() {
    let dir = tempdir().unwrap();
    let (root, bytes) = damaged_with_crc(dir.path(), b"region", b'R');
    let refused = rebuilt(&root, false).unwrap_err();
    assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
    let report = repaired(&root, false, None).unwrap();
    assert_eq!((report.lost.len(), report.left.len()), (1, 0), "{report:?}");
    assert_eq!(open(&root).queue_bounds("topic", 0).unwrap(), 0..4);
    assert_eq!(
        fs::read(report.backup.unwrap().join("commitlog").join(segment_name(0))).unwrap(),
        bytes
    );
}

#[test]
fn repair_corrects_a_place_with_which_the_checksum_of_the_record_holds() {
    for is_copy in [false, true] {
        let dir = tempdir().unwrap();
        let (root, bytes) = damaged_with_crc(dir.path(), b"topic", b'T');
        let refused = rebuilt(&root, false).unwrap_err();
        assert_eq!(refused.remedy(), Some(Remedy::Repair), "{refused}");
        let into = is_copy.then(|| dir.path().join("into"));
        let report = repaired(&root, false, into.as_deref()).unwrap();
        assert_eq!((report.lost.len(), report.left.len()), (0, 0), "{report:?}");
        let reader = open(&report.path);
        assert_eq!(reader.queue_bounds("topic", 0).unwrap(), 0..4);
        assert_eq!(reader.message_in_queue("topic", 0, 0).unwrap().view().body(), b"body");
        if let Some(backup) = report.backup {
            assert_eq!(fs::read(backup.join("commitlog").join(segment_name(0))).unwrap(), bytes);
        }
    }
}

/// The entry leads to a whole record, of another message.
#[test]
fn a_rebuild_fixes_an_entry_after_the_last_message_of_a_queue() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, &root, tiny(), OpenMode::New).unwrap();
    let message = |topic: &'static str| Message {
        topic: topic.into(),
        body: b"body".as_slice().into(),
        ..Message::default()
    };
    for topic in ["a", "a", "b", "b"] {
        store.append(message(topic)).unwrap();
    }
    store.close().unwrap();
    let queue = |topic: &str| root.join("consumequeue").join(topic).join("0").join(segment_name(0));
    let mut entries = fs::read(queue("a")).unwrap();
    entries[40..60].copy_from_slice(&fs::read(queue("b")).unwrap()[..20]);
    fs::write(queue("a"), entries).unwrap();
    assert_eq!(open(&root).queue_bounds("a", 0).unwrap(), 0..3);
    rebuilt(&root, false).unwrap();
    assert_eq!(open(&root).queue_bounds("a", 0).unwrap(), 0..2);
    let store = MessageStore::open(&env, &root, tiny(), OpenMode::Existing).unwrap();
    assert_eq!(store.append(message("a")).unwrap().appended.queue_offset, 2);
    store.close().unwrap();
}

/// The change of a repair after which new messages may have queue offsets of lost ones.
const REASSIGNED: &str = "new messages may get queue offsets of messages lost at the end of the log, which consumers have read";

#[test]
fn a_repair_reports_the_number_of_queued_messages_missing_in_the_log() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    let queue = open(&root).queue_bounds("orders", 0).unwrap();
    let file = root
        .join("consumequeue/orders/0")
        .join(segment_name(queue.end as u64 / 5 * 100));
    let mut bytes = fs::read(&file).unwrap();
    let at = queue.end as usize % 5 * 20;
    let past = CqUnit {
        physical_offset: open(&root).physical_bounds().end,
        size: 100,
        tags_code: 0,
    };
    bytes[at..at + 20].copy_from_slice(&past.encode());
    fs::write(&file, bytes).unwrap();
    let report = repaired(&root, true, None).unwrap();
    let [.., reassigned, rebuild] = &*report.changes else {
        panic!("{:?}", report.changes)
    };
    assert!(
        rebuild
            .what
            .ends_with(", without 1 message that queues name and the log does not have"),
        "{}",
        rebuild.what
    );
    assert_eq!(reassigned.what, format!("{REASSIGNED}: 1 (orders/0@{})", queue.end));
}

#[test]
fn a_damaged_entry_inside_a_queue_reassigns_no_queue_offset() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    let file = root.join("consumequeue/orders/0").join(segment_name(0));
    let mut entries = fs::read(&file).unwrap();
    // The third entry names a physical offset past the end of the log.
    entries[45] = 0xff;
    fs::write(&file, entries).unwrap();
    let into = dir.path().join("into");
    for report in [
        repaired(&root, true, None).unwrap(),
        rebuilt(&root, true).unwrap(),
        repaired(&root, true, Some(&into)).unwrap(),
    ] {
        let is_reassigned = report.changes.iter().any(|change| change.what.starts_with(REASSIGNED));
        assert!(
            report.refusal.is_none() && !report.changes.is_empty() && !is_reassigned,
            "{report:?}"
        );
    }
}

#[test]
fn repair_reports_as_lost_a_last_message_that_no_queue_names() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    copy(&golden_dir().join("533_batchcq"), &root);
    // A batch consume queue leads to both messages, and is not read.
    let (start, end) = (265, open(&root).physical_bounds().end);
    let log = root.join("commitlog/00000000000000000000");
    let mut bytes = fs::read(&log).unwrap();
    bytes[start as usize + 100] ^= 1;
    fs::write(&log, bytes).unwrap();
    for is_dry_run in [true, false] {
        let report = repaired(&root, is_dry_run, None).unwrap();
        assert_eq!(
            report.lost.as_slice(),
            std::slice::from_ref(&(start..end)),
            "dry run {is_dry_run}"
        );
    }
    assert_eq!(open(&root).physical_bounds(), 0..start);
}

#[test]
fn a_copy_inside_the_store_through_a_link_keeps_the_old_content() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    fs::write(root.join("commitlog/x"), b"foreign").unwrap();
    let expected = answers(&open(&root));
    fs::create_dir(root.join("kept")).unwrap();
    let link = dir.path().join("link");
    symlink(root.join("kept"), &link).unwrap();
    let into = link.join("repaired");
    let report = repaired(&root, false, Some(&into)).unwrap();
    assert!(report.left.is_empty());
    assert!(into.join("kept").is_dir() && !into.join("kept/repaired").exists());
    assert_eq!(answers(&open(&into)), expected);
}

#[test]
fn a_copy_of_a_store_with_a_link_that_leads_back_is_refused() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    damage(&root);
    let before = Image::of(&root);
    let into = dir.path().join("into");
    fs::create_dir(dir.path().join("beside")).unwrap();
    symlink(&root, dir.path().join("beside/back")).unwrap();
    for (name, to, loops) in [
        ("config/here", PathBuf::from("."), "config/here"),
        ("consumequeue/back", root.clone(), "consumequeue/back"),
        ("index/beside", dir.path().join("beside"), "index/beside/back"),
        ("up", PathBuf::from(".."), "up"),
        ("commitlog/log", PathBuf::from("."), "commitlog/log"),
    ] {
        symlink(to, root.join(name)).unwrap();
        let refusal = repaired(&root, false, Some(&into)).unwrap_err().to_string();
        let place = root.join(loops).display().to_string();
        assert!(
            refusal.contains(&place) && refusal.contains("a link to a directory that it lies in: remove the link"),
            "{refusal}"
        );
        assert!(!into.exists(), "{name}");
        fs::remove_file(root.join(name)).unwrap();
    }
    assert!(before.files().eq(Image::of(&root).files()));
}

#[test]
fn a_copy_has_what_a_link_to_a_directory_elsewhere_leads_to() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    damage(&root);
    fs::rename(root.join("consumequeue"), dir.path().join("queues")).unwrap();
    symlink(dir.path().join("queues"), root.join("consumequeue")).unwrap();
    let into = dir.path().join("into");
    assert!(repaired(&root, false, Some(&into)).unwrap().left.is_empty());
    assert!(fs::symlink_metadata(into.join("consumequeue")).unwrap().is_dir());
    let bounds = |root: &Path| open(root).queue_bounds("orders", 0).unwrap();
    assert_eq!(bounds(&into), bounds(&root));
}

#[test]
fn an_unfinished_copy_is_named_and_its_log_is_never_copied() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    damage(&root);
    fs::create_dir(root.join("mqstore-new-commitlog")).unwrap();
    fs::write(root.join("mqstore-new-commitlog/x"), b"foreign").unwrap();
    let into = dir.path().join("into");
    assert!(repaired(&root, false, Some(&into)).unwrap().left.is_empty());
    assert!(!into.join("commitlog/x").exists() && !into.join("mqstore-new-commitlog").exists());
    fs::rename(into.join("commitlog"), into.join("mqstore-new-commitlog")).unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    match MessageReader::open(&env, &into, StoreConfig::default()) {
        Err(Error::NotAStore { found, .. }) => assert!(found.contains("a repair has not finished"), "{found}"),
        opened => panic!("{opened:?}"),
    }
}

/// Flips a bit of the first message.
fn damage(root: &Path) {
    let segment = root.join("commitlog").join(segment_name(0));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[90] ^= 1;
    fs::write(&segment, &bytes).unwrap();
}

#[test]
fn copies_have_the_modes_of_the_originals() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    damage(&root);
    let segment = Path::new("commitlog").join(segment_name(0));
    fs::set_permissions(root.join(&segment), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("config"), fs::Permissions::from_mode(0o700)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let into = dir.path().join("into");
    assert!(repaired(&root, false, Some(&into)).unwrap().left.is_empty());
    assert_eq!((mode(&into.join(&segment)), mode(&into.join("config"))), (0o640, 0o700));
    let backup = repaired(&root, false, None).unwrap().backup.unwrap();
    assert_eq!((mode(&root.join(&segment)), mode(&backup.join(&segment))), (0o640, 0o640));
}

#[test]
fn a_repair_that_fails_before_its_first_change_leaves_no_segment_copy() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    intact(&root);
    damage(&root);
    let before = Image::of(&root);
    let counting = Arc::new(CountingEnv::default());
    let env: Arc<dyn Env> = Arc::clone(&counting) as Arc<dyn Env>;
    counting.before_changes(|change| {
        if change.starts_with("rename") {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        Ok(())
    });
    let request = RepairRequest {
        is_dry_run: false,
        into: None,
    };
    let outcome = repair(&env, &root, &StoreConfig::default(), request, |_, _| Ok(()));
    assert!(matches!(outcome, Err(Error::Io { .. })), "{outcome:?}");
    assert!(before.files().eq(Image::of(&root).files()));
}

#[test]
fn an_in_place_repair_refuses_a_log_on_another_file_system_untouched() {
    let (here, there) = (
        tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
        tempdir_in("/dev/shm").unwrap(),
    );
    let root = here.path().join("store");
    intact(&root);
    damage(&root);
    copy(&root.join("commitlog"), &there.path().join("log"));
    fs::remove_dir_all(root.join("commitlog")).unwrap();
    symlink(there.path().join("log"), root.join("commitlog")).unwrap();
    let before = Image::of(&root);
    for is_dry_run in [true, false] {
        let report = repaired(&root, is_dry_run, None).unwrap();
        let refusal = report.refusal.unwrap();
        assert!(refusal.to_string().contains("another file system"), "{refusal}");
        assert_eq!(refusal.remedy(), Some(Remedy::RepairCopy), "{refusal}");
        assert!(report.changes.is_empty() && !report.left.is_empty());
    }
    assert!(before.files().eq(Image::of(&root).files()));
    assert!(
        repaired(&root, false, Some(&here.path().join("into")))
            .unwrap()
            .left
            .is_empty()
    );
}
