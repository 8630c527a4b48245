//! `new_unique_key`.

use pyo3::prelude::*;

use crate::storage::RealEnv;
use crate::store;

/// A new unique key for a message: str, for `append(..., unique_key=...)`, as RocketMQ's client
/// makes one for each message that it sends.
///
/// No other call gives the same key, in any thread, process or fork. RocketMQ's
/// `MessageClientIDSetter` reads it: it holds the address of this machine, the process id, a random
/// number, the time and a counter as 32 hex digits in capitals, 56 where the address is IPv6.
/// `Store.message` finds the message by it.
#[pyfunction]
pub(super) fn new_unique_key() -> String {
    store::new_unique_key(&RealEnv::new()).to_string()
}
