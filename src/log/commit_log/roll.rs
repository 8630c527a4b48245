//! From one segment of the log to the next.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::format::{BLANK_SIZE, encode_blank};
use crate::log::commit_log::allocate::NotMade;
use crate::log::commit_log::append_state::AppendState;
use crate::log::commit_log::commit_log::CommitLog;
use crate::sync::lock;
use crate::watermark::Watermark;

/// Segments that may wait for a sync; each holds a descriptor and a mapping. A thread that needs one more syncs first.
const MAX_UNSYNCED: usize = 64;

impl CommitLog {
    /// A thread calls [`CommitLog::make_asked_segment`] from now on. Appending waits for it for at most `patience`.
    pub fn serve_segments(&self, patience: Duration) {
        self.allocator.serve(patience);
    }

    /// Makes the next segment if it was asked for: by the first message of the current one, or by one that finds no room. Whether that
    /// failed is told to those who wait for the segment.
    pub fn make_asked_segment(&self) {
        // No segment has room for a whole one and the BLANK after it.
        self.allocator.answer(|| self.make_next_segment(self.segment_size()));
    }

    /// What brings work for [`CommitLog::make_asked_segment`].
    pub fn segments_asked(&self) -> (Arc<Watermark>, i64) {
        self.allocator.awaited()
    }

    /// Fills the rest of the segment and moves to the next one, which was made.
    pub(super) fn roll(&self, state: &mut AppendState) -> Result<()> {
        let remaining = state.remaining();
        if let Some(full) = &state.current
            && remaining > 0
        {
            let at = (state.end - full.start()) as usize;
            if !full.write(at, &[&encode_blank(remaining as u32)]) {
                return Err(self.page_failed(state, at));
            }
            full.fill_until(state.end + BLANK_SIZE as u64);
        }
        state.move_to_next();
        Ok(())
    }

    /// Makes the segment after the current one, or waits for the thread that makes it, outside the lock. Does nothing if there is room for
    /// `len` bytes by now.
    pub(super) fn get_next_segment(&self, len: u64) -> Result<()> {
        let start = {
            let mut state = lock(&self.state);
            if state.stopped.is_some() || state.has_room(len) {
                return Ok(());
            }
            state.wait_for_next();
            state.next_start()
        };
        let Some(patience) = self.allocator.patience() else {
            return self.make_next_segment(len);
        };
        let answered = self.allocator.wait(self.allocator.ask(), patience, start);
        let state = lock(&self.state);
        // A later request may have been answered better, and a log that was stopped says why.
        if state.stopped.is_some() || state.has_room(len) {
            return Ok(());
        }
        answered
    }

    /// Makes the segment after the current one, outside the lock, unless another thread has made room for `len` bytes.
    fn make_next_segment(&self, len: u64) -> Result<()> {
        let _one_at_a_time = self.allocator.lock();
        let start = {
            let state = lock(&self.state);
            if state.stopped.is_some() || state.has_room(len) {
                return Ok(());
            }
            state.next_start()
        };
        if lock(&self.unsynced).len() >= MAX_UNSYNCED {
            self.flush()?;
        }
        let file = self.allocator.make(start).map_err(|not_made| match not_made {
            NotMade::Gone(cause) => cause,
            NotMade::Left(cause) => self.fail(cause),
        })?;
        if let Some(pool) = &self.pool {
            file.use_pool(pool.clone());
        }
        lock(&self.unsynced).push(file.clone());
        self.files.add(start);
        lock(&self.state).next = Some(file);
        Ok(())
    }

    /// Waits until no segment is being made. After [`CommitLog::stop`] no thread begins another, and the log's directory stays as it is.
    pub fn end_allocation(&self) {
        drop(self.allocator.lock());
    }

    /// Removes the segment that was made ahead, once the log is stopped, and what is left of one that could not be made: a closed store
    /// has no segment past its end.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_unused(&self) -> Result<()> {
        let _one_at_a_time = self.allocator.lock();
        let unused = lock(&self.state).next.clone();
        self.allocator.remove(unused.as_deref())?;
        lock(&self.state).next = None;
        Ok(())
    }
}
