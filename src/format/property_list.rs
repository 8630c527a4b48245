use std::borrow::Cow;

use super::bytes::{find_control_or, put};
use super::malformed::Malformed;
use super::properties::{
    KEY_SEPARATOR, MAX_PROPERTIES_SIZE, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, encode_properties, property,
};

/// The properties of a message under construction: names and values in the order in which they are stored.
#[derive(Debug, Default)]
pub struct PropertyList<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> PropertyList<'a> {
    /// Sets a property. A new value for a known name keeps the position of the first.
    pub fn put(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(pair) => pair.1 = value,
            None => self.0.push((name, value)),
        }
    }

    /// Sets the tag.
    ///
    /// # Errors
    /// [`Malformed`] if the tag has a control character, such as a separator of the properties.
    pub fn put_tags(&mut self, tags: &'a str) -> Result<(), Malformed> {
        let is_there = self.0.iter().any(|(name, known)| name == property::TAGS && known == tags);
        if !is_there && tags.contains(char::is_control) {
            return Err(Malformed::new(0, format!("tags {tags:?}: a tag has no control character")));
        }
        self.put(property::TAGS, tags);
        Ok(())
    }

    /// Sets the keys as one property. A property that already holds the same keys is left unchanged, including its spaces.
    ///
    /// # Errors
    /// [`Malformed`] for a key that could not be read back unchanged.
    pub fn put_keys<T: AsRef<str>>(&mut self, keys: &'a [T]) -> Result<(), Malformed> {
        check_keys(keys)?;
        let holds_keys = |known: &str| {
            known
                .split(' ')
                .filter(|key| !key.is_empty())
                .eq(keys.iter().map(AsRef::as_ref))
        };
        let known = self.0.iter().find(|(name, _)| name == property::KEYS);
        if !keys.is_empty() && known.is_none_or(|(_, known)| !holds_keys(known)) {
            match keys {
                [key] => self.put(property::KEYS, key.as_ref()),
                keys => self.put(property::KEYS, keys.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ")),
            }
        }
        Ok(())
    }

    /// Sets the delay level; 0 sets no level.
    ///
    /// # Errors
    /// [`Malformed`] for a negative level.
    pub fn put_delay_level(&mut self, level: i32) -> Result<(), Malformed> {
        if level < 0 {
            let reason = format!("delay_level is {level}: give a level from 1, or 0 for none");
            return Err(Malformed::new(0, reason));
        }
        if level > 0 {
            self.put(property::DELAY, level.to_string());
        }
        Ok(())
    }

    /// Sets the time of delivery, in ms since 1970; `None` sets none.
    ///
    /// # Errors
    /// [`Malformed`] if there is a delay level.
    pub fn put_deliver_at(&mut self, ms: Option<i64>) -> Result<(), Malformed> {
        let Some(ms) = ms else { return Ok(()) };
        let delay = self.0.iter().find(|(name, level)| name == property::DELAY && level != "0");
        if let Some((_, level)) = delay {
            let reason = format!("deliver_at and the delay level {level} contradict each other: leave one of the two out");
            return Err(Malformed::new(0, reason));
        }
        self.0
            .retain(|(name, _)| ![property::TIMER_DELAY_SEC, property::TIMER_DELAY_MS].contains(&&**name));
        self.put(property::TIMER_DELIVER_MS, ms.to_string());
        Ok(())
    }

    /// Encodes the properties.
    ///
    /// # Errors
    /// [`Malformed`] for a pair that could not be read back, and for too many bytes.
    #[inline]
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let size: usize = self.0.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        if size > MAX_PROPERTIES_SIZE {
            let reason = format!("the properties take {size} bytes, at most {MAX_PROPERTIES_SIZE} fit");
            return Err(Malformed::new(MAX_PROPERTIES_SIZE, reason));
        }
        let pairs = self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
        encode_properties(pairs, true)
    }
}

/// Refuses a key that could not be read back unchanged.
#[inline]
fn check_keys<T: AsRef<str>>(keys: &[T]) -> Result<(), Malformed> {
    for key in keys.iter().map(AsRef::as_ref) {
        if key.is_empty() || find_control_or(key, b' ').is_some() {
            let reason = format!(
                "key {key:?}: a key has at least one character, no space and no control character; give several as a list"
            );
            return Err(Malformed::new(0, reason));
        }
    }
    Ok(())
}

/// The most bytes that a [`PropertyRoom`] holds on the stack: the properties of most messages are not longer.
const FEW: usize = 128;

/// Room for encoded properties, which allocates only for many bytes.
#[derive(Debug)]
pub struct PropertyRoom {
    few: [u8; FEW],
    many: Vec<u8>,
}

impl Default for PropertyRoom {
    #[inline]
    fn default() -> Self {
        Self {
            few: [0; FEW],
            many: Vec::new(),
        }
    }
}

impl PropertyRoom {
    /// Returns room for exactly this many bytes.
    #[inline]
    fn of_len(&mut self, len: usize) -> &mut [u8] {
        if let Some(few) = self.few.get_mut(..len) {
            return few;
        }
        self.many.resize(len, 0);
        &mut self.many
    }
}

/// Encodes `keys` as the property after `properties`, which end with a separator and have no keys, in `room`. The bytes are those of
/// [`PropertyList::put_keys`].
///
/// # Errors
/// [`Malformed`] for a key that could not be read back unchanged.
#[inline]
pub fn encode_keys<'r, T: AsRef<str>>(
    properties: &'r [u8],
    keys: &[T],
    room: &'r mut PropertyRoom,
) -> Result<&'r [u8], Malformed> {
    if keys.is_empty() {
        return Ok(properties);
    }
    check_keys(keys)?;
    let len: usize = keys.iter().map(|key| key.as_ref().len() + 1).sum();
    let out = room.of_len(properties.len() + property::KEYS.len() + 1 + len);
    let mut end = 0;
    for part in [properties, property::KEYS.as_bytes(), &[NAME_VALUE_SEPARATOR]] {
        end = put_after(out, end, part);
    }
    for key in keys {
        end = put_after(out, end, key.as_ref().as_bytes());
        end = put_after(out, end, &[KEY_SEPARATOR]);
    }
    if let Some(last) = out.last_mut() {
        *last = PROPERTY_SEPARATOR;
    }
    Ok(out)
}

/// Copies a part to position `at`, and returns the position after it.
#[inline]
fn put_after(out: &mut [u8], at: usize, part: &[u8]) -> usize {
    put(out, at, part);
    at + part.len()
}
