//! Verifying a store: each kind of damage is found by its name, and what is whole is found whole.

mod brokers;
mod concurrent_writer;
mod delay_levels;
mod every_bit;
mod golden_stores;
mod killed;
mod light_queues;
mod live_losses;
pub(crate) mod table;
pub(crate) mod writable;

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mqstore::check::{FindingId, Fix, VerifyReport, VerifyRequest, verify};
use mqstore::config::StoreConfig;
use mqstore::error::Result;
use mqstore::format::segment_name;
use mqstore::read::MessageReader;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};

use crate::counting_env::CountingEnv;
use crate::reading::open;
use crate::store_writer::StoreWriter;

pub(crate) fn verified_by(env: &Arc<dyn Env>, root: &Path, request: VerifyRequest) -> Result<VerifyReport> {
    let reader = MessageReader::open(env, root, mqstore::config::StoreConfig::default())?;
    verify(env, &reader, request, |_, _| Ok(()))
}

pub(crate) fn verified(root: &Path) -> VerifyReport {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    verified_by(&env, root, VerifyRequest::default()).unwrap()
}

/// Verified by this many threads, in sections of this many bytes.
fn verified_in(root: &Path, threads: usize, section_bytes: i64) -> VerifyReport {
    let env = CountingEnv::new();
    // Some findings contain a time.
    env.set_now(4_000_000_000_000);
    let env: Arc<dyn Env> = Arc::new(env);
    let request = VerifyRequest {
        threads,
        section_bytes,
        ..VerifyRequest::default()
    };
    verified_by(&env, root, request).unwrap()
}

pub(crate) fn names(report: &VerifyReport) -> BTreeSet<&'static str> {
    report.findings.iter().map(|finding| finding.id.facts().name).collect()
}

/// The findings in words, for the message of a failed test.
pub(crate) fn told(report: &VerifyReport) -> String {
    let tell = |finding: &mqstore::check::Finding| {
        format!(
            "{} {} {}@{}..{} x{}: {}",
            finding.severity.name(),
            finding.id.facts().name,
            finding.file.file_name().unwrap_or_default().display(),
            finding.offset,
            finding.last_offset,
            finding.count,
            finding.what
        )
    };
    report.findings.iter().map(tell).collect::<Vec<_>>().join("\n")
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path()).unwrap(), to.join(entry.file_name())).unwrap();
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Returns the remedy of a finding as docs/FINDINGS.md has it.
fn remedy(fix: Fix) -> String {
    let text = match fix {
        Fix::Rebuild => "`mqstore rebuild`",
        Fix::Salvage => "`mqstore repair --into`",
        Fix::SetAside | Fix::Correct => "`mqstore repair`",
        Fix::CopyWhole => "`mqstore copy --skip-damaged`",
        Fix::Open => "the next open for writing",
        Fix::PutBack => "put back the missing part of the log, or `mqstore repair --into`",
        Fix::After(first) => return format!("that of `{}` first", first.facts().name),
        Fix::ByHand(text) => text,
        Fix::Nothing => "none",
    };
    text.to_owned()
}

#[test]
fn the_page_of_findings_has_the_rows_of_the_table() {
    let row = |id: &FindingId| {
        let facts = id.facts();
        format!(
            "| `{}` | {} | {} | {} | {} |\n",
            facts.name,
            facts.severity.name(),
            facts.meaning,
            remedy(facts.fix),
            facts.known_as
        )
    };
    let rows: String = FindingId::ALL.iter().map(row).collect();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/FINDINGS.md")).unwrap();
    let is_row = |line: &&str| line.starts_with("| `");
    let shown: String = page.split_inclusive('\n').filter(is_row).collect();
    if shown != rows {
        let made = concat!(env!("CARGO_TARGET_TMPDIR"), "/findings.md");
        fs::write(made, rows).unwrap();
        panic!("docs/FINDINGS.md differs from the table in src/check/finding_id.rs: {made} has the right rows");
    }
}

