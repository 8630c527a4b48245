//! The topics of a scan that have no queue, although the log may have messages of them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::format::MessageView;
use crate::read::message_reader::MessageReader;
use crate::read::scan::request::ScanRequest;
use crate::sync::lock;

/// Requested topics without a message in the scan so far. A clone takes part in the same scan.
#[derive(Debug, Clone)]
pub(super) struct AbsentTopics {
    shared: Arc<Mutex<HashSet<Vec<u8>>>>,
    /// Requested topics without a message from this clone so far.
    own: HashSet<Vec<u8>>,
}

impl AbsentTopics {
    pub(super) fn new(request: &ScanRequest, reader: &MessageReader) -> Self {
        let (named, queues) = (request.topics.iter().flatten(), reader.queue_store());
        let own: HashSet<_> = named
            .filter(|topic| !queues.has_topic(topic) && queues.rocksdb_of_light(topic).is_none())
            .map(|topic| topic.clone().into_bytes())
            .collect();
        Self {
            shared: Arc::new(Mutex::new(own.clone())),
            own,
        }
    }

    /// Takes account of a message that is given.
    #[inline]
    pub(super) fn give(&mut self, view: &MessageView<'_>) {
        if !self.own.is_empty() && self.own.remove(view.topic_bytes()) {
            lock(&self.shared).remove(view.topic_bytes());
        }
    }

    /// Returns the names, ascending.
    pub(super) fn names(&self) -> Vec<String> {
        let shared = lock(&self.shared);
        let mut names: Vec<_> = shared.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort_unstable();
        names
    }
}
