//! Conversion of the crate's reports and counters into the frozen dataclasses of `mqstore._reports`.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDateTime, PyDict, PyTuple};

use super::imports;
use super::time::{age_of, to_datetime, to_time};
use crate::broker::{CleanStats, DelayStats, NextRemoval, OpenHalf, OpenHalves};
use crate::check::Fix;
use crate::format::property;
use crate::ha::SlaveCut;
use crate::log::PutStats;
use crate::remedy::Remedy;
use crate::services::CleanReason;
use crate::{broker, check, recovery, store};

type Report<'py> = PyResult<Bound<'py, PyAny>>;

/// Makes an object of a class of `mqstore._reports` from its fields.
macro_rules! report {
    ($py:ident, $class:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        let fields = PyDict::new($py);
        $(fields.set_item(intern!($py, stringify!($field)), $value)?;)*
        imports::call($py, "mqstore._reports", stringify!($class), (), Some(&fields))
    }};
}

/// Returns the `Replicas` of a store that listens for slaves at this address.
pub(super) fn replicas<'py>(py: Python<'py>, replicas: &store::Replicas, addresses: [Option<SocketAddr>; 2]) -> Report<'py> {
    let [address, broker_address] = addresses;
    let refused = |slave: store::RefusedSlave| {
        report!(
            py,
            RefusedSlave {
                address: slave.address.to_string(),
                refused_at: to_datetime(py, slave.refused_at)?,
                reason: slave.reason,
            }
        )
    };
    let refused = replicas.refused().into_iter().map(refused).collect::<PyResult<Vec<_>>>()?;
    report!(
        py,
        Replicas {
            address: address.map(|address| address.to_string()),
            broker_address: broker_address.map(|address| address.to_string()),
            replicated_offset: replicas.replicated(),
            slaves: slaves(py, &replicas.connected())?,
            refused: PyTuple::new(py, refused)?,
        }
    )
}

/// Returns a tuple of `Slave`.
fn slaves<'py>(py: Python<'py>, slaves: &[store::Slave]) -> PyResult<Bound<'py, PyTuple>> {
    let slave = |slave: &store::Slave| {
        report!(
            py,
            Slave {
                address: slave.address.to_string(),
                connected_at: to_datetime(py, slave.connected_at)?,
                from_offset: slave.from,
                acknowledged_offset: slave.acknowledged,
            }
        )
    };
    PyTuple::new(py, slaves.iter().map(slave).collect::<PyResult<Vec<_>>>()?)
}

/// Returns a `ReplicaCut` for each cut.
pub(super) fn replica_cuts<'py>(py: Python<'py>, cuts: &[SlaveCut]) -> PyResult<Bound<'py, PyTuple>> {
    let cut = |cut: &SlaveCut| {
        report!(
            py,
            ReplicaCut {
                offset: cut.offset,
                bytes: cut.bytes,
                time: to_datetime(py, cut.time)?,
            }
        )
    };
    PyTuple::new(py, cuts.iter().map(cut).collect::<PyResult<Vec<_>>>()?)
}

