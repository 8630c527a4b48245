use std::borrow::Cow;
use std::fmt;

/// Bytes (or a value to be encoded) that the format does not allow: where, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Byte in the slice that was given; for an encoder, byte in what it would have written.
    pub at: usize,
    /// What is wrong, with the numbers that contradict each other.
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
