//! Leaves out each step that durability rests on. Some check must fail; otherwise the campaigns would not notice its loss.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use mqstore::storage::Step;

use super::campaign::{Plan, carry_out, fail_every_call};
use super::examine::{Care, Counts};
use super::groups::committed_progress;
use super::handing_over::handed_over;
use super::history::{History, Operation};
use super::model::{Checked, Violation};
use super::rebuilding::{salvaged_with_a_backup, salvaged_with_an_older_record};
use super::replicating::{
    acknowledged_by_a_slave, cut_after_a_power_cut, cut_by_a_slave, cut_by_a_slave_for_good, progress_cut_by_a_slave,
    progress_taken_by_a_slave, slave_again_after_a_promotion,
};
use super::scenes::{
    closed_while_it_rolls, cut_before_the_close_ends, cut_by_segments, cut_while_it_trims, salvaged_below_the_mark,
    salvaged_twice,
};

/// Histories that are tried without a step before the step counts as superfluous.
const HISTORIES: u64 = 120;
/// Seeds that each scene gets before those.
const SCENES: u64 = 20;
/// Small histories, of which every call fails once, after those.
const FAILING: u64 = 6;

/// The step after this one in the list of all steps. It is a match, so that a new step cannot be left out.
fn next(step: Step) -> Option<Step> {
    Some(match step {
        Step::StoreDirectories => Step::RecoveryNote,
        Step::RecoveryNote => Step::RecoveryNoteRenamed,
        Step::RecoveryNoteRenamed => Step::AbortCreated,
        Step::AbortCreated => Step::SegmentAllocated,
        Step::SegmentAllocated => Step::SegmentRenamed,
        Step::SegmentRenamed => Step::SegmentRemoved,
        Step::SegmentRemoved => Step::LogExpired,
        Step::LogExpired => Step::LogRange,
        Step::LogRange => Step::QueuesCut,
        Step::QueuesCut => Step::IndexCut,
        Step::IndexCut => Step::LogCut,
        Step::LogCut => Step::SegmentCut,
        Step::SegmentCut => Step::SegmentCutRenamed,
        Step::SegmentCutRenamed => Step::LogRewritten,
        Step::LogRewritten => Step::TailZeroed,
        Step::TailZeroed => Step::LogClaimed,
        Step::LogClaimed => Step::QueueFiles,
        Step::QueueFiles => Step::IndexFile,
        Step::IndexFile => Step::IndexDirectory,
        Step::IndexDirectory => Step::FlushedMark,
        Step::FlushedMark => Step::Checkpoint,
        Step::Checkpoint => Step::CheckpointRenamed,
        Step::CheckpointRenamed => Step::AbortRemoved,
        Step::AbortRemoved => Step::ConfigFile,
        Step::ConfigFile => Step::ConfigRenamed,
        Step::ConfigRenamed => Step::SettingsFile,
        Step::SettingsFile => Step::SettingsRenamed,
        Step::SettingsRenamed => Step::TimerWheelRemoved,
        Step::TimerWheelRemoved => Step::ReplicaNote,
        Step::ReplicaNote => Step::ReplicaNoteRenamed,
        Step::ReplicaNoteRenamed => Step::SetAside,
        Step::SetAside => return None,
    })
}

/// All steps.
pub(super) fn all() -> Vec<Step> {
    std::iter::successors(Some(Step::StoreDirectories), |step| next(*step)).collect()
}

/// The result of leaving out one step.
pub(super) struct Verdict {
    pub(super) step: Step,
    /// The seed and the failed check; `None` if no check failed.
    pub(super) killed_by: Option<(u64, Violation)>,
    images: u64,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, images, .. } = self;
        match &self.killed_by {
            Some((seed, violation)) => write!(f, "without {step:?}: seed {seed}, {images} images, {violation}"),
            None => write!(f, "without {step:?}: nothing breaks in {images} images"),
        }
    }
}

/// Tries the scenes, and then histories in order, until one fails.
pub(super) fn leave_out(step: Step) -> Verdict {
    let counts = Counts::default();
    let without = Some(step);
    let plan = Plan {
        longest: 30,
        one_in: 6,
        care: Care { deep: 1, one_in: 3 },
        without,
    };
    let small = Plan { longest: 5, ..plan };
    let broken = |outcome: Checked| outcome.err();
    let whole = |seed| {
        broken(carry_out(
            &History::<Operation>::draw(seed, plan.longest),
            seed,
            plan,
            &counts,
            None,
        ))
    };
    let failing = |seed| broken(fail_every_call(&History::draw(seed, small.longest), seed, small, &counts));
    let scenes = |seed| {
        let all = [
            salvaged_twice,
            salvaged_below_the_mark,
            closed_while_it_rolls,
            cut_by_segments,
            cut_before_the_close_ends,
            cut_while_it_trims,
            salvaged_with_a_backup,
            salvaged_with_an_older_record,
            committed_progress,
            handed_over,
            acknowledged_by_a_slave,
            cut_after_a_power_cut,
            cut_by_a_slave,
            cut_by_a_slave_for_good,
            slave_again_after_a_promotion,
            progress_taken_by_a_slave,
            progress_cut_by_a_slave,
        ];
        all.into_iter().find_map(|scene| broken(scene(without, seed)))
    };
    let killed_by = (0..SCENES)
        .find_map(|seed| Some((seed, scenes(seed)?)))
        .or_else(|| (0..HISTORIES).find_map(|seed| Some((seed, whole(seed)?))))
        .or_else(|| (0..FAILING).find_map(|seed| Some((seed, failing(seed)?))));
    let images = AtomicU64::load(&counts.images, Ordering::Relaxed);
    Verdict { step, killed_by, images }
}
