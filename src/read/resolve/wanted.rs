//! The keys that are looked for, and the messages that carry them.

use std::collections::HashMap;
use std::hint::black_box;

use foldhash::fast::RandomState;

use crate::format::{DispatchRequest, MessageView, index_key_hash};

/// Keys to be found, each with a number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// Topics and keys.
    Keys(&'a [(&'a str, &'a str)]),
    /// Unique keys, in each of these topics: all of the first key, then all of the second.
    UniqueKeys(&'a [String], &'a [&'a str]),
}

/// Their numbers. A unique key has that of its first topic, and no topic here.
pub(super) type Numbers<'a> = HashMap<(&'a str, &'a str), Vec<usize>, RandomState>;

impl<'a> Wanted<'a> {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Keys(pairs) => pairs.len(),
            Self::UniqueKeys(topics, keys) => topics.len() * keys.len(),
        }
    }

    /// Topic and key.
    pub(super) fn get(self, number: usize) -> Option<(&'a str, &'a str)> {
        match self {
            Self::Keys(pairs) => pairs.get(number).copied(),
            Self::UniqueKeys(topics, keys) => {
                let topic = topics.get(number.checked_rem(topics.len())?)?;
                Some((topic, keys.get(number / topics.len())?))
            }
        }
    }

    /// What the index knows of the key.
    pub(super) fn hash(self, number: usize) -> i32 {
        self.get(number).map_or(0, |(topic, key)| index_key_hash(topic, key))
    }

    /// Whether the message carries the key.
    pub(super) fn is_of(self, number: usize, view: &MessageView<'_>) -> bool {
        let Some((topic, key)) = self.get(number) else { return false };
        view.has_topic(topic)
            && match self {
                Self::Keys(_) => DispatchRequest::of(view).has_key(key),
                Self::UniqueKeys(..) => view.unique_key().is_some_and(|own| own == key),
            }
    }

    /// Brings the keys with these numbers into the cache of the processor, which waits for the memory once for several of them.
    /// They come in no order, and one after the other it would wait for each.
    pub(super) fn touch(self, numbers: impl Iterator<Item = usize>) {
        for number in numbers {
            let first = self.get(number).and_then(|(_, key)| key.as_bytes().first());
            black_box(first.copied());
        }
    }

    pub(super) fn numbers(self) -> Numbers<'a> {
        let mut numbers = Numbers::default();
        match self {
            Self::Keys(pairs) => {
                for (number, pair) in pairs.iter().enumerate() {
                    numbers.entry(*pair).or_default().push(number);
                }
            }
            Self::UniqueKeys(topics, keys) => {
                for (at, key) in keys.iter().enumerate() {
                    numbers.entry(("", key)).or_default().push(at * topics.len());
                }
            }
        }
        numbers
    }

    /// Passes on the numbers of the keys that the message carries.
    pub(super) fn each_of(self, view: &MessageView<'_>, numbers: &Numbers<'a>, mut take: impl FnMut(usize)) {
        let topic = view.topic();
        match self {
            Self::Keys(_) => {
                for key in DispatchRequest::of(view).index_keys(false) {
                    let of_key = numbers.get(&(topic.as_ref(), key.as_ref()));
                    of_key.into_iter().flatten().copied().for_each(&mut take);
                }
            }
            Self::UniqueKeys(topics, _) => {
                if let (Some(key), true) = (view.unique_key(), topics.iter().any(|known| **known == topic)) {
                    let of_key = numbers.get(&("", key.as_ref()));
                    of_key.into_iter().flatten().copied().for_each(&mut take);
                }
            }
        }
    }

    /// The topics of the keys, each once.
    pub(super) fn topics(self, numbers: &Numbers<'a>) -> Vec<&'a str> {
        let mut topics: Vec<&str> = match self {
            Self::Keys(_) => numbers.keys().map(|(topic, _)| *topic).collect(),
            Self::UniqueKeys(topics, _) => topics.iter().map(String::as_str).collect(),
        };
        topics.sort_unstable();
        topics.dedup();
        topics
    }
}
