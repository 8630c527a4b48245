//! `Store.usage`, and its answer: `Usage`.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::ops::Range;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::arguments::{self, explained, repr_of, type_of};
use super::handle::Freshness;
use super::interpreter::hang_at_exit;
use super::record_batch::{RecordBatch, shown};
use super::store::Store;
use crate::arrow::{self, USAGE_COLUMNS};
use crate::config::Errors;
use crate::read::{self, UsageBy};

/// The counts of `Store.usage`, a `RecordBatch`, and the parts of the log that could not be
/// counted.
#[pyclass(frozen, extends = RecordBatch, module = "mqstore")]
pub(super) struct Usage {
    covers: Range<i64>,
    unread: Vec<Range<i64>>,
}

impl Usage {
    fn of<'py>(py: Python<'py>, usage: &read::Usage, by: &[UsageBy]) -> PyResult<Bound<'py, Self>> {
        let counted = RecordBatch(arrow::usage(usage, by)?);
        let rest = Self {
            covers: usage.covers.clone(),
            unread: usage.unread.clone(),
        };
        Bound::new(py, PyClassInitializer::from(counted).add_subclass(rest))
    }
}

#[pymethods]
impl Store {
    /// Counts the messages of the log and their bytes, in one pass over it.
    ///
    /// Parameters
    /// ----------
    /// by : str or iterable of str, default "topic"
    ///     The columns to group by: `topic` (utf8), `queue_id` (int32), `tags` (utf8, null without
    ///     tags), `hour` (timestamp[us, UTC]: the hour of the store time) and `segment` (int64: the
    ///     physical offset at which a segment of the log starts). An empty one counts all in one row.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at damage. None: as in `open`. "skip" continues at the next whole message, and
    ///     `Usage.unread` has the stretches that could not be counted.
    ///
    /// Returns
    /// -------
    /// Usage
    ///     A row a group, ascending: the columns of `by`, then `messages` (int64), `bytes` (int64, of
    ///     their records), `first_store_time` and `last_store_time` (timestamp[us, UTC]).
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     `by` has what is none of these names, or repeats one; or `errors` is not one of those
    ///     accepted.
    /// CorruptError
    ///     A part of the log is damaged (`errors`).
    ///
    /// Notes
    /// -----
    /// Every message of the log counts, also a message that is in no queue: a half message, or a
    /// message of a deleted topic. A batch that is stored whole counts as one. Bodies are not checked.
    /// Memory is taken for each group, not for each message. Messages that recovery="salvage" has found
    /// lost are in `unread`, too.
    #[pyo3(signature = (by=vec![UsageBy::Topic], *, errors=None), text_signature = "(self, by='topic', *, errors=None)")]
    fn usage<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = usage_by)] by: Vec<UsageBy>,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Bound<'py, Usage>> {
        let reader = self.handle.reader(py, Freshness::Log)?;
        let errors = errors.unwrap_or(self.handle.errors());
        let usage = self.handle.detach(py, || reader.usage(&by, errors))?;
        Usage::of(py, &usage, &by)
    }
}

#[pymethods]
impl Usage {
    /// True if every message of the log was counted: `unread` is empty.
    #[getter]
    fn complete(&self) -> bool {
        self.unread.is_empty()
    }

    /// The physical offsets that were read: the first byte, and the byte after the last.
    #[getter]
    fn covers(&self) -> (i64, i64) {
        (self.covers.start, self.covers.end)
    }

    /// The stretches of the log in which messages were lost, are damaged, or are gone with their
    /// segment, as pairs of physical offsets: the first byte, and the byte after the last. Their
    /// messages are not counted.
    #[getter]
    fn unread(&self) -> Vec<(i64, i64)> {
        self.unread.iter().map(|unread| (unread.start, unread.end)).collect()
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (usage, rows) = (slf.get(), slf.as_super().get().0.num_rows());
        let unread: i64 = usage.unread.iter().map(|unread| unread.end - unread.start).sum();
        let head = format!(
            "<mqstore.Usage {rows} rows, covers {}..{}, {unread} bytes unread>",
            usage.covers.start, usage.covers.end
        );
        shown(slf.as_super(), head)
    }
}

/// Extracts the groupings of `usage`: a name, or several.
fn usage_by(value: &Bound<'_, PyAny>) -> PyResult<Vec<UsageBy>> {
    hang_at_exit();
    let known = || USAGE_COLUMNS.map(|(name, _)| name).join(", ");
    let names: Vec<String> = match value.extract::<String>() {
        Ok(name) => vec![name],
        Err(_) if value.is_instance_of::<PyString>() => vec![repr_of(value)?],
        Err(_) => {
            let wrong = || Ok(format!("by is a sequence of names ({}), not {}", known(), type_of(value)?));
            let items = value.try_iter().map_err(|error| explained(value.py(), error, wrong))?;
            let name = |item: PyResult<Bound<'_, PyAny>>| {
                let item = item?;
                item.extract::<String>().or_else(|_| {
                    Err(PyTypeError::new_err(format!(
                        "by holds {}, no name: expected {}",
                        repr_of(&item)?,
                        known()
                    )))
                })
            };
            items.map(name).collect::<PyResult<_>>()?
        }
    };
    let mut by = Vec::new();
    for name in &names {
        let column = USAGE_COLUMNS.iter().find(|(known, _)| known == name);
        let Some((_, column)) = column.filter(|(_, column)| !by.contains(column)) else {
            let why = if column.is_some() { " twice" } else { "" };
            return Err(PyValueError::new_err(format!(
                "by names {name:?}{why}: expected some of {}",
                known()
            )));
        };
        by.push(*column);
    }
    Ok(by)
}
