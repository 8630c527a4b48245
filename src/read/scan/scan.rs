//! A pass over the messages that a request asks for.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::read::damage::OnDamage;
use crate::read::message_reader::MessageReader;
use crate::read::query_hits::QueryHits;
use crate::read::queue_walk::NamedQueue;
use crate::read::scan::absent_topics::AbsentTopics;
use crate::read::scan::pick::{Failed, Outcome, Picked, Picker};
use crate::read::scan::queue_census::lost_queues;
use crate::read::scan::queue_leads::LostQueues;
use crate::read::scan::queue_locations::QueueLocations;
use crate::read::scan::record_location::{LedBy, READ_ALONE, RecordLocation};
use crate::read::scan::request::{ScanRequest, TimeOf, Transactions};
use crate::read::scan::route::{Route, RoutePart};
use crate::read::scan::segment_times::SegmentTimes;
use crate::read::scan::throttle::Throttle;

/// A scan, which returns each message once.
#[derive(Debug)]
pub struct Scan {
    pub(super) reader: Arc<MessageReader>,
    pub(super) request: Arc<ScanRequest>,
    pub(super) on_damage: OnDamage,
    pub(super) route: Route,
    picker: Picker,
    pub(super) absent: AbsentTopics,
    pub(super) lost: LostQueues,
    /// The location that the last call had no space for.
    held_back: Option<RecordLocation>,
    /// The number of messages up to the limit.
    left: u64,
    throttle: Option<Throttle>,
    /// The offset of the last message that was read, or looked for.
    at: i64,
    /// Bytes that were read since the last pause.
    since_pause: u64,
    /// The length of the route at its start.
    pub(super) whole: i64,
    /// The number of removals of segments that were noticed before the start.
    removals: u64,
    /// Set once the route is exhausted.
    pub(super) is_ended: bool,
}

/// Bytes after which a scan pauses.
const PAUSE: u64 = 1 << 20;
/// Bytes of a route that several threads read.
const LONG: i64 = 16 << 20;

/// The reason why no more messages were handed over.
#[derive(Debug)]
pub enum Filled {
    /// There is no room for the next one.
    Full,
    /// A while has passed: the caller may report progress, and then continues.
    Paused,
    /// There are no more.
    End,
    /// The next message cannot be read. What was handed over before is whole, and the scan can continue.
    Stopped(Error),
}

impl Scan {
    /// Creates the scan of a request.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and [`Error::Io`], where the log has to be read to find the way.
    pub fn new(reader: Arc<MessageReader>, mut request: ScanRequest, on_damage: OnDamage) -> Result<Self> {
        request.physical = bounds(&reader, &request)?;
        let lost = LostQueues::default();
        let route = Route::new(&reader, &request, &on_damage, &lost)?;
        Ok(Self::over(reader, request, on_damage, route, lost))
    }

    /// Scans the messages at these physical offsets, in this order. An offset at which no message starts counts as damage.
    pub fn of_records(reader: Arc<MessageReader>, offsets: &[i64], on_damage: OnDamage) -> Self {
        let offsets = offsets.iter().rev().copied().collect();
        let route = Route::Parts(vec![RoutePart::records(LedBy::Caller, offsets)]);
        Self::over(reader, ScanRequest::default(), on_damage, route, LostQueues::default())
    }

    /// Scans the messages of a query's hits. A message that is not stored there any more counts as damage.
    pub fn of_hits(reader: Arc<MessageReader>, hits: &Arc<QueryHits>, on_damage: OnDamage) -> Self {
        let offsets = hits.list().iter().rev().map(|hit| hit.physical_offset).collect();
        let route = Route::Parts(vec![RoutePart::records(LedBy::Query(Arc::clone(hits)), offsets)]);
        Self::over(reader, ScanRequest::default(), on_damage, route, LostQueues::default())
    }

