//! Quantiles of measured values.

/// Returns the quantile `q` of the values.
pub fn quantile(mut all: Vec<f64>, q: f64) -> f64 {
    all.sort_by(f64::total_cmp);
    all[((all.len() - 1) as f64 * q).round() as usize]
}