#[test]
fn verify_changes_no_byte_and_opens_nothing_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    crate::damage::bases::append(&root, mqstore::store::OpenMode::New, 0..24);
    let image = crate::damage::image::Image::of(&root);
    // This environment refuses every write.
    let report = verified_by(&image.env(Path::new("/store")), Path::new("/store"), VerifyRequest::default()).unwrap();
    assert_eq!(told(&report), "");
    assert_eq!(report.messages, 24);
    assert_eq!(report.queue_entries, 24);
    assert_eq!(report.covered, open(&root).physical_bounds());
}

#[test]
fn each_damaged_stretch_lists_the_queue_offsets_that_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let put = |n: i32| writer.put("orders", n % 2, b"body", &[("KEYS", "k")]);
    let places: Vec<usize> = (0..30).map(put).map(|at| at as usize).collect();
    writer.finish(true);
    let segment = dir.path().join("commitlog").join(segment_name(0));
    let mut bytes = fs::read(&segment).unwrap();
    // A stretch of zeros from message 11 into message 16, and a flipped bit in the body of message 20.
    bytes[places[11]..places[16] + 50].fill(0);
    bytes[places[20] + 90] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let report = verified(dir.path());
    let damaged: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.id == FindingId::LogDamagedRecord)
        .map(|finding| {
            let (affected, lost) = (&finding.affected, finding.lost.ranges().iter());
            let lost: Vec<_> = lost.map(|lost| (&*lost.topic, lost.queue_id, lost.offsets.clone())).collect();
            let text = finding.what.rsplit_once("; ").unwrap().1;
            ((affected.queue_id, affected.queue_offset), lost, text)
        })
        .collect();
    let zeroed = vec![("orders", 0, 6..9), ("orders", 1, 5..8)];
    let expected = [
        (
            (Some(1), Some(5)),
            zeroed,
            "messages lost from queues: 6 (orders/0@6-8, orders/1@5-7)",
        ),
        (
            (Some(0), Some(10)),
            vec![("orders", 0, 10..11)],
            "messages lost from queues: 1 (orders/0@10)",
        ),
    ];
    assert_eq!(damaged, expected, "{}", told(&report));
}

#[test]
fn a_damaged_stretch_keeps_its_first_thousand_ranges_by_queue() {
    const QUEUES: i32 = 1100;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 20, 50, 100, 0);
    let mut put = |queue_id: i32| writer.put("orders", queue_id, b"body", &[]) as usize;
    put(0);
    let lost = put(0)..(1..QUEUES).map(&mut put).last().unwrap() + 50;
    // The loss of a queue shows at its next message, so the last queue is found first.
    (0..QUEUES).rev().for_each(|queue_id| _ = put(queue_id));
    writer.finish(true);
    let segment = dir.path().join("commitlog").join(segment_name(0));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[lost].fill(0);
    fs::write(&segment, bytes).unwrap();
    let report = verified(dir.path());
    let is_damage = |finding: &&mqstore::check::Finding| finding.id == FindingId::LogDamagedRecord;
    let damage = report.findings.iter().find(is_damage).unwrap();
    let queues: Vec<_> = damage.lost.ranges().iter().map(|range| range.queue_id).collect();
    assert_eq!(queues, (0..1000).collect::<Vec<_>>());
    let count = format!("messages lost from queues: {QUEUES} (orders/0@1, orders/1@0, ");
    assert!(damage.what.contains(&count), "{}", damage.what);
}

#[test]
fn a_log_of_zeros_is_few_findings() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    crate::damage::bases::append(&root, mqstore::store::OpenMode::New, 0..110);
    for entry in fs::read_dir(root.join("commitlog")).unwrap() {
        let path = entry.unwrap().path();
        fs::write(&path, vec![0; fs::metadata(&path).unwrap().len() as usize]).unwrap();
    }
    let report = verified(&root);
    assert!(!report.is_ok());
    assert!(report.findings.len() < 60, "{}", told(&report));
}

