//! Repair and rebuild: each finding of verify is fixed, and no answer about a whole message changes.

mod any_damage;
mod clock_set_back;
mod earlier_topic;
mod missing_log;
mod other_writer;
mod places;
mod promises;
mod refusals;
mod table;

pub(crate) use any_damage::{Readable, on_three_damages, readable_of};
pub(crate) use table::on_each_row;

use std::path::Path;
use std::sync::Arc;

use mqstore::check::{RepairReport, RepairRequest, rebuild, repair};
use mqstore::config::StoreConfig;
use mqstore::error::Result;
use mqstore::storage::{Env, RealEnv};

pub(crate) fn env() -> Arc<dyn Env> {
    Arc::new(RealEnv::new())
}

pub(crate) fn rebuilt(root: &Path, is_dry_run: bool) -> Result<RepairReport> {
    rebuild(&env(), root, &StoreConfig::default(), is_dry_run, |_, _| Ok(()))
}

pub(crate) fn repaired(root: &Path, is_dry_run: bool, into: Option<&Path>) -> Result<RepairReport> {
    repair(
        &env(),
        root,
        &StoreConfig::default(),
        RepairRequest { is_dry_run, into },
        |_, _| Ok(()),
    )
}
