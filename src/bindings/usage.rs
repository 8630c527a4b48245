//! `Usage`.

use std::ops::Range;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::arguments::{explained, repr_of, type_of};
use super::interpreter::hang_at_exit;
use super::record_batch::{RecordBatch, shown};
use crate::arrow::{self, USAGE_COLUMNS};
use crate::read::{self, UsageBy};

/// The counts of `Store.usage`, a `RecordBatch`, and the parts of the log that could not be
/// counted.
#[pyclass(frozen, extends = RecordBatch, module = "mqstore")]
pub(super) struct Usage {
    covers: Range<i64>,
    unread: Vec<Range<i64>>,
}

impl Usage {
    pub(super) fn of<'py>(py: Python<'py>, usage: &read::Usage, by: &[UsageBy]) -> PyResult<Bound<'py, Self>> {
        let counted = RecordBatch(arrow::usage(usage, by)?);
        let rest = Self {
            covers: usage.covers.clone(),
            unread: usage.unread.clone(),
        };
        Bound::new(py, PyClassInitializer::from(counted).add_subclass(rest))
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
pub(super) fn usage_by(value: &Bound<'_, PyAny>) -> PyResult<Vec<UsageBy>> {
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
