use super::malformed::Malformed;
use super::record_layout::Version;

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
    // Fast path: most topics contain none of the bytes with which a slash or a control character starts.
    if !topic.bytes().any(|byte| byte < b' ' || matches!(byte, b'/' | 0x7F | 0xC2)) {
        return Ok(());
    }
    match topic.char_indices().find(|(_, c)| *c == '/' || c.is_control()) {
        Some((at, c)) => Err(Malformed::new(
            at,
            format!("{c:?} in topic {topic:?}: a topic has no slash and no control character"),
        )),
        None => Ok(()),
    }
}
