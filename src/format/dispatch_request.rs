use std::borrow::Cow;

use super::bytes::{is_text, text};
use super::consume_queue::CqUnit;
use super::delay_level::{DelayLevels, SCHEDULE_TOPIC};
use super::index::{TAG_KEY_PREFIX, hash_of_key, hash_of_topic, index_key_of_tag};
use super::java_hash::java_hash_after;
use super::message_view::MessageView;
use super::properties::{property, split_keys};
use super::salvage_record::is_salvage_record;
use super::sys_flag::Transaction;

const TAGS: &[u8] = property::TAGS.as_bytes();
const DELAY: &[u8] = property::DELAY.as_bytes();
const UNIQ_KEY: &[u8] = property::UNIQ_KEY.as_bytes();
const KEYS: &[u8] = property::KEYS.as_bytes();

/// The fields of a record that its consume queue and the index need, taken from its properties in one pass.
#[derive(Clone, Copy, Debug)]
pub struct DispatchRequest<'a> {
    view: MessageView<'a>,
    tags: Option<&'a [u8]>,
    delay: Option<&'a [u8]>,
    unique_key: Option<&'a [u8]>,
    keys: Option<&'a [u8]>,
}

impl<'a> DispatchRequest<'a> {
    /// Reads the properties. Of several properties with one name the last counts.
    #[inline]
    pub fn of(view: &MessageView<'a>) -> Self {
        let (mut tags, mut delay, mut unique_key, mut keys) = (None, None, None, None);
        for (name, value) in view.properties().iter() {
            match name {
                TAGS => tags = Some(value),
                DELAY => delay = Some(value),
                UNIQ_KEY => unique_key = Some(value),
                KEYS => keys = Some(value),
                _ => {}
            }
        }
        Self {
            view: *view,
            tags,
            delay,
            unique_key,
            keys,
        }
    }

    /// Returns the entry of the message in its consume queue; `None` if the message [has no entry](MessageView::has_queue_entry).
    #[inline]
    pub fn unit(&self, delay_levels: &DelayLevels) -> Option<CqUnit> {
        self.view.has_queue_entry().then(|| CqUnit {
            physical_offset: self.view.physical_offset(),
            size: self.view.size() as i32,
            tags_code: self.tags_code(delay_levels),
        })
    }

    /// Returns the tags code of the queue entry: the Java hash of the whole `TAGS`, or 0 without tags. In the delay topic it is the
    /// time at which the message is due, in ms, with its level clamped to the highest. If the delay level is not a number, the hash
    /// is used; a broker ends its log there.
    #[inline]
    pub fn tags_code(&self, levels: &DelayLevels) -> i64 {
        if let Some(level) = self.level() {
            let level = level.min(levels.max_level());
            return self.view.store_time().wrapping_add(levels.delay_ms(level));
        }
        self.tags.map_or(0, |tags| java_hash_after(0, tags).into())
    }

    /// Returns true if `known` is the entry of the message. In the delay topic any time counts at which a broker may deliver the message:
    /// the store does not hold the delays of its broker's levels.
    #[inline]
    pub fn is_entry(&self, known: CqUnit, delay_levels: &DelayLevels) -> bool {
        self.unit(delay_levels).is_some_and(|unit| {
            known == unit
                || (self.may_be_due_at(known.tags_code)
                    && known
                        == CqUnit {
                            tags_code: known.tags_code,
                            ..unit
                        })
        })
    }

    /// Returns true if some delay makes this the time at which the message is due. A delay is a number of seconds.
    fn may_be_due_at(&self, time: i64) -> bool {
        const SECOND: i64 = 1000;
        let delay = time.checked_sub(self.view.store_time());
        self.level().is_some() && delay.is_some_and(|delay| delay >= 0 && delay % SECOND == 0)
    }

    /// Returns the delay level of a message in the delay topic.
    #[inline]
    fn level(&self) -> Option<i32> {
        let delay = self.delay.filter(|_| self.view.topic_bytes() == SCHEDULE_TOPIC.as_bytes());
        delay.and_then(|level| text(level).parse().ok()).filter(|level| *level > 0)
    }

    /// Returns the keys under which the record is indexed, in the order in which they are put: the unique key, each key of `KEYS`,
    /// and with `index_tags` (5.4.0 and later) `T#` and the tag. A rolled-back message has no keys. The salvage record of a lost
    /// range has the empty key in the empty topic, so that the index shows that messages and their keys were lost.
    pub fn index_keys(&self, index_tags: bool) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        self.keys_in_parts(index_tags).map(|[prefix, key]| match prefix {
            [] => text(key),
            _ => index_key_of_tag(&text(key)).into(),
        })
    }

    /// Returns true if the key is one of [`index_keys`](Self::index_keys), not counting the tag.
    pub fn has_key(&self, key: &str) -> bool {
        self.keys_in_parts(false).any(|[_, own]| is_text(own, key))
    }

    /// Returns the [`index_key_hash`](super::index_key_hash) of each key.
    #[inline]
    pub fn index_key_hashes(&self, index_tags: bool) -> impl Iterator<Item = i32> + use<'a> {
        let of_topic = hash_of_topic(self.view.topic_bytes());
        self.keys_in_parts(index_tags).map(move |key| hash_of_key(of_topic, key))
    }

    /// Returns true if one of the keys, or the tag, has this hash, so that an index item with it may point to the message.
    pub fn has_index_key_hash(&self, key_hash: i32) -> bool {
        self.index_key_hashes(true).any(|hash| hash == key_hash)
    }

    /// Returns the keys, each with its prefix.
    fn keys_in_parts(&self, index_tags: bool) -> impl Iterator<Item = [&'a [u8]; 2]> + use<'a> {
        let is_indexed = self.view.transaction() != Transaction::Rollback;
        let of_lost: Option<&[u8]> = is_salvage_record(&self.view).then_some(&[]);
        let unique_key = self.unique_key.filter(|_| is_indexed);
        let keys = self.keys.filter(|_| is_indexed).unwrap_or_default();
        let tag = self.tags.filter(|_| is_indexed && index_tags);
        let whole = of_lost.into_iter().chain(unique_key).chain(split_keys(keys));
        let whole = whole.map(|key| [&[][..], key]);
        whole.chain(tag.map(|tag| [TAG_KEY_PREFIX.as_bytes(), tag]))
    }
}
