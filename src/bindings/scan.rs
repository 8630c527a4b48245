//! `Store.scan`.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::arguments::{self, explained, text, texts, type_of};
use super::batches::{Batches, expect_batch_size};
use super::interpreter_exit::hang_at_exit;
use super::source::{Part, Source};
use super::store::Store;
use super::time::to_ms;
use crate::config::Errors;
use crate::format::Round;
use crate::read::{BodyFilter, Order, ScanRequest, TagFilter, TimeOf, Transactions};

#[pymethods]
impl Store {
    /// All messages that meet some conditions, as Arrow record batches. Nothing is read before the
    /// first batch is asked for.
    ///
    /// `topics` is a topic or several (one that is not there is no error: messages of a deleted
    /// topic may be in the log, and `Batches.absent_topics` names those of which there are none),
    /// `queues` a queue id or several. `time` is a pair of times (a datetime with a timezone, an
    /// int of ms since 1970, or None for open), the first inclusive and the second exclusive, of
    /// the store time, or of the born time with `by="born"`; `physical` is such a pair of physical
    /// offsets at which records start. `tags` wants one of some tags ("paid || refund"), `keys` one
    /// of some keys (a unique key, or one of the keys of a message; no message has one of none),
    /// `properties` all of some properties with their values. `body_contains` (bytes or str) and
    /// `body_regex` (a pattern of Rust's regex crate) look into the body, decompressed. With
    /// `decode_body=True` the column `body` is decompressed, and the compression bits of `sys_flag`
    /// are cleared, so that the row can be appended as it is; a body that does not decompress
    /// counts as damaged.
    ///
    /// By default this is what consumers see, and, of topics whose queues are gone or are a
    /// database, what they would see. A message that stands in light queues, too, is given once.
    /// `transactions="all"` gives every whole record of the log: half and rolled-back messages, and
    /// those of an earlier topic of the same name, too.
    ///
    /// `order` is "log" (by physical offset) or "queue" (by topic, queue id and queue offset);
    /// `reverse=True` turns it, and `limit` counts in it. For "queue", the places of messages that
    /// stand in no queue are looked for first and kept, 24 bytes for each. With `time`, segments
    /// are left out that were written at another time; a clock that was set back by more than half
    /// an hour can hide messages from that.
    ///
    /// `columns`, `errors` as in `Topic.batches`; `batch_bytes` is about the most that a batch
    /// holds. `progress` is called with two ints as the messages are read: about how many bytes are
    /// done, and of how many. `max_mb_per_s` bounds the reading, in 10**6 bytes a second. While
    /// `progress` runs, no thread can ask for the next batch of this iterator: that raises
    /// `ValueError`.
    ///
    /// A scan of 16 MiB or more without `limit`, `reverse` and `max_mb_per_s` is read by several
    /// threads: as many as the environment variable `OMP_NUM_THREADS` says, or as the process may
    /// run at once, 16 at most. Memory holds the batches of about 4 MiB of the log, or of
    /// `batch_bytes` if that is more, for each thread and two more. With `order="log"` the pages of
    /// the log that the scan brings into the page cache are dropped after they were read; those
    /// that were there before stay.
    ///
    /// No checksum covers the topic, the queue id and the transaction of a message, unless its
    /// record ends with one (`__CRC32#`). A message on which these and its queue entry disagree
    /// counts as damaged, whether the scan goes along the queues or along the log. So does one
    /// whose tags its entry contradicts, if `tags` are asked for and the entry has the code of one
    /// of them: one whose code was damaged is not looked at along the queues, as a broker does not
    /// look at it. Damage of the store time, of keys and other properties shows only in the message
    /// itself, and where no queue leads to a message, neither does that of its topic:
    /// `Store.verify` tells of both, as far as other files repeat them.
    ///
    /// Raises `TypeError` and `ValueError` for an argument; reading raises `CorruptError` at
    /// damage, or skips it, and what `progress` raises.
    #[pyo3(signature = (*, topics=None, queues=None, time=None, by="store", physical=None, tags=None, keys=None, properties=None,
                        body_contains=None, body_regex=None, transactions="committed", columns=None, order="log", limit=None, reverse=false,
                        decode_body=false, batch_bytes=4_194_304, errors=None, progress=None, max_mb_per_s=None))]
    fn scan(
        &self,
        topics: Option<&Bound<'_, PyAny>>,
        queues: Option<&Bound<'_, PyAny>>,
        time: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::by)] by: &str,
        physical: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::tag_expression)] tags: Option<&str>,
        keys: Option<&Bound<'_, PyAny>>,
        properties: Option<&Bound<'_, PyAny>>,
        body_contains: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::body_regex)] body_regex: Option<&str>,
        #[pyo3(from_py_with = arguments::transactions)] transactions: &str,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::order)] order: &str,
        #[pyo3(from_py_with = arguments::limit)] limit: Option<usize>,
        #[pyo3(from_py_with = arguments::reverse)] reverse: bool,
        #[pyo3(from_py_with = arguments::decode_body)] decode_body: bool,
        #[pyo3(from_py_with = arguments::batch_bytes)] batch_bytes: usize,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
        progress: Option<&Bound<'_, PyAny>>,
        max_mb_per_s: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Batches> {
        self.handle.expect_open()?;
        expect_batch_size("batch_bytes", batch_bytes)?;
        let contained = body_contains.map(bytes_of).transpose()?;
        let request = ScanRequest {
            topics: topics.map(|topics| texts(topics, "topics")).transpose()?,
            queues: queues.map(queue_ids).transpose()?,
            physical: arguments::physical(physical)?,
            times: arguments::pair(time, "time", i64::MIN, |time| to_ms(time, "time", Round::Up))?,
            by: arguments::word("by", by, [("store", TimeOf::Store), ("born", TimeOf::Born)])?,
            tags: TagFilter::parse(tags.unwrap_or("*")),
            keys: keys.map(|keys| texts(keys, "keys")).transpose()?,
            properties: properties.map_or(Ok(Vec::new()), pairs)?,
            body: BodyFilter::new(contained.as_deref(), body_regex)?,
            transactions: arguments::word(
                "transactions",
                transactions,
                [("committed", Transactions::Committed), ("all", Transactions::All)],
            )?,
            decode_body,
            order: arguments::word("order", order, [("log", Order::Log), ("queue", Order::Queue)])?,
            reverse,
            limit: limit.map(|limit| limit as u64),
            max_bytes_per_s: max_mb_per_s.map(bytes_per_s).transpose()?,
        };
        let progress = progress.map(callable).transpose()?;
        let source = Source::Store(self.handle.clone(), Part::Scan(Box::new(request)));
        Ok(Batches::new(source, columns.as_deref(), batch_bytes, errors)?.telling(progress))
    }
}

