use std::borrow::Cow;
use std::fmt;

/// An error of the format: bytes, or a value to be encoded, that the format does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The byte in the slice; for an encoder, the byte in its output.
    pub at: usize,
    /// The reason, with the numbers that contradict each other.
    pub reason: Cow<'static, str>,
}

impl Malformed {
    pub(super) fn new(at: usize, reason: impl Into<Cow<'static, str>>) -> Self {
        let reason = reason.into();
        Self { at, reason }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.reason, self.at)
    }
}

impl std::error::Error for Malformed {}
