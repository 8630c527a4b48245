//! A table of values by topic and queue id, for lookups message by message.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A value for each queue, by topic and queue id. Fast path: the next message often has the topic of the last one, which is found
/// without a search.
#[derive(Debug)]
pub struct QueueTable<T> {
    values: Vec<T>,
    topics: Vec<Topic>,
    /// Indexes into `topics`.
    topic_indexes: HashMap<Box<[u8]>, usize, RandomState>,
    /// The index of the last topic.
    last: usize,
}

/// The handle of a queue's value in the table.
#[derive(Debug, Clone, Copy)]
pub struct QueueHandle(usize);

#[derive(Debug)]
struct Topic {
    name: Box<[u8]>,
    /// The queues, ascending by queue id.
    queues: Vec<(i32, QueueHandle)>,
}

impl<T> Default for QueueTable<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            topics: Vec::new(),
            topic_indexes: HashMap::default(),
            last: 0,
        }
    }
}

impl<T> QueueTable<T> {
    /// Returns the handle of a queue, which stays valid; `None` if it has no value yet.
    #[inline]
    pub fn find(&mut self, topic: &[u8], queue_id: i32) -> Option<QueueHandle> {
        if self.topics.get(self.last).is_none_or(|last| *last.name != *topic) {
            self.last = *self.topic_indexes.get(topic)?;
        }
        let queues = &self.topics.get(self.last)?.queues;
        // Fast path: almost all topics have the queues from 0 on.
        let in_order = usize::try_from(queue_id).ok().and_then(|at| queues.get(at));
        if let Some((id, handle)) = in_order
            && *id == queue_id
        {
            return Some(*handle);
        }
        let at = queues.binary_search_by_key(&queue_id, |(id, _)| *id).ok()?;
        queues.get(at).map(|(_, handle)| *handle)
    }

    /// Returns the value of a queue.
    pub fn get(&self, handle: QueueHandle) -> Option<&T> {
        self.values.get(handle.0)
    }

    /// Returns the value of a queue, to be changed.
    pub fn get_mut(&mut self, handle: QueueHandle) -> Option<&mut T> {
        self.values.get_mut(handle.0)
    }

    /// Adds a queue that has no value yet.
    pub fn add(&mut self, topic: &[u8], queue_id: i32, value: T) -> QueueHandle {
        let handle = QueueHandle(self.values.len());
        self.values.push(value);
        let next = self.topics.len();
        let at = *self.topic_indexes.entry(topic.into()).or_insert(next);
        if at == next {
            self.topics.push(Topic {
                name: topic.into(),
                // Most topics have one queue if there are very many topics.
                queues: Vec::with_capacity(1),
            });
        }
        if let Some(topic) = self.topics.get_mut(at) {
            let at = topic.queues.partition_point(|(id, _)| *id < queue_id);
            topic.queues.insert(at, (queue_id, handle));
        }
        handle
    }

    /// Returns all values.
    pub fn into_values(self) -> Vec<T> {
        self.values
    }
}
