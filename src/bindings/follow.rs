//! `Store.refresh`, `Store.follow`, `Queue.tail`: a store that grows. A follower in the writing process waits for the watermark.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyIterator, PyString};

use super::arguments::{self, items_of_mapping, repr_of, texts, type_of};
use super::handle::{Freshness, Handle};
use super::imports;
use super::message_iterator::{MessageIterator, Ready, Source, read_ahead};
use super::queue::Queue;
use super::store::Store;
use super::time::{to_ms, to_wait};
use super::warnings::{warn, warn_of_begun_again, warn_of_lost};
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::Round;
use crate::interrupt;
use crate::read::{
    Follow, FollowFrom, GrowthPoll, LostQueues, MessageReader, OnDamage, OnMissing, QueueOffsets, ScanRequest, TagFilter,
};
use crate::store::MessageStore;

/// Waits for the messages of a pass.
struct Following {
    handle: Arc<Handle>,
    follow: Follow,
    lost: LostQueues,
    /// The lost queues that the user was warned of.
    warned: Vec<(String, i32)>,
    /// Of a store that this process writes to.
    writer: Option<Arc<MessageStore>>,
    timeout: Option<Duration>,
    /// The pass ends before the first message that was stored then or later, in ms.
    until: i64,
    is_over: bool,
    /// The physical offset up to which everything was read.
    read_until: i64,
    poll: GrowthPoll,
}

impl Source for Following {
    /// Puts the messages that are there into `ready`. Without one it waits for one, or only checks for a caller that has
    /// `waited`. Returns true if more may come: `false` after the timeout, or once the store was closed.
    fn fill(&mut self, ready: &mut Ready, waited: Option<Duration>) -> bool {
        let left = |timeout: Duration| Instant::now().checked_add(timeout.saturating_sub(waited.unwrap_or_default()));
        let deadline = self.timeout.and_then(left);
        while !self.is_over {
            let end = self.follow.reader().queued_until();
            read_ahead(ready, || {
                let next = self.follow.next_until(end).transpose();
                self.is_over = matches!(&next, Some(Ok(message)) if message.view().store_time() >= self.until);
                next.filter(|_| !self.is_over)
            });
            if let Err(error) = self.warn_of_lost().and(self.warn_of_begun_again()) {
                ready.push_back(Err(error));
            }
            if !ready.is_empty() {
                self.poll.note_message();
                return true;
            }
            if self.is_over {
                break;
            }
            self.read_until = end;
            match self.wait(end, deadline, waited.is_none()) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return true,
                Ok(None) => return false,
                Err(error) => {
                    ready.push_back(Err(error));
                    return true;
                }
            }
        }
        false
    }

    fn is_due(&self, waited: Duration) -> bool {
        if self.is_over || self.timeout.is_some_and(|timeout| timeout <= waited) {
            return true;
        }
        if let Some(writer) = &self.writer {
            return writer.may_go_past(self.read_until);
        }
        let reader = self.follow.reader();
        self.poll.is_due(reader) || reader.queued_until() > self.read_until
    }

    fn positions(&self, from: Option<i64>) -> Option<Result<QueueOffsets>> {
        Some(self.follow.positions(from))
    }
}

impl Following {
    /// Warns of the lost queues that the pass has met since the last call.
    fn warn_of_lost(&mut self) -> Result<()> {
        let mut lost = self.lost.names();
        lost.retain(|queue| !self.warned.contains(queue));
        if lost.is_empty() {
            return Ok(());
        }
        let path = self.handle.path();
        let warned = Python::try_attach(|py| warn_of_lost(py, path, &lost)).unwrap_or(Ok(()));
        self.warned.append(&mut lost);
        warned.map_err(|raised| Error::Interrupted { cause: Arc::new(raised) })
    }

