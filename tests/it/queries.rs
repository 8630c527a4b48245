//! Queries that several tests share.

use mqstore::config::Errors;
use mqstore::read::{QueryBy, QueryRequest};

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
