//! Readers and verify beside a writer that opens, appends and closes: what it changes during a look is not damage.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use mqstore::check::{FindingId, Severity, VerifyRequest, verify};
use mqstore::config::StoreConfig;
use mqstore::read::MessageReader;
use mqstore::services::Service;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use super::{copy, told};
use crate::counting_env::CountingEnv;
use crate::damage::bases::{append, message};

fn real() -> Arc<dyn Env> {
    Arc::new(RealEnv::new())
}

/// An action of another process. `None` after it has closed the store.
type Turn = (&'static str, fn(&Path) -> Option<MessageStore>);

fn appended(root: &Path, count: usize) -> MessageStore {
    let store = MessageStore::open_stepped(&real(), root, StoreConfig::default(), OpenMode::Existing).unwrap();
    for n in 100..100 + count {
        store.append(message(n)).unwrap();
    }
    // The last messages are in no queue yet, and in no index.
    for _ in 0..count / 20 {
        store.step(Service::Dispatch, Instant::now()).unwrap();
    }
    store
}

fn closed(root: &Path, count: usize) -> Option<MessageStore> {
    appended(root, count).close().unwrap();
    None
}

const TURNS: &[Turn] = &[
    ("closes", |root| closed(root, 0)),
    ("appends one and closes", |root| closed(root, 1)),
    ("rolls segment and index and closes", |root| closed(root, 40)),
    ("opens", |root| Some(appended(root, 0))),
    ("appends one", |root| Some(appended(root, 1))),
    ("rolls segment and index", |root| Some(appended(root, 40))),
    ("closes twice", |root| {
        closed(root, 3);
        closed(root, 3)
    }),
];

/// The stores that the other process finds: closed, or as a kill leaves it.
fn bases(dir: &Path) -> Vec<(&'static str, std::path::PathBuf)> {
    let [empty, whole, killed] = ["empty", "whole", "killed"].map(|name| dir.join(name));
    append(&empty, OpenMode::New, 0..0);
    append(&whole, OpenMode::New, 0..24);
    append(&killed, OpenMode::New, 0..24);
    let store = appended(&killed, 5);
    copy(&killed, &dir.join("copy"));
    store.close().unwrap();
    vec![("empty", empty), ("closed", whole), ("killed", dir.join("copy"))]
}

/// Runs `look` with each of the turns before each `step`th call with which it looks at the store.
fn at_each_look(turns: &[Turn], step: usize, look: impl Fn(&Arc<dyn Env>, &Path) -> Option<String>) -> (Vec<String>, usize) {
    let dir = tempdir().unwrap();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (base, intact) in bases(dir.path()) {
        for (turn, act) in turns.iter().copied() {
            for number in (0..).step_by(step) {
                let root = dir.path().join("store");
                copy(&intact, &root);
                let (env, looks, has_acted) = (CountingEnv::new(), AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
                let live = Arc::new(std::sync::Mutex::new(None));
                let (place, acted, held) = (root.clone(), has_acted.clone(), live.clone());
                env.before_looks(move |_| {
                    if looks.fetch_add(1, Ordering::SeqCst) == number {
                        acted.store(true, Ordering::SeqCst);
                        *held.lock().unwrap() = act(&place);
                    }
                    Ok(())
                });
                let env: Arc<dyn Env> = Arc::new(env);
                if let Some(what) = look(&env, &root) {
                    wrong.push(format!("{base} store, a writer {turn} before look {number}: {what}"));
                }
                drop(live.lock().unwrap().take());
                fs::remove_dir_all(&root).unwrap();
                if !has_acted.load(Ordering::SeqCst) {
                    break;
                }
                count += 1;
            }
        }
    }
    (wrong, count)
}

#[test]
fn reader_is_complete_whenever_a_writer_opens_or_closes() {
    let (wrong, count) = at_each_look(TURNS, 1, |env, root| {
        match MessageReader::open(env, root, StoreConfig::default()) {
            Ok(reader) => reader.recovery().missing.clone().map(|missing| missing.what),
            Err(error) => Some(error.to_string()),
        }
    });
    assert!(wrong.is_empty(), "{} of {count}\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 200, "{count}");
}

fn errors(env: &Arc<dyn Env>, reader: &MessageReader) -> Option<String> {
    match verify(env, reader, VerifyRequest::default(), |_, _| Ok(())) {
        Err(error) => Some(error.to_string()),
        Ok(report) => {
            let has_error = report.findings.iter().any(|finding| finding.severity == Severity::Error);
            has_error.then(|| told(&report))
        }
    }
}

#[test]
fn verify_reports_no_error_whenever_a_writer_opens_or_closes() {
    let (wrong, count) = at_each_look(&TURNS[1..5], 3, |env, root| {
        let reader = MessageReader::open(&real(), root, StoreConfig::default()).unwrap();
        errors(env, &reader)
    });
    assert!(wrong.is_empty(), "{} of {count}\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 100, "{count}");
}

#[test]
fn damage_that_only_the_undisturbed_pass_meets_is_reported() {
    let dir = tempdir().unwrap();
    append(dir.path(), OpenMode::New, 0..24);
    let checkpoint = fs::read(dir.path().join("checkpoint")).unwrap();
    fs::remove_file(dir.path().join("checkpoint")).unwrap();
    let reader = MessageReader::open(&real(), dir.path(), StoreConfig::default()).unwrap();
    let mut has_acted = false;
    let report = verify(&real(), &reader, VerifyRequest::default(), |done, all| {
        if done == all && !has_acted {
            has_acted = true;
            fs::write(dir.path().join("checkpoint"), &checkpoint).unwrap();
            closed(dir.path(), 1);
            fs::write(dir.path().join("commitlog/.notes.swp"), "x").unwrap();
        }
        Ok(())
    });
    let names: Vec<_> = report.unwrap().findings.iter().map(|finding| finding.id).collect();
    assert_eq!(names, [FindingId::LogForeignFile]);
}

#[test]
fn verify_of_a_reader_opened_before_a_writer_reports_no_error() {
    let dir = tempdir().unwrap();
    let mut wrong = Vec::new();
    for (base, intact) in bases(dir.path()) {
        for (turn, act) in TURNS {
            let root = dir.path().join("store");
            copy(&intact, &root);
            let before = MessageReader::open(&real(), &root, StoreConfig::default()).unwrap();
            let live = act(&root);
            for (when, reader) in [
                ("before", &before),
                ("after", &MessageReader::open(&real(), &root, StoreConfig::default()).unwrap()),
            ] {
                if let Some(what) = errors(&real(), reader) {
                    wrong.push(format!("{base} store, opened {when} a writer {turn}: {what}"));
                }
            }
            // A kill leaves the files as they are now.
            let killed = dir.path().join("killed copy");
            copy(&root, &killed);
            let reader = MessageReader::open(&real(), &killed, StoreConfig::default()).unwrap();
            if let Some(what) = errors(&real(), &reader) {
                wrong.push(format!("{base} store, killed after a writer {turn}: {what}"));
            }
            drop(live);
            fs::remove_dir_all(&killed).unwrap();
            fs::remove_dir_all(&root).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
