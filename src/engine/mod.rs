//! What compares state between the file families.

mod recovery;
mod dispatch;

pub use dispatch::Dispatcher;
pub use recovery::{RecoveryPlan, RecoveryReport, plan};
