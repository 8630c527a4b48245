//! The questions about open transactions: when a half message is due for one, and when it is given up. RocketMQ:
//! `TransactionalMessageCheckService`.
//!
//! A question is counted before it is asked, and the half message stays where it is. A broker stores it again for each question, so
//! its offsets change, and an answer to an older copy is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::transaction::Transactions;
use super::transaction_search::OpenHalf;
use crate::error::Result;
use crate::format::property;
use crate::watermark::Wait;

/// The lead of a store time over the clock up to which a half message waits: the clock may be set back.
const LEAD_MS: i64 = 10_000;
/// The pause after a half message that could not be given up.
const RETRY_MS: i64 = 1000;

/// The times and the number of questions about a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckRules {
    /// The age of a half message at the first question, unless it states another: RocketMQ's `transactionTimeOut`.
    pub timeout: Duration,
    /// The time between two questions: RocketMQ's `transactionCheckInterval`.
    pub interval: Duration,
    /// The number of questions after which it is given up: RocketMQ's `transactionCheckMax`.
    pub max_checks: u32,
}

impl Default for CheckRules {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(6),
            interval: Duration::from_secs(60),
            max_checks: 15,
        }
    }
}

/// A check of the open transactions. It ends when another one begins, and at the close.
#[derive(Debug)]
pub struct TransactionChecker {
    transactions: Arc<Transactions>,
    rules: CheckRules,
    /// The number of this check.
    number: i64,
    /// The half messages before this queue offset are in `due`, or have ended.
    seen: i64,
    /// The time in ms of the next question, by queue offset.
    due: BTreeMap<i64, i64>,
}

impl TransactionChecker {
    /// Begins a check, and ends the one before it.
    pub fn new(transactions: Arc<Transactions>, rules: CheckRules) -> Self {
        let number = transactions.begin_check();
        Self {
            transactions,
            rules,
            number,
            seen: 0,
            due: BTreeMap::new(),
        }
    }

    /// Returns the half messages whose producers are to be asked at the time `now_ms`, each counted, and the time of the next question.
    /// Those that were asked too often are given up.
    ///
    /// # Errors
    /// Those of [`Transactions::open`], and of an append: the next call tries again.
    pub fn take_due(&mut self, now_ms: i64) -> Result<(Vec<OpenHalf>, Option<i64>)> {
        let from = self
            .due
            .iter()
            .find(|(_, due)| **due <= now_ms)
            .map_or(self.seen, |(half, _)| *half);
        let (mut asked, mut failed) = (Vec::new(), None);
        for mut half in self.transactions.open_from(from.min(self.seen))?.halves {
            let offset = half.message.view().queue_offset();
            if offset >= self.seen {
                self.due.insert(offset, self.first_due(&half, now_ms));
                self.seen = offset + 1;
            }
            if self.due.get(&offset).is_none_or(|due| *due > now_ms) {
                continue;
            }
            let next_due = if half.checks >= self.rules.max_checks {
                let given_up = self.transactions.give_up(&half);
                given_up.map_err(|error| failed = Some(error)).err().map(|()| RETRY_MS)
            } else if self.transactions.count_check(offset)? {
                half.checks += 1;
                asked.push(half);
                Some(ms(self.rules.interval))
            } else {
                None
            };
            match next_due {
                Some(after) => self.due.insert(offset, now_ms.saturating_add(after)),
                None => self.due.remove(&offset),
            };
        }
        // What has ended is not listed any more.
        self.due.retain(|_, due| *due > now_ms);
        match failed {
            Some(error) if asked.is_empty() => Err(error),
            _ => Ok((asked, self.due.values().min().copied())),
        }
    }

    /// Waits for `patience`, and returns false if the check ends before.
    pub fn wait(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        matches!(
            self.transactions.checks().wait(self.number + 1, Some(deadline)),
            Wait::TimedOut
        )
    }

    /// Returns the time of the first question about a half message.
    fn first_due(&self, half: &OpenHalf, now_ms: i64) -> i64 {
        let view = half.message.view();
        if view.store_time() > now_ms.saturating_add(LEAD_MS) {
            return now_ms;
        }
        let stated = view.properties().get(property::CHECK_IMMUNITY_TIME_IN_SECONDS);
        let stated = stated.and_then(|stated| stated.parse::<u32>().ok());
        let age = stated.map_or_else(|| ms(self.rules.timeout), |seconds| i64::from(seconds) * 1000);
        view.store_time().saturating_add(age)
    }
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
