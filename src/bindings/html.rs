//! What consoles and notebooks show.

use std::fmt::Write;
use std::ops::Range;

use pyo3::prelude::*;

use super::handle::Handle;

/// Names and values as an HTML table of two columns.
pub(super) fn html_table(py: Python<'_>, rows: &[(&str, String)]) -> PyResult<String> {
    let escape = py.import("html")?.getattr("escape")?;
    let mut html = String::from("<table>");
    for (name, value) in rows {
        let value: String = escape.call1((value,))?.extract()?;
        // Writing into a String cannot fail.
        let _ = write!(
            html,
            "<tr><th style=\"text-align:left\">{name}</th><td style=\"text-align:left\">{value}</td></tr>"
        );
    }
    html.push_str("</table>");
    Ok(html)
}

/// What a `Store` shows, open or closed.
pub(super) fn store_table(py: Python<'_>, handle: &Handle) -> PyResult<String> {
    let mut rows = vec![("path", handle.path().display().to_string())];
    match handle.log_reader(py) {
        Ok(reader) => {
            let (bounds, recovery) = (reader.physical_bounds(), reader.recovery());
            rows.push(("log", format!("{} to {}", bounds.start, bounds.end)));
            rows.push(("closed cleanly", if recovery.clean_exit { "yes" } else { "no" }.to_owned()));
            rows.push(("log ends", recovery.stop_reason.clone()));
        }
        Err(_) => rows.push(("state", "closed".to_owned())),
    }
    html_table(py, &rows)
}

/// A `Store` in one line.
pub(super) fn store_line(py: Python<'_>, handle: &Handle) -> String {
    let (path, mode) = (handle.path().display(), handle.mode().name());
    handle.log_reader(py).map_or_else(
        |_| format!("<mqstore.Store \"{path}\" closed>"),
        |reader| {
            let Range { start, end } = reader.physical_bounds();
            format!("<mqstore.Store \"{path}\" mode=\"{mode}\", log {start}..{end}>")
        },
    )
}
