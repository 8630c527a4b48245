//! The arguments of a query, the keys to be found, and the messages that carry them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hint::black_box;
use std::ops::Range;

use foldhash::fast::RandomState;

use crate::config::Errors;
use crate::format::{DispatchRequest, MessageView, Transaction, index_key_hash, index_key_of_tag};

/// The arguments of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryRequest {
    /// The topic.
    pub topic: String,
    /// The key or tag of its messages.
    pub by: QueryBy,
    /// Store times in ms; `i64::MIN..i64::MAX` for all.
    pub times: Range<i64>,
    /// Most messages to return, the newest; `None` for all.
    pub limit: Option<usize>,
    /// The option for damage to a message that could match.
    pub errors: Errors,
}

/// The property that the messages of a query have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryBy {
    /// The key: a unique key, or one of the keys of a message.
    Key(String),
    /// The whole `TAGS` of a message. The index serves only where
    /// [`StoreConfig::index_tags`](crate::config::StoreConfig::index_tags) says that it holds tags.
    Tag(String),
}

impl QueryBy {
    /// Returns the key under which the index holds what is wanted.
    fn index_key(&self) -> Cow<'_, str> {
        match self {
            Self::Key(key) => key.into(),
            Self::Tag(tag) => index_key_of_tag(tag).into(),
        }
    }

    /// Returns true if the index would hold the message under this key or tag.
    fn is_of(&self, view: &MessageView<'_>) -> bool {
        match self {
            Self::Key(key) => DispatchRequest::of(view).has_key(key),
            Self::Tag(tag) => indexed_tag(view).is_some_and(|own| own == *tag),
        }
    }
}

impl fmt::Display for QueryBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "key {key:?}"),
            Self::Tag(tag) => write!(f, "tag {tag:?}"),
        }
    }
}

impl QueryRequest {
    /// Returns the store times that are wanted; `None` for all.
    pub(super) fn bounds(&self) -> Option<&Range<i64>> {
        Some(&self.times).filter(|times| **times != (i64::MIN..i64::MAX))
    }

    /// Returns true if the message matches.
    pub(crate) fn is_of(&self, view: &MessageView<'_>) -> bool {
        self.bounds().is_none_or(|times| times.contains(&view.store_time())) && view.has_topic(&self.topic) && self.by.is_of(view)
    }
}

/// Keys to be found, each with a number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// Topics and keys.
    Keys(&'a [(&'a str, &'a str)]),
    /// Unique keys, in each of these topics: all of the first key, then all of the second.
    UniqueKeys(&'a [String], &'a [&'a str]),
    /// One key or tag, within a time.
    Query(&'a QueryRequest),
}

/// Their numbers. A unique key has that of its first topic, and no topic here.
pub(super) type Numbers<'a> = HashMap<(&'a str, &'a str), Vec<usize>, RandomState>;

impl<'a> Wanted<'a> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Keys(pairs) => pairs.len(),
            Self::UniqueKeys(topics, keys) => topics.len() * keys.len(),
            Self::Query(_) => 1,
        }
    }

    /// Returns topic and key; `None` for a query.
    fn get(self, number: usize) -> Option<(&'a str, &'a str)> {
        match self {
            Self::Keys(pairs) => pairs.get(number).copied(),
            Self::UniqueKeys(topics, keys) => {
                let topic = topics.get(number.checked_rem(topics.len())?)?;
                Some((topic, keys.get(number / topics.len())?))
            }
            Self::Query(_) => None,
        }
    }

    /// Returns the topic of the key.
    pub(super) fn topic(self, number: usize) -> &'a str {
        match self {
            Self::Query(request) => &request.topic,
            Self::Keys(_) | Self::UniqueKeys(..) => self.get(number).map_or("", |(topic, _)| topic),
        }
    }

    /// Returns the hash of the key in the index.
    pub(super) fn hash(self, number: usize) -> i32 {
        match self {
            Self::Query(request) => index_key_hash(&request.topic, &request.by.index_key()),
            Self::Keys(_) | Self::UniqueKeys(..) => self.get(number).map_or(0, |(topic, key)| index_key_hash(topic, key)),
        }
    }

    /// Returns true if the message has the key.
    pub(super) fn is_of(self, number: usize, view: &MessageView<'_>) -> bool {
        if let Self::Query(request) = self {
            return request.is_of(view);
        }
        let Some((topic, key)) = self.get(number) else { return false };
        view.has_topic(topic)
            && match self {
                Self::Keys(_) => DispatchRequest::of(view).has_key(key),
                Self::UniqueKeys(..) | Self::Query(_) => view.unique_key().is_some_and(|own| own == key),
            }
    }

    /// Returns true if the message may be wanted, whatever its topic is.
    pub(super) fn may_be_of(self, view: &MessageView<'_>) -> bool {
        match self {
            Self::Query(request) => request.by.is_of(view),
            Self::Keys(_) | Self::UniqueKeys(..) => true,
        }
    }

    /// Prefetches the keys with these numbers, so that their cache misses overlap.
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
            Self::Query(_) => {}
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
            Self::Query(request) => {
                if request.is_of(view) {
                    take(0);
                }
            }
        }
    }

    /// Returns the topics of the keys, each once.
    pub(super) fn topics(self, numbers: &Numbers<'a>) -> Vec<&'a str> {
        let mut topics: Vec<&str> = match self {
            Self::Keys(_) => numbers.keys().map(|(topic, _)| *topic).collect(),
            Self::UniqueKeys(topics, _) => topics.iter().map(String::as_str).collect(),
            Self::Query(request) => vec![&request.topic],
        };
        topics.sort_unstable();
        topics.dedup();
        topics
    }
}

/// Returns the tag under which an index of tags holds the message.
pub(crate) fn indexed_tag<'a>(view: &MessageView<'a>) -> Option<Cow<'a, str>> {
    view.tags().filter(|_| view.transaction() != Transaction::Rollback)
}
