//! The operations of consumers, producers and a failing machine, drawn from one seed.

use mqstore::broker::{Start, Subscription, TransactionEnd};
use mqstore::read::OnMissing;

use crate::simulated_env::{Failure, Fault, Random};
use std::time::Duration;

/// The time after which a message that a consumer holds is sent back.
pub(super) const CONSUME_TIMEOUT: Duration = Duration::from_secs(60);
/// The queues of each topic.
const QUEUES: u64 = 3;
/// The most consumers of a group.
pub(super) const MEMBERS: usize = 3;

/// A group of consumers.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: &'static str,
    topics: &'static [&'static str],
    /// The wanted tags; none for all.
    tags: &'static [&'static str],
    pub(super) is_ordered: bool,
    pub(super) max_reconsume_times: i32,
}

/// The groups of every history.
pub(super) const GROUPS: [Group; 3] = [
    Group {
        name: "all",
        topics: &["t", "u"],
        tags: &[],
        is_ordered: false,
        max_reconsume_times: 2,
    },
    Group {
        name: "tagged",
        topics: &["t"],
        tags: &["a", "b"],
        is_ordered: false,
        max_reconsume_times: 1,
    },
    Group {
        name: "ordered",
        topics: &["u"],
        tags: &[],
        is_ordered: true,
        max_reconsume_times: 2,
    },
];

/// The topics that producers write to.
const TOPICS: [&str; 2] = ["t", "u"];
const TAGS: [&str; 3] = ["a", "b", "c"];

impl Group {
    /// Returns the number of a group.
    pub(super) fn number(name: &str) -> Option<usize> {
        GROUPS.iter().position(|group| group.name == name)
    }

    pub(super) fn subscription(&self) -> Subscription {
        let tags = self.tags.join(" || ");
        Subscription {
            topics: self.topics.iter().map(|topic| (*topic).to_owned()).collect(),
            tags: if tags.is_empty() { "*".to_owned() } else { tags },
            is_ordered: self.is_ordered,
            max_reconsume_times: Some(self.max_reconsume_times),
            consume_timeout: CONSUME_TIMEOUT,
            on_missing: OnMissing::Refuse,
        }
    }

    pub(super) fn retry_topic(&self) -> String {
        format!("%RETRY%{}", self.name)
    }

    pub(super) fn subscribes(&self, topic: &str) -> bool {
        self.topics.contains(&topic)
    }

    /// The topics that it reads.
    pub(super) fn all_topics(&self) -> impl Iterator<Item = String> {
        self.topics
            .iter()
            .map(|topic| (*topic).to_owned())
            .chain([self.retry_topic()])
    }

    /// Returns true if the group gets messages with this tag.
    pub(super) fn wants(&self, topic: &str, tag: &str) -> bool {
        topic == self.retry_topic() || (self.subscribes(topic) && (self.tags.is_empty() || self.tags.contains(&tag)))
    }
}

/// The choice of messages in an acknowledgement, among those that the group was given and has not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Each message that the consumer holds.
    All,
    /// The first of those.
    First,
    /// The last of those.
    Last,
    /// A message of the group, whoever holds it.
    OfAnyone(u64),
    /// A settled message.
    Again(u64),
    /// A message that the group was not given yet.
    Unknown(u64),
}

/// One operation. `member` chooses one of the consumers that exist then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Operation {
    Produce {
        topic: &'static str,
        queue_id: i32,
        tag: &'static str,
        /// 0: none.
        delay_level: i32,
        body: usize,
        count: u64,
    },
    /// Sends the half message of a transaction.
    Half {
        topic: &'static str,
        queue_id: i32,
        tag: &'static str,
        body: usize,
    },
    /// Ends a transaction that `number` chooses.
    End {
        number: u64,
        how: TransactionEnd,
        durable: Option<bool>,
    },
    /// Asks about the open transactions, with the clock advanced by this many ms.
    Check {
        ms: u64,
        answers: u64,
    },
    Flush,
    /// Steps a service of the store, with the clock advanced by this many ms.
    Dispatch(u64),
    FlushStep(u64),
    CommitStep(u64),
    Allocate,
    Join(usize, Start),
    /// A consumer closes.
    Leave(usize),
    /// A consumer goes away without a close.
    Drop(usize),
    Poll {
        member: usize,
        most: usize,
    },
    Ack {
        member: usize,
        choice: Choice,
    },
    Nack {
        member: usize,
        number: u64,
        delay_level: Option<i32>,
    },
    Seek {
        member: usize,
        number: u64,
    },
    Pause {
        member: usize,
        number: u64,
    },
    Resume(usize),
    /// A durable commit.
    Commit(usize),
    /// Steps the service that persists progress, with the clock advanced by this many ms.
    Keep(u64),
    /// Delivers the delayed messages and retries that are due, with the clock advanced by this many ms.
    Deliver(u64),
    /// Steps the service that persists the progress of the delivery, with the clock advanced by this many ms.
    PersistDelays(u64),
    /// Time passes, in ms.
    Wait(u64),
    /// The wall clock is set so that it is this many ms behind.
    Clock(i64),
    /// A clean close, and everything is opened again.
    Reopen,
    Kill,
    PowerCut(u64),
    /// A call of this operation fails.
    Failing(Fault, Box<Operation>),
}

