//! What notebooks show.

use std::fmt::Write;

use pyo3::prelude::*;

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