#[test]
fn a_settings_file_that_is_being_replaced_is_not_judged() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    crate::damage::bases::append(&root, OpenMode::New, 0..60);
    for name in ["mqstore-new-mqstore-trim.json", "mqstore-new-consumerOffset.json"] {
        fs::write(root.join("config").join(name), b"").unwrap();
    }
    assert_eq!(names(&verified(&root)), BTreeSet::from(["store.unfinished_file"]));
    // A live writer will finish its own.
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let live = MessageStore::open(&env, &root, StoreConfig::default(), OpenMode::Existing).unwrap();
    fs::write(root.join("config/mqstore-new-mqstore-trim.json"), b"").unwrap();
    assert_eq!(names(&verified(&root)), BTreeSet::from(["store.not_closed"]));
    live.close().unwrap();
}

#[test]
fn what_expires_while_a_store_is_verified_is_no_finding() {
    let dir = tempfile::tempdir().unwrap();
    let intact = dir.path().join("intact");
    crate::damage::bases::append(&intact, OpenMode::New, 0..60);
    let mut removed = 0;
    for (kind, look) in [
        ("commitlog", 0),
        ("index", 0),
        ("index", 1),
        ("index", 2),
        ("index", 3),
        ("index", 4),
    ] {
        let root = dir.path().join(format!("{kind}-{look}"));
        copy(&intact, &root);
        let first = |kind: &str| {
            fs::read_dir(root.join(kind))
                .unwrap()
                .map(|file| file.unwrap().path())
                .min()
                .unwrap()
        };
        // The messages of this index file are in this segment.
        let (segment, index) = (first("commitlog"), first("index"));
        let opened = format!("open {}", first(kind).display());
        // As the writer that removes them.
        let note = root.join("config/mqstore-trim.json");
        let expires = format!("{{\"log_begins_at\":{}}}", fs::metadata(&segment).unwrap().len());
        let (looks, expired) = (AtomicUsize::new(0), index.clone());
        let env = CountingEnv::new();
        env.before_looks(move |path| {
            if path == opened && looks.fetch_add(1, Ordering::Relaxed) == look {
                fs::write(&note, &expires)?;
                fs::remove_file(&segment)?;
                fs::remove_file(&index)?;
            }
            Ok(())
        });
        let env: Arc<dyn Env> = Arc::new(env);
        let report = verified_by(&env, &root, VerifyRequest::default()).unwrap();
        assert_eq!(told(&report), "", "{kind} {look}");
        removed += usize::from(!expired.exists());
    }
    assert!(removed > 2, "{removed}");
}

#[test]
fn what_has_expired_and_is_still_mapped_is_no_finding() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 16384, 5, 100, 400);
    let put = |n| writer.put("orders", 0, &[7; 1000], &[("KEYS", &format!("k{n}"))]);
    let offsets: Vec<i64> = (0..60).map(put).collect();
    writer.finish(true);
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let reader = open(dir.path());
    for offset in &offsets {
        reader.message_at(*offset).unwrap();
    }
    fs::remove_file(dir.path().join("commitlog").join(segment_name(0))).unwrap();
    let expired = offsets.iter().filter(|offset| **offset < 16384).count() as u64;
    for file in 0..expired / 5 {
        fs::remove_file(dir.path().join("consumequeue/orders/0").join(segment_name(file * 100))).unwrap();
    }
    let report = verify(&env, &reader, VerifyRequest::default(), |_, _| Ok(())).unwrap();
    assert_eq!(names(&report), BTreeSet::from(["checkpoint.missing"]), "{}", told(&report));
}