/// A queue id or several.
fn queue_ids(value: &Bound<'_, PyAny>) -> PyResult<Vec<i32>> {
    match value.try_iter() {
        Ok(items) => items.map(|item| arguments::whole(&item?, "one of queues")).collect(),
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => Ok(vec![arguments::whole(value, "queues")?]),
        Err(error) => Err(error),
    }
}

/// The pairs of a mapping of str to str.
fn pairs(value: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let Some(mut items) = arguments::items_of_mapping(value)? else {
        return Err(PyTypeError::new_err(format!(
            "properties is a mapping of str to str, not {}",
            type_of(value)?
        )));
    };
    let pair = |item: PyResult<Bound<'_, PyAny>>| {
        let (name, wanted): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
        let name = text(name.as_borrowed(), "the name of a property")?.to_owned();
        let wanted = text(wanted.as_borrowed(), &format!("the value of property {name:?}"))?.to_owned();
        Ok((name, wanted))
    };
    items.by_ref().map(pair).collect()
}

fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if value.is_instance_of::<PyString>() {
        return Ok(text(value.as_borrowed(), "body_contains")?.as_bytes().to_vec());
    }
    Err(PyTypeError::new_err(format!(
        "body_contains is bytes or str, not {}",
        type_of(value)?
    )))
}

/// Megabytes a second as bytes.
pub(super) fn bytes_per_s(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    hang_at_exit();
    let rate: f64 = value.extract().map_err(|error| {
        explained(value.py(), error, || {
            Ok(format!("max_mb_per_s is a number, not {}", type_of(value)?))
        })
    })?;
    if rate.is_nan() || rate <= 0.0 {
        return Err(PyValueError::new_err(format!("max_mb_per_s is {rate}: expected more than 0")));
    }
    Ok((rate * 1e6) as u64)
}

pub(super) fn callable(value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    if value.is_callable() {
        return Ok(value.clone().unbind());
    }
    Err(PyTypeError::new_err(format!(
        "progress is a callable of two ints, not {}",
        type_of(value)?
    )))
}