/// Returns the `StoreStats`.
pub(super) fn store_stats<'py>(
    py: Python<'py>,
    stats: &store::StoreStats,
    delays: Option<DelayStats>,
    next_due: Option<Bound<'py, PyDateTime>>,
    groups: Bound<'py, PyAny>,
    cleaning: Option<&CleanStats>,
) -> Report<'py> {
    let (log, topics) = (&stats.log, PyDict::new(py));
    for (name, puts) in &log.topics {
        topics.set_item(name, topic_stats(py, *puts)?)?;
    }
    let (total, segments, pool) = (log.total(), log.segments, log.pool);
    let removal = cleaning.map(|cleaning| &cleaning.removal);
    let refused = cleaning.and_then(|cleaning| cleaning.refused.as_ref());
    report!(
        py,
        StoreStats {
            put_message_times_total: total.times,
            put_message_size_total: total.size,
            topics: topics,
            in_lock_time_max_ms: u64::try_from(log.in_lock_time_max.as_millis()).unwrap_or(u64::MAX),
            slow_puts: log.slow_puts,
            syncs: log.syncs,
            group_commits: log.group_commits,
            group_commit_requests: log.group_commit_requests,
            segments_begun: segments.begun,
            segments_made_ahead: segments.made_ahead,
            segments_locked: segments.locked,
            segment_waits: segments.waits,
            dispatch_behind_bytes: stats.dispatch_behind_bytes,
            mapping_faults: stats.mapping_faults,
            delayed_waiting: delays.map(|delays| delays.waiting),
            delayed_passed_over: delays.map(|delays| delays.passed_over),
            delayed_overdue: delays.map(|delays| delays.overdue),
            delayed_next_due: next_due,
            groups: groups,
            segments_removed: cleaning.map(|cleaning| cleaning.segments),
            bytes_removed: cleaning.map(|cleaning| cleaning.bytes),
            bytes_held: cleaning.map(|cleaning| cleaning.held_bytes),
            unread_removed: cleaning.map(|cleaning| cleaning.unread),
            next_removal: removal.and_then(segment_of),
            next_removal_time: removal.and_then(|removal| time_of(py, removal)),
            removal_kept_for: removal.map(|removal| holds(py, &removal.holds)).transpose()?,
            removal_kept_for_slaves: removal.map(|removal| slaves(py, &removal.slaves)).transpose()?,
            removal_refusal: refused.map(|refused| refused.text().to_string()),
            available_buffer_nums: pool.map(|pool| pool.available),
            is_transient_store_pool_low: pool.map(|pool| pool.is_low()),
            is_transient_store_pool_locked: pool.map(|pool| pool.is_locked),
            buffer_waits: pool.map(|pool| pool.waits),
        }
    )
}

fn topic_stats(py: Python<'_>, puts: PutStats) -> Report<'_> {
    report!(
        py,
        TopicStats {
            put_message_times_total: puts.times,
            put_message_size_total: puts.size,
        }
    )
}

/// Returns the `RecoveryReport`.
pub(super) fn recovery_report<'py>(py: Python<'py>, found: &recovery::RecoveryReport) -> Report<'py> {
    let missing_at = found.missing.as_ref().and_then(|missing| missing.at.as_ref());
    report!(
        py,
        RecoveryReport {
            clean_exit: found.clean_exit,
            scan_start: found.scan_start,
            log_end: found.log_end,
            stop_reason: &found.stop_reason,
            undispatched: found.undispatched,
            lost_by_brokers: found.lost_by_brokers,
            keys_lost_by_brokers: found.keys_lost_by_brokers,
            refused: found.refused,
            queue_entries_ahead: found.queue_entries_ahead,
            bytes_cut: found.bytes_cut,
            messages_cut: found.cut.count(),
            cut: queue_ranges(py, &found.cut)?,
            lost: stretches(py, &found.lost)?,
            missing: found.missing.as_ref().map(|missing| &missing.what),
            missing_at: missing_at.map(|(file, byte)| (file.as_os_str(), *byte)),
            remedy: found.missing.as_ref().and_then(|missing| missing.remedy).map(Remedy::name),
        }
    )
}

/// Returns the `VerifyReport`.
pub(super) fn verify_report<'py>(py: Python<'py>, report: &check::VerifyReport) -> Report<'py> {
    report!(
        py,
        VerifyReport {
            findings: findings(py, &report.findings, &report.path)?,
            covered: (report.covered.start, report.covered.end),
            messages: report.messages,
            queue_entries: report.queue_entries,
            index_items: report.index_items,
            seconds: report.took.as_secs_f64(),
        }
    )
}