#[test]
fn a_queue_file_that_expires_while_its_store_is_verified_is_no_finding() {
    let dir = tempfile::tempdir().unwrap();
    let intact = dir.path().join("intact");
    let mut writer = StoreWriter::new(&intact, 16384, 5, 100, 400);
    let offsets: Vec<i64> = (0..60).map(|_| writer.put("orders", 0, &[7; 1000], &[])).collect();
    writer.finish(true);
    // These files have entries of the first segment alone.
    let expired = offsets.iter().filter(|offset| **offset < 16384).count() as u64 / 5;
    let mut removed = 0;
    for (file, look, is_mapped) in
        (0..expired).flat_map(|file| (0..4).flat_map(move |look| [(file, look, false), (file, look, true)]))
    {
        let root = dir.path().join(format!("{file}-{look}-{is_mapped}"));
        copy(&intact, &root);
        let reader = open(&root);
        for offset in offsets.iter().filter(|_| is_mapped) {
            reader.message_at(*offset).unwrap();
        }
        let segment = root.join("commitlog").join(segment_name(0));
        let files: Vec<_> = (0..expired)
            .map(|file| root.join("consumequeue/orders/0").join(segment_name(file * 100)))
            .collect();
        let (gone, opened) = (segment.clone(), files[file as usize].clone());
        let report = verified_while_removed(&reader, &opened, look, iter::once(segment).chain(files).collect());
        let what = format!("file {file}, look {look}, {is_mapped}: {}", told(&report));
        assert_eq!(names(&report), BTreeSet::from(["checkpoint.missing"]), "{what}");
        removed += usize::from(!gone.exists());
    }
    assert!(removed > 2, "{removed}");
}

#[test]
fn a_topic_that_is_deleted_while_its_store_is_verified_has_no_hole() {
    let dir = tempfile::tempdir().unwrap();
    let intact = dir.path().join("intact");
    let mut writer = StoreWriter::new(&intact, 16384, 5, 100, 400);
    for _ in 0..60 {
        writer.put("orders", 0, &[7; 1000], &[]);
    }
    writer.finish(false);
    // The last messages are not dispatched yet, from the middle of the eighth file on.
    let file = |root: &Path, number: u64| root.join("consumequeue/orders/0").join(segment_name(number * 100));
    for number in 8..12 {
        fs::remove_file(file(&intact, number)).unwrap();
    }
    let mut eighth = fs::read(file(&intact, 7)).unwrap();
    eighth[40..].fill(0);
    fs::write(file(&intact, 7), eighth).unwrap();
    let found = |root: &Path, look| {
        let files = (0..8).map(|number| file(root, number)).collect();
        names(&verified_while_removed(&open(root), &file(root, 7), look, files))
    };
    let undisturbed = found(&intact, usize::MAX);
    assert!(undisturbed.contains("queue.not_dispatched"), "{undisturbed:?}");
    for look in 0..4 {
        let root = dir.path().join(look.to_string());
        copy(&intact, &root);
        let found = found(&root, look);
        assert!(found.is_subset(&undisturbed), "look {look}: {found:?}");
    }
}

#[test]
fn an_index_file_that_grows_during_a_verify_of_a_crash_is_no_finding() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let mut writer = StoreWriter::new(&root, 16384, 5, 100, 400);
    for n in 0..12 {
        writer.put("orders", 0, b"", &[("KEYS", &format!("k{n}"))]);
    }
    writer.finish(false);
    let index = fs::read_dir(root.join("index")).unwrap().next().unwrap().unwrap().path();
    let grown = fs::read(&index).unwrap();
    let count = i32::from_be_bytes(grown[36..40].try_into().unwrap());
    assert!(count > 6, "{count}");
    let mut before = grown.clone();
    before[36..40].copy_from_slice(&6_i32.to_be_bytes());
    let reader = open(&root);
    let mut grew = 0;
    for look in 0..4 {
        fs::write(&index, &before).unwrap();
        let (path, grown, looks) = (index.clone(), grown.clone(), AtomicUsize::new(0));
        let opened = format!("open {}", index.display());
        let env = CountingEnv::new();
        env.before_looks(move |call| {
            if call == opened && looks.fetch_add(1, Ordering::Relaxed) == look {
                std::os::unix::fs::FileExt::write_all_at(&fs::OpenOptions::new().write(true).open(&path)?, &grown, 0)?;
            }
            Ok(())
        });
        let env: Arc<dyn Env> = Arc::new(env);
        let report = verify(&env, &reader, VerifyRequest::default(), |_, _| Ok(())).unwrap();
        let has_grown = fs::read(&index).unwrap() != before;
        grew += usize::from(has_grown);
        assert!(!has_grown || report.is_ok(), "look {look}: {}", told(&report));
    }
    assert!(grew > 1, "{grew}");
}

