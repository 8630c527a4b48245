//! The delayed messages and timer messages of a log and their copies: each copy once, in the order of its level, and not before its time,
//! nor after a recall.

use std::collections::BTreeMap;

use mqstore::error::Error;
use mqstore::format::{DelayLevels, MessageView, SCHEDULE_TOPIC, TIMER_TOPIC, TimerProgress, property};
use mqstore::read::{MessageReader, StoredMessage};
use serde_json::Value;

/// A delayed message or a copy: the fields that both have, and the time at which it is due or was delivered.
type Timed = (String, i64);

/// The delayed messages and the copies of each level, in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct DelayedLog {
    scheduled: BTreeMap<i32, Vec<Timed>>,
    copies: BTreeMap<i32, Vec<Timed>>,
    /// Timer messages in the order of their queue, each with true if it was stored again; `None` for a recall.
    timers: Vec<Option<(Timed, bool)>>,
    /// The copies of timer messages: the times of delivery, and the places in the log.
    timer_copies: BTreeMap<Timed, Vec<(i64, i64)>>,
    /// The value of `TIMER_DEL_UNIQKEY` and the second of each recall, with its place in the log.
    recalls: BTreeMap<(String, i64), i64>,
    /// The recall that would end each timer message with a unique key.
    recalled_by: BTreeMap<Timed, (String, i64)>,
}

impl DelayedLog {
    /// Finds them in the messages of a log.
    pub(crate) fn of(log: &[StoredMessage], levels: &DelayLevels) -> Self {
        let mut found = Self::default();
        for message in log {
            let view = message.view();
            let fields = format!(
                "{} {} {}",
                String::from_utf8_lossy(view.body()),
                view.born_time(),
                view.reconsume_times()
            );
            if let Some(due) = time_of_timer(&view) {
                found.add_timer(&view, (fields, due));
            } else if view.has_topic(SCHEDULE_TOPIC) {
                let level = view.queue_id() + 1;
                let due = view.store_time() + levels.delay_ms(level);
                found.scheduled.entry(level).or_default().push((fields, due));
            } else if let Some(level) = level_of_copy(&view) {
                let level = level.min(levels.max_level());
                found.copies.entry(level).or_default().push((fields, view.store_time()));
            }
        }
        found
    }

    /// Adds a timer message, its copy or a recall.
    fn add_timer(&mut self, view: &MessageView<'_>, timer: Timed) {
        let properties = view.properties();
        let text = |name: &str| properties.get(name).map(std::borrow::Cow::into_owned);
        let out = text(property::TIMER_OUT_MS).and_then(|out| out.parse().ok()).unwrap_or(0);
        if !view.has_topic(TIMER_TOPIC) {
            let copies = self.timer_copies.entry(timer).or_default();
            copies.push((view.store_time(), view.physical_offset()));
        } else if let Some(key) = text(property::TIMER_DEL_UNIQKEY) {
            self.timers.push(None);
            self.recalls.entry((key, out)).or_insert(view.physical_offset());
        } else {
            if let (Some(topic), Some(key)) = (text(property::REAL_TOPIC), text(property::UNIQ_KEY)) {
                self.recalled_by.insert(timer.clone(), (format!("{topic}+{key}"), out));
            }
            self.timers.push(Some((timer, text(property::TIMER_ROLL_TIMES).is_some())));
        }
    }

    /// Returns the place in the log of the recall that ends a timer message.
    fn recall_of(&self, timer: &Timed) -> Option<i64> {
        self.recalls.get(self.recalled_by.get(timer)?).copied()
    }

