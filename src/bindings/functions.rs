//! Functions of the module: `new_unique_key`, those that pickle calls, and those of the Python half of the package.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arguments;
use super::batches::selected;
use super::capsule::import_table;
use super::handle::Freshness;
use super::queue::Queue;
use super::recipe::Recipe;
use super::record_batch::RecordBatch;
use super::results::{AskedParts, CoverageParts, FoundParts, OptionParts, QueryResult};
use super::store::Store;
use super::tabular::tabular;
use super::time::to_ms;
use super::topic::Topics;
use crate::arrow::{self, BatchBuilder, BodyAs, from_arrow};
use crate::error::Result;
use crate::format::Round;
use crate::read;
use crate::storage::RealEnv;
use crate::store::{self, expect_outside};

/// Returns a new unique key for a message: str, for `append(..., unique_key=...)`, as RocketMQ's
/// client makes one for each message that it sends.
///
/// No other call gives the same key, in any thread, process or fork. RocketMQ's
/// `MessageClientIDSetter` reads it: it holds the address of this machine, the process id, a random
/// number, the time and a counter as 32 hex digits in capitals, 56 where the address is IPv6.
/// `Store.message` finds the message by it.
#[pyfunction]
pub(super) fn new_unique_key() -> String {
    store::new_unique_key(&RealEnv::new()).to_string()
}

/// Returns the store, or a topic of it, a queue of that, or a slice of that between two queue
/// offsets.
#[pyfunction(name = "_part")]
#[pyo3(signature = (store, topic=None, queue_id=None, start=None, stop=None, /))]
pub(super) fn part<'py>(
    store: &Bound<'py, PyAny>,
    topic: Option<&str>,
    queue_id: Option<i32>,
    start: Option<i64>,
    stop: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, store) = (store.py(), opened(store)?);
    let handle = &store.get().handle;
    let Some(topic) = topic else {
        return Ok(store.into_any());
    };
    // Looked up, so that a missing topic is a KeyError and not an empty answer.
    let found = Topics::new(handle.clone()).topic(py, topic)?;
    let Some(queue_id) = queue_id else {
        return Ok(found.into_any());
    };
    let queue = Queue::new(handle.clone(), topic.to_owned(), queue_id);
    Ok(match start.zip(stop) {
        None => tabular(py, queue)?.into_any(),
        Some((start, stop)) => tabular(py, queue.same_slice(py, start..stop)?)?.into_any(),
    })
}

/// Returns topic and queue id of each queue of these topics, of all for None, whose files are lost
/// and whose messages the log has.
#[pyfunction(name = "_lost_queues")]
#[pyo3(signature = (store, topics=None, /))]
pub(super) fn lost_queues(store: &Bound<'_, PyAny>, topics: Option<Vec<String>>) -> PyResult<Vec<(String, i32)>> {
    let (py, store) = (store.py(), opened(store)?);
    let handle = &store.get().handle;
    let reader = handle.reader(py, Freshness::Queues)?;
    Ok(handle.detach(py, || read::lost_queues(&reader, topics))?.names())
}

/// Returns the topics of the store.
#[pyfunction(name = "_topics")]
#[pyo3(signature = (store, /))]
pub(super) fn topics(store: &Bound<'_, PyAny>) -> PyResult<Topics> {
    Ok(Topics::new(opened(store)?.get().handle.clone()))
}

/// Returns the answer to a query, from its parts: what pickle calls.
#[pyfunction(name = "_query_result")]
pub(super) fn query_result<'py>(
    store: &Bound<'py, PyAny>,
    coverage: CoverageParts,
    asked: AskedParts,
    options: OptionParts,
    found: FoundParts,
) -> PyResult<Bound<'py, QueryResult>> {
    let handle = opened(store)?.get().handle.clone();
    let answer = QueryResult::from_parts(handle, coverage, asked, options, found)?;
    tabular(store.py(), answer)
}

/// Returns the store that pickle has made of a recipe. Opens the recipe itself, which `copy.copy`
/// passes.
fn opened<'py>(store: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Store>> {
    match store.cast::<Recipe>() {
        Ok(recipe) => Ok(recipe.get().open(store.py())?.cast_into::<Store>()?),
        Err(_) => Ok(store.cast::<Store>()?.clone()),
    }
}

/// Returns the physical offsets of the first and the last record of a log, with their checksums.
#[pyfunction(name = "_landmarks")]
pub(super) fn landmarks(py: Python<'_>, store: &Bound<'_, Store>) -> PyResult<Vec<(i64, u32)>> {
    let reader = store.get().handle.current_reader(py)?;
    Ok(py.detach(|| reader.landmarks())?)
}

/// Returns for each physical offset the checksum of the record that starts there, or None.
#[pyfunction(name = "_checksums")]
pub(super) fn checksums(py: Python<'_>, store: &Bound<'_, Store>, offsets: Vec<i64>) -> PyResult<Vec<Option<u32>>> {
    let reader = store.get().handle.current_reader(py)?;
    let checksums: Result<_> = py.detach(|| offsets.iter().map(|offset| reader.record_checksum(*offset)).collect());
    Ok(checksums?)
}

/// Returns the physical offset below which a power failure loses nothing. None if the store was
/// closed, or if its writer does not record it.
#[pyfunction(name = "_flushed_mark")]
pub(super) fn flushed_mark(py: Python<'_>, store: &Bound<'_, Store>) -> PyResult<Option<i64>> {
    let reader = store.get().handle.current_reader(py)?;
    Ok(py.detach(|| reader.flushed_mark())?)
}

/// Returns the names of the columns of a table, in order, and its rows as lines of JSON.
#[pyfunction(name = "_named_json_lines")]
pub(super) fn named_json_lines<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    body_as: &str,
) -> PyResult<(Vec<String>, Bound<'py, PyBytes>)> {
    let written_as = match body_as {
        "base64" => BodyAs::Base64,
        "text" => BodyAs::Text,
        "json" => BodyAs::Json,
        _ => {
            return Err(PyValueError::new_err(format!(
                "body_as is {body_as:?}: expected \"base64\", \"text\" or \"json\""
            )));
        }
    };
    let table = import_table(rows)?;
    let lines = py.detach(|| arrow::json_lines(&table, written_as))?;
    let names = table.names().map(str::to_owned).collect();
    Ok((names, PyBytes::new(py, &lines)))
}

/// Returns the rows of a table as lines of JSON.
#[pyfunction(name = "_json_lines")]
pub(super) fn json_lines<'py>(py: Python<'py>, rows: &Bound<'py, PyAny>, body_as: &str) -> PyResult<Bound<'py, PyBytes>> {
    named_json_lines(py, rows, body_as).map(|(_, lines)| lines)
}

/// Raises `ValueError` if this path lies in a store.
#[pyfunction(name = "_expect_outside")]
pub(super) fn expect_path_outside(path: PathBuf) -> PyResult<()> {
    Ok(expect_outside(&RealEnv::new(), &path)?)
}

/// Returns an empty batch with these columns, all by default, for its schema.
#[pyfunction(name = "_no_messages", signature = (columns=None))]
pub(super) fn no_messages(#[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>) -> PyResult<RecordBatch> {
    let empty = BatchBuilder::new(&selected(columns.as_deref())?).finish();
    Ok(RecordBatch(empty.map_err(from_arrow)?))
}

/// Stops the wall clock that stores of this process read; None lets it run again.
#[pyfunction(name = "_stop_clock")]
pub(super) fn stop_clock(time: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    RealEnv::stop_wall_clock(time.map(|time| to_ms(time, "time", Round::Down)).transpose()?);
    Ok(())
}
