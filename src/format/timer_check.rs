//! The progress of the delivery of timer messages: `config/timercheck`.
//!
//! ```text
//! a broker's:  0 read until i64, ms | 8 timer log i64 | 16 queue offset i64 | 24 queue offset of the master i64
//!              32 state version i64 | 40 timestamp i64 | 48 counter i64 | zeros to 64
//! ours:        64 checksum u32 of the bytes before it and of those after it up to 112 | 68 "mqt1"
//!              72 log end i64 | 80 queue end i64 | 88 delivered until i64, ms | 96 first i64 | 104 handed over i64 | zeros to 4096
//! ```
//!
//! A broker overwrites its fields in place, each second, and leaves ours as they are: then the checksum does not match any more.

use super::bytes::{i32_at, i64_at, put_i32, put_i64};
use super::crc::crc32;

const READ_UNTIL_AT: usize = 0;
const TIMER_LOG_AT: usize = READ_UNTIL_AT + 8;
const QUEUE_AT: usize = TIMER_LOG_AT + 8;
const MASTER_QUEUE_AT: usize = QUEUE_AT + 8;
const STATE_VERSION_AT: usize = MASTER_QUEUE_AT + 8;
const TIMESTAMP_AT: usize = STATE_VERSION_AT + 8;
const COUNTER_AT: usize = TIMESTAMP_AT + 8;
const CHECKSUM_AT: usize = 64;
const MAGIC_AT: usize = CHECKSUM_AT + 4;
const LOG_END_AT: usize = MAGIC_AT + 4;
const QUEUE_END_AT: usize = LOG_END_AT + 8;
const DELIVERED_UNTIL_AT: usize = QUEUE_END_AT + 8;
const FIRST_AT: usize = DELIVERED_UNTIL_AT + 8;
const HANDED_OVER_AT: usize = FIRST_AT + 8;
const OWN_END: usize = HANDED_OVER_AT + 8;
/// Bytes of the file.
pub const TIMER_CHECK_SIZE: usize = 4096;
const _: () = assert!(COUNTER_AT + 8 <= CHECKSUM_AT && OWN_END <= TIMER_CHECK_SIZE);
/// Its last character is the version.
const MAGIC: i32 = i32::from_be_bytes(*b"mqt1");

/// The file as a broker and this crate read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerCheck {
    /// The time in ms up to which a broker has delivered the messages of its timer wheel. [`TimerCheck::encode`] writes that of `progress`.
    pub read_until: i64,
    /// The queue offset of the first message that a broker has not put on its wheel. [`TimerCheck::encode`] writes that of `progress`.
    pub queue_offset: i64,
    /// The position of a broker in its timer log, which only a broker has.
    pub timer_log: i64,
    /// The version of the content, as in the other settings files: state, time in ms, counter.
    pub version: [i64; 3],
    /// The progress that this crate has written; `None` if a broker has written the file since.
    pub progress: Option<TimerProgress>,
}

/// The progress of the delivery. The timer messages from `first` on and before `queue_end` that are due at or before `delivered_until`
/// were delivered, with their copies before `log_end`, and so were all before `first`. No other one was: its copy, if there is one, lies
/// at or after `log_end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerProgress {
    /// The queue offset of the first timer message that was not delivered.
    pub first: i64,
    /// The end of the queue.
    pub queue_end: i64,
    /// A time in ms.
    pub delivered_until: i64,
    /// A physical offset.
    pub log_end: i64,
    /// The end of the queue after the last hand-over, or 0. A timer message before it that was stored again replaces one before `first`,
    /// and one after it may replace one from `first` on.
    pub handed_over: i64,
}

impl TimerCheck {
    /// Encodes the whole file. A broker begins with the first timer message that was not delivered.
    pub fn encode(self) -> [u8; TIMER_CHECK_SIZE] {
        let mut out = [0; TIMER_CHECK_SIZE];
        let progress = self.progress.unwrap_or_default();
        let [state, timestamp, counter] = self.version;
        for (at, value) in [
            (READ_UNTIL_AT, progress.delivered_until.max(0) / 1000 * 1000),
            (TIMER_LOG_AT, self.timer_log),
            (QUEUE_AT, progress.first),
            (MASTER_QUEUE_AT, progress.first),
            (STATE_VERSION_AT, state),
            (TIMESTAMP_AT, timestamp),
            (COUNTER_AT, counter),
            (LOG_END_AT, progress.log_end),
            (QUEUE_END_AT, progress.queue_end),
            (DELIVERED_UNTIL_AT, progress.delivered_until),
            (FIRST_AT, progress.first),
            (HANDED_OVER_AT, progress.handed_over),
        ] {
            put_i64(&mut out, at, value);
        }
        put_i32(&mut out, MAGIC_AT, MAGIC);
        let checksum = checksum(&out);
        put_i32(&mut out, CHECKSUM_AT, checksum);
        out
    }

    /// Decodes a file. Missing bytes count as zeros.
    pub fn decode(bytes: &[u8]) -> Self {
        let mut whole = [0; TIMER_CHECK_SIZE];
        for (to, from) in whole.iter_mut().zip(bytes) {
            *to = *from;
        }
        let at = |at| i64_at(&whole, at);
        let is_own = i32_at(&whole, MAGIC_AT) == MAGIC && i32_at(&whole, CHECKSUM_AT) == checksum(&whole);
        Self {
            read_until: at(READ_UNTIL_AT),
            queue_offset: at(QUEUE_AT).min(at(MASTER_QUEUE_AT)),
            timer_log: at(TIMER_LOG_AT),
            version: [at(STATE_VERSION_AT), at(TIMESTAMP_AT), at(COUNTER_AT)],
            progress: is_own.then(|| TimerProgress {
                first: at(FIRST_AT),
                queue_end: at(QUEUE_END_AT),
                delivered_until: at(DELIVERED_UNTIL_AT),
                log_end: at(LOG_END_AT),
                handed_over: at(HANDED_OVER_AT),
            }),
        }
    }
}

fn checksum(bytes: &[u8]) -> i32 {
    let (before, after) = (bytes.get(..CHECKSUM_AT), bytes.get(MAGIC_AT..OWN_END));
    let covered = [before.unwrap_or_default(), after.unwrap_or_default()].concat();
    crc32(&covered).cast_signed()
}
