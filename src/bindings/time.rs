//! Times: ms since 1970 here, timezone-aware `datetime` there.

use std::ops::Range;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDateTime, PyDelta, PyDeltaAccess, PyInt, PyTzInfo};

use super::arguments::{explained, named, repr_of, str_of};
use super::errors::StoreError;
use super::interpreter::hang_at_exit;
use crate::format::{Date, Round, mistaken_unit};
use crate::storage::{Env, RealEnv};

/// Parts of a time of day and a date, in UTC.
struct Utc {
    year: i32,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    millisecond: u32,
}

impl Utc {
    /// Converts ms since 1970; `None` outside the years 1 to 9999, which a `datetime` cannot hold.
    fn of(ms: i64) -> Option<Self> {
        let (days, in_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
        let date = Date::of(days)?;
        let year = i32::try_from(date.year).ok().filter(|year| (1..=9999).contains(year))?;
        Some(Self {
            year,
            month: date.month as u8,
            day: date.day as u8,
            hour: (in_day / 3_600_000) as u8,
            minute: (in_day / 60_000 % 60) as u8,
            second: (in_day / 1000 % 60) as u8,
            millisecond: (in_day % 1000) as u32,
        })
    }
}

/// Returns a `datetime` in UTC.
///
/// # Errors
/// `StoreError` outside the years 1 to 9999.
pub(super) fn to_datetime(py: Python<'_>, ms: i64) -> PyResult<Bound<'_, PyDateTime>> {
    let Some(utc) = Utc::of(ms) else {
        return Err(StoreError::new_err(format!(
            "{ms} ms since 1970 is outside the years 1 to 9999 that a datetime holds: its bytes are damaged, or its writer \
             set it so; Message.to_dict and the rows of Store.scan have the number"
        )));
    };
    datetime_of(py, &utc, 0)
}

/// Returns the time since a moment in ms; zero for one in the future.
pub(super) fn age_of(py: Python<'_>, since_ms: i64) -> PyResult<Bound<'_, PyDelta>> {
    const DAY_MS: i64 = 86_400_000;
    // The longest `timedelta`.
    let age = now_ms().saturating_sub(since_ms).clamp(0, 999_999_999 * DAY_MS);
    let (days, in_day) = ((age / DAY_MS) as i32, (age % DAY_MS) as i32);
    PyDelta::new(py, days, in_day / 1000, in_day % 1000 * 1000, false)
}

/// Returns a `datetime` in UTC; outside the years 1 to 9999 the number of ms, an `int`, so that one damaged time does not hide the rest of
/// a table.
///
/// # Errors
/// That of the interpreter, such as `MemoryError`.
pub(super) fn to_time(py: Python<'_>, ms: i64) -> PyResult<Bound<'_, PyAny>> {
    time_of(py, ms, 0)
}

/// Calls [`to_time`] for microseconds since 1970.
///
/// # Errors
/// As [`to_time`].
pub(super) fn us_to_time(py: Python<'_>, us: i64) -> PyResult<Bound<'_, PyAny>> {
    time_of(py, us.div_euclid(1000), us.rem_euclid(1000) as u32)
}

fn time_of(py: Python<'_>, ms: i64, us: u32) -> PyResult<Bound<'_, PyAny>> {
    match Utc::of(ms) {
        Some(utc) => Ok(datetime_of(py, &utc, us)?.into_any()),
        None => Ok(PyInt::new(py, ms).into_any()),
    }
}

/// Returns a `datetime` in UTC, `us` microseconds later.
fn datetime_of<'py>(py: Python<'py>, utc: &Utc, us: u32) -> PyResult<Bound<'py, PyDateTime>> {
    let zone = PyTzInfo::utc(py)?;
    let microsecond = utc.millisecond * 1000 + us;
    PyDateTime::new(
        py,
        utc.year,
        utc.month,
        utc.day,
        utc.hour,
        utc.minute,
        utc.second,
        microsecond,
        Some(&zone),
    )
}

/// Returns `2026-11-20T19:55:54.848Z`, or the bare number where that does not do.
pub(super) fn to_text(ms: i64) -> String {
    match Utc::of(ms) {
        Some(t) => format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            t.year, t.month, t.day, t.hour, t.minute, t.second, t.millisecond
        ),
        None => format!("{ms} ms"),
    }
}

/// Returns ms since 1970 now.
pub(super) fn now_ms() -> i64 {
    RealEnv::new().now_ms()
}

/// Converts to ms since 1970 an aware `datetime` or an `int` of ms, the argument `name`.
///
/// # Errors
/// `ValueError` for a `datetime` without a timezone, and for an `int` that exceeds 64 bits or counts something else than ms; `TypeError`
/// for anything else.
pub(super) fn to_ms(time: &Bound<'_, PyAny>, name: &str, round: Round) -> PyResult<i64> {
    hang_at_exit();
    convert(time, round).map_err(|error| named(time.py(), name, error))
}

/// Returns the times from `since` on and before `until`, in ms; each is open where it is `None`. A bound between two ms is
/// rounded up, so that adjacent ranges share no message.
///
/// # Errors
/// As [`to_ms`], and `ValueError` where `until` is before `since`.
pub(super) fn to_range(since: Option<&Bound<'_, PyAny>>, until: Option<&Bound<'_, PyAny>>) -> PyResult<Range<i64>> {
    let start = since.map_or(Ok(i64::MIN), |since| to_ms(since, "since", Round::Up))?;
    let end = until.map_or(Ok(i64::MAX), |until| to_ms(until, "until", Round::Up))?;
    if start > end {
        let (start, end) = (to_text(start), to_text(end));
        return Err(PyValueError::new_err(format!(
            "since is {start}, which is after until: {end}"
        )));
    }
    Ok(start..end)
}

fn convert(time: &Bound<'_, PyAny>, round: Round) -> PyResult<i64> {
    let Ok(moment) = time.cast::<PyDateTime>() else {
        let ms = time.extract().map_err(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(time.py()) {
                let shown = str_of(time).map(|text| format!("{text} ms since 1970 exceeds 64 bits: is it in other units?"));
                return shown.map_or_else(|other| other, PyValueError::new_err);
            }
            explained(time.py(), error, || {
                let given = repr_of(&time.get_type())?;
                Ok(format!(
                    "expected a datetime with a timezone or an int of ms since 1970, got {given}"
                ))
            })
        })?;
        return match mistaken_unit(ms) {
            None => Ok(ms),
            Some(unit) => Err(PyValueError::new_err(format!(
                "{ms} ms since 1970 is {}: an int counts ms; this one looks like {unit}, or give a datetime with a timezone",
                to_text(ms)
            ))),
        };
    };
    if moment.call_method0("utcoffset")?.is_none() {
        return Err(PyValueError::new_err(format!(
            "{} has no timezone: give it one, such as tzinfo=datetime.timezone.utc",
            str_of(moment)?
        )));
    }
    let since = moment.sub(epoch(time.py())?)?;
    let since = since.cast::<PyDelta>()?;
    let seconds = i64::from(since.get_days()) * 86_400 + i64::from(since.get_seconds());
    let ms = seconds * 1000 + i64::from(since.get_microseconds() / 1000);
    let between = since.get_microseconds() % 1000 != 0;
    Ok(ms + i64::from(between && matches!(round, Round::Up)))
}

/// Returns when the argument `timeout` is up: seconds or a `timedelta`, `None` for ever.
///
/// # Errors
/// As [`to_wait`].
pub(super) fn to_deadline(timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Instant>> {
    Ok(to_wait(timeout, "timeout")?.and_then(|wait| Instant::now().checked_add(wait)))
}

/// Converts the longest time of a wait, the argument `name`: seconds or a `timedelta`, `None` for ever.
///
/// # Errors
/// `ValueError` for a negative time, `TypeError` for anything else.
pub(super) fn to_wait(timeout: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Option<Duration>> {
    let Some(timeout) = timeout else { return Ok(None) };
    let seconds: f64 = match timeout.cast::<PyDelta>() {
        Ok(delta) => delta.call_method0("total_seconds")?.extract()?,
        Err(_) => timeout.extract().map_err(|error| {
            explained(timeout.py(), error, || {
                let given = repr_of(&timeout.get_type())?;
                Ok(format!("expected seconds, a timedelta or None as {name}, got {given}"))
            })
        })?,
    };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!(
            "{name} is {}: expected 0 or more seconds",
            str_of(timeout)?
        )));
    }
    // What no clock can count to is for ever.
    Ok(Duration::try_from_secs_f64(seconds).ok())
}

/// Converts a `timedelta` to whole ms, rounded up.
///
/// # Errors
/// `ValueError` if it is negative.
pub(super) fn delta_ms(delta: &Bound<'_, PyDelta>) -> PyResult<u64> {
    let seconds = i64::from(delta.get_days()) * 86_400 + i64::from(delta.get_seconds());
    match u64::try_from(seconds) {
        Ok(seconds) => Ok(seconds * 1000 + u64::from(delta.get_microseconds().unsigned_abs().div_ceil(1000))),
        Err(_) => Err(PyValueError::new_err(format!(
            "expected a timedelta of 0 or more, got {}",
            str_of(delta)?
        ))),
    }
}

fn epoch(py: Python<'_>) -> PyResult<&Bound<'_, PyDateTime>> {
    static EPOCH: PyOnceLock<Py<PyDateTime>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || to_datetime(py, 0).map(Bound::unbind))?;
    Ok(epoch.bind(py))
}
