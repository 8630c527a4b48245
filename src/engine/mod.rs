//! What compares or moves state between the file families.

/// What runs beside the callers, step by step.
mod service;
mod recovery;
mod dispatch;
mod flush_real_time;

pub use dispatch::Dispatcher;
pub use flush_real_time::FlushRealTime;
pub use recovery::{RecoveryPlan, RecoveryReport, plan};
pub use service::{Next, Stepped};
