//! What compares or moves state between the file families.

mod recovery;
mod dispatch;
mod flush_real_time;

pub use dispatch::Dispatcher;
pub use flush_real_time::FlushRealTime;
pub use recovery::{RecoveryPlan, RecoveryReport, plan};
