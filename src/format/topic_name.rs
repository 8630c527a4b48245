use super::bytes::find_control_or;
use super::delay_level::SCHEDULE_TOPIC;
use super::malformed::Malformed;
use super::record_layout::Version;

/// The topic of half messages: those of transactions that are not ended.
pub const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// The topic of op messages: each lists half messages whose transactions have ended.
pub const OP_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// The topic of half messages of a broker that keeps its transactions in `RocksDB`.
pub const ROCKSDB_HALF_TOPIC: &str = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC";
/// The topic of its op messages: each names a half message by its physical offset, in the property [`property::TRANS_OFFSET`].
///
/// [`property::TRANS_OFFSET`]: super::property::TRANS_OFFSET
pub const ROCKSDB_OP_TOPIC: &str = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC";
/// The topic of half messages whose producers never answered.
pub const GIVEN_UP_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// The limit of a broker for a V2 record, and of a directory name.
const MAX_V2_TOPIC_SIZE: usize = 255;

/// Checks that a topic may be written: 1 to 127 bytes of UTF-8 (V2: 255) that can name a directory, because each topic has one. A
/// broker's stricter set of characters is not required.
pub fn validate_topic(topic: &str, version: Version) -> Result<(), Malformed> {
    let max = match version {
        Version::V1 => version.max_topic_size(),
        Version::V2 => MAX_V2_TOPIC_SIZE,
    };
    if topic.is_empty() || topic.len() > max {
        let reason = format!(
            "a topic of {} bytes: a V1 record takes 1 to {}, a V2 record up to {MAX_V2_TOPIC_SIZE}",
            topic.len(),
            Version::V1.max_topic_size()
        );
        return Err(Malformed::new(0, reason));
    }
    if matches!(topic, "." | "..") {
        return Err(Malformed::new(
            0,
            format!("{topic:?} is not a topic: it names a special directory"),
        ));
    }
    match find_control_or(topic, b'/') {
        Some((at, c)) => Err(Malformed::new(
            at,
            format!("{c:?} in topic {topic:?}: a topic has no slash and no control character"),
        )),
        None => Ok(()),
    }
}

/// The prefix of the topics of the messages that a consumer group failed on, and is given again.
pub const RETRY_PREFIX: &str = "%RETRY%";

/// Returns the retry topic of a consumer group, which its consumers read beside the topics that they name.
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// The longest name of a topic of a broker.
const MAX_BROKER_TOPIC_SIZE: usize = 127;
/// The longest name of a group whose retry topic, `%RETRY%` and the name, is a topic.
const MAX_BROKER_GROUP_SIZE: usize = MAX_BROKER_TOPIC_SIZE - RETRY_PREFIX.len();

/// Checks that a broker accepts the name of a topic: letters, digits and `%|-_`.
///
/// # Errors
/// [`Malformed`] with the first wrong character.
pub fn validate_broker_topic(topic: &str) -> Result<(), Malformed> {
    validate_broker_name("topic", topic, MAX_BROKER_TOPIC_SIZE)
}

/// Checks that a broker accepts the name of a consumer group: letters, digits and `%|-_`.
///
/// # Errors
/// [`Malformed`] with the first wrong character.
pub fn validate_broker_group(group: &str) -> Result<(), Malformed> {
    validate_broker_name("group", group, MAX_BROKER_GROUP_SIZE)
}

fn validate_broker_name(what: &str, name: &str, max: usize) -> Result<(), Malformed> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '|' | '-' | '_');
    if let Some((at, c)) = name.char_indices().find(|(_, c)| !is_allowed(*c)) {
        let reason = format!("{c:?} in {what} {name:?}: a broker accepts letters and digits of ASCII and %|-_");
        return Err(Malformed::new(at, reason));
    }
    if name.is_empty() || name.len() > max {
        let reason = format!("a {what} of {} bytes: a broker accepts 1 to {max}", name.len());
        return Err(Malformed::new(0, reason));
    }
    Ok(())
}

/// Returns true for a topic that a broker makes for itself, and that no user may create.
pub fn is_system_topic(topic: &str) -> bool {
    const NAMES: [&str; 9] = [
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRACE_TOPIC",
        HALF_TOPIC,
        OP_TOPIC,
        "SELF_TEST_TOPIC",
        "TBW102",
        GIVEN_UP_TOPIC,
    ];
    NAMES.contains(&topic) || topic.starts_with("rmq_sys_")
}