/// Returns the `RepairReport` of the store in the directory `source`.
pub(super) fn repair_report<'py>(py: Python<'py>, report: &check::RepairReport, source: &Path) -> Report<'py> {
    let changes = report.changes.iter().map(|change| {
        report!(
            py,
            Change {
                action: change.action.name(),
                file: change.file.as_os_str(),
                message: &change.what,
            }
        )
    });
    let root = if report.is_dry_run { source } else { &report.path };
    report!(
        py,
        RepairReport {
            dry_run: report.is_dry_run,
            path: report.path.as_os_str(),
            found: verify_report(py, &report.found)?,
            changes: PyTuple::new(py, changes.collect::<PyResult<Vec<_>>>()?)?,
            refusal: report.refusal.as_ref().map(|refusal| refusal.text().to_string()),
            remedy: report.remedy().map(Remedy::name),
            backup: report.backup.as_ref().map(|backup| backup.as_os_str()),
            lost: stretches(py, &report.lost)?,
            left: findings(py, &report.left, root)?,
        }
    )
}

/// Returns the `TrimReport`.
pub(super) fn trim_report<'py>(py: Python<'py>, report: &broker::TrimReport, dry_run: bool) -> Report<'py> {
    let trimmed = &report.trimmed;
    report!(
        py,
        TrimReport {
            dry_run: dry_run,
            segments: stretches(py, &trimmed.segments)?,
            since: report.stored.as_ref().and_then(|stored| to_datetime(py, stored.start).ok()),
            until: report.stored.as_ref().and_then(|stored| to_datetime(py, stored.end).ok()),
            bytes: trimmed.bytes,
            held_bytes: trimmed.held_bytes,
            queue_files: trimmed.queue_files,
            index_files: trimmed.index_files,
            refusal: trimmed.refused.as_ref().map(|refused| refused.text().to_string()),
            kept_for: holds(py, &report.holds)?,
            unread: holds(py, &report.unread)?,
            kept_for_slaves: slaves(py, &report.slaves)?,
            unreplicated: slaves(py, &report.unreplicated)?,
        }
    )
}

/// Returns the `ResendReport`.
pub(super) fn resend_report<'py>(py: Python<'py>, resent: &broker::Resent) -> Report<'py> {
    report!(
        py,
        ResendReport {
            sent: resent.sent,
            skipped: PyTuple::new(py, &resent.skipped)?,
            expired: resent.expired,
        }
    )
}

/// Returns the `NextRemoval`.
pub(super) fn next_removal<'py>(py: Python<'py>, removal: &NextRemoval) -> Report<'py> {
    report!(
        py,
        NextRemoval {
            segment: segment_of(removal),
            time: time_of(py, removal),
            reason: removal.reason.map(|reason| match reason {
                CleanReason::Age => "age",
                CleanReason::LogBytes => "log_bytes",
                CleanReason::Disk => "disk",
            }),
            kept_for: holds(py, &removal.holds)?,
            kept_for_slaves: slaves(py, &removal.slaves)?,
            disk_percent: removal.disk_percent,
        }
    )
}

/// Returns the `OpenTransactions`.
pub(super) fn open_transactions<'py>(py: Python<'py>, open: &OpenHalves) -> Report<'py> {
    let halves = open.halves.iter().map(|half| open_transaction(py, half));
    report!(
        py,
        OpenTransactions {
            halves: PyTuple::new(py, halves.collect::<PyResult<Vec<_>>>()?)?,
            passed_over: open.passed_over,
            lost_ops: open.unread.ops,
            damaged_stretches: open.unread.stretches,
            lost_queues: PyTuple::new(py, open.unread.queues.iter().copied())?,
            complete: open.is_complete(),
        }
    )
}

fn open_transaction<'py>(py: Python<'py>, half: &OpenHalf) -> Report<'py> {
    let view = half.message.view();
    let properties = view.properties();
    report!(
        py,
        OpenTransaction {
            id: view.message_id().to_string(),
            group: properties.get(property::PGROUP),
            topic: properties.get(property::REAL_TOPIC),
            queue_id: properties.get(property::REAL_QID).and_then(|id| id.parse::<i32>().ok()),
            half_topic: view.topic(),
            queue_offset: view.queue_offset(),
            physical_offset: view.physical_offset(),
            born_time: to_time(py, view.born_time())?,
            store_time: to_time(py, view.store_time())?,
            age: age_of(py, view.store_time())?,
            checks: half.checks,
            tags: view.tags(),
            keys: PyTuple::new(py, view.keys())?,
            unique_key: view.unique_key(),
        }
    )
}