/// Verifies the store of a reader. These files are removed when the given file was opened the given number of times.
fn verified_while_removed(reader: &MessageReader, opened: &Path, look: usize, files: Vec<PathBuf>) -> VerifyReport {
    let (opened, looks) = (format!("open {}", opened.display()), AtomicUsize::new(0));
    let env = CountingEnv::new();
    env.before_looks(move |path| {
        if path == opened && looks.fetch_add(1, Ordering::Relaxed) == look {
            files.iter().try_for_each(fs::remove_file)?;
        }
        Ok(())
    });
    let env: Arc<dyn Env> = Arc::new(env);
    verify(&env, reader, VerifyRequest::default(), |_, _| Ok(())).unwrap()
}

#[test]
fn a_settings_file_that_grows_after_it_was_listed_is_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    crate::damage::bases::append(&root, mqstore::store::OpenMode::New, 0..24);
    let settings = root.join("config/subscriptionGroup.json");
    fs::write(&settings, "{}").unwrap();
    let env = CountingEnv::new();
    let opened = format!("open {}", settings.display());
    env.before_looks(move |look| {
        if look == opened {
            fs::write(&settings, r#"{"subscriptionGroupTable":{}}"#)?;
        }
        Ok(())
    });
    let env: Arc<dyn Env> = Arc::new(env);
    let report = verified_by(&env, &root, VerifyRequest::default()).unwrap();
    assert_eq!(told(&report), "");
}

/// Verifies a store in which hours pass after each twentieth message, or do not. Returns the bytes of the log that were read.
fn bytes_read_to_verify(hours: i64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 20, 1000, 100, 1000);
    for n in 0..400 {
        if n % 20 == 0 {
            writer.last_store_time += hours * 3_600_000;
        }
        writer.put("orders", 0, &[7; 1000], &[("KEYS", &format!("k{n}"))]);
    }
    writer.finish(true);
    let env = Arc::new(CountingEnv::new());
    let request = VerifyRequest {
        section_bytes: 32 << 10,
        ..VerifyRequest::default()
    };
    let as_env: Arc<dyn Env> = env.clone();
    let report = verified_by(&as_env, dir.path(), request).unwrap();
    assert_eq!(names(&report), BTreeSet::from(["checkpoint.missing"]), "{}", told(&report));
    env.bytes_read_below(&dir.path().join("commitlog"))
}

#[test]
fn the_log_of_a_store_with_hours_between_messages_is_verified_in_one_read() {
    let (busy, quiet) = (bytes_read_to_verify(0), bytes_read_to_verify(2));
    assert!(quiet < busy + busy / 5, "{quiet}, {busy} without the hours");
}

#[test]
fn the_thousandth_finding_of_a_kind_counts_the_rest_and_keeps_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    crate::damage::bases::append(&root, mqstore::store::OpenMode::New, 0..24);
    for number in 0..1003 {
        let bytes = format!("[{}x", " ".repeat(number));
        fs::write(root.join(format!("config/{number:04}.json")), bytes).unwrap();
    }
    let report = verified(&root);
    assert_eq!(report.findings.len(), 1000);
    let last = report.findings.last().unwrap();
    assert!(last.file.ends_with("config/0999.json"), "{}", told(&report));
    assert_eq!((last.offset, last.last_offset, last.count), (1000, 1000, 4));
}
