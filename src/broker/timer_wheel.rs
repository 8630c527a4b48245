//! The timer wheel of a broker: its index of the timer messages that wait, in files of its own.
//!
//! A broker that starts reads the wheel, and the queue after the last message that is on it. So it would deliver again what this crate
//! has delivered or handed over since. Without the wheel it reads the queue from the offset in `timercheck`.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{CONFIG_DIR, TIMER_LOG_DIR, TIMER_WHEEL_FILE};
use crate::storage::{Env, Step, remove_file};

/// Removes the wheel, its log and its snapshots, durably. Call it once `timercheck` has the progress that replaces them.
///
/// # Errors
/// [`Error::Io`]; a later call removes the rest.
pub(super) fn remove_timer_wheel(env: &dyn Env, root: &Path) -> Result<()> {
    let snapshot = format!("{TIMER_WHEEL_FILE}.");
    for (dir, is_of_wheel) in [
        (root.join(TIMER_LOG_DIR), &(|_: &str| true) as &dyn Fn(&str) -> bool),
        (root.join(CONFIG_DIR), &|name| name.starts_with(&snapshot)),
        (root.to_owned(), &|name| {
            name == TIMER_WHEEL_FILE || name.starts_with(&snapshot)
        }),
    ] {
        let found = files_of(env, &dir, is_of_wheel)?;
        for path in &found {
            remove_file(env, path)?;
        }
        if !found.is_empty() {
            env.sync_dir(&dir, Step::TimerWheelRemoved)
                .map_err(|error| Error::io("sync", &dir, error))?;
        }
    }
    Ok(())
}

/// Returns the files of a directory whose names `is_of_wheel` accepts; no files if the directory is missing.
fn files_of(env: &dyn Env, dir: &Path, is_of_wheel: &dyn Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let entries = match env.list(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(Vec::new()),
        listed => listed.map_err(|error| Error::io("list", dir, error))?,
    };
    let named = entries.iter().filter(|entry| entry.name.to_str().is_some_and(is_of_wheel));
    Ok(named.map(|entry| dir.join(&entry.name)).collect())
}