/// Returns the physical offsets (begin, end) of the segment that goes next.
fn segment_of(removal: &NextRemoval) -> Option<(i64, i64)> {
    removal.segment.as_ref().map(|segment| (segment.start, segment.end))
}

/// Returns the time from which its age lets it go; `None` also for a time that is not a date.
fn time_of<'py>(py: Python<'py>, removal: &NextRemoval) -> Option<Bound<'py, PyDateTime>> {
    removal.due.and_then(|due| to_datetime(py, due).ok())
}

/// Returns a tuple of group, topic, queue id and number of messages of each hold.
fn holds<'py>(py: Python<'py>, holds: &[broker::Hold]) -> PyResult<Bound<'py, PyTuple>> {
    let name = |by: &broker::NeededBy| match by {
        broker::NeededBy::Group(group) => group.clone(),
        broker::NeededBy::Delay => "delayed messages".to_owned(),
        broker::NeededBy::Timers => "timer messages".to_owned(),
        broker::NeededBy::Transactions => "open transactions".to_owned(),
    };
    let rows = holds.iter();
    PyTuple::new(
        py,
        rows.map(|hold| (name(&hold.by), hold.topic.as_str(), hold.queue_id, hold.messages)),
    )
}

/// Returns a tuple of `Finding` of the store in the directory `root`.
fn findings<'py>(py: Python<'py>, findings: &[check::Finding], root: &Path) -> PyResult<Bound<'py, PyTuple>> {
    let finding = |finding: &check::Finding| {
        let (facts, affected) = (finding.id.facts(), &finding.affected);
        report!(
            py,
            Finding {
                id: facts.name,
                severity: finding.severity.name(),
                file: finding.file.as_os_str(),
                offset: finding.offset,
                last_offset: finding.last_offset,
                count: finding.count,
                topic: affected.topic.as_deref(),
                queue_id: affected.queue_id,
                queue_offset: affected.queue_offset,
                physical_offset: affected.physical_offset,
                key: affected.key.as_deref(),
                lost: queue_ranges(py, &finding.lost)?,
                message: &finding.what,
                meaning: facts.meaning,
                known_as: facts.known_as,
                fix: fix(py, finding, root)?,
            }
        )
    };
    PyTuple::new(py, findings.iter().map(finding).collect::<PyResult<Vec<_>>>()?)
}

/// Returns what sets a finding right in the store in the directory `root`, in the words of Python.
fn fix<'py>(py: Python<'py>, finding: &check::Finding, root: &Path) -> PyResult<Bound<'py, PyAny>> {
    let detail = match finding.remedy {
        Fix::After(first) => first.facts().name,
        Fix::ByHand(work) => work,
        // The entry may be right, and a part of the log be missing.
        Fix::Rebuild if finding.names_missing_part() => "put-back",
        _ => "",
    };
    let arguments = (finding.remedy.name(), root.as_os_str(), detail);
    imports::call(py, "mqstore._fixes", "of_verify", arguments, None)
}

/// Returns a tuple of topic, queue id, and first and next queue offset of each range.
fn queue_ranges<'py>(py: Python<'py>, lost: &recovery::LostOffsets) -> PyResult<Bound<'py, PyTuple>> {
    let ranges = lost.ranges().iter();
    PyTuple::new(
        py,
        ranges.map(|lost| (lost.topic.as_str(), lost.queue_id, lost.offsets.start, lost.offsets.end)),
    )
}

fn stretches<'py>(py: Python<'py>, ranges: &[Range<i64>]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, ranges.iter().map(|range| (range.start, range.end)))
}
