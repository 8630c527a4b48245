//! Counts of a thread's allocations and page faults.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count of the calling thread's allocations.
struct Counting;

thread_local! { static ALLOCATIONS: Cell<u64> = const { Cell::new(0) }; }

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    // A thread that ends allocates after its counter is destroyed.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// The counts of the calling thread.
#[derive(Clone, Copy)]
pub struct Counts {
    pub allocations: u64,
    pub faults: u64,
}

impl Counts {
    /// Returns the counts up to now.
    pub fn now() -> Self {
        // SAFETY: zeros are a valid `rusage`.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is writable.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
        Self {
            allocations: ALLOCATIONS.with(Cell::get),
            faults: usage.ru_minflt as u64,
        }
    }

    /// Returns the difference from `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            allocations: self.allocations - before.allocations,
            faults: self.faults - before.faults,
        }
    }
}
