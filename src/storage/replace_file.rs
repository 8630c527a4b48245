//! Directories and small files, read whole and replaced atomically: neither a crash nor a full disk leaves half of one.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use super::env::{Access, Env, Step};
use crate::error::{Error, Result};
use crate::format::UNFINISHED_PREFIX;

/// Creates a directory unless it exists, and returns true if it was missing.
///
/// # Errors
/// [`Error::DiskFull`], [`Error::Io`].
pub fn create_dir(env: &dyn Env, dir: &Path) -> Result<bool> {
    match env.create_dir(dir) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::full_or_io("create", dir, error)),
    }
}

/// Returns the first `most` bytes of the file at `path`, or all if there are fewer; `None` if there is no file.
///
/// # Errors
/// [`Error::Io`] if the file exists and cannot be read.
pub fn read_file(env: &dyn Env, path: &Path, most: usize) -> Result<Option<Vec<u8>>> {
    let file = match env.open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| Error::io("open", path, error))?,
    };
    let mut bytes = vec![0; most];
    let read = file
        .read_full_at(&mut bytes, 0)
        .map_err(|error| Error::io("read", path, error))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Removes the file at `path`, if it exists.
///
/// # Errors
/// [`Error::Io`].
pub fn remove_file(env: &dyn Env, path: &Path) -> Result<()> {
    match env.unlink(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// Replaces the contents of the file at `path`, durably and atomically: any process, also after a crash, finds the old or the new
/// file. `new_bytes` is the step that syncs the new file before it gets the name, `new_name` the step that syncs the name.
///
/// # Errors
/// [`Error::DiskFull`]: the old file remains. [`Error::Io`].
pub fn replace_file(env: &dyn Env, path: &Path, bytes: &[u8], new_bytes: Step, new_name: Step) -> Result<()> {
    put(env, path, bytes, Some((new_bytes, new_name)))
}

/// Replaces a file as [`replace_file`] does, without a sync: any process finds the old or the new file, but a power failure may leave
/// the new one empty.
///
/// # Errors
/// Those of [`replace_file`].
pub fn put_file(env: &dyn Env, path: &Path, bytes: &[u8]) -> Result<()> {
    put(env, path, bytes, None)
}

fn put(env: &dyn Env, path: &Path, bytes: &[u8], steps: Option<(Step, Step)>) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    let name = path.file_name().unwrap_or(OsStr::new(""));
    let new = dir.join(format!("{UNFINISHED_PREFIX}{}", name.display()));
    // An earlier process may have died while it created this file.
    remove_file(env, &new)?;
    let made = || {
        let file = env.create(&new)?;
        file.write_all_at(bytes, 0)?;
        if let Some((new_bytes, _)) = steps {
            file.sync(new_bytes)?;
        }
        env.rename(&new, path)?;
        match steps {
            Some((_, new_name)) => env.sync_dir(dir, new_name),
            None => Ok(()),
        }
    };
    made().map_err(|error| {
        // The unfinished file must not keep its space.
        let _ = env.unlink(&new);
        Error::full_or_io("write", path, error)
    })
}
