//! The queues of a topic, divided among the consumers of a group: RocketMQ's `AllocateMessageQueueAveragely`.

use std::ops::Range;

/// Returns the range of the consumer `index` of `consumers` in a sorted list of `queues` queues. The ranges are contiguous, and their
/// lengths differ by at most one. A consumer past the last queue has none.
pub(super) fn allocate_averagely(queues: usize, consumers: usize, index: usize) -> Range<usize> {
    let Some(rest) = queues.checked_rem(consumers) else {
        return 0..0;
    };
    let each = queues / consumers;
    let start = index * each + index.min(rest);
    let len = each + usize::from(index < rest);
    start.min(queues)..(start + len).min(queues)
}

#[cfg(test)]
mod tests {
    use super::allocate_averagely;

    /// The formula of RocketMQ 4.9.8 and 5.3.3.
    fn rocketmq(queues: usize, consumers: usize, index: usize) -> Vec<usize> {
        let rest = queues % consumers;
        let average = match () {
            () if queues <= consumers => 1,
            () if rest > 0 && index < rest => queues / consumers + 1,
            () => queues / consumers,
        };
        let start = index * average + if rest > 0 && index < rest { 0 } else { rest };
        let len = average.min(queues.saturating_sub(start));
        (start..start + len).collect()
    }

    #[test]
    fn queues_are_divided_as_rocketmq_divides_them() {
        for queues in 0..40 {
            for consumers in 1..20 {
                for index in 0..consumers {
                    let ours: Vec<_> = allocate_averagely(queues, consumers, index).collect();
                    assert_eq!(ours, rocketmq(queues, consumers, index), "{queues} {consumers} {index}");
                }
            }
        }
    }
}
