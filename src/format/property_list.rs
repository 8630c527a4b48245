use std::borrow::Cow;

use super::malformed::Malformed;
use super::properties::{MAX_PROPERTIES_SIZE, encode_properties, property};

/// The properties of a message that is being made: names and values in the order in which they are stored.
#[derive(Debug, Default)]
pub struct PropertyList<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> PropertyList<'a> {
    /// The last value for a name wins, in the place of the first.
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
    /// [`Malformed`] for a control character: a separator of the properties is one.
    pub fn put_tags(&mut self, tags: &'a str) -> Result<(), Malformed> {
        let is_there = self.0.iter().any(|(name, known)| name == property::TAGS && known == tags);
        if !is_there && tags.contains(char::is_control) {
            return Err(Malformed::new(0, format!("tags {tags:?}: a tag has no control character")));
        }
        self.put(property::TAGS, tags);
        Ok(())
    }

    /// Sets the keys as one property. A property that already holds the same keys is not changed, so that it keeps its spaces.
    ///
    /// # Errors
    /// [`Malformed`] for a key that would not read back as it is.
    pub fn put_keys<T: AsRef<str>>(&mut self, keys: &'a [T]) -> Result<(), Malformed> {
        for key in keys.iter().map(AsRef::as_ref) {
            if key.is_empty() || key.contains(|c: char| c == ' ' || c.is_control()) {
                let reason = format!(
                    "key {key:?}: a key has at least one character, no space and no control character; give several as a list"
                );
                return Err(Malformed::new(0, reason));
            }
        }
        let says_so = |known: &str| {
            known
                .split(' ')
                .filter(|key| !key.is_empty())
                .eq(keys.iter().map(AsRef::as_ref))
        };
        let known = self.0.iter().find(|(name, _)| name == property::KEYS);
        if !keys.is_empty() && known.is_none_or(|(_, known)| !says_so(known)) {
            match keys {
                [key] => self.put(property::KEYS, key.as_ref()),
                keys => self.put(property::KEYS, keys.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ")),
            }
        }
        Ok(())
    }

    /// Sets the delay level; 0 sets none.
    ///
    /// # Errors
    /// [`Malformed`] for a negative one.
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

    /// The property bytes of a record.
    ///
    /// # Errors
    /// [`Malformed`] for what would not read back, and for too many bytes.
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