    /// Scans the messages of a topic: of a stretch of each of its queues, one queue after the other.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`], and [`Error::Io`].
    pub fn of_topic(
        reader: Arc<MessageReader>,
        topic: &str,
        stretches: &[(i32, Range<i64>)],
        on_damage: OnDamage,
    ) -> Result<Self> {
        let lost = lost_queues(&reader, Some(vec![topic.to_owned()]))?;
        Self::of_stretches(reader, topic, stretches, on_damage, lost)
    }

    /// Scans the messages of a stretch of a queue.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`].
    pub fn of_queue(
        reader: Arc<MessageReader>,
        topic: &str,
        queue_id: i32,
        stretch: Range<i64>,
        on_damage: OnDamage,
    ) -> Result<Self> {
        Self::of_stretches(reader, topic, &[(queue_id, stretch)], on_damage, LostQueues::default())
    }

    fn of_stretches(
        reader: Arc<MessageReader>,
        topic: &str,
        stretches: &[(i32, Range<i64>)],
        on_damage: OnDamage,
        lost: LostQueues,
    ) -> Result<Self> {
        let mut parts = Vec::new();
        for (id, offsets) in stretches.iter().rev() {
            if let Some(queue) = reader.queue(topic, *id)? {
                let offsets = offsets.start.max(queue.min_offset())..offsets.end.min(queue.max_offset());
                let queue = NamedQueue {
                    topic: topic.to_owned(),
                    id: *id,
                    queue,
                };
                parts.push(RoutePart::queue(QueueLocations::new(queue, offsets, false)));
            }
        }
        Ok(Self::over(
            reader,
            ScanRequest::default(),
            on_damage,
            Route::Parts(parts),
            lost,
        ))
    }

    fn over(reader: Arc<MessageReader>, mut request: ScanRequest, on_damage: OnDamage, route: Route, lost: LostQueues) -> Self {
        let Range { start, end } = reader.physical_bounds();
        request.physical = request.physical.start.max(start)..request.physical.end.min(end);
        let absent = AbsentTopics::new(&request, &reader);
        let request = Arc::new(request);
        Self {
            picker: Picker::new(
                Arc::clone(&reader),
                Arc::clone(&request),
                on_damage.clone(),
                absent.clone(),
                lost.clone(),
            ),
            absent,
            lost,
            left: request.limit.unwrap_or(u64::MAX),
            throttle: request.max_bytes_per_s.map(Throttle::new),
            at: 0,
            since_pause: 0,
            whole: route.left().max(0),
            removals: reader.log().removals(),
            is_ended: false,
            reader,
            request,
            on_damage,
            route,
            held_back: None,
        }
    }

