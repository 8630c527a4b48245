//! The damaged stores of verify's table, one for each finding, repaired.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use mqstore::check::{FindingId, Fix, REFUSED};
use mqstore::store::OpenMode;
use tempfile::tempdir;

use super::{rebuilt, repaired};
use crate::damage::bases::append;
use crate::damage::image::Image;
use crate::verifying::table::{MESSAGES, ROWS, Store};
use crate::verifying::{copy, names, told, verified};

/// Carries the damage of each row out on a copy of a store, and passes it on with the name of the row.
pub(crate) fn on_each_row(mut then: impl FnMut(&str, FindingId, &Path)) {
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    append(&intact, OpenMode::New, 0..MESSAGES);
    for (number, (id, _, damage)) in ROWS.iter().enumerate() {
        let root = dir.path().join(number.to_string());
        copy(&intact, &root);
        damage(&Store(&root));
        then(&format!("row {number}, {}", id.facts().name), *id, &root);
    }
}

#[test]
fn a_rebuild_fixes_every_damage_of_queues_index_and_checkpoint() {
    let mut wrong = String::new();
    on_each_row(|row, id, root| {
        if id.facts().fix != Fix::Rebuild {
            return;
        }
        let outcome = rebuilt(root, false);
        let report = verified(root);
        // The entry of a message that the log does not have stays, and says so.
        let is_fixed = |id: FindingId| id == FindingId::QueueMessageLost;
        if outcome.is_err() || !report.findings.iter().all(|finding| is_fixed(finding.id)) {
            let _ = write!(wrong, "--- {row}: {outcome:?}\n{}\n", told(&report));
        }
    });
    assert_eq!(wrong, "");
}

#[test]
fn a_rebuild_refuses_a_damaged_or_shortened_log_and_changes_nothing() {
    let mut wrong = String::new();
    on_each_row(|row, id, root| {
        let is_refused = id.facts().fix == Fix::Salvage || REFUSED.contains(&id);
        if !is_refused {
            return;
        }
        let before = Image::of(root);
        let outcome = rebuilt(root, false);
        let same = before.files().eq(Image::of(root).files());
        if outcome.is_ok() || !same {
            let _ = writeln!(wrong, "--- {row}: {outcome:?}, the same: {same}");
        }
    });
    assert_eq!(wrong, "");
}

#[test]
fn a_repair_leaves_only_the_errors_it_names_and_a_dry_run_changes_nothing() {
    let mut wrong = String::new();
    on_each_row(|row, id, root| {
        let before = Image::of(root);
        let planned = repaired(root, true, None).unwrap();
        if !before.files().eq(Image::of(root).files()) {
            let _ = writeln!(wrong, "--- {row}: the dry run changed it");
        }
        let report = repaired(root, false, None).unwrap_or_else(|error| panic!("{row}: {error}"));
        let is_mended = matches!(
            id.facts().fix,
            Fix::Rebuild | Fix::Salvage | Fix::Correct | Fix::SetAside | Fix::Open
        );
        let left: Vec<_> = report.left.iter().map(|finding| finding.id).collect();
        let told_left: Vec<_> = planned.left.iter().map(|finding| finding.id).collect();
        if left != told_left || planned.changes != report.changes || (is_mended && !left.is_empty()) {
            let _ = write!(
                wrong,
                "--- {row}: planned {planned:?}\nleft {left:?}\n{}\n",
                told(&verified(root))
            );
        }
    });
    assert_eq!(wrong, "");
}

#[test]
fn what_is_set_aside_is_in_the_backup_unchanged() {
    on_each_row(|row, id, root| {
        if !matches!(id.facts().fix, Fix::SetAside | Fix::Salvage | Fix::Correct) {
            return;
        }
        let before = Image::of(root);
        let report = repaired(root, false, None).unwrap();
        let Some(backup) = report.backup else {
            assert_eq!(id, FindingId::LogEndsEarly, "{row}");
            return;
        };
        let kept = Image::of(&backup);
        // Row 2 sets an empty directory aside.
        assert!(kept.files().count() > 0 || id == FindingId::StoreWrongType, "{row}");
        for (path, bytes) in kept.files() {
            assert_eq!(before.file(path), Some(bytes), "{row}: {}", path.display());
        }
        assert!(fs::metadata(&backup).unwrap().is_dir());
        assert!(!names(&verified(root)).contains(id.facts().name), "{row}");
    });
}

/// tests/interop runs it: RocketMQ opens the stores that it puts into the directory `REPAIRED_STORES`.
#[test]
#[ignore = "a child of tests/interop"]
fn puts_each_store_that_a_repair_has_changed_into_a_directory() {
    let Some(into) = env::var_os("REPAIRED_STORES") else { return };
    on_each_row(|row, _, root| {
        let report = repaired(root, false, None).unwrap();
        if !report.changes.is_empty() && report.left.is_empty() {
            copy(root, &Path::new(&into).join(row));
        }
    });
}
