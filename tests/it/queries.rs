//! Queries that several tests share.

use mqstore::config::Errors;
use mqstore::read::{MessageReader, QueryBy, QueryRequest};

/// All messages of a topic with a key.
pub fn by_key(topic: &str, key: &str) -> QueryRequest {
    QueryRequest {
        topic: topic.to_owned(),
        by: QueryBy::Key(key.to_owned()),
        times: i64::MIN..i64::MAX,
        limit: None,
        errors: Errors::Raise,
    }
}

/// Returns the physical offsets of the messages of topic "orders" with a key, of the newest `limit` if there are more.
pub fn offsets_by_key(reader: &MessageReader, key: &str, limit: Option<usize>) -> Vec<i64> {
    let result = reader
        .query(&QueryRequest {
            limit,
            ..by_key("orders", key)
        })
        .unwrap();
    let is_cut = limit.is_some_and(|limit| result.hits.len() == limit);
    assert!(result.complete || is_cut);
    result.hits.iter().map(|hit| hit.physical_offset).collect()
}
