use std::borrow::Cow;

use memchr::memchr;

use super::bytes::text;
use super::malformed::Malformed;

/// The names of the properties that a store interprets.
pub mod property {
    /// User keys, separated by one space each.
    pub const KEYS: &str = "KEYS";
    /// The tag; its hash is the tags code of the queue entry.
    pub const TAGS: &str = "TAGS";
    /// The client's message id, the first key in the index.
    pub const UNIQ_KEY: &str = "UNIQ_KEY";
    /// "false": the producer does not wait for flush and replicas.
    pub const WAIT: &str = "WAIT";
    /// Delay level, 1-based, in decimal.
    pub const DELAY: &str = "DELAY";
    /// The final topic of a delayed or half message.
    pub const REAL_TOPIC: &str = "REAL_TOPIC";
    /// The final queue id of such a message, in decimal.
    pub const REAL_QID: &str = "REAL_QID";
    /// The topic of a message that a consumer group failed on.
    pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
    /// The offset message id of such a message's first record.
    pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
    /// "true" in a half message.
    pub const TRAN_MSG: &str = "TRAN_MSG";
    /// The producer group of a half message.
    pub const PGROUP: &str = "PGROUP";
    /// The number of times that the producers of a half message were asked, in decimal.
    pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
    /// The age in seconds from which on the producers of a half message are asked.
    pub const CHECK_IMMUNITY_TIME_IN_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
    /// The physical offset of the half message that an op message names, in decimal: of a broker that keeps its transactions in `RocksDB`.
    pub const TRANS_OFFSET: &str = "TRANS_OFFSET";
    /// The sharding key: messages with one key are in one queue, in their order.
    pub const SHARDING_KEY: &str = "__SHARDINGKEY";
    /// The time at which a timer message is delivered, in ms.
    pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
    /// The delay of a timer message in seconds.
    pub const TIMER_DELAY_SEC: &str = "TIMER_DELAY_SEC";
    /// The delay of a timer message in ms.
    pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
    /// The start of the second in which a broker delivers a timer message, in ms.
    pub const TIMER_OUT_MS: &str = "TIMER_OUT_MS";
    /// The time at which a timer message was put on the timer wheel, in ms.
    pub const TIMER_ENQUEUE_MS: &str = "TIMER_ENQUEUE_MS";
    /// The time at which a timer message was delivered, in ms.
    pub const TIMER_DEQUEUE_MS: &str = "TIMER_DEQUEUE_MS";
    /// The number of times that a timer message was stored again, in decimal.
    pub const TIMER_ROLL_TIMES: &str = "TIMER_ROLL_TIMES";
    /// The topic and the unique key of a timer message that this record recalls, with `+` between them.
    pub const TIMER_DEL_UNIQKEY: &str = "TIMER_DEL_UNIQKEY";
    /// The broker's cluster name.
    pub const CLUSTER: &str = "CLUSTER";
    /// Messages in an inner batch, in decimal.
    pub const INNER_NUM: &str = "INNER_NUM";
    /// First queue offset of an inner batch, in decimal.
    pub const INNER_BASE: &str = "INNER_BASE";
    /// Light queues that also get an entry, separated by commas.
    pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
    /// The queue offsets in these light queues.
    pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
    /// CRC-32 of the whole record, always last.
    pub const CRC32: &str = "__CRC32#";
}

/// The separator between a name and its value.
pub(super) const NAME_VALUE_SEPARATOR: u8 = 1;
/// The separator between two pairs. It also follows the last pair if the writer was 4.9.0 or older, or 5.2.0 or newer.
pub(super) const PROPERTY_SEPARATOR: u8 = 2;
/// The separator between two keys.
pub(super) const KEY_SEPARATOR: u8 = b' ';
/// The length field of a record is a signed short.
pub const MAX_PROPERTIES_SIZE: usize = i16::MAX as usize;

/// The property bytes of a record, parsed by each call (docs/FORMAT.md, section Properties).
///
/// ```text
/// name 0x01 value 0x02 name 0x01 value [0x02]        UTF-8, nothing is escaped
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties<'a>(&'a [u8]);

impl<'a> Properties<'a> {
    /// Wraps any bytes. Parts that are not pairs by RocketMQ's rules are skipped.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes as stored.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns true if the bytes are empty or end with a separator, as ours always do.
    #[inline]
    pub fn is_ended(self) -> bool {
        self.0.last().is_none_or(|last| *last == PROPERTY_SEPARATOR)
    }

