//! `Finding`.

use std::ffi::OsStr;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::check;

/// The names of what a finding says, in the order of `to_dict`.
const FIELDS: [&str; 15] = [
    "id",
    "severity",
    "file",
    "offset",
    "last_offset",
    "count",
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "key",
    "message",
    "meaning",
    "known_as",
    "fix",
];

/// Something that `Store.verify` found wrong in a file, at one place or at several that follow each
/// other.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Finding {
    finding: check::Finding,
    /// The store.
    root: PathBuf,
}

impl Finding {
    pub(super) fn new(finding: check::Finding, root: PathBuf) -> Self {
        Self { finding, root }
    }
}

#[pymethods]
impl Finding {
    /// What kind of finding, such as `queue.entry_missing`. These names stay.
    #[getter]
    fn id(&self) -> &'static str {
        self.finding.id.facts().name
    }

    /// How bad it is. "error": messages are lost or not found, or a broker will do harm. "warning":
    /// it costs time, the next open sets it right, or a broker may refuse the store. "note":
    /// nothing has to be done.
    #[getter]
    fn severity(&self) -> &'static str {
        self.finding.severity.name()
    }

    /// The file, or the directory if the file is missing: str.
    #[getter]
    fn file(&self) -> &OsStr {
        self.finding.file.as_os_str()
    }

    /// The byte in the file.
    #[getter]
    fn offset(&self) -> u64 {
        self.finding.offset
    }

    /// The byte of the last place, if there are several.
    #[getter]
    fn last_offset(&self) -> u64 {
        self.finding.last_offset
    }

    /// How many places there are.
    #[getter]
    fn count(&self) -> u64 {
        self.finding.count
    }

    /// The topic of the message at the first place; None if it is not known.
    #[getter]
    fn topic(&self) -> Option<&str> {
        self.finding.affected.topic.as_deref()
    }

    /// The id of its queue; None if it is not known.
    #[getter]
    fn queue_id(&self) -> Option<i32> {
        self.finding.affected.queue_id
    }

    /// Its queue offset; None if it is not known.
    #[getter]
    fn queue_offset(&self) -> Option<i64> {
        self.finding.affected.queue_offset
    }

    /// Where its record starts in the log; None if it is not known.
    #[getter]
    fn physical_offset(&self) -> Option<i64> {
        self.finding.affected.physical_offset
    }

    /// Its unique key, or the key that the finding is about; None if it is not known.
    #[getter]
    fn key(&self) -> Option<&str> {
        self.finding.affected.key.as_deref()
    }

    /// What was found at the first place, in a sentence.
    #[getter]
    fn message(&self) -> &str {
        &self.finding.what
    }

    /// What a finding of this kind means.
    #[getter]
    fn meaning(&self) -> &'static str {
        self.finding.id.facts().meaning
    }

    /// Issues of RocketMQ in which a broker left such a store, as "#405, #7355"; "" if there is
    /// none.
    #[getter]
    fn known_as(&self) -> &'static str {
        self.finding.id.facts().known_as
    }

    /// What sets it right: a command, or words; "" if nothing has to be done.
    #[getter]
    fn fix(&self) -> String {
        self.finding.fix(&self.root)
    }

    /// A dict with all of this, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(slf.py());
        for name in FIELDS {
            fields.set_item(name, slf.getattr(name)?)?;
        }
        Ok(fields)
    }

    fn __repr__(&self) -> String {
        let finding = &self.finding;
        let more = match finding.count {
            1 => String::new(),
            count => format!(", {count} times up to {}", finding.last_offset),
        };
        format!(
            "<mqstore.Finding {} {}: {} at byte {}{more}: {}>",
            self.severity(),
            self.id(),
            finding.file.display(),
            finding.offset,
            finding.what
        )
    }
}
