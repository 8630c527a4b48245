//! The mark of transactions: a field of `config/consumerOffset.json` that brokers ignore, and drop when they write the file.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::settings_file::{Fields, OWN_FIELD};

const SETTLED_END: &str = "transactionsSettledEnd";
const CHECKS: &str = "transactionChecks";

/// The state of the transactions that the log does not show, or only in a long read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TransactionMark {
    /// A physical offset: each transaction that a record before it has committed has its op message. After a crash, the records after it
    /// show what was committed since.
    pub(super) settled_end: i64,
    /// The number of questions about each open transaction, by the queue offset of its half message.
    pub(super) checks: BTreeMap<i64, u32>,
}

impl TransactionMark {
    /// Reads the mark; `None` if it is absent.
    pub(super) fn of_fields(fields: &Fields) -> Option<Self> {
        let own = fields.get(OWN_FIELD)?;
        let checks = own.get(CHECKS).and_then(Value::as_object).into_iter().flatten();
        Some(Self {
            settled_end: own.get(SETTLED_END)?.as_i64()?,
            checks: checks
                .filter_map(|(offset, count)| Some((offset.parse().ok()?, u32::try_from(count.as_u64()?).ok()?)))
                .collect(),
        })
    }

    /// Returns true if every record from the mark on was of this crate: no broker has ended transactions since. `own_from` is the physical
    /// offset from which on that is so, if there is one.
    pub(super) fn is_valid(&self, own_from: Option<i64>) -> bool {
        own_from.is_some_and(|from| from <= self.settled_end)
    }

    /// Writes the mark into the field of this crate.
    pub(super) fn write(&self, own: &mut Fields) {
        own.insert(SETTLED_END.to_owned(), Value::from(self.settled_end));
        let checks: Fields = self
            .checks
            .iter()
            .map(|(offset, count)| (offset.to_string(), json!(count)))
            .collect();
        own.insert(CHECKS.to_owned(), Value::Object(checks));
    }
}