    /// Warns of the queues that have begun again since the last call.
    fn warn_of_begun_again(&mut self) -> Result<()> {
        let queues = self.follow.take_begun_again();
        if queues.is_empty() {
            return Ok(());
        }
        let path = self.handle.path();
        let warned = Python::try_attach(|py| warn_of_begun_again(py, path, &queues)).unwrap_or(Ok(()));
        warned.map_err(|raised| Error::Interrupted { cause: Arc::new(raised) })
    }

    /// Waits until the log has grown past `end`, or, unless it `waits`, polls whether it has; `None` if that takes too long.
    fn wait(&mut self, end: i64, deadline: Option<Instant>, waits: bool) -> Result<Option<bool>> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if let Some(writer) = &self.writer {
                // A check waits a moment, too: only a waiting call gets the error of a poisoned store.
                let longest = if waits { interrupt::INTERVAL } else { GrowthPoll::SHORTEST };
                match writer.wait_past(end, left.map_or(longest, |left| left.min(longest)))? {
                    Some(false) => {}
                    grown_or_closed => return Ok(grown_or_closed),
                }
            } else if self.look()? || self.follow.reader().queued_until() > end {
                return Ok(Some(true));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            if !waits {
                return Ok(Some(false));
            }
            if self.writer.is_none() {
                let pause = self.poll.pause();
                thread::sleep(left.map_or(pause, |left| pause.min(left)));
            }
            interrupt::check_after_wait()?;
        }
    }

    /// Looks for what another process has appended.
    fn look(&mut self) -> Result<bool> {
        let reader = self.follow.reader();
        let (bytes, fresh) = self.handle.refresh(Arc::clone(reader), |reader| self.poll.look(reader))?;
        if !Arc::ptr_eq(reader, &fresh) {
            self.follow.move_to(fresh);
            return Ok(true);
        }
        Ok(bytes > 0)
    }
}

/// The reader, refreshed: a pass that begins with the end begins with what comes from now on.
pub(super) fn up_to_date(py: Python<'_>, handle: &Arc<Handle>) -> PyResult<Arc<MessageReader>> {
    let reader = handle.reader(py, Freshness::Queues)?;
    let (_, reader) = handle.detach(py, || handle.refresh(reader, MessageReader::refresh))?;
    handle.expect_open()?;
    Ok(reader)
}

fn follow(
    handle: &Arc<Handle>,
    follow: Follow,
    on_damage: OnDamage,
    timeout: Option<Duration>,
    until: i64,
) -> PyResult<MessageIterator> {
    let lost = follow.lost_queues();
    let following = Following {
        handle: Arc::clone(handle),
        follow,
        lost: lost.clone(),
        warned: Vec::new(),
        writer: handle.own_writer()?,
        timeout,
        until,
        is_over: false,
        read_until: -1,
        poll: GrowthPoll::new(Instant::now()),
    };
    Ok(MessageIterator::following(Arc::clone(handle), on_damage, following).lacking(lost))
}

#[pymethods]
impl Store {
    /// Takes up what another process has changed since the last open or refresh, reading only the new
    /// part: new messages, queues and topics, and what was removed. Returns the growth of the log in
    /// bytes: 0 if nothing came, and always for a writer.
    ///
    /// Topics and queues that came from the store show it; an iteration that has begun, a slice and
    /// batches keep the end that they began with. A message that its writer has not finished is
    /// left for a later refresh; so is a message that a writer with `SYNC_FLUSH` has not made durable.
    ///
    /// Raises `CorruptError` if messages that could be read were cut from the log: their writer was
    /// killed, and the next one has recovered the store. Open it again then. Raises it also for
    /// damage that whole messages follow.
    fn refresh(&self, py: Python<'_>) -> PyResult<i64> {
        let handle = &self.handle;
        let reader = handle.current_reader(py)?;
        let (bytes, _) = handle.detach(py, || handle.refresh(reader, MessageReader::refresh))?;
        handle.expect_open()?;
        Ok(bytes)
    }

