//! The access path of a scan: along the queues of named topics if that reads less, else along the log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::error::Result;
use crate::format::is_light_queue;
use crate::interrupt;
use crate::log::{RecordCursor, SequentialRead};
use crate::read::damage::OnDamage;
use crate::read::merge::Heads;
use crate::read::message_reader::MessageReader;
use crate::read::queue_walk::NamedQueue;
use crate::read::scan::log_locations::{LogLocations, LogLocationsBackward};
use crate::read::scan::predicate::Predicate;
use crate::read::scan::queue_census::{may_have_lost_queues, topics_with_queues};
use crate::read::scan::queue_leads::LostQueues;
use crate::read::scan::queue_locations::QueueLocations;
use crate::read::scan::record_location::{LedBy, READ_ALONE, RecordLocation};
use crate::read::scan::request::{Order, ScanRequest, Transactions};

/// The source of a scan's locations, in its order.
#[derive(Debug)]
pub(super) enum Route {
    /// One part after the other, the next one at the end.
    Parts(Vec<RoutePart>),
    /// Queues, in the order of the log.
    Merged(Merged),
}

/// Locations that come one after the other.
#[derive(Debug)]
pub(super) enum RoutePart {
    /// A stretch of the log.
    Log(LogLocations),
    /// A stretch of the log, from its end.
    LogBackward(LogLocationsBackward),
    /// A stretch of a queue.
    Queue(QueueLocations, SequentialRead),
    /// Locations that were found before, the next one at the end.
    Found(Vec<RecordLocation>),
    /// The records at these physical offsets, the next one at the end; all but the first `usize` of them are being prefetched.
    Records(LedBy, Vec<i64>, usize),
}

/// Records that are read ahead at once.
const AHEAD: usize = 1024;
/// A record is prefetched into the processor's cache this many records before its turn.
const NEAR: usize = 16;

/// Queues whose next messages are compared.
#[derive(Debug)]
pub(super) struct Merged {
    queues: Vec<QueueLocations>,
    heads: Heads,
    /// Queues whose next message is not known.
    unknown: Vec<usize>,
    read: SequentialRead,
}

/// Messages that are in no queue, by topic, queue id, queue offset and physical offset.
type Queueless = BTreeMap<Vec<u8>, Vec<(i32, i64, i64)>>;

impl Route {
    /// Builds the route of a request.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the log has to be read to find the way, unless damage is skipped; [`Error::Io`].
    pub(super) fn new(reader: &MessageReader, request: &ScanRequest, on_damage: &OnDamage, lost: &LostQueues) -> Result<Self> {
        match (request.order, request.transactions, &request.topics) {
            (Order::Log, Transactions::Committed, Some(topics)) => {
                if let Some(queues) = queues_that_pay(reader, request, topics)? {
                    return Ok(Self::Merged(Merged::new(queues, request.reverse)));
                }
            }
            (Order::Log, _, _) => {}
            (Order::Queue, _, _) => return Self::by_queue(reader, request, on_damage, lost).map(Self::Parts),
        }
        let part = if request.reverse {
            RoutePart::LogBackward(LogLocationsBackward::new(request.physical.clone()))
        } else {
            RoutePart::Log(LogLocations::new(reader, request, request.physical.clone())?)
        };
        Ok(Self::Parts(vec![part]))
    }

    /// Returns the next location. `cursor` reads the log where that is needed to find it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for damage, unless that is skipped, after which it can continue; [`Error::Io`].
    pub(super) fn next(
        &mut self,
        reader: &MessageReader,
        request: &ScanRequest,
        cursor: &mut RecordCursor,
        on_damage: &OnDamage,
    ) -> Result<Option<RecordLocation>> {
        let parts = match self {
            Self::Merged(merged) => return merged.next(reader, request, on_damage),
            Self::Parts(parts) => match parts.as_mut_slice() {
                // Fast path: most scans have one log part, and dispatching per record would double the cost.
                [RoutePart::Log(locations)] => return locations.next(reader, cursor, on_damage),
                _ => parts,
            },
        };
        while let Some(part) = parts.last_mut() {
            // Before a location is taken: a caller that continues after an interrupt misses no message.
            interrupt::check()?;
            let next = match part {
                RoutePart::Log(locations) => locations.next(reader, cursor, on_damage)?,
                RoutePart::LogBackward(locations) => locations.next(reader, request, cursor, on_damage)?,
                RoutePart::Found(locations) => locations.pop(),
                RoutePart::Queue(locations, read) => {
                    let next = locations.next(reader, request, on_damage)?;
                    if let Some(location) = &next {
                        read.at(reader.log(), location.physical_offset, request.physical.end);
                    }
                    next
                }
                RoutePart::Records(by, offsets, left) => {
                    if offsets.len() <= *left {
                        *left = left.saturating_sub(AHEAD);
                        let mut ahead = offsets.get(*left..).unwrap_or_default().to_vec();
                        ahead.sort_unstable();
                        reader.log().read_ahead(&ahead)?;
                    }
                    if let Some(next) = offsets.iter().rev().nth(NEAR) {
                        cursor.touch(*next);
                    }
                    offsets.pop().map(|physical_offset| RecordLocation {
                        physical_offset,
                        size: 0,
                        by: by.clone(),
                    })
                }
            };
            // The last part knows what it has brought into the page cache.
            if next.is_some() || parts.len() == 1 {
                return Ok(next);
            }
            parts.pop();
        }
        Ok(None)
    }

