//! RocksDB databases of a broker, which are recognised by their files and never opened.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{ROCKSDB_CURRENT_FILE, RocksdbFamily, rocksdb_family};
use crate::storage::{Access, DirEntry, EntryKind, Env};

/// The length of the end of a table file that contains its properties: RocksDB writes less than 2 KiB of them.
const PROPERTIES: u64 = 16 << 10;

/// Returns true for the entries of a database's directory. It has a file `CURRENT`; a directory of that name belongs to a topic.
pub(super) fn is_database(entries: &[DirEntry]) -> bool {
    let mut files = entries.iter().filter(|entry| entry.kind == EntryKind::File);
    files.any(|file| file.name == ROCKSDB_CURRENT_FILE)
}

/// Returns the entries of the directory of a database; `None` if there is no database.
pub(super) fn database_at(env: &dyn Env, dir: &Path) -> Result<Option<Vec<DirEntry>>> {
    match env.list(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        listed => {
            let entries = listed.map_err(|error| Error::io("list", dir, error))?;
            Ok(is_database(&entries).then_some(entries))
        }
    }
}

/// Returns the column families with records in the database at `dir`. A non-empty write-ahead log may belong to any of them.
pub(super) fn families(env: &dyn Env, dir: &Path) -> Result<BTreeSet<RocksdbFamily>> {
    let mut found = BTreeSet::new();
    for entry in database_at(env, dir)?.unwrap_or_default() {
        match Path::new(&entry.name).extension().and_then(|ending| ending.to_str()) {
            Some("log") if entry.len > 0 => found.extend(RocksdbFamily::ALL),
            Some("sst") => match family_of(env, &dir.join(&entry.name))? {
                Some(family) => found.extend([family]),
                None => found.extend(RocksdbFamily::ALL),
            },
            _ => {}
        }
    }
    Ok(found)
}

/// Returns the column family of a table file; `None` if its properties do not show it, or if a broker has removed it.
fn family_of(env: &dyn Env, path: &Path) -> Result<Option<RocksdbFamily>> {
    match end_of_file(env, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => Ok(rocksdb_family(&read.map_err(|error| Error::io("read", path, error))?)),
    }
}

/// Returns the end of a file, which contains its properties.
fn end_of_file(env: &dyn Env, path: &Path) -> io::Result<Vec<u8>> {
    let file = env.open(path, Access::Read)?;
    let len = file.len()?;
    let from = len.saturating_sub(PROPERTIES);
    let mut bytes = vec![0; (len - from) as usize];
    let read = file.read_full_at(&mut bytes, from)?;
    bytes.truncate(read);
    Ok(bytes)
}