    /// Hands the next messages to `take`, until it returns `false` because it has no room for a message, which is the first of the next
    /// call.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if bytes of the last message were lost while it was handed over: what was taken is then void.
    pub fn fill(&mut self, mut take: impl FnMut(Picked<'_>) -> Result<bool>) -> Result<Filled> {
        while self.left > 0 {
            if self.since_pause >= PAUSE {
                return Ok(self.pause().map_or_else(Filled::Stopped, |()| Filled::Paused));
            }
            let next = match self.held_back.take() {
                Some(location) => Ok(Some(location)),
                None => self
                    .route
                    .next(&self.reader, &self.request, &mut self.picker.cursor, &self.on_damage),
            };
            let location = match next {
                Ok(Some(location)) => location,
                Ok(None) => {
                    self.is_ended = true;
                    self.route.drop_behind(&self.reader, None);
                    return Ok(Filled::End);
                }
                Err(error) => return Ok(Filled::Stopped(error)),
            };
            self.at = location.physical_offset;
            self.since_pause += u64::from(location.size) + READ_ALONE.unsigned_abs();
            match self.picker.pick(&location, &mut take) {
                Ok(Outcome::Taken) => self.left -= 1,
                Ok(Outcome::PassedOver) => {}
                Ok(Outcome::NoRoom) => {
                    self.held_back = Some(location);
                    return Ok(Filled::Full);
                }
                Err(Failed::Torn(error)) => return Err(error),
                Err(Failed::Stopped(error)) => return Ok(Filled::Stopped(error)),
            }
        }
        Ok(Filled::End)
    }

    /// Returns true if the messages that were handed over are all there are: the scan ended before its limit, no message was skipped, none
    /// expired during it, none was in a queue whose files are lost, and the open found no sign of messages that are missing.
    pub fn is_complete(&self) -> bool {
        self.is_ended
            && self.on_damage.skipped() == 0
            && self.lost.is_empty()
            && self.reader.log().removals() == self.removals
            && self.reader.recovery().missing.is_none()
    }

    /// Returns the physical offsets that the scan reads, or has read.
    pub fn covers(&self) -> Range<i64> {
        self.request.physical.clone()
    }

    /// Returns the topics that are asked for by name and have neither a queue nor a message that was handed over so far; ascending.
    pub fn absent_topics(&self) -> Vec<String> {
        self.absent.names()
    }

    /// Returns the queues that had wanted messages and whose files are lost, as topic and queue id, ascending. A scan of a topic whose
    /// queue ids and settings show no missing queue may read its queues alone, and does not find a lost one.
    pub fn lost_queues(&self) -> Vec<(String, i32)> {
        self.lost.names()
    }

    /// Returns true if a [`ParallelScan`](crate::read::ParallelScan) pays: it is long, and has no bound but its end.
    pub fn is_long(&self) -> bool {
        self.left == u64::MAX && self.throttle.is_none() && self.whole >= LONG && !self.route.is_backward()
    }

    fn pause(&mut self) -> Result<()> {
        self.route.drop_behind(&self.reader, Some(self.at));
        if let Some(throttle) = &mut self.throttle {
            throttle.wait(self.since_pause)?;
        }
        self.since_pause = 0;
        Ok(())
    }

    /// Returns the done part and the whole length, in bytes that were read or could have been read in the same time.
    pub fn progress(&self) -> (u64, u64) {
        let whole = self.whole.cast_unsigned();
        let left = if self.left == 0 {
            0
        } else {
            self.route.left().max(0).cast_unsigned()
        };
        (whole.saturating_sub(left), whole)
    }
}

/// A clock that was set back by less than this hides no message from a scan of a time, in ms.
const CLOCK_SLACK: i64 = 30 * 60 * 1000;

/// Returns the physical offsets to scan. A message of a time is in a segment whose first messages were stored about then. Where queues
/// decide which messages count, a message that is not in its queue yet is left to a later scan.
pub(super) fn bounds(reader: &MessageReader, request: &ScanRequest) -> Result<Range<i64>> {
    let Range { start, mut end } = reader.physical_bounds();
    if request.transactions == Transactions::Committed {
        end = end.min(reader.queued_until());
    }
    let mut physical = request.physical.start.max(start)..request.physical.end.min(end);
    if request.by == TimeOf::Born {
        return Ok(physical);
    }
    let segments = SegmentTimes::new(reader.log(), end);
    if request.times.start > i64::MIN {
        let first = segments.last_begun_by(request.times.start.saturating_sub(CLOCK_SLACK))?;
        physical.start = physical.start.max(first.unwrap_or(start));
    }
    if request.times.end < i64::MAX {
        let time = request.times.end.saturating_add(CLOCK_SLACK);
        let report = reader.recovery();
        let first_after = segments.first_begun_after(time)?;
        // The last message may be of the time although its segment begins after it.
        let is_contradicted = |first: i64| first <= report.last_offset && (1..=time).contains(&report.last_store_time);
        physical.end = physical
            .end
            .min(first_after.filter(|first| !is_contradicted(*first)).unwrap_or(end));
    }
    Ok(physical.start..physical.end.max(physical.start))
}
