//! A settings file of a broker in `config/`: read once, changed in memory, and replaced as a whole.
//!
//! The file is merged, never rewritten from scratch: fields and entries that this crate does not know stay as they were. A file that
//! cannot be read, and has no usable previous version, stays as it is. Source: docs/BROKER_RECORDS.md, "Broker settings".

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::format::{BrokerFile, CONFIG_DIR, Malformed, decode_settings};
use crate::log::{BrokerSettings, load_broker_settings};
use crate::storage::{Env, Step, replace_file};
use crate::store::MessageStore;

/// The fields of a settings file.
pub(super) type Fields = Map<String, Value>;

/// The field of this crate. Brokers ignore it, and drop it when they write the file.
pub(super) const OWN_FIELD: &str = "mqstore";

/// A settings file of a broker. Its owner locks it.
#[derive(Debug)]
pub(super) struct SettingsFile {
    env: Arc<dyn Env>,
    path: PathBuf,
    /// The fields of the file with all changes, or the reason why nothing of it can be used.
    fields: Result<Fields>,
    /// The bytes of the file at the open, until they are kept as the previous version.
    previous: Option<Vec<u8>>,
    /// See [`SettingsFile::is_doubtful`].
    is_doubtful: bool,
}

impl SettingsFile {
    /// Reads the file, or its previous version (`.bak`) as a broker does. A version whose fields do not pass `check` counts as damaged. A
    /// missing file has no fields.
    pub(super) fn load(
        env: &Arc<dyn Env>,
        root: &Path,
        file: BrokerFile,
        check: impl Fn(&Fields) -> std::result::Result<(), Malformed>,
    ) -> Self {
        let decode = |json: &[u8]| {
            let fields = decode_settings(json)?;
            check(&fields).map(|()| (fields, json.to_vec()))
        };
        let loaded = load_broker_settings(env.as_ref(), root, file, decode);
        let is_whole = |settings: &Option<BrokerSettings<_>>| settings.as_ref().is_some_and(|found| found.doubts.is_empty());
        let is_doubtful = !loaded.as_ref().is_ok_and(is_whole);
        let (fields, previous) = match loaded.map(|settings| settings.map(|settings| settings.content)) {
            Ok(Some((fields, bytes))) => (Ok(fields), Some(bytes)),
            Ok(None) => (Ok(Fields::new()), None),
            Err(damage) => (Err(damage), None),
        };
        Self {
            env: env.clone(),
            path: root.join(CONFIG_DIR).join(file.name),
            fields,
            previous,
            is_doubtful,
        }
    }

    /// Returns true if the file was missing or damaged at the open, or its fields may be out of date.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Returns the fields.
    ///
    /// # Errors
    /// The damage of the file.
    pub(super) fn fields(&self) -> Result<&Fields> {
        self.fields.as_ref().map_err(Error::clone)
    }

    /// Returns the table of this name, for a change. It is added if it is missing.
    ///
    /// # Errors
    /// The damage of the file; [`Error::Corrupt`] if the field is not a table.
    pub(super) fn table(&mut self, name: &str) -> Result<&mut Fields> {
        let path = &self.path;
        let fields = self.fields.as_mut().map_err(|damage| damage.clone())?;
        let table = fields.entry(name).or_insert_with(|| Value::Object(Fields::new()));
        table
            .as_object_mut()
            .ok_or_else(|| Error::corrupt(path, 0, format!("{name} is not an object")))
    }

    /// Removes a field.
    ///
    /// # Errors
    /// The damage of the file.
    pub(super) fn remove(&mut self, name: &str) -> Result<()> {
        self.fields.as_mut().map_err(|damage| damage.clone())?.remove(name);
        Ok(())
    }

    /// Returns the error of a field that is malformed.
    pub(super) fn damage(&self, malformed: &Malformed) -> Error {
        Error::corrupt(&self.path, malformed.at as u64, malformed.reason.to_string())
    }

    /// Counts a change in the version of the file (`dataVersion`), and replaces the file durably.
    ///
    /// # Errors
    /// As [`SettingsFile::persist`].
    pub(super) fn persist_change(&mut self) -> Result<()> {
        let now = self.env.now_ms();
        let version = self.table("dataVersion")?;
        let counter = version.get("counter").and_then(Value::as_i64).unwrap_or(0);
        version.insert("counter".to_owned(), Value::from(counter.saturating_add(1)));
        version.insert("timestamp".to_owned(), Value::from(now));
        version.entry("stateVersion").or_insert(Value::from(0));
        self.persist()
    }

    /// Makes the log of `store` durable up to its end, and then replaces the file, durably. The caller has put a snapshot of progress
    /// into the fields: what settles the messages before it is in the log by now, so that the file never passes a record that a power
    /// failure can take.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; as [`SettingsFile::persist`].
    pub(super) fn persist_after_log(&mut self, store: &MessageStore) -> Result<()> {
        store.flush()?;
        self.persist()
    }

    /// Replaces the file durably. The version that this open found is kept as the previous one first, once.
    ///
    /// # Errors
    /// The damage of the file: it stays as it is. [`Error::DiskFull`], [`Error::Io`]: the old file remains.
    pub(super) fn persist(&mut self) -> Result<()> {
        let text = text_of(self.fields()?);
        if let Some(previous) = &self.previous {
            self.replace(&self.previous_path(), previous)?;
            self.previous = None;
        }
        self.replace(&self.path, text.as_bytes())
    }

    /// Replaces the file and its previous version durably, before the log is cut: neither says more than the log then has.
    ///
    /// # Errors
    /// Those of [`persist`](Self::persist).
    pub(super) fn persist_cut(&mut self) -> Result<()> {
        let text = text_of(self.fields()?);
        for path in [self.previous_path(), self.path.clone()] {
            self.replace(&path, text.as_bytes())?;
        }
        self.previous = None;
        Ok(())
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        replace_file(self.env.as_ref(), path, bytes, Step::SettingsFile, Step::SettingsRenamed)
    }

    fn previous_path(&self) -> PathBuf {
        let mut path = OsString::from(&self.path);
        path.push(".bak");
        PathBuf::from(path)
    }
}

fn text_of(fields: &Fields) -> String {
    format!("{:#}\n", Value::Object(fields.clone()))
}
