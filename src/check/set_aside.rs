//! Files that are copied or moved before a repair changes a store.

use std::io;
use std::path::{Path, PathBuf};

use crate::check::contradictions::Correction;
use crate::check::missing_log::MissingLog;
use crate::error::{Error, Result};
use crate::format::{BACKUP_PREFIX, COMMIT_LOG_DIR, UNFINISHED_PREFIX};
use crate::interrupt;
use crate::storage::{Access, EntryKind, Env, File, Step, create_dir, remove_file};

/// Bytes that are copied at once.
const AT_ONCE: u64 = 1 << 20;

/// Copies the segments `copied` and moves `moved`, all of them files of the store at `root`, into a new directory there, durably.
/// Returns that directory. New files with the corrections replace the segments, so that those may be changed: readers keep the
/// old ones. Files are moved last, because the entries of a queue file may be what proves a correction.
///
/// # Errors
/// [`Error::DiskFull`], [`Error::Io`]: each segment is as it was, or corrected, with a copy in the backup. Some files may be moved.
pub(super) fn set_aside(
    env: &dyn Env,
    root: &Path,
    copied: &[PathBuf],
    moved: &[PathBuf],
    corrections: &[Correction],
) -> Result<PathBuf> {
    // Before anything is written: an error that is reported to another process first is then reported here, too.
    let file_system = env.file_system(root).map_err(|error| Error::io("open", root, error))?;
    let sync = || {
        file_system
            .sync(Step::SetAside)
            .map_err(|error| Error::io("sync", root, error))
    };
    let numbered = |ms: i64| root.join(format!("{BACKUP_PREFIX}{ms}"));
    let mut ms = env.now_ms();
    while !create_dir(env, &numbered(ms))? {
        ms += 1;
    }
    let backup = numbered(ms);
    if !copied.is_empty() {
        // Copies of segments that were not replaced must not keep their space.
        if let Err(error) = copy(env, root, &backup, copied, corrections).and_then(|()| sync()) {
            for file in copied {
                let _ = env.unlink(&path_of_new(root, file));
                let _ = env.unlink(&in_backup(root, &backup, file));
            }
            return Err(error);
        }
        if let Err(error) = replace(env, root, copied) {
            for file in copied {
                // A segment whose new file is gone was replaced: the backup has its only copy.
                if env.unlink(&path_of_new(root, file)).is_ok() {
                    let _ = env.unlink(&in_backup(root, &backup, file));
                }
            }
            return Err(error);
        }
    }
    for file in moved {
        let to = path_for(env, root, &backup, file)?;
        env.rename(file, &to)
            .map_err(|error| Error::full_or_io("move", file, error))?;
    }
    if !moved.is_empty() {
        sync()?;
    }
    Ok(backup)
}

/// Copies segments into the backup, and makes the new files that replace them.
fn copy(env: &dyn Env, root: &Path, backup: &Path, copied: &[PathBuf], corrections: &[Correction]) -> Result<()> {
    for file in copied {
        copy_file(env, file, &path_for(env, root, backup, file)?)?;
        let new = path_of_new(root, file);
        // An earlier repair may have died while it made this file.
        remove_file(env, &new)?;
        copy_file(env, file, &new)?;
        correct(env, file, &new, corrections)?;
    }
    Ok(())
}

/// Writes the corrections of a segment into its copy.
fn correct(env: &dyn Env, segment: &Path, copy: &Path, corrections: &[Correction]) -> Result<()> {
    let of_segment: Vec<_> = corrections.iter().filter(|correction| correction.file == segment).collect();
    if of_segment.is_empty() {
        return Ok(());
    }
    let file = env
        .open(copy, Access::ReadWrite)
        .map_err(|error| Error::io("open", copy, error))?;
    for (at, bytes) in of_segment.into_iter().flat_map(|correction| &correction.changes) {
        file.write_all_at(bytes, *at)
            .map_err(|error| Error::full_or_io("write", copy, error))?;
    }
    Ok(())
}

