//! Half messages, their ends, and the questions about them.

use std::sync::Arc;
use std::time::Duration;

use mqstore::broker::{CheckRules, TransactionChecker, TransactionEnd};
use mqstore::error::Error;
use mqstore::format::{Message, encode_properties, property};
use mqstore::read::{MessageReader, StoredMessage};

use super::super::super::files::Files;
use super::super::super::model::{Checked, Violation, works};
use super::super::judge::QueueName;
use super::Run;
use crate::broker::transaction_log::{End, TransactionLog, check_reader, open_places};

/// The times of a check. A half message is given up soon.
const RULES: CheckRules = CheckRules {
    timeout: Duration::from_secs(6),
    interval: Duration::from_secs(60),
    max_checks: 2,
};

impl Run<'_> {
    pub(super) fn send_half(&mut self, queue: &QueueName, tag: &str, body: usize) -> Checked {
        let id = self.next.0;
        self.next.0 += 1;
        let message = Message {
            topic: queue.0.clone().into(),
            queue_id: queue.1,
            body: format!("{id}:{}", "h".repeat(body)).into_bytes().into(),
            properties: encode_properties([(property::TAGS, tag)], true).unwrap().into(),
            ..Message::default()
        };
        let transactions = works("transactions", self.broker().transactions())?.clone();
        let sent = transactions.send_half(message, "tellers", None);
        let sent = self.outcome("a half message is sent", sent)?;
        let place = sent.map(|sent| (sent.appended.physical_offset, sent.appended.queue_offset, sent.appended.end()));
        self.judge.produced(id, queue.clone(), None);
        self.judge.transactions.sends(id, place);
        Ok(())
    }

    /// Ends a half message that `number` chooses: mostly an open one.
    pub(super) fn end_chosen(&mut self, number: u64, how: TransactionEnd, durable: Option<bool>) -> Checked {
        let Some(half) = self.judge.transactions.choose(number / 8, number.is_multiple_of(8)) else {
            return Ok(());
        };
        self.tell(|| format!("  the half message at {half}"));
        self.without_fault(Self::settle)?;
        self.end_half(half, how, durable)
    }

    fn end_half(&mut self, half: i64, how: TransactionEnd, durable: Option<bool>) -> Checked {
        let end = match how {
            TransactionEnd::Commit => End::Committed,
            TransactionEnd::Rollback => End::RolledBack,
        };
        self.judge.transactions.may_end(half, end);
        let transactions = works("transactions", self.broker().transactions())?.clone();
        let ended = transactions.end(half, how, durable);
        let until = self.store().appended_offset();
        if let Err(Error::TransactionEnded { outcome, .. }) = ended {
            self.env.set_fault(None);
            return self.judge.transactions.refused(half, outcome, until);
        }
        let Some(committed) = self.outcome("a transaction ends", ended)? else {
            return Ok(());
        };
        if let Some(copy) = committed {
            self.judge.committed(half, (copy.appended.queue_offset, copy.appended.end()));
        }
        self.judge.transactions.ends(half, end, until)
    }

    /// Asks about the transactions that are due, with the clock advanced by this many ms. `answers` chooses the answers.
    pub(super) fn check(&mut self, ms: u64, answers: u64) -> Checked {
        self.pass(ms);
        self.without_fault(Self::settle)?;
        let transactions = works("transactions", self.broker().transactions())?.clone();
        let checker = self
            .checker
            .get_or_insert_with(|| TransactionChecker::new(transactions.clone(), RULES));
        let may_go = self.judge.transactions.may_give_up(RULES.max_checks);
        let taken = checker.take_due(self.env.now());
        let asked = self.outcome("a check", taken)?.map(|(asked, _)| asked).unwrap_or_default();
        self.without_fault(|run| run.adopt_halves().map(drop))?;
        let until = self.store().appended_offset();
        for (half, queue_offset) in may_go {
            if !works("transactions", transactions.is_open(queue_offset))? {
                self.judge.transactions.gives_up(half, until)?;
            }
        }
        let places: Vec<_> = asked.iter().map(|half| half.message.view().physical_offset()).collect();
        for half in &places {
            self.judge.transactions.asks(*half)?;
        }
        for (number, half) in (answers..).zip(places) {
            match number % 4 {
                0 => self.end_half(half, TransactionEnd::Commit, None)?,
                1 => self.end_half(half, TransactionEnd::Rollback, Some(true))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes account of half messages that are in the log although their append has failed. Returns what the log has.
    fn adopt_halves(&mut self) -> Result<TransactionLog, Violation> {
        let reader = self.store().reader().clone();
        let found = in_log(&self.log(&reader)?)?;
        self.judge.transactions.adopt_all(&found);
        Ok(found)
    }

    /// Runs a call of the store in which nothing fails.
    fn without_fault(&mut self, work: impl FnOnce(&mut Self) -> Checked) -> Checked {
        let fault = self.env.pause_fault();
        work(self)?;
        self.env.resume_fault(fault);
        Ok(())
    }

    /// Compares the transactions of a crashed log with what calls have returned, and with what a reader finds.
    pub(super) fn examine_transactions(&self, reader: &Arc<MessageReader>, log: &[StoredMessage], files: &Files) -> Checked {
        let found = in_log(log)?;
        self.judge.transactions.examine(&found, self.flushed)?;
        let check = "a reader finds the open transactions";
        check_reader(reader, &found).map_err(|what| Violation { check, what })?;
        let Some(bytes) = files.get("config/consumerOffset.json") else {
            return Ok(());
        };
        let check = "progress passes no open transaction";
        let file = serde_json::from_slice(bytes).map_err(|error| Violation {
            check,
            what: error.to_string(),
        })?;
        found.check_progress(&file).map_err(|what| Violation { check, what })
    }

    /// Ends every transaction that a store has open, which are those that its log shows.
    pub(super) fn end_all(&mut self) -> Checked {
        let check = "a writer finds the open transactions";
        // A dispatcher that has met a shortage tries again later.
        self.pass(1000);
        self.settle()?;
        let found = self.adopt_halves()?;
        let transactions = works(check, self.broker().transactions())?.clone();
        let open = open_places(&works(check, transactions.open())?);
        if open != found.open() {
            let what = format!("{open:?}, by the log {:?}", found.open());
            return Err(Violation { check, what });
        }
        for (number, half) in open.into_iter().enumerate() {
            let how = if number % 2 == 0 {
                TransactionEnd::Commit
            } else {
                TransactionEnd::Rollback
            };
            self.end_half(half, how, None)?;
        }
        Ok(())
    }

    /// Continues with the transactions of the store that was opened again.
    pub(super) fn restart_transactions(&mut self) -> Checked {
        self.checker = None;
        let reader = self.store().reader().clone();
        let found = in_log(&self.log(&reader)?)?;
        self.judge.transactions.restart(&found, reader.physical_bounds().end);
        Ok(())
    }
}

fn in_log(log: &[StoredMessage]) -> Checked<TransactionLog> {
    let check = "each transaction ends once";
    TransactionLog::of(log).map_err(|what| Violation { check, what })
}
