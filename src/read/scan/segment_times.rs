//! Store times at the starts of segments, by which a scan of a time leaves segments out.
//!
//! No checksum covers a store time, and a clock may have been wrong. So a segment is left out only if its neighbours agree. The first two
//! records of a segment are read. Segments at distances of 1, 2, 4, ... are compared with the result of a binary search.

use std::ops::Range;

use crate::error::Result;
use crate::log::LogFiles;

/// The segments of a log up to an end.
#[derive(Debug)]
pub(super) struct SegmentTimes<'a> {
    log: &'a LogFiles,
    starts: Vec<i64>,
}

/// The store times that the first two records of a segment state.
#[derive(Debug, Clone, Copy)]
struct Beginning {
    earlier: i64,
    later: i64,
}

impl<'a> SegmentTimes<'a> {
    pub(super) fn new(log: &'a LogFiles, end: i64) -> Self {
        // Not the segment that a writer has made ahead.
        let starts = log.starts().take_while(|start| *start < end).collect();
        Self { log, starts }
    }

    /// Returns the start of the last segment that begins at or before a time, and so do the segments before it; `None` without one.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub(super) fn last_begun_by(&self, time: i64) -> Result<Option<i64>> {
        let has_begun = |at| Ok(self.beginning(at)?.map(|beginning| beginning.later <= time));
        let mut high = self.starts.len();
        loop {
            // An unknown time counts as earlier in the search, and is not evidence after it.
            let mut found = partition_point(0..high, |at| Ok(has_begun(at)?.unwrap_or(true)))?;
            while found > 0 && has_begun(found - 1)? != Some(true) {
                found -= 1;
            }
            let Some(found) = found.checked_sub(1) else {
                return Ok(None);
            };
            let mut before = distances().map_while(|distance| found.checked_sub(distance));
            match before.find_map(|at| contradiction(has_begun(at), at)).transpose()? {
                Some(later) => high = later,
                None => return Ok(self.starts.get(found).copied()),
            }
        }
    }

    /// Returns the start of the first segment that begins after a time, and so do the segments after it; `None` without one.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub(super) fn first_begun_after(&self, time: i64) -> Result<Option<i64>> {
        let is_after = |at| Ok(self.beginning(at)?.map(|beginning| beginning.earlier > time));
        let (mut low, end) = (0, self.starts.len());
        loop {
            let found = partition_point(low..end, |at| Ok(is_after(at)? != Some(true)))?;
            let mut after = distances().map(|distance| found + distance).take_while(|at| *at < end);
            match after.find_map(|at| contradiction(is_after(at), at)).transpose()? {
                Some(earlier) => low = earlier + 1,
                None => return Ok(self.starts.get(found).copied()),
            }
        }
    }

    /// Returns the times of the first records of a segment; `None` if unknown.
    fn beginning(&self, at: usize) -> Result<Option<Beginning>> {
        let Some(start) = self.starts.get(at) else { return Ok(None) };
        let Some(first) = self.log.claimed_store_time(*start)? else {
            return Ok(None);
        };
        let second = match self.log.claimed_end(*start)? {
            Some(second) => self.log.claimed_store_time(second)?,
            None => None,
        };
        let second = second.unwrap_or(first);
        Ok(Some(Beginning {
            earlier: first.min(second),
            later: first.max(second),
        }))
    }
}

/// Returns the distances of neighbours from the result of a binary search.
fn distances() -> impl Iterator<Item = usize> {
    (0..usize::BITS).map(|power| 1 << power)
}

/// Returns the segment if its time is known and contradicts the order of the others.
fn contradiction(agrees: Result<Option<bool>>, at: usize) -> Option<Result<usize>> {
    match agrees {
        Ok(Some(false)) => Some(Ok(at)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Returns the first of the items that does not pass `is_before`, by binary search.
fn partition_point(items: Range<usize>, is_before: impl Fn(usize) -> Result<bool>) -> Result<usize> {
    let Range {
        start: mut low,
        end: mut high,
    } = items;
    while low < high {
        let middle = usize::midpoint(low, high);
        if is_before(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
