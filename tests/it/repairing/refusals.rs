//! Refusals of repair and rebuild: a dry run says the same as the run, and what verify advises is not refused.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use mqstore::check::{FindingId, Fix, RepairReport};
use mqstore::error::{Error, Result};
use mqstore::format::segment_name;
use mqstore::remedy::Remedy;
use mqstore::store::OpenMode;
use tempfile::tempdir;

use super::table::on_each_row;
use super::{rebuilt, repaired};
use crate::damage::bases::append;
use crate::damage::image::Image;
use crate::golden::golden_dir;
use crate::store_writer::StoreWriter;
use crate::verifying::table::MESSAGES;
use crate::verifying::{copy, verified};

/// Of a broker's store: no mark says how long its log was.
fn broker_store(dir: &Path) -> PathBuf {
    let root = dir.join("store");
    copy(&golden_dir().join("491_multifile"), &root);
    root
}

fn last_segment(root: &Path) -> PathBuf {
    let files = fs::read_dir(root.join("commitlog")).unwrap();
    files.map(|file| file.unwrap().path()).max().unwrap()
}

fn remove(root: &Path, names: &[&str]) {
    for name in names {
        let path = root.join(name);
        fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).unwrap();
    }
}

type Damage = (&'static str, fn(&Path));

/// The log has lost its end, and some of the files that name that end.
const WITHOUT_END: &[Damage] = &[
    ("the last segment", |_| ()),
    ("and the checkpoint", |root| remove(root, &["checkpoint"])),
    ("and the index", |root| remove(root, &["index"])),
    ("and both", |root| remove(root, &["checkpoint", "index"])),
    ("and the queues", |root| remove(root, &["consumequeue"])),
    ("after a crash", |root| fs::write(root.join("abort"), b"").unwrap()),
    ("and all before", |root| {
        remove(root, &["commitlog"]);
        fs::create_dir(root.join("commitlog")).unwrap();
    }),
];

#[test]
fn a_store_whose_last_segment_is_missing_is_left_for_that_to_be_put_back() {
    for (name, damage) in WITHOUT_END {
        let dir = tempdir().unwrap();
        let root = broker_store(dir.path());
        fs::remove_file(last_segment(&root)).unwrap();
        damage(&root);
        let before = Image::of(&root);
        for is_dry_run in [true, false] {
            let refused = rebuilt(&root, is_dry_run).unwrap_err().to_string();
            assert!(
                refused.contains("put back the part of the log that is missing"),
                "{name}: {refused}"
            );
            let report = repaired(&root, is_dry_run, None).unwrap();
            assert!(report.changes.is_empty() && !report.left.is_empty(), "{name}: {report:?}");
            assert_eq!(report.refusal.unwrap().to_string(), refused, "{name}");
        }
        assert!(before.files().eq(Image::of(&root).files()), "{name}");
    }
}

#[test]
fn one_queue_entry_keeps_a_store_without_a_log_from_a_repair() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    let mut writer = StoreWriter::small(&root);
    writer.put("orders", 0, b"the only message", &[]);
    writer.finish(true);
    remove(&root, &["commitlog"]);
    fs::create_dir(root.join("commitlog")).unwrap();
    // A repair that takes the lock leaves its file.
    fs::write(root.join("lock"), b"").unwrap();
    let before = Image::of(&root);
    let report = repaired(&root, false, None).unwrap();
    assert!(report.refusal.is_some() && report.changes.is_empty(), "{report:?}");
    assert!(before.files().eq(Image::of(&root).files()));
}