/// Draws operations. Histories begin with consumers.
pub(super) fn operations(random: &mut Random, count: usize) -> Vec<Operation> {
    (0..count)
        .map(|at| {
            if at < 3 && random.one_in(2) {
                join(random)
            } else if random.one_in(12) {
                Operation::Failing(fault(random), Box::new(operation(random)))
            } else {
                operation(random)
            }
        })
        .collect()
}

fn join(random: &mut Random) -> Operation {
    let start = match random.below(4) {
        0 => Start::Latest,
        _ => Start::Earliest,
    };
    Operation::Join(random.index(GROUPS.len()), start)
}

fn fault(random: &mut Random) -> Fault {
    Fault {
        failure: random.pick(&[
            Failure::Device,
            Failure::Full,
            Failure::TooLarge,
            Failure::Shortage,
            Failure::Short,
        ]),
        number: random.pick(&[0, 0, 1, 2, 3, 5, 8, 13]),
        stays: random.one_in(2),
    }
}

fn operation(random: &mut Random) -> Operation {
    let member = random.index(12);
    let number = random.next() >> 40;
    match random.below(87) {
        0..11 => Operation::Produce {
            topic: random.pick(&TOPICS),
            queue_id: random.below(QUEUES) as i32,
            tag: random.pick(&TAGS),
            delay_level: random.pick(&[0, 0, 1, 2, 3]),
            body: random.pick(&[0, 20, 100, 900]),
            count: random.pick(&[1, 1, 3, 6]),
        },
        11..23 => Operation::Poll {
            member,
            most: random.pick(&[1, 2, 4, 32]),
        },
        23..32 => Operation::Ack {
            member,
            choice: match random.below(10) {
                0..4 => Choice::All,
                4..6 => Choice::First,
                6 => Choice::Last,
                7 => Choice::OfAnyone(number),
                8 => Choice::Again(number),
                _ => Choice::Unknown(number),
            },
        },
        32..37 => Operation::Nack {
            member,
            number,
            delay_level: random.pick(&[None, None, Some(0), Some(2), Some(-1)]),
        },
        37..39 => Operation::Commit(member),
        39..42 => Operation::Keep(random.pick(&[0, 5000, 6000])),
        42..44 => join(random),
        44 => Operation::Leave(member),
        45 => Operation::Drop(member),
        46 => Operation::Seek { member, number },
        47 => Operation::Pause { member, number },
        48 => Operation::Resume(member),
        49..51 => Operation::Wait(random.pick(&[10, 1000, 30_000, 61_000])),
        51..53 => Operation::Flush,
        53..56 => Operation::Dispatch(random.pick(&[0, 20])),
        56 => Operation::FlushStep(random.pick(&[0, 600])),
        57 => Operation::CommitStep(random.pick(&[0, 400])),
        58 => Operation::Allocate,
        59..61 => Operation::Kill,
        61 => Operation::Reopen,
        62..68 => Operation::Deliver(random.pick(&[0, 1000, 5000, 30_000])),
        68..70 => Operation::PersistDelays(random.pick(&[0, 10_000])),
        70..73 => Operation::PowerCut(random.next()),
        73..77 => Operation::Half {
            topic: random.pick(&TOPICS),
            queue_id: random.below(QUEUES) as i32,
            tag: random.pick(&TAGS),
            body: random.pick(&[0, 20, 100, 900]),
        },
        77..81 => Operation::End {
            number,
            how: random.pick(&[TransactionEnd::Commit, TransactionEnd::Commit, TransactionEnd::Rollback]),
            durable: random.pick(&[None, Some(false), Some(true)]),
        },
        81..84 => Operation::Check {
            ms: random.pick(&[0, 6000, 61_000]),
            answers: number,
        },
        // Less than the lead of a store time for which a delayed message waits.
        _ => Operation::Clock(random.pick(&[0, 1000, 4000, 9000])),
    }
}