    /// Returns an iterator of the messages as they come, in the order of the log, which waits for more.
    /// Refreshes the store.
    ///
    /// Parameters
    /// ----------
    /// topics : str or iterable of str, optional
    ///     The topics; None for all, also those that come later. A topic that is not there yet is followed
    ///     once it is; a `RuntimeWarning` names it with the topics of a similar name.
    /// start : {"latest", "earliest"} or mapping, default "latest"
    ///     "latest": the messages that come from now on. "earliest": those that are there, too. A mapping
    ///     of (topic, queue id) to the queue offset to begin with: no other queues are followed then. An
    ///     offset is one from 0 to the `max_offset` of the queue, and 0 for a queue that is not there yet.
    ///     One below `min_offset` has expired, and the pass starts at `min_offset`.
    ///     The `positions` of another pass are such a mapping.
    /// since : datetime with a timezone, or int of ms since 1970, optional
    ///     Begins with the messages stored then or later, in place of `start`. Between two ms, the messages
    ///     of that ms are returned, too, because some may have been stored after it.
    /// until : datetime with a timezone, or int of ms since 1970, optional
    ///     Ends before the first wanted message that was stored then or later. Until one comes, only
    ///     `timeout` ends the iteration.
    /// timeout : float of seconds, or timedelta, optional
    ///     Ends the iteration when no message has come for this time; it continues when it is asked again.
    ///     None: it waits until the store is closed.
    /// tags : str, optional
    ///     One of these tags: "paid || refund". None: all.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at a message that was lost or is damaged. None: as in `open`.
    /// on_missing : {"earliest", "latest"}, optional
    ///     Where a queue starts that does not hold its offset in `start`, also if that has expired: at
    ///     `min_offset` or `max_offset`. None: an offset outside of the queue is an error.
    ///
    /// Returns
    /// -------
    /// MessageIterator
    ///     The iterator. Half and rolled-back messages are left out. What expires before it is read is
    ///     skipped. The messages of a queue whose files are lost are missing: a `RuntimeWarning` and
    ///     `lost_queues` name it. A queue of `start` whose topic is deleted and made again is followed from
    ///     the first message of the new topic on: a `RuntimeWarning` names it.
    ///
    /// Raises
    /// ------
    /// NotFoundError
    ///     A queue does not hold its offset; the text names the bounds.
    /// TypeError, ValueError
    ///     An argument is not one of those accepted, or `topics` excludes a queue of `start`.
    /// CorruptError
    ///     Raised by the iteration, as by `refresh`, and at damage (`errors`).
    ///
    /// Notes
    /// -----
    /// A store that another process writes to is polled every 0.5 ms while messages come, and ever more
    /// rarely, up to 20 ms, while none do; in the writing process the iteration is woken.
    #[pyo3(
        signature = (topics=None, *, start=None, since=None, until=None, timeout=None, tags=None, errors=None, on_missing=None),
        text_signature = "($self, topics=None, *, start='latest', since=None, until=None, timeout=None, tags=None, errors=None, \
                          on_missing=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "the arguments of a Python call")]
    fn follow(
        &self,
        py: Python<'_>,
        topics: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        since: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::tag_expression)] tags: Option<&str>,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
        #[pyo3(from_py_with = arguments::on_missing)] on_missing: Option<OnMissing>,
    ) -> PyResult<MessageIterator> {
        self.handle.expect_open()?;
        let from = beginning(start, since, |start| {
            let offsets = match items_of_mapping(start)? {
                Some(items) => queue_offsets(start, items)?,
                None => return Err(unknown_start(start, "a mapping of (topic, queue id) to a queue offset")?),
            };
            Ok(FollowFrom::Offsets(offsets, on_missing.unwrap_or(OnMissing::Refuse)))
        })?;
        let until = end_of_pass(until)?;
        let request = ScanRequest {
            topics: topics.map(|topics| texts(topics, "topics")).transpose()?,
            tags: TagFilter::parse(tags.unwrap_or("*")),
            ..ScanRequest::default()
        };
        let timeout = to_wait(timeout, "timeout")?;
        let on_damage = OnDamage::new(errors.unwrap_or(self.handle.errors()));
        let reader = up_to_date(py, &self.handle)?;
        let in_start = match &from {
            FollowFrom::Offsets(offsets, _) => offsets.keys().map(|(topic, _)| topic.clone()).collect(),
            _ => Vec::new(),
        };
        let named = request.topics.iter().flatten().cloned().chain(in_start);
        warn_of_absent(py, &self.handle, &reader, named)?;
        let begun = self
            .handle
            .detach(py, || Follow::of_log(reader, request, from, on_damage.clone()))?;
        follow(&self.handle, begun, on_damage, timeout, until)
    }
}

