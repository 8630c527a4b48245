//! The mark of cuts: what a slave knows of the records that settle its progress. A field of `config/consumerOffset.json` that brokers
//! ignore, and drop when they write the file.

use std::collections::BTreeSet;

use serde_json::Value;

use super::settings_file::{OWN_FIELD, SettingsFile};
use crate::error::Result;

const SETTLED_END: &str = "settledEnd";
const OF_CUT_LOG: &str = "ofCutLog";

/// The progress of groups as far as a cut of the log concerns it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CutMark {
    /// A physical offset: every record that settles a message before the progress lies before it. `None` if it is not known, and for a
    /// writer, whose progress is settled by what it appends.
    pub(super) settled_end: Option<i64>,
    /// The progress that may pass a message which only a record has settled that a cut has removed: topic and group as the file names them.
    pub(super) of_cut_log: BTreeSet<String>,
}

impl CutMark {
    /// Reads the mark. A file without it, or that is damaged, says nothing.
    pub(super) fn of(file: &SettingsFile) -> Self {
        let Some(own) = file.fields().ok().and_then(|fields| fields.get(OWN_FIELD)) else {
            return Self::default();
        };
        let names = own.get(OF_CUT_LOG).and_then(Value::as_array).into_iter().flatten();
        Self {
            settled_end: own.get(SETTLED_END).and_then(Value::as_i64),
            of_cut_log: names.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        }
    }

    /// Replaces the mark in the fields of the file.
    ///
    /// # Errors
    /// The damage of the file.
    pub(super) fn write(self, file: &mut SettingsFile) -> Result<()> {
        if self == Self::of(file) {
            return Ok(());
        }
        let own = file.table(OWN_FIELD)?;
        own.remove(SETTLED_END);
        own.remove(OF_CUT_LOG);
        if let Some(end) = self.settled_end {
            own.insert(SETTLED_END.to_owned(), end.into());
        }
        if !self.of_cut_log.is_empty() {
            own.insert(OF_CUT_LOG.to_owned(), self.of_cut_log.into_iter().map(Value::from).collect());
        }
        Ok(())
    }
}