    /// Returns the pairs in stored order, including duplicates. A part without a name or without a value is not a pair. A value may
    /// contain 0x01, and ends at 0x02.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        split(self.0, PROPERTY_SEPARATOR).filter_map(name_and_value)
    }

    /// Returns the value of `name`; the last of several. Malformed UTF-8 becomes U+FFFD, as in Java.
    pub fn get(self, name: &str) -> Option<Cow<'a, str>> {
        self.iter()
            .filter(|(found, _)| *found == name.as_bytes())
            .last()
            .map(|(_, value)| text(value))
    }

    /// Returns the properties that the store checks before it appends a message, in one pass.
    #[inline]
    pub fn orders(self) -> StoreOrders<'a> {
        let mut orders = StoreOrders::default();
        let may_be_order = |pair: &&[u8]| {
            matches!(
                pair,
                [b'D', b'E', ..] | [b'I', b'N', ..] | [b'_', b'_', ..] | [b'T', b'I', ..]
            )
        };
        let pairs = split(self.0, PROPERTY_SEPARATOR).filter(may_be_order);
        for (name, value) in pairs.filter_map(name_and_value) {
            match name {
                DELAY => orders.delay = Some(value),
                INNER_NUM => orders.is_inner_batch = true,
                CRC32 => orders.has_crc = true,
                TIMER_DELIVER_MS | TIMER_DELAY_SEC | TIMER_DELAY_MS => orders.has_timer = true,
                _ => {}
            }
        }
        orders
    }

    /// Returns all properties as text. Malformed UTF-8 becomes U+FFFD, which hides no separator.
    pub fn text(self) -> Cow<'a, str> {
        text(self.0)
    }

    /// Returns each name once, in the order of first occurrence, with its last value.
    pub fn to_pairs(self) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
        let owned = |(name, value): (&str, &str)| (Cow::Owned(name.to_owned()), Cow::Owned(value.to_owned()));
        match self.text() {
            Cow::Borrowed(text) => {
                let pairs = pairs_of(text).into_iter();
                pairs.map(|(name, value)| (name.into(), value.into())).collect()
            }
            Cow::Owned(text) => pairs_of(&text).into_iter().map(owned).collect(),
        }
    }

    /// Returns the keys in `KEYS`, which are separated by single spaces; empty ones are left out.
    pub fn keys(self) -> impl Iterator<Item = Cow<'a, str>> {
        let keys = self.iter().filter(|(found, _)| *found == property::KEYS.as_bytes()).last();
        split_keys(keys.map_or(&[], |(_, keys)| keys)).map(text)
    }
}

/// Splits a pair; `None` for a part without a name or without a value.
#[inline]
fn name_and_value(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    // Names are short, and a vectorized search has a higher start-up cost.
    let (name, value) = split_at(pair, pair.iter().position(|byte| *byte == NAME_VALUE_SEPARATOR));
    let value = value?;
    (!name.is_empty() && !value.is_empty()).then_some((name, value))
}

const DELAY: &[u8] = property::DELAY.as_bytes();
const INNER_NUM: &[u8] = property::INNER_NUM.as_bytes();
const CRC32: &[u8] = property::CRC32.as_bytes();
const TIMER_DELIVER_MS: &[u8] = property::TIMER_DELIVER_MS.as_bytes();
const TIMER_DELAY_SEC: &[u8] = property::TIMER_DELAY_SEC.as_bytes();
const TIMER_DELAY_MS: &[u8] = property::TIMER_DELAY_MS.as_bytes();

/// The properties that the store checks before it appends a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOrders<'a> {
    /// The last value of `DELAY`.
    pub delay: Option<&'a [u8]>,
    /// Set if there is an `INNER_NUM`.
    pub is_inner_batch: bool,
    /// Set if there is a `__CRC32#`.
    pub has_crc: bool,
    /// Set if there is a time or a delay of a timer message.
    pub has_timer: bool,
}

/// Parses properties as text: each name once, in the order of first occurrence, with its last value.
pub fn pairs_of(text: &str) -> Vec<(&str, &str)> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for (name, value) in Properties(text.as_bytes()).iter() {
        // The separators are ASCII, so the parts between them are UTF-8, too.
        let (Ok(name), Ok(value)) = (str::from_utf8(name), str::from_utf8(value)) else {
            continue;
        };
        match pairs.iter_mut().find(|(known, _)| *known == name) {
            Some(pair) => pair.1 = value,
            None => pairs.push((name, value)),
        }
    }
    pairs
}