    /// Splits off a route to the next messages, of about `bytes` bytes, and returns its end in the log. `None`, without a
    /// split, where locations have to be found one by one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn take_front(
        &mut self,
        reader: &MessageReader,
        request: &ScanRequest,
        cursor: &mut RecordCursor,
        bytes: u64,
    ) -> Result<Option<(Self, i64)>> {
        let Self::Parts(parts) = self else { return Ok(None) };
        let [RoutePart::Log(locations)] = parts.as_mut_slice() else {
            return Ok(None);
        };
        let front = locations.take_front(reader, request, cursor, bytes)?;
        Ok(front.map(|front| (Self::Parts(vec![RoutePart::Log(front)]), locations.position())))
    }

    /// Drops what the scan has brought into the page cache for the messages up to the one at `done` in its order, or for all, if it
    /// reads the log once. A queue has the messages of others between its own, and they may come next.
    pub(super) fn drop_behind(&mut self, reader: &MessageReader, done: Option<i64>) {
        let (log, before) = (reader.log(), done.unwrap_or(i64::MAX));
        match self {
            Self::Merged(merged) => merged.read.drop_before(log, before),
            Self::Parts(parts) => match parts.last_mut() {
                Some(RoutePart::Log(locations)) => locations.drop_before(log, before),
                Some(RoutePart::Queue(_, read)) => read.keep(),
                // A reversed pass over the log drops segment by segment, as it goes.
                Some(RoutePart::LogBackward(_) | RoutePart::Found(_) | RoutePart::Records(..)) | None => {}
            },
        }
    }

    /// Returns true if it reads the log backward. Such a route drops a segment from the page cache as soon as the first message of it was
    /// asked for: other threads must not read there after that.
    pub(super) fn is_backward(&self) -> bool {
        matches!(self, Self::Parts(parts) if matches!(parts[..], [RoutePart::LogBackward(_)]))
    }

    /// Returns the length of the rest, in bytes that are read or could be read in the same time.
    pub(super) fn left(&self) -> i64 {
        match self {
            Self::Merged(merged) => merged.queues.iter().map(QueueLocations::left).sum(),
            Self::Parts(parts) => parts.iter().map(RoutePart::left).sum(),
        }
    }

    /// Builds a route topic by topic, and queue by queue. A scan of the log finds the messages that are in no queue first, and the queues
    /// whose files are lost.
    fn by_queue(
        reader: &MessageReader,
        request: &ScanRequest,
        on_damage: &OnDamage,
        lost: &LostQueues,
    ) -> Result<Vec<RoutePart>> {
        let (mut queueless, mut with_queues) = (Queueless::new(), BTreeSet::new());
        if request.transactions == Transactions::Committed {
            with_queues = topics_with_queues(reader, request)?;
        }
        let named = request.topics.as_ref();
        if named.is_none_or(|topics| topics.iter().any(|topic| !with_queues.contains(topic)))
            || may_have_lost_queues(reader, &with_queues, &request.physical)?
        {
            queueless = find_queueless(reader, request, &with_queues, on_damage, lost)?;
        }
        let mut by_topic: BTreeMap<Vec<u8>, Vec<RoutePart>> = BTreeMap::new();
        for topic in with_queues {
            let queues = queues_of(reader, request, &topic)?;
            by_topic.insert(topic.into_bytes(), queues.into_iter().map(RoutePart::queue).collect());
        }
        for (topic, mut found) in queueless {
            found.sort_unstable();
            if !request.reverse {
                found.reverse();
            }
            let offsets = found.into_iter().map(|(_, _, physical)| physical).collect();
            by_topic.insert(topic, vec![RoutePart::records(LedBy::Walk, offsets)]);
        }
        let mut parts: Vec<_> = by_topic.into_values().flatten().collect();
        if !request.reverse {
            parts.reverse();
        }
        Ok(parts)
    }
}

impl RoutePart {
    /// Returns the records at these offsets, the next one at the end.
    pub(super) fn records(by: LedBy, offsets: Vec<i64>) -> Self {
        let left = offsets.len();
        Self::Records(by, offsets, left)
    }

    pub(super) fn queue(locations: QueueLocations) -> Self {
        Self::Queue(locations, SequentialRead::default())
    }

    fn left(&self) -> i64 {
        match self {
            Self::Log(locations) => locations.left(),
            Self::LogBackward(locations) => locations.left(),
            Self::Found(locations) => locations.len() as i64 * READ_ALONE,
            Self::Queue(locations, _) => locations.left(),
            Self::Records(_, offsets, _) => offsets.len() as i64 * READ_ALONE,
        }
    }
}