#[pymethods]
impl Queue {
    /// Returns an iterator of the messages of the queue as they come, which waits for more, as
    /// `Store.follow`.
    ///
    /// Parameters
    /// ----------
    /// timeout : float of seconds, or timedelta, optional
    ///     Ends the iteration when no message has come for this time; None for never.
    /// start : {"latest", "earliest"}, int or mapping, default "latest"
    ///     "latest": the messages that come from now on. "earliest": those that are there, too. An int: the
    ///     queue offset to begin with, as in `Store.follow`. A mapping of (topic, queue id) to one, such as
    ///     the `positions` of another pass.
    /// since, until, tags, errors, on_missing
    ///     As in `Store.follow`.
    ///
    /// Returns
    /// -------
    /// MessageIterator
    ///     The iterator. If the topic is deleted and made again, it continues with the first message of the
    ///     new queue: a `RuntimeWarning` names the queue.
    ///
    /// Raises
    /// ------
    /// NotFoundError
    ///     The queue does not hold the offset; the text names the bounds.
    /// TypeError, ValueError
    ///     An argument is not one of those accepted.
    /// CorruptError
    ///     Raised by the iteration, as by `Store.follow`.
    #[pyo3(
        signature = (timeout=None, *, start=None, since=None, until=None, tags=None, errors=None, on_missing=None),
        text_signature = "($self, timeout=None, *, start='latest', since=None, until=None, tags=None, errors=None, on_missing=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "the arguments of a Python call")]
    fn tail(
        &self,
        py: Python<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        since: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::tag_expression)] tags: Option<&str>,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
        #[pyo3(from_py_with = arguments::on_missing)] on_missing: Option<OnMissing>,
    ) -> PyResult<MessageIterator> {
        let (handle, topic, id) = self.source();
        handle.expect_open()?;
        let from = beginning(start, since, |start| {
            let queue = (topic.to_owned(), id);
            let offset = if let Some(items) = items_of_mapping(start)? {
                let offset = queue_offsets(start, items)?.remove(&queue);
                offset.ok_or_else(|| PyValueError::new_err(format!("start does not name the queue {topic}/{id}")))?
            } else if start.hasattr("__index__")? {
                number(start, "start")?
            } else {
                return Err(unknown_start(start, "a queue offset")?);
            };
            let offsets = QueueOffsets::from([(queue, offset)]);
            Ok(FollowFrom::Offsets(offsets, on_missing.unwrap_or(OnMissing::Refuse)))
        })?;
        let until = end_of_pass(until)?;
        let timeout = to_wait(timeout, "timeout")?;
        let tags = TagFilter::parse(tags.unwrap_or("*"));
        let on_damage = OnDamage::new(errors.unwrap_or(handle.errors()));
        let reader = up_to_date(py, handle)?;
        warn_of_absent(py, handle, &reader, [topic.to_owned()])?;
        let begun = handle.detach(py, || Follow::of_queue(reader, topic, id, tags, &from, on_damage.clone()))?;
        follow(handle, begun, on_damage, timeout, until)
    }
}