/// Renames the new files over the segments.
fn replace(env: &dyn Env, root: &Path, segments: &[PathBuf]) -> Result<()> {
    for file in segments {
        env.rename(&path_of_new(root, file), file)
            .and_then(|()| env.sync_dir(file.parent().unwrap_or(root), Step::SetAside))
            .map_err(|error| Error::io("replace", file, error))?;
    }
    Ok(())
}

/// Returns the path where the new file of a segment is made: a broker does not start if a foreign file is among the segments.
fn path_of_new(root: &Path, segment: &Path) -> PathBuf {
    let name = segment.file_name().unwrap_or_default();
    root.join(format!("{UNFINISHED_PREFIX}{}", name.display()))
}

/// Copies the files of the store at `root`, without those of `left_out` and earlier backups, into the directory `into`, with the
/// corrections and the missing segments, durably. The log has another name until all is on the disk: so nothing there is taken for a
/// store before.
///
/// # Errors
/// [`Error::Exists`] for a directory that is not empty; [`Error::DiskFull`], [`Error::Io`].
pub(super) fn copy_store(
    env: &dyn Env,
    root: &Path,
    into: &Path,
    left_out: &[PathBuf],
    corrections: &[Correction],
    missing: &MissingLog,
) -> Result<()> {
    // Before there is a copy: it may lie in the store.
    let copied = entries_to_copy(env, root, left_out)?;
    create_dir(env, into)?;
    expect_empty(env, into)?;
    let file_system = env.file_system(into).map_err(|error| Error::io("open", into, error))?;
    let log = into.join(format!("{UNFINISHED_PREFIX}{COMMIT_LOG_DIR}"));
    create_dir(env, &log)?;
    env.sync_dir(into, Step::SetAside)
        .map_err(|error| Error::io("sync", into, error))?;
    for (path, kind) in copied {
        let made = match path.strip_prefix(COMMIT_LOG_DIR) {
            Ok(of_log) => log.join(of_log),
            Err(_) => into.join(&path),
        };
        if kind == EntryKind::Directory {
            create_dir(env, &made)?;
            env.copy_mode_and_owner(&root.join(&path), &made)
                .map_err(|error| Error::io("set the mode and owner of", made, error))?;
        } else {
            copy_file(env, &root.join(&path), &made)?;
            correct(env, &root.join(&path), &made, corrections)?;
        }
    }
    missing.fill(env, &log)?;
    file_system
        .sync(Step::SetAside)
        .map_err(|error| Error::io("sync", into, error))?;
    env.rename(&log, &into.join(COMMIT_LOG_DIR))
        .and_then(|()| env.sync_dir(into, Step::SetAside))
        .map_err(|error| Error::io("rename", log, error))
}

