//! The record kernel: writes a record with everything that the format demands, and nothing else.
//!
//! It computes the CRC of the body; then, under one lock, it reads the clock, takes the queue offset, builds the header, copies all
//! bytes into the map, and raises the watermark. The lock spins unless another kind is requested. Everything that mqstore does
//! beyond that is its cost. The clock is the exact one: the coarse one takes 17 ns less and is up to 4 ms late, so that a message
//! would be stored before the call that stores it.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::file_map::FileMap;

const HEADER: usize = 88;
const LOCAL: &[u8; 8] = b"\x7f\0\0\x01\0\0\x2a\x9f";

/// A kind of lock.
pub trait Lock: Default + Sync {
    /// Runs `work` while no other thread holds the lock.
    fn held<T>(&self, work: impl FnOnce() -> T) -> T;
}

/// A spin lock that yields now and then.
#[derive(Default)]
pub struct Spin(AtomicBool);

impl Lock for Spin {
    #[inline(always)]
    fn held<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut spins = 0;
        while self.0.swap(true, Ordering::Acquire) {
            while self.0.load(Ordering::Relaxed) {
                std::hint::spin_loop();
                spins += 1;
                if spins % 2000 == 0 {
                    std::thread::yield_now();
                }
            }
        }
        let done = work();
        self.0.store(false, Ordering::Release);
        done
    }
}

impl Lock for Mutex<()> {
    #[inline(always)]
    fn held<T>(&self, work: impl FnOnce() -> T) -> T {
        let _held = self.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}

/// Appends records to a map, and starts again when it is full.
pub struct RecordKernel<'m, L: Lock = Spin> {
    map: &'m FileMap,
    lock: L,
    state: UnsafeCell<State>,
    /// The watermark, as mqstore's *appended*: raised after the bytes, with a check for waiting threads.
    appended: AtomicI64,
    waiting: AtomicUsize,
}

struct State {
    topic: Vec<u8>,
    queue_id: i32,
    next_in_queue: i64,
    time: i64,
    /// The start of the next record, in the map and in the log.
    at: usize,
    offset: i64,
}

// SAFETY: `state` is used only by the thread that holds `lock`.
unsafe impl<L: Lock> Sync for RecordKernel<'_, L> {}

impl<'m> RecordKernel<'m> {
    /// Creates a kernel for records of one topic and queue.
    pub fn new(map: &'m FileMap, topic: &str) -> Self {
        Self::with_lock(map, topic)
    }
}

impl<'m, L: Lock> RecordKernel<'m, L> {
    /// Creates a kernel with another kind of lock.
    pub fn with_lock(map: &'m FileMap, topic: &str) -> Self {
        Self {
            map,
            lock: L::default(),
            state: UnsafeCell::new(State {
                topic: topic.into(),
                queue_id: 0,
                next_in_queue: 0,
                time: 0,
                at: 0,
                offset: 0,
            }),
            appended: AtomicI64::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Appends a record; returns its end in the log.
    #[inline(always)]
    pub fn append(&self, topic: &[u8], queue_id: i32, properties: &[u8], body: &[u8]) -> i64 {
        let size = HEADER + body.len() + 1 + topic.len() + 2 + properties.len();
        let crc = crc32fast::hash(body) & 0x7fff_ffff;
        self.lock.held(|| {
            // SAFETY: this thread holds the lock.
            let state = unsafe { &mut *self.state.get() };
            assert!(
                state.queue_id == queue_id && state.topic == topic,
                "the kernel knows one queue"
            );
            state.next_in_queue += 1;
            state.time = state.time.max(now_ms());
            if state.at + size > self.map.len() {
                state.at = 0;
            }
            let header = header(state, size, crc, body.len());
            // SAFETY: the record ends inside the map, and no other thread writes while this one holds the lock.
            unsafe {
                let to = self.map.start().add(state.at);
                let tail = to.add(HEADER + body.len());
                to.add(HEADER).copy_from_nonoverlapping(body.as_ptr(), body.len());
                tail.write(topic.len() as u8);
                tail.add(1).copy_from_nonoverlapping(topic.as_ptr(), topic.len());
                let tail = tail.add(1 + topic.len());
                tail.copy_from_nonoverlapping((properties.len() as u16).to_be_bytes().as_ptr(), 2);
                tail.add(2).copy_from_nonoverlapping(properties.as_ptr(), properties.len());
                to.copy_from_nonoverlapping(header.as_ptr(), HEADER);
            }
            state.at += size;
            state.offset += size as i64;
            self.appended.store(state.offset, Ordering::SeqCst);
            assert_eq!(self.waiting.load(Ordering::SeqCst), 0);
            state.offset
        })
    }

    /// Returns the end of the appended records.
    pub fn appended(&self) -> i64 {
        self.appended.load(Ordering::Acquire)
    }
}

#[inline(always)]
fn header(state: &State, size: usize, crc: u32, body: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0..4].copy_from_slice(&(size as u32).to_be_bytes());
    header[4..8].copy_from_slice(&0xdaa3_20a7_u32.to_be_bytes());
    header[8..12].copy_from_slice(&crc.to_be_bytes());
    header[12..16].copy_from_slice(&state.queue_id.to_be_bytes());
    header[20..28].copy_from_slice(&state.next_in_queue.to_be_bytes());
    header[28..36].copy_from_slice(&state.offset.to_be_bytes());
    header[40..48].copy_from_slice(&state.time.to_be_bytes());
    header[48..56].copy_from_slice(LOCAL);
    header[56..64].copy_from_slice(&state.time.to_be_bytes());
    header[64..72].copy_from_slice(LOCAL);
    header[84..88].copy_from_slice(&(body as u32).to_be_bytes());
    header
}

#[inline(always)]
fn now_ms() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}
