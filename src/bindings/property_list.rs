//! The properties of a message on its way in. Knows no Python.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::format::{MAX_PROPERTIES_SIZE, encode_properties, property};

/// Names and values in the order in which they are stored.
#[derive(Default)]
pub(super) struct PropertyList<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> PropertyList<'a> {
    /// The last value for a name wins, in the place of the first.
    pub(super) fn put(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(pair) => pair.1 = value,
            None => self.0.push((name, value)),
        }
    }

    /// The keys as one property. One that says the same already stays as it is, down to its spaces.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`] for a key that would not read back as it is.
    pub(super) fn put_keys<T: AsRef<str>>(&mut self, keys: &[T]) -> Result<()> {
        let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
        for key in &keys {
            if key.is_empty() || key.contains(|c: char| c == ' ' || c.is_control()) {
                return Err(illegal(format!(
                    "key {key:?}: a key has at least one character, no space and no control character; give several as a list"
                )));
            }
        }
        let says_so = |known: &str| known.split(' ').filter(|key| !key.is_empty()).eq(keys.iter().copied());
        let known = self.0.iter().find(|(name, _)| name == property::KEYS);
        if !keys.is_empty() && known.is_none_or(|(_, known)| !says_so(known)) {
            self.put(property::KEYS, keys.join(" "));
        }
        Ok(())
    }

    /// As they are stored.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`] for what would not read back, and for too many bytes.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let size: usize = self.0.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        if size > MAX_PROPERTIES_SIZE {
            return Err(Error::IllegalMessage {
                what: format!("the properties take {size} bytes, at most {MAX_PROPERTIES_SIZE} fit"),
                status: "PROPERTIES_SIZE_EXCEEDED",
            });
        }
        let pairs = self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
        encode_properties(pairs, true).map_err(|malformed| illegal(malformed.reason.into_owned()))
    }
}

pub(super) fn illegal(what: String) -> Error {
    Error::IllegalMessage {
        what,
        status: "MESSAGE_ILLEGAL",
    }
}