/// Returns where a pass begins: at a word or at `offsets` of `start`, or at the time `since`.
pub(super) fn beginning<'py>(
    start: Option<&Bound<'py, PyAny>>,
    since: Option<&Bound<'py, PyAny>>,
    offsets: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<FollowFrom>,
) -> PyResult<FollowFrom> {
    let start = match (start, since) {
        (Some(_), Some(_)) => return Err(PyTypeError::new_err("give start or since, not both")),
        (None, Some(since)) => return Ok(FollowFrom::Time(time(since, "since", Round::Down)?)),
        (None, None) => return Ok(FollowFrom::Latest),
        (Some(start), None) => start,
    };
    if !start.is_instance_of::<PyString>() {
        return offsets(start);
    }
    match start.extract::<&str>()? {
        "earliest" => Ok(FollowFrom::Earliest),
        "latest" => Ok(FollowFrom::Latest),
        other => Err(PyValueError::new_err(format!(
            "start is {other:?}: expected \"earliest\", \"latest\" or offsets; since takes a time"
        ))),
    }
}

fn unknown_start(start: &Bound<'_, PyAny>, offsets: &str) -> PyResult<PyErr> {
    let given = repr_of(start)?;
    Ok(PyTypeError::new_err(format!(
        "start is {given}: expected \"earliest\", \"latest\" or {offsets}; since takes a time"
    )))
}

/// Converts the time before which a pass ends; `None` for no end.
fn end_of_pass(until: Option<&Bound<'_, PyAny>>) -> PyResult<i64> {
    until.map_or(Ok(i64::MAX), |until| time(until, "until", Round::Up))
}

/// Converts a time. It refuses a negative number of ms, because -1 is the end of a partition in Kafka.
fn time(given: &Bound<'_, PyAny>, name: &str, round: Round) -> PyResult<i64> {
    expect_no_truth(given, name)?;
    let is_number = given.hasattr("__index__")?;
    match to_ms(given, name, round)? {
        ms if ms < 0 && is_number => Err(PyValueError::new_err(format!(
            "{name} is {ms}: as a time an int is 0 or more ms since 1970; start=\"latest\" and \"earliest\" are the ends of the store"
        ))),
        ms => Ok(ms),
    }
}

/// Converts a whole number. It refuses True and False, although Python counts with them.
fn number<T: TryFrom<i64>>(value: &Bound<'_, PyAny>, name: &str) -> PyResult<T> {
    expect_no_truth(value, name)?;
    arguments::whole(value, name)
}

fn expect_no_truth(value: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    if value.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("{name} is an int, not {}", type_of(value)?)));
    }
    Ok(())
}

/// Converts the items of a mapping of (topic, queue id) to a queue offset.
pub(super) fn queue_offsets<'py>(start: &Bound<'py, PyAny>, items: Bound<'py, PyIterator>) -> PyResult<QueueOffsets> {
    let expected = || {
        let given = repr_of(start)?;
        Ok(format!(
            "start is a mapping of (topic, queue id) to a queue offset, such as {{(\"orders\", 0): 100}}, not {given}"
        ))
    };
    let pair = |item: PyResult<Bound<'py, PyAny>>| {
        let (queue, offset): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
        let named = queue.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>();
        let (topic, id) = named.map_err(|_| expected().map_or_else(|other| other, PyTypeError::new_err))?;
        let topic = arguments::text(topic.as_borrowed(), "a topic of start")?.to_owned();
        let id = number(&id, "a queue id of start")?;
        Ok(((topic, id), number(&offset, "a queue offset of start")?))
    };
    items.map(pair).collect()
}

/// Warns of topics that are not there yet, once of each.
fn warn_of_absent(
    py: Python<'_>,
    handle: &Handle,
    reader: &MessageReader,
    named: impl IntoIterator<Item = String>,
) -> PyResult<()> {
    let absent = reader.absent_topics(named);
    if absent.is_empty() {
        return Ok(());
    }
    let arguments = (handle.path().as_os_str(), Vec::from_iter(absent), reader.topics()?);
    let text = imports::call(py, "mqstore._names", "not_there_yet", arguments, None)?;
    warn(py, &text.extract::<String>()?)
}
