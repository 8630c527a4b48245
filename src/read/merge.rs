//! K-way merge of queues by physical offset.

use std::collections::BinaryHeap;

/// The next messages of queues, in the order of the log or from its end.
#[derive(Debug)]
pub(super) struct Heads {
    /// The physical offset of the next message of each queue, negated unless reversed so that the first one is the greatest; and the queue.
    heap: BinaryHeap<(i64, usize)>,
    reverse: bool,
}

impl Heads {
    pub(super) fn new(reverse: bool) -> Self {
        Self {
            heap: BinaryHeap::new(),
            reverse,
        }
    }

    /// Adds the next message of a queue.
    pub(super) fn push(&mut self, physical_offset: i64, queue: usize) {
        self.heap.push((self.rank(physical_offset), queue));
    }

    /// Takes the queue whose next message comes first.
    pub(super) fn pop(&mut self) -> Option<usize> {
        self.heap.pop().map(|(_, queue)| queue)
    }

    /// Takes the queue whose next message comes first, if that is at this offset or before it.
    pub(super) fn pop_up_to(&mut self, physical_offset: i64) -> Option<usize> {
        let (head, _) = self.heap.peek()?;
        if *head < self.rank(physical_offset) {
            return None;
        }
        self.pop()
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }

    /// Returns true if one offset comes before another one.
    pub(super) fn is_before(&self, one: i64, other: i64) -> bool {
        self.rank(one) > self.rank(other)
    }

    fn rank(&self, physical_offset: i64) -> i64 {
        if self.reverse { physical_offset } else { -physical_offset }
    }
}
