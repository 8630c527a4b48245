//! Groups whose progress is lost: `config/subscriptionGroup.json` names them, and `config/consumerOffset.json` is missing or may be out of
//! date. Nobody knows which messages they have not consumed.
//!
//! A writer soon makes a new file of progress, in which they are missing, too. So it notes their names there, in a field of its own, which
//! brokers drop. A group counts until it has progress again, or is deleted.

use std::collections::BTreeSet;

use super::settings_file::{Fields, OWN_FIELD, SettingsFile};
use crate::error::{Error, Result};
use crate::format::{CONFIG_DIR, CONSUMER_OFFSET_FILE, SUBSCRIPTION_GROUP_FILE, decode_settings};
use crate::log::load_broker_settings;
use crate::read::{GroupOffset, MessageReader};

const LOST: &str = "progressLost";
/// The groups that every broker has in its settings, and the beginning of the names of others. Most of them never consume.
const OF_BROKERS: [&str; 7] = [
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_",
    "CID_RMQ_SYS_",
    "CID_DefaultHeartBeatSyncerTopic",
];

/// Refuses to remove messages of a store that has groups whose progress is lost. `live`: the progress of a writer, which the files may not
/// have yet.
///
/// # Errors
/// [`Error::Corrupt`] names a group; the damage of a settings file.
pub(super) fn expect_progress(reader: &MessageReader, live: &[GroupOffset]) -> Result<()> {
    let lost = groups_without_progress(reader, live)?;
    let Some(first) = lost.first() else {
        return Ok(());
    };
    let others = match lost.len() - 1 {
        0 => String::new(),
        others => format!(", and of {others} more"),
    };
    let reason = format!(
        "the progress of group {first:?}{others} is lost: {} names it, and nothing says which messages it has not consumed, so all are kept; \
         copy the file again, or delete the group",
        SUBSCRIPTION_GROUP_FILE.name
    );
    let path = reader.path().join(CONFIG_DIR).join(CONSUMER_OFFSET_FILE.name);
    Err(Error::corrupt(&path, 0, reason))
}

/// Notes the groups whose progress is lost in the fields of the file of progress, for the next write of it. A file that is there and not in
/// doubt keeps the names that it has. Damage of a settings file is reported by whoever needs the file.
pub(super) fn note_lost_progress(reader: &MessageReader, file: &mut SettingsFile) {
    if file.is_doubtful()
        && let Ok(lost) = groups_without_progress(reader, &[])
        && !lost.is_empty()
        && let Ok(own) = file.table(OWN_FIELD)
    {
        own.insert(LOST.to_owned(), lost.into());
    }
}

/// Returns the groups whose progress is lost, ascending.
fn groups_without_progress(reader: &MessageReader, live: &[GroupOffset]) -> Result<Vec<String>> {
    let found = match reader.consumer_offsets() {
        Err(Error::NotFound { .. }) => None,
        found => Some(found?),
    };
    let is_doubtful = found.as_ref().is_none_or(|found| !found.doubts.is_empty());
    let noted = noted_in(reader)?;
    if !is_doubtful && noted.is_empty() {
        return Ok(Vec::new());
    }
    let groups = match reader.subscription_groups() {
        Err(Error::NotFound { .. }) => return Ok(Vec::new()),
        groups => groups?.content,
    };
    let stored = found.iter().flat_map(|found| &found.content);
    let known: BTreeSet<&str> = stored.chain(live).map(|progress| progress.group.as_str()).collect();
    let is_lost = |group: &String| {
        let is_of_broker = OF_BROKERS.iter().any(|name| group.starts_with(name));
        (is_doubtful || noted.contains(group)) && !is_of_broker && !known.contains(group.as_str())
    };
    Ok(groups.into_iter().map(|config| config.group).filter(is_lost).collect())
}

/// Returns the groups that a writer has noted.
fn noted_in(reader: &MessageReader) -> Result<BTreeSet<String>> {
    let file = load_broker_settings(reader.env().as_ref(), reader.path(), CONSUMER_OFFSET_FILE, decode_settings)?;
    let lost = |fields: &Fields| Some(fields.get(OWN_FIELD)?.get(LOST)?.as_array()?.clone());
    let noted = file.and_then(|file| lost(&file.content)).into_iter().flatten();
    Ok(noted.filter_map(|name| name.as_str().map(str::to_owned)).collect())
}