#[test]
fn bytes_after_a_queues_entries_are_no_sign_of_a_missing_log_part() {
    let dir = tempdir().unwrap();
    let root = broker_store(dir.path());
    let queue = root.join("consumequeue/TopicF/0");
    let last = fs::read_dir(&queue).unwrap().map(|file| file.unwrap().path()).max().unwrap();
    let mut bytes = fs::read(&last).unwrap();
    let free = bytes
        .chunks(20)
        .position(|entry| entry.iter().all(|byte| *byte == 0))
        .unwrap()
        * 20;
    for (n, byte) in bytes[free..free + 80].iter_mut().enumerate() {
        *byte = [0x35, 0x7a, 0x11, 0x5c][n % 4];
    }
    fs::write(&last, &bytes).unwrap();
    let found = verified(&root);
    assert!(!found.findings.is_empty());
    let report = repaired(&root, false, None).unwrap();
    assert!(report.refusal.is_none() && report.left.is_empty(), "{report:?}");
}

#[test]
fn a_rebuild_leaves_a_contradicted_place_to_a_repair() {
    on_each_row(|row, id, root| {
        if id != FindingId::QueuePlaceContradicted {
            return;
        }
        let before = Image::of(root);
        let error = rebuilt(root, false).unwrap_err();
        assert_eq!(error.remedy(), Some(Remedy::Repair), "{row}: {error}");
        assert!(before.files().eq(Image::of(root).files()), "{row}");
    });
}

/// Returns the changes that are made or listed, and the rest; or the reason for none.
fn told(outcome: Result<RepairReport>) -> String {
    match outcome {
        Ok(report) => {
            let left: Vec<_> = report.left.iter().map(|finding| finding.id).collect();
            format!(
                "{:?} {left:?} {:?}",
                report.changes,
                report.refusal.map(|error| error.to_string())
            )
        }
        Err(error) => error.to_string(),
    }
}

/// A dry run and the run say the same, of a repair and of a rebuild. Gives what is wrong.
fn disagreement(root: &Path) -> String {
    let mut wrong = String::new();
    let run = root.with_extension("run");
    for call in [rebuilt as fn(&Path, bool) -> _, |root, is_dry_run| {
        repaired(root, is_dry_run, None)
    }] {
        let before = Image::of(root);
        let planned = told(call(root, true));
        if !before.files().eq(Image::of(root).files()) {
            wrong += "the dry run changed something\n";
        }
        copy(root, &run);
        let done = told(call(&run, false)).replace(&*run.to_string_lossy(), &root.to_string_lossy());
        if done != planned {
            let _ = writeln!(wrong, "planned: {planned}\ndone: {done}");
        }
        fs::remove_dir_all(&run).unwrap();
    }
    wrong
}

#[test]
fn a_dry_run_says_what_the_run_does_and_refuses_what_it_refuses() {
    let mut wrong = String::new();
    on_each_row(|row, _, root| {
        let found = disagreement(root);
        if !found.is_empty() {
            let _ = writeln!(wrong, "--- {row}\n{found}");
        }
    });
    assert_eq!(wrong, "");
}

fn make_directory(path: &Path) {
    let _ = fs::remove_file(path);
    fs::create_dir(path).unwrap();
}

#[test]
fn a_dry_run_knows_a_directory_where_a_file_belongs() {
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    append(&intact, OpenMode::New, 0..MESSAGES);
    let mut wrong = String::new();
    // The last file of each directory.
    let image = Image::of(&intact);
    let files: BTreeMap<_, _> = image.files().map(|(path, _)| (path.parent(), path)).collect();
    for name in ["abort", "checkpoint", "lock", "config/mqstore.flushed"]
        .into_iter()
        .map(Path::new)
        .chain(files.into_values())
    {
        let root = dir.path().join("store");
        copy(&intact, &root);
        make_directory(&root.join(name));
        let found = disagreement(&root);
        if !found.is_empty() {
            let _ = writeln!(wrong, "--- {}\n{found}", name.display());
        }
        fs::remove_dir_all(&root).unwrap();
    }
    assert_eq!(wrong, "");
}

#[test]
fn half_a_recovery_note_is_no_finding_and_changes_no_dry_run() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    remove(&root, &["index"]);
    fs::write(root.join("config/mqstore-recovery.json"), b"{").unwrap();
    assert!(
        verified(&root)
            .findings
            .iter()
            .all(|finding| finding.id == FindingId::IndexAbsent)
    );
    assert_eq!(disagreement(&root), "");
}

