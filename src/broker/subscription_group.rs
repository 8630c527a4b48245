//! `config/subscriptionGroup.json`: the settings of consumer groups. A broker of 5.x refuses progress of a group without an
//! entry.

use std::sync::Arc;

use serde_json::{Value, json};

use super::settings_file::SettingsFile;
use super::topic_config::MAX_QUEUES;
use crate::error::{Error, Result};
use crate::format::{
    CONFIG_DIR, SUBSCRIPTION_GROUP_FILE, SubscriptionGroupConfig, decode_subscription_group, subscription_groups_of,
    validate_broker_group,
};
use crate::store::MessageStore;
use crate::sync::{Mutex, lock};

const GROUP_TABLE: &str = "subscriptionGroupTable";
/// The values that a broker takes for fields that are missing.
const RETRY_MAX_TIMES: i32 = 16;
const RETRY_QUEUE_NUMS: i32 = 1;

/// The settings of a group that bind its consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupRule {
    /// The number of retries before a message becomes a dead letter, unless a consumer states another.
    pub(super) retry_max_times: i32,
    /// The number of queues of the retry topic.
    pub(super) retry_queue_nums: i32,
}

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

    /// Returns the rule for the consumers of a group. A group without settings gets the defaults first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a group that must not consume, and for one without retry queues: a broker drops the messages that such a
    /// group fails on. Those of [`SubscriptionGroups::ensure`].
    pub(super) fn rule(&self, group: &str) -> Result<GroupRule> {
        self.ensure(group)?;
        let config = self.get(group)?.unwrap_or_default();
        let refuse = |why: String| {
            let what = format!(
                "group {group:?} {why}: change that in {CONFIG_DIR}/{} while no writer has the store open",
                SUBSCRIPTION_GROUP_FILE.name
            );
            Err(Error::Invalid { what })
        };
        if config.consume_enable == Some(false) {
            return refuse("must not consume, because consumeEnable is false".to_owned());
        }
        let retry_queue_nums = config.retry_queue_nums.unwrap_or(RETRY_QUEUE_NUMS);
        if !(1..=MAX_QUEUES).contains(&retry_queue_nums) {
            return refuse(format!(
                "has no queue for a message that fails, because retryQueueNums is {retry_queue_nums}"
            ));
        }
        Ok(GroupRule {
            retry_max_times: config.retry_max_times.unwrap_or(RETRY_MAX_TIMES),
            retry_queue_nums,
        })
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
        "retryMaxTimes": RETRY_MAX_TIMES,
        "retryQueueNums": RETRY_QUEUE_NUMS,
        "whichBrokerWhenConsumeSlowly": 1,
    })
}
