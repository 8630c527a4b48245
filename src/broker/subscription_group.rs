//! `config/subscriptionGroup.json`: the settings of consumer groups. A broker of 5.x refuses progress of a group without an
//! entry.

use std::sync::Arc;

use serde_json::{Value, json};

use super::settings_file::SettingsFile;
use crate::error::{Error, Result};
use crate::format::{
    SUBSCRIPTION_GROUP_FILE, SubscriptionGroupConfig, decode_subscription_group, subscription_groups_of, validate_broker_group,
};
use crate::store::MessageStore;
use crate::sync::{Mutex, lock};

const GROUP_TABLE: &str = "subscriptionGroupTable";

/// The settings of the consumer groups of a store that is open for writing.
#[derive(Debug)]
pub struct SubscriptionGroups {
    file: Mutex<SettingsFile>,
}

impl SubscriptionGroups {
    /// Reads the groups of a store. A damaged file makes each call fail that needs it.
    pub(super) fn load(store: &Arc<MessageStore>) -> Self {
        let reader = store.reader();
        let file = SettingsFile::load(reader.env(), reader.path(), SUBSCRIPTION_GROUP_FILE, |fields| {
            subscription_groups_of(fields).map(drop)
        });
        Self { file: Mutex::new(file) }
    }

    /// Returns the settings of a group; `None` if it has none.
    ///
    /// # Errors
    /// The damage of the file.
    pub fn get(&self, group: &str) -> Result<Option<SubscriptionGroupConfig>> {
        let file = lock(&self.file);
        let entry = file.fields()?.get(GROUP_TABLE).and_then(|table| table.get(group));
        let decode = |entry| decode_subscription_group(group, entry).map_err(|malformed| file.damage(&malformed));
        entry.map(decode).transpose()
    }

    /// Makes sure, durably, that a group has settings: those that it has, or the defaults of a broker.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that no broker takes; the damage of the file; [`Error::DiskFull`], [`Error::Io`].
    pub fn ensure(&self, group: &str) -> Result<()> {
        validate_broker_group(group).map_err(|malformed| Error::Invalid {
            what: malformed.reason.into_owned(),
        })?;
        let mut file = lock(&self.file);
        let table = file.table(GROUP_TABLE)?;
        if table.contains_key(group) {
            return Ok(());
        }
        table.insert(group.to_owned(), defaults(group));
        let persisted = file.persist_change();
        if persisted.is_err() {
            file.table(GROUP_TABLE)?.remove(group);
        }
        persisted
    }

    /// Removes the settings of a group, durably. Returns false if it has none.
    ///
    /// # Errors
    /// The damage of the file; [`Error::DiskFull`], [`Error::Io`].
    pub(super) fn remove(&self, group: &str) -> Result<bool> {
        let mut file = lock(&self.file);
        let Some(entry) = file.table(GROUP_TABLE)?.remove(group) else {
            return Ok(false);
        };
        let persisted = file.persist_change();
        if persisted.is_err() {
            file.table(GROUP_TABLE)?.insert(group.to_owned(), entry);
        }
        persisted.map(|()| true)
    }
}

/// Returns the settings of a new group as a broker of 5.x writes them. One of 4.9.x ignores the fields that it does not know.
fn defaults(group: &str) -> Value {
    json!({
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": true,
        "consumeEnable": true,
        "consumeFromMinEnable": true,
        "consumeMessageOrderly": false,
        "consumeTimeoutMinute": 15,
        "groupName": group,
        "groupRetryPolicy": { "type": "CUSTOMIZED" },
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": true,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    })
}