    /// Checks that the copies of each level are those of its first messages, in order, each once and not too early.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (level, copies) in &self.copies {
            let scheduled = self.scheduled.get(level).map_or(&[][..], Vec::as_slice);
            if copies.len() > scheduled.len() {
                return Err(format!(
                    "level {level} has {} messages, and {} copies",
                    scheduled.len(),
                    copies.len()
                ));
            }
            for ((copy, delivered), (message, due)) in copies.iter().zip(scheduled) {
                if copy != message || delivered < due {
                    let all = format!("{scheduled:?}, {copies:?}");
                    return Err(format!(
                        "level {level}: {message:?} due at {due}, {copy:?} delivered at {delivered} in {all}"
                    ));
                }
            }
        }
        self.check_timers()
    }

    /// Checks that each copy of a timer message is that of one, and not too early.
    fn check_timers(&self) -> Result<(), String> {
        for (timer, delivered) in &self.timer_copies {
            let waited = self.appended_timers().filter(|waiting| *waiting == timer).count();
            if delivered.len() > waited || delivered.iter().any(|(at, _)| *at < timer.1) {
                return Err(format!("{waited} timer messages {timer:?} were delivered at {delivered:?}"));
            }
            let recall = self.recall_of(timer).unwrap_or(i64::MAX);
            if delivered.iter().any(|(_, place)| *place > recall) {
                return Err(format!(
                    "timer messages {timer:?} were recalled at {recall} and delivered at {delivered:?}"
                ));
            }
        }
        Ok(())
    }

    /// Returns the timer messages without those that were stored again.
    fn appended_timers(&self) -> impl Iterator<Item = &Timed> {
        let timers = self.timers.iter().flatten();
        timers.filter(|(_, is_again)| !is_again).map(|(timer, _)| timer)
    }

    /// Checks that a broker that enqueues the timer messages from a queue offset on delivers each that has no copy, once.
    pub(crate) fn check_handed_over(&self, first: i64) -> Result<(), String> {
        let mut left = BTreeMap::<&Timed, i64>::new();
        for timer in self.appended_timers() {
            *left.entry(timer).or_default() += 1;
        }
        for (timer, copies) in &self.timer_copies {
            *left.entry(timer).or_default() -= copies.len() as i64;
        }
        for (timer, _) in self.timers.iter().skip(first as usize).flatten() {
            *left.entry(timer).or_default() -= 1;
        }
        match left
            .iter()
            .find(|(timer, left)| **left != 0 && self.recall_of(timer).is_none())
        {
            None => Ok(()),
            Some((timer, left)) => Err(format!(
                "a broker from {first} on misses {left} of {timer:?}: {:?}",
                self.timers
            )),
        }
    }

    /// Checks that each timer message before the progress in a `timercheck` has a copy, or was stored again after it.
    pub(crate) fn check_timer_progress(&self, progress: TimerProgress) -> Result<(), String> {
        let is_passed =
            |offset: i64, due: i64| offset < progress.first || (offset < progress.queue_end && due <= progress.delivered_until);
        let (mut passed, mut again) = (BTreeMap::<&Timed, usize>::new(), BTreeMap::<&Timed, usize>::new());
        for (offset, found) in self.timers.iter().enumerate() {
            let Some((timer, is_again)) = found.as_ref().filter(|(timer, _)| self.recall_of(timer).is_none()) else {
                continue;
            };
            match (is_passed(offset as i64, timer.1), is_again) {
                (true, false) => *passed.entry(timer).or_default() += 1,
                (false, true) => *again.entry(timer).or_default() += 1,
                _ => {}
            }
        }
        for (timer, count) in passed {
            let copies = self.timer_copies.get(timer).map_or(0, Vec::len);
            if copies + again.get(timer).copied().unwrap_or(0) < count {
                return Err(format!(
                    "{progress:?} passes {count} of {timer:?}, and {copies} copies are on disk"
                ));
            }
        }
        Ok(())
    }

    /// Checks that each delayed message has its copy.
    pub(crate) fn check_delivered(&self) -> Result<(), String> {
        self.check()?;
        let is_kept = |timer: &&Timed| self.recall_of(timer).is_none();
        let scheduled = self.scheduled.values().map(Vec::len).sum::<usize>() + self.appended_timers().filter(is_kept).count();
        let recalled = self.timer_copies.iter().filter(|(timer, _)| !is_kept(timer));
        let copies = self.copies() - recalled.map(|(_, copies)| copies.len()).sum::<usize>();
        if scheduled != copies {
            return Err(format!("{scheduled} messages that were not recalled, and {copies} copies"));
        }
        Ok(())
    }

    /// Checks that the progress in a `delayOffset.json` passes no message without a copy.
    pub(crate) fn check_progress(&self, file: &Value) -> Result<(), String> {
        for (level, progress) in file["offsetTable"].as_object().into_iter().flatten() {
            let copies = level.parse().ok().and_then(|level: i32| self.copies.get(&level));
            let copies = copies.map_or(0, Vec::len) as i64;
            if progress.as_i64() > Some(copies) {
                return Err(format!(
                    "level {level} has the progress {progress}, and {copies} copies are on disk"
                ));
            }
        }
        Ok(())
    }

    /// Returns the number of copies.
    pub(crate) fn copies(&self) -> usize {
        let timers = self.timer_copies.values().map(Vec::len).sum::<usize>();
        self.copies.values().map(Vec::len).sum::<usize>() + timers
    }
}

/// Returns the time of a timer message, or of its copy; `None` for any other message. A power cut may tear a sector in the properties of the
/// last copies, which no checksum covers: what does not name its topic any more is not a copy, for a delayed message neither.
fn time_of_timer(view: &MessageView<'_>) -> Option<i64> {
    let properties = view.properties();
    let topic = properties.get(property::REAL_TOPIC)?;
    if !view.has_topic(TIMER_TOPIC) && topic != view.topic() {
        return None;
    }
    properties.get(property::TIMER_OUT_MS)?;
    properties.get(property::TIMER_DELIVER_MS)?.parse().ok()
}

/// Returns the level of a delivered copy; `None` for any other message. A dead letter has the level 0.
pub(crate) fn level_of_copy(view: &MessageView<'_>) -> Option<i32> {
    let properties = view.properties();
    let is_there = properties.get(property::REAL_TOPIC)? == view.topic();
    let level = properties.get(property::DELAY)?.parse().ok()?;
    (is_there && level > 0).then_some(level)
}

/// Returns every message of a log with segments of this size that can be read, in order.
pub(crate) fn every_message(reader: &MessageReader, segment: u64) -> Result<Vec<StoredMessage>, Error> {
    let bounds = reader.physical_bounds();
    let (mut at, mut messages) = (bounds.start, Vec::new());
    while at < bounds.end {
        match reader.message_at(at) {
            Ok(message) => {
                at = message.view().end();
                messages.push(message);
            }
            // The BLANK at the end of a segment.
            Err(Error::NotFound { .. }) => at = (at / segment as i64 + 1) * segment as i64,
            Err(error) => return Err(error),
        }
    }
    Ok(messages)
}
