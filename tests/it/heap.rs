//! The peak memory of a piece of code, and the number of its allocations. Each thread counts its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static HEAP: Counting = Counting;

thread_local! {
    static TAKEN: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
    static TIMES: Cell<usize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    let _ = TIMES.try_with(|times| times.set(times.get() + 1));
    // A thread that is ending has no counter any more.
    let _ = TAKEN.try_with(|taken| {
        taken.set(taken.get() + bytes);
        MOST.with(|most| most.set(most.get().max(taken.get())));
    });
}

// SAFETY: every call is the system allocator's own.
#[expect(unsafe_code, reason = "an allocator is unsafe to write")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as isize - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `code` and says how many bytes this thread held at most, beyond those it held before.
pub(crate) fn most_while<T>(code: impl FnOnce() -> T) -> (T, usize) {
    let before = TAKEN.get();
    MOST.set(before);
    let value = code();
    (value, (MOST.get() - before) as usize)
}

/// Returns the number of times that this thread has allocated, grown, shrunk or freed anything.
pub(crate) fn times() -> usize {
    TIMES.get()
}

#[test]
fn what_is_taken_and_given_back_counts_at_its_most() {
    let ((), most) = most_while(|| {
        drop(vec![1_u8; 100_000]);
        let mut grown = vec![1_u8; 10];
        grown.resize(50_000, 1);
    });
    let before = times();
    drop(vec![1_u8; 10]);
    assert_eq!(times() - before, 2);
    assert!((100_000..101_000).contains(&most), "{most} bytes");
}
