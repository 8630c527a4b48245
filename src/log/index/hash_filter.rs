//! A Bloom filter over the hashes of an index file: most files of a store do not contain a given hash, and a negative lookup in the
//! file takes several random reads.
//!
//! The filter is blocked: the bits of one hash are in one word. It is built from the items of a full file, which never change, and
//! costs as much as some ten thousand lookups. So it is built lazily, after enough lookups to repay its cost.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;

/// The bits for each item. The false positive rate is below 1 %.
const BITS_PER_ITEM: u64 = 16;
/// The number of items that can be added to a filter in the time of one lookup in the file.
const ITEMS_PER_LOOKUP: u64 = 8;

/// A Bloom filter: may rule a hash out, never in.
#[derive(Debug)]
pub(super) struct HashFilter {
    words: Box<[u64]>,
}

impl HashFilter {
    /// Creates an empty filter for this number of items.
    pub(super) fn new(items: u64) -> Self {
        let words = Self::bytes(items) / size_of::<u64>() as u64;
        Self {
            words: vec![0; words as usize].into(),
        }
    }

    /// Returns the size of a filter for this number of items.
    pub(super) fn bytes(items: u64) -> u64 {
        (items * BITS_PER_ITEM).div_ceil(8).next_power_of_two().max(8)
    }

    pub(super) fn insert(&mut self, hash: i32) {
        let (at, bits) = self.word_and_bits(hash);
        if let Some(word) = self.words.get_mut(at) {
            *word |= bits;
        }
    }

    /// Returns false if no item has the hash.
    #[inline]
    pub(super) fn may_hold(&self, hash: i32) -> bool {
        let (at, bits) = self.word_and_bits(hash);
        self.words.get(at).is_none_or(|word| word & bits == bits)
    }

    /// Returns the word of a hash, and four bits in it.
    #[inline]
    fn word_and_bits(&self, hash: i32) -> (usize, u64) {
        let mixed = u64::from(hash.cast_unsigned()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let other = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let at = (mixed >> 32) as usize & (self.words.len() - 1);
        let bit = |shift: u32| 1_u64 << (other >> shift & 63);
        (at, bit(58) | bit(52) | bit(46) | bit(40))
    }
}

/// The lazily built filter of a file.
#[derive(Debug, Default)]
pub(super) struct FilterSlot {
    /// The number of keys looked up so far.
    lookups: AtomicU64,
    /// Set once the filter is built; `None` inside if the file cannot have one.
    made: OnceLock<Option<HashFilter>>,
}

impl FilterSlot {
    /// Returns the filter for a lookup of `keys` more keys in a file with this number of items, if it has been worth building.
    ///
    /// # Errors
    /// Those of `make`, which returns `None` if the file cannot have a filter.
    pub(super) fn get(
        &self,
        keys: usize,
        items: u64,
        make: impl FnOnce() -> Result<Option<HashFilter>>,
    ) -> Result<Option<&HashFilter>> {
        if let Some(made) = self.made.get() {
            return Ok(made.as_ref());
        }
        let lookups = self.lookups.fetch_add(keys as u64, Ordering::Relaxed) + keys as u64;
        if lookups < items / ITEMS_PER_LOOKUP {
            return Ok(None);
        }
        let made = make()?;
        Ok(self.made.get_or_init(|| made).as_ref())
    }
}