/// Splits the value of `KEYS`.
pub(super) fn split_keys(keys: &[u8]) -> impl Iterator<Item = &[u8]> {
    split(keys, KEY_SEPARATOR).filter(|key| !key.is_empty())
}

/// Splits `bytes` at separators. A separator at the end does not add an empty part.
fn split(bytes: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> + Clone {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest.filter(|rest| !rest.is_empty())?;
        let (part, after) = split_at(bytes, position_of(separator, bytes));
        rest = after;
        Some(part)
    })
}

/// The bytes that are searched eight at once (SWAR). Most properties are shorter, and a vectorized search has a higher start-up cost.
const NEAR: usize = 64;
/// All bits of each byte but the highest.
const LOW_BITS: u64 = u64::from_be_bytes([0x7F; 8]);

/// Returns the position of the first byte with this value.
#[inline]
fn position_of(byte: u8, bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut rest = bytes;
    while let Some((eight, after)) = rest.split_first_chunk() {
        if let Some(found) = position_in_eight(byte, *eight) {
            return Some(at + found);
        }
        (at, rest) = (at + 8, after);
        if at == NEAR {
            return memchr(byte, rest).map(|found| at + found);
        }
    }
    match bytes.last_chunk() {
        // Some of them were searched before.
        Some(last) => position_in_eight(byte, *last).map(|found| bytes.len() - 8 + found),
        None => rest.iter().position(|found| *found == byte),
    }
}

#[inline]
fn position_in_eight(byte: u8, eight: [u8; 8]) -> Option<usize> {
    let differences = u64::from_be_bytes(eight) ^ u64::from_be_bytes([byte; 8]);
    // No carry leaves a byte, so exactly the highest bits of the equal bytes remain.
    let equal = !(((differences & LOW_BITS) + LOW_BITS) | differences | LOW_BITS);
    (equal != 0).then_some(equal.leading_zeros() as usize / 8)
}

/// Returns the bytes before the separator, and those after it.
#[inline]
fn split_at(bytes: &[u8], separator: Option<usize>) -> (&[u8], Option<&[u8]>) {
    match separator.and_then(|at| bytes.split_at_checked(at)) {
        Some((before, [_, after @ ..])) => (before, Some(after)),
        _ => (bytes, None),
    }
}

/// Adds the last separator, unless it is there or there are no properties.
#[inline]
pub fn end_properties(properties: &mut Cow<'_, [u8]>) {
    if !Properties::new(properties).is_ended() {
        properties.to_mut().push(PROPERTY_SEPARATOR);
    }
}

/// Encodes pairs in the given order. Refuses pairs that could not be read back: an empty name or value, 0x01 in a name, 0x02
/// anywhere, more than 32,767 bytes.
pub fn encode_properties<'p>(
    pairs: impl IntoIterator<Item = (&'p str, &'p str), IntoIter: Clone>,
    trailing_separator: bool,
) -> Result<Vec<u8>, Malformed> {
    let pairs = pairs.into_iter();
    let size: usize = pairs.clone().map(|(name, value)| name.len() + value.len() + 2).sum();
    let mut out = Vec::with_capacity(size.min(MAX_PROPERTIES_SIZE));
    for (name, value) in pairs {
        let reason = match (name.as_bytes(), value.as_bytes()) {
            ([], _) => Some("a property has an empty name; give it one"),
            (_, []) => Some("a property has an empty value, which a reader would drop; leave it out"),
            (name, _) if name.contains(&NAME_VALUE_SEPARATOR) => Some("a property name holds the separator 0x01"),
            (name, value) if name.contains(&PROPERTY_SEPARATOR) || value.contains(&PROPERTY_SEPARATOR) => {
                Some("a property holds the separator 0x02")
            }
            _ => None,
        };
        if let Some(reason) = reason {
            return Err(Malformed::new(out.len(), format!("{reason}: {name:?} = {value:?}")));
        }
        out.extend_from_slice(name.as_bytes());
        out.push(NAME_VALUE_SEPARATOR);
        out.extend_from_slice(value.as_bytes());
        out.push(PROPERTY_SEPARATOR);
    }
    if !trailing_separator {
        out.pop();
    }
    if out.len() > MAX_PROPERTIES_SIZE {
        let reason = format!("the properties take {} bytes, at most {MAX_PROPERTIES_SIZE} fit", out.len());
        return Err(Malformed::new(MAX_PROPERTIES_SIZE, reason));
    }
    Ok(out)
}