#[test]
fn a_dry_run_knows_a_link_that_leads_nowhere() {
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    append(&intact, OpenMode::New, 0..MESSAGES);
    let mut wrong = String::new();
    for name in ["consumequeue", "index", "config", "checkpoint", "abort"] {
        let root = dir.path().join("store");
        copy(&intact, &root);
        let _ = fs::remove_dir_all(root.join(name)).or_else(|_| fs::remove_file(root.join(name)));
        symlink("nowhere", root.join(name)).unwrap();
        let found = disagreement(&root);
        if !found.is_empty() {
            let _ = writeln!(wrong, "--- {name}\n{found}");
        }
        fs::remove_dir_all(&root).unwrap();
    }
    assert_eq!(wrong, "");
}

#[test]
fn a_dry_run_knows_a_log_that_no_writer_takes() {
    let damages: &[Damage] = &[
        ("no segment", |root| {
            remove(root, &["commitlog", "config"]);
            fs::create_dir(root.join("commitlog")).unwrap();
        }),
        ("an empty last segment, below the mark", |root| {
            fs::write(last_segment(root), b"").unwrap();
            remove(root, &["consumequeue", "index", "checkpoint"]);
        }),
        ("one segment of odd length", |root| {
            let bytes = fs::read(root.join("commitlog").join(segment_name(0))).unwrap();
            remove(root, &["commitlog", "config"]);
            fs::create_dir(root.join("commitlog")).unwrap();
            fs::write(root.join("commitlog").join(segment_name(0)), &bytes[..4088]).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let dir = tempdir().unwrap();
        let root = dir.path().join("store");
        append(&root, OpenMode::New, 0..MESSAGES);
        damage(&root);
        assert_eq!(disagreement(&root), "", "{name}");
    }
}

/// Carries out what a finding asks for.
fn carry_out(root: &Path, fix: Fix) -> Result<()> {
    let new = root.with_extension("new");
    let done = match fix {
        Fix::Rebuild => rebuilt(root, false).map(drop),
        Fix::Salvage | Fix::PutBack => repaired(root, false, Some(&new)).and_then(expect_done),
        Fix::SetAside | Fix::Correct => repaired(root, false, None).and_then(expect_done),
        _ => Ok(()),
    };
    let _ = fs::remove_dir_all(new);
    done
}

fn expect_done(report: RepairReport) -> Result<()> {
    report.refusal.map_or(Ok(()), Err)
}

#[test]
fn no_finding_advises_what_is_refused() {
    let mut wrong = String::new();
    on_each_row(|row, _, root| {
        let mut fixes: Vec<_> = verified(root).findings.iter().map(|finding| finding.remedy).collect();
        fixes.sort_by_key(|fix| format!("{fix:?}"));
        fixes.dedup();
        for fix in fixes {
            let tried = root.with_extension("tried");
            copy(root, &tried);
            if let Err(error) = carry_out(&tried, fix) {
                let _ = writeln!(wrong, "--- {row}: {fix:?}\n{error}");
            }
            fs::remove_dir_all(&tried).unwrap();
        }
    });
    assert_eq!(wrong, "");
}

#[test]
fn where_the_last_segment_is_cut_short_every_finding_asks_for_it_first() {
    let dir = tempdir().unwrap();
    let root = broker_store(dir.path());
    let last = last_segment(&root);
    let bytes = fs::read(&last).unwrap();
    fs::write(&last, &bytes[..200]).unwrap();
    let findings = verified(&root).findings;
    assert!(findings.len() > 3);
    for finding in findings {
        let is_it = finding.id == FindingId::LogCutShort;
        let expected = if is_it {
            Fix::PutBack
        } else {
            Fix::After(FindingId::LogCutShort)
        };
        assert_eq!(finding.remedy, expected, "{}", finding.id.facts().name);
    }
    let refused = rebuilt(&root, false).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt { path, .. } if *path == last), "{refused}");
}
