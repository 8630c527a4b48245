//! What compares state between the file families.

mod recovery;

pub use recovery::{RecoveryPlan, RecoveryReport, plan};