/// Refuses a directory for a copy that has anything in it. A missing one is made later.
///
/// # Errors
/// [`Error::Exists`], [`Error::Io`].
pub(super) fn expect_empty(env: &dyn Env, into: &Path) -> Result<()> {
    match env.list(into) {
        Ok(entries) if entries.is_empty() => Ok(()),
        Ok(_) => Err(Error::Exists { path: into.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("list", into, error)),
    }
}

/// Returns files and directories below `root` in the order in which they are copied. Links are followed.
///
/// # Errors
/// [`Error::Invalid`] for a link to a directory that it lies in; [`Error::Io`].
fn entries_to_copy(env: &dyn Env, root: &Path, left_out: &[PathBuf]) -> Result<Vec<(PathBuf, EntryKind)>> {
    let mut dirs = vec![PathBuf::new()];
    let (mut copied, mut last) = (Vec::new(), Vec::new());
    while let Some(dir) = dirs.pop() {
        for (name, kind) in list(env, &root.join(&dir))? {
            let path = dir.join(&name);
            let is_ours = |prefix: &str| name.to_string_lossy().starts_with(prefix);
            if kind == EntryKind::Directory {
                expect_no_loop(env, root, &path)?;
            }
            match kind {
                _ if left_out.contains(&root.join(&path)) => {}
                EntryKind::Directory if is_ours(BACKUP_PREFIX) => {}
                EntryKind::Directory if dir.as_os_str().is_empty() && is_ours(UNFINISHED_PREFIX) => {}
                EntryKind::Directory if dir.as_os_str().is_empty() && name == COMMIT_LOG_DIR => last.push(path),
                EntryKind::Directory => dirs.push(path),
                EntryKind::File if is_ours(UNFINISHED_PREFIX) => {}
                EntryKind::File => copied.push((path, kind)),
                EntryKind::Other => {}
            }
        }
        if dirs.is_empty() {
            dirs.append(&mut last);
        }
        if let Some(next) = dirs.last() {
            copied.push((next.clone(), EntryKind::Directory));
        }
    }
    Ok(copied)
}

/// Refuses a directory below `root` that is, or holds, one of those above it in the path: links lead back, and a copy would have no end.
///
/// # Errors
/// [`Error::Invalid`], [`Error::Io`].
fn expect_no_loop(env: &dyn Env, root: &Path, path: &Path) -> Result<()> {
    let canonical = |path: &Path| {
        let dir = root.join(path);
        env.canonical(&dir).map_err(|error| Error::io("resolve", dir, error))
    };
    let found = canonical(path)?;
    for above in path.ancestors().skip(1) {
        if canonical(above)?.starts_with(&found) {
            let dir = root.join(path);
            return Err(Error::Invalid {
                what: format!(
                    "{} is a link to a directory that it lies in: remove the link, then repair again",
                    dir.display()
                ),
            });
        }
    }
    Ok(())
}

fn list(env: &dyn Env, dir: &Path) -> Result<Vec<(std::ffi::OsString, EntryKind)>> {
    let entries = env.list(dir).map_err(|error| Error::io("list", dir, error))?;
    Ok(entries.into_iter().map(|entry| (entry.name, entry.kind)).collect())
}

/// Returns the path of a file in the backup, in directories of the same names, which are made.
fn path_for(env: &dyn Env, root: &Path, backup: &Path, file: &Path) -> Result<PathBuf> {
    let to = in_backup(root, backup, file);
    let mut dir = backup.to_owned();
    for part in to.strip_prefix(backup).ok().and_then(Path::parent).into_iter().flatten() {
        dir.push(part);
        create_dir(env, &dir)?;
    }
    Ok(to)
}

fn in_backup(root: &Path, backup: &Path, file: &Path) -> PathBuf {
    backup.join(file.strip_prefix(root).unwrap_or(file))
}

/// Copies a file with its mode and owner; the copy has no name yet. Blocks that were never written stay unwritten, but for those of a
/// segment, which is never sparse.
fn copy_file(env: &dyn Env, from: &Path, to: &Path) -> Result<()> {
    let source = env.open(from, Access::Read).map_err(|error| Error::io("open", from, error))?;
    let is_segment = from
        .parent()
        .and_then(Path::file_name)
        .is_some_and(|dir| dir == COMMIT_LOG_DIR);
    let copied = env
        .create(to)
        .and_then(|target| copy_bytes(source.as_ref(), target.as_ref(), is_segment))
        .and_then(|()| env.copy_mode_and_owner(from, to));
    interrupt::check()?;
    copied.map_err(|error| Error::full_or_io("copy", to, error))
}

fn copy_bytes(source: &dyn File, target: &dyn File, is_segment: bool) -> io::Result<()> {
    let len = source.len()?;
    if is_segment && len > 0 {
        target.allocate(len)?;
    }
    for part in source.written(0..len)? {
        let mut at = part.start;
        while at < part.end {
            let mut bytes = vec![0; AT_ONCE.min(part.end - at) as usize];
            let read = source.read_full_at(&mut bytes, at)?;
            bytes.truncate(read);
            if bytes.is_empty() {
                break;
            }
            target.write_all_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
    }
    if target.len()? < len {
        target.write_all_at(&[0], len - 1)?;
    }
    Ok(())
}