impl Merged {
    fn new(queues: Vec<QueueLocations>, reverse: bool) -> Self {
        Self {
            unknown: (0..queues.len()).collect(),
            heads: Heads::new(reverse),
            queues,
            read: SequentialRead::default(),
        }
    }

    fn next(&mut self, reader: &MessageReader, request: &ScanRequest, on_damage: &OnDamage) -> Result<Option<RecordLocation>> {
        while let Some(at) = self.unknown.last().copied() {
            let Some(queue) = self.queues.get_mut(at) else { break };
            if let Some((_, unit)) = queue.peek(reader, request, on_damage)? {
                self.heads.push(unit.physical_offset, at);
            }
            self.unknown.pop();
        }
        let Some(first) = self.heads.pop() else { return Ok(None) };
        self.unknown.push(first);
        let Some(queue) = self.queues.get_mut(first) else {
            return Ok(None);
        };
        let next = queue.next(reader, request, on_damage)?;
        if let Some(location) = &next {
            self.read.at(reader.log(), location.physical_offset, request.physical.end);
        }
        Ok(next)
    }
}

/// Returns the queues of a topic that are read, the last one first if the scan is reversed.
fn queues_of(reader: &MessageReader, request: &ScanRequest, topic: &str) -> Result<Vec<QueueLocations>> {
    let mut queues = Vec::new();
    for id in reader.queue_ids(topic)? {
        if request.queue_ids.as_ref().is_some_and(|wanted| !wanted.contains(&id)) {
            continue;
        }
        if let Some(queue) = reader.queue(topic, id)? {
            let offsets = queue.min_offset()..queue.max_offset();
            let topic = topic.to_owned();
            queues.push(QueueLocations::new(NamedQueue { topic, id, queue }, offsets, request.reverse));
        }
    }
    Ok(queues)
}

/// Returns the queues of all these topics, if each has some, and if reading their messages takes less time than reading the log: messages
/// that lie apart are read more slowly. Of a queue whose files are lost, only the log has the messages.
fn queues_that_pay(reader: &MessageReader, request: &ScanRequest, topics: &[String]) -> Result<Option<Vec<QueueLocations>>> {
    let with_queues = topics_with_queues(reader, request)?;
    if topics.iter().any(|topic| !with_queues.contains(topic)) {
        return Ok(None);
    }
    let (mut queues, mut bytes) = (Vec::new(), 0_i64);
    for topic in &with_queues {
        for locations in queues_of(reader, request, topic)? {
            bytes = bytes.saturating_add(locations.estimate_bytes()?);
            queues.push(locations);
        }
    }
    let Range { start, end } = reader.physical_bounds();
    let has_light = with_queues.iter().any(|topic| is_light_queue(topic));
    if !has_light && (bytes >= (end - start) / 2 || may_have_lost_queues(reader, &with_queues, &request.physical)?) {
        return Ok(None);
    }
    if request.physical != (start..end) {
        queues
            .iter_mut()
            .try_for_each(|locations| locations.narrow(reader, &request.physical))?;
    }
    Ok(Some(queues))
}

/// Returns the messages of the log that count, and are not returned with one of the topics that have queues.
fn find_queueless(
    reader: &MessageReader,
    request: &ScanRequest,
    with_queues: &BTreeSet<String>,
    on_damage: &OnDamage,
    lost: &LostQueues,
) -> Result<Queueless> {
    let mut predicate = Predicate::new(request, lost.clone());
    let mut found = Queueless::new();
    let mut cursor = RecordCursor::default();
    let mut locations = LogLocations::new(reader, request, request.physical.clone())?;
    if !with_queues.is_empty() {
        locations = locations.beside_queues();
    }
    while let Some(location) = locations.next(reader, &mut cursor, on_damage)? {
        locations.drop_before(reader.log(), location.physical_offset);
        let Some(view) = cursor.view() else { continue };
        let is_of_queue = |topic| std::str::from_utf8(topic).is_ok_and(|topic| with_queues.contains(topic));
        if predicate.given_with(&view).is_some_and(is_of_queue) {
            predicate.note_lost_queue(&view, reader)?;
            continue;
        }
        match predicate.admits(&location, &view, reader) {
            Ok(true) => {}
            Ok(false) => continue,
            // The queue that leads there is read, too, and reports it.
            Err(damage) if damage.is_damage() && !with_queues.is_empty() => continue,
            Err(damage) => {
                on_damage.pass_over(damage, 1)?;
                continue;
            }
        }
        let Some(topic) = predicate.given_with(&view) else { continue };
        let named = (view.queue_id(), view.queue_offset(), view.physical_offset());
        match found.get_mut(topic) {
            Some(of_topic) => of_topic.push(named),
            None => {
                found.insert(topic.to_vec(), vec![named]);
            }
        }
    }
    locations.drop_before(reader.log(), i64::MAX);
    Ok(found)
}
