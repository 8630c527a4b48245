//! The settings files that a broker writes in `config`, read as a broker reads them.
//!
//! A broker of 4.9.x removes such a file for a moment while it replaces it, and one of 5.x writes it in place. Both keep the
//! previous version under the same name with `.bak`, and read that if the file is missing, empty or not JSON.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{BrokerFile, CONFIG_DIR, Malformed};
use crate::log::rocksdb::database_at;
use crate::storage::{Access, Env};

/// A limit above the size of any such file.
const MAX_LEN: u64 = 1 << 30;

/// The contents of a settings file.
#[derive(Debug, Default)]
pub struct BrokerSettings<T> {
    /// The decoded contents.
    pub content: T,
    /// The reasons why they may be out of date, in words.
    pub doubts: Vec<String>,
}

/// Reads a settings file of the store at `root`, or its previous version if the file cannot be used. `None` if neither exists.
///
/// # Errors
/// [`Error::Corrupt`] if neither can be used, [`Error::Unsupported`] if there is only a `RocksDB` database, [`Error::Io`].
pub fn load_broker_settings<T>(
    env: &dyn Env,
    root: &Path,
    file: BrokerFile,
    decode: impl Fn(&[u8]) -> Result<T, Malformed>,
) -> Result<Option<BrokerSettings<T>>> {
    let path = root.join(CONFIG_DIR).join(file.name);
    let database = database_of(env, root, file)?;
    let Some(mut found) = load_json(env, &path, decode)? else {
        return match database {
            None => Ok(None),
            Some(dir) => Err(Error::Unsupported {
                remedy: None,
                what: format!(
                    "the broker keeps the contents of {} here, in a RocksDB database: let the broker export it to that file \
                     (mqadmin rocksDBConfigToJson)",
                    file.name
                ),
                path: dir,
            }),
        };
    };
    if let Some(dir) = database {
        found.doubts.push(format!(
            "{} exists as well, a RocksDB database of the same settings: a broker that uses it does not write {}",
            dir.display(),
            file.name
        ));
    }
    Ok(Some(found))
}

fn load_json<T>(env: &dyn Env, path: &Path, decode: impl Fn(&[u8]) -> Result<T, Malformed>) -> Result<Option<BrokerSettings<T>>> {
    let first = load_one(env, path, &decode)?;
    if let Some(Ok(content)) = first {
        let doubts = Vec::new();
        return Ok(Some(BrokerSettings { content, doubts }));
    }
    let mut backup = path.to_owned().into_os_string();
    backup.push(".bak");
    let backup = PathBuf::from(backup);
    match (first, load_one(env, &backup, &decode)?) {
        (Some(Err(damage)), Some(Err(also))) => Err(damage.adding(&format!("the previous version is damaged, too: {also}"))),
        (Some(Err(damage)), None) => Err(damage.adding("copy the file again; there is no previous version (.bak)")),
        (first, Some(content)) => {
            let why = match first {
                Some(Err(damage)) => damage.to_string(),
                _ => format!("{} is missing", path.display()),
            };
            Ok(Some(BrokerSettings {
                content: content?,
                doubts: vec![format!("{why}; {} is older", backup.display())],
            }))
        }
        (_, None) => Ok(None),
    }
}

/// Reads one file: `None` if it is missing, an inner error if it cannot be used.
fn load_one<T>(env: &dyn Env, path: &Path, decode: impl Fn(&[u8]) -> Result<T, Malformed>) -> Result<Option<Result<T>>> {
    let Some(bytes) = read_whole(env, path)? else {
        return Ok(None);
    };
    let decoded = if bytes.iter().all(|byte| *byte == 0) {
        Err((0, "the file is empty".to_owned()))
    } else {
        decode(&bytes).map_err(|malformed| (malformed.at as u64, malformed.reason.into_owned()))
    };
    Ok(Some(decoded.map_err(|(offset, reason)| Error::corrupt(path, offset, reason))))
}

fn read_whole(env: &dyn Env, path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match env.open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| Error::io("open", path, error))?,
    };
    let len = file.len().map_err(|error| Error::io("measure", path, error))?;
    if len > MAX_LEN {
        let reason = format!("the file has {len} bytes: no broker has that many settings");
        return Err(Error::corrupt(path, MAX_LEN, reason));
    }
    let mut bytes = vec![0; len as usize];
    let read = file
        .read_full_at(&mut bytes, 0)
        .map_err(|error| Error::io("read", path, error))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Returns the database in which a broker may keep the contents of the file, if there is one.
pub(super) fn database_of(env: &dyn Env, root: &Path, file: BrokerFile) -> Result<Option<PathBuf>> {
    for name in file.rocksdb_dirs {
        let dir = root.join(CONFIG_DIR).join(name);
        if database_at(env, &dir)?.is_some() {
            return Ok(Some(dir));
        }
    }
    Ok(None)
}
