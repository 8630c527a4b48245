//! The SIGBUS guard. A page of a mapping that cannot be read (the file was cut short by another process, the device failed, the
//! disk is full under a hole) raises SIGBUS in the thread that accesses it, which by default ends the process. Once [`install`]ed,
//! the handler here maps anonymous zeros from that page to the mapping's end, counts the fault in the mapping's slot and lets the
//! access continue; the reader checks the slot afterwards. Faults elsewhere are passed to the previous handler. If a file is cut
//! inside a page, the rest of that page reads as zeros without a signal, and cannot be detected.
//!
//! The handler uses only static atomics: it takes no lock, allocates nothing and cannot panic.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The most mappings under guard at one time.
const SLOT_COUNT: usize = 8192;

/// The slot of one mapping. `state` contains a generation that changes with every use (a seqlock), so that the handler never mixes
/// the fields of two mappings. A slot that changes while the handler reads it belongs to a mapping of another thread, never to the
/// mapping that this thread is accessing.
struct Slot {
    /// `FREE`, `CHANGING` or `USED` in the low bits, the generation above.
    state: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    writable: AtomicBool,
    /// The number of bytes from the start up to the first page that was ever lost.
    intact_len: AtomicUsize,
    faults: AtomicU32,
}

const FREE: usize = 0;
const CHANGING: usize = 1;
const USED: usize = 2;
const STATE_MASK: usize = 3;
const GENERATION: usize = 4;

static SLOTS: [Slot; SLOT_COUNT] = [const {
    Slot {
        state: AtomicUsize::new(FREE),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        writable: AtomicBool::new(false),
        intact_len: AtomicUsize::new(0),
        faults: AtomicU32::new(0),
    }
}; SLOT_COUNT];

/// The number of faults in all mappings since the process started.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// The position at which the next search for a free slot starts.
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(0);

impl Slot {
    fn claim(&self, start: usize, len: usize, writable: bool) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        if state & STATE_MASK != FREE
            || self
                .state
                .compare_exchange(state, state | CHANGING, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        // A thread that reads one of the fields below then reads a changed state (pairs with the fence in `range`).
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(start + len, Ordering::Relaxed);
        self.writable.store(writable, Ordering::Relaxed);
        self.intact_len.store(len, Ordering::Relaxed);
        self.faults.store(0, Ordering::Relaxed);
        self.state.store(state.wrapping_add(GENERATION) | USED, Ordering::Release);
        true
    }

    fn release(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state
            .store((state & !STATE_MASK).wrapping_add(GENERATION) | FREE, Ordering::Release);
    }

    /// Returns start and end of the mapping, if the slot did not change during the call.
    fn range(&self) -> Option<(usize, usize)> {
        let before = self.state.load(Ordering::Acquire);
        if before & STATE_MASK != USED {
            return None;
        }
        let range = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (self.state.load(Ordering::Relaxed) == before).then_some(range)
    }

    /// Replaces everything from the page of `address` to the mapping's end by zeros.
    fn replace_by_zeros(&self, address: usize, start: usize, end: usize) -> bool {
        let page = address & !(page_size().wrapping_sub(1));
        // This comes before the zeros are mapped, so that no thread reads a zero and then finds the slot untouched.
        self.intact_len.fetch_min(page.saturating_sub(start), Ordering::AcqRel);
        self.faults.fetch_add(1, Ordering::AcqRel);
        FAULTS.fetch_add(1, Ordering::Relaxed);
        let protection = if self.writable.load(Ordering::Relaxed) {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: page to end lies in a mapping that this thread is accessing through a live `Region`; only its contents change.
        // mmap is a plain system call, allowed in a handler.
        let mapped = unsafe {
            libc::mmap(
                ptr::with_exposed_provenance_mut(page),
                end.wrapping_sub(page),
                protection,
                flags,
                -1,
                0,
            )
        };
        mapped != libc::MAP_FAILED
    }
}

/// A mapping under guard, until dropped.
pub(super) struct Registration {
    slot: &'static Slot,
}

impl Registration {
    /// Puts `len` bytes from `start` on under guard.
    ///
    /// # Errors
    /// `OutOfMemory` if all slots are taken; those of [`install`].
    ///
    /// # Safety
    /// The range must be a mapping of the caller that begins at a page and stays mapped until the registration is dropped: a fault
    /// in it replaces its pages.
    pub(super) unsafe fn new(start: *mut u8, len: usize, writable: bool) -> io::Result<Self> {
        put_back()?;
        let from = NEXT_SLOT.load(Ordering::Relaxed) % SLOT_COUNT;
        let (before, after) = SLOTS.split_at(from);
        for (n, slot) in after.iter().chain(before).enumerate() {
            if slot.claim(start.expose_provenance(), len, writable) {
                NEXT_SLOT.store(from + n + 1, Ordering::Relaxed);
                return Ok(Self { slot });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!("{SLOT_COUNT} files are mapped already, which is this process's limit: close some stores"),
        ))
    }

    /// Returns the number of faults in the mapping.
    pub(super) fn faults(&self) -> u32 {
        self.slot.faults.load(Ordering::Acquire)
    }

    /// Returns the number of bytes from the start that were the file's in every read before this call.
    pub(super) fn intact_len(&self) -> usize {
        // The reads come first: neither the compiler nor the processor may move them after the load.
        fence(Ordering::Acquire);
        self.slot.intact_len.load(Ordering::Relaxed)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.slot.release();
    }
}

/// A handler that ours has replaced, linked to the handler that ours replaced before.
struct Previous {
    action: libc::sigaction,
    older: *const Previous,
}

/// The newest previous handler. Nodes are never freed, because a handler may be traversing them.
static PREVIOUS: AtomicPtr<Previous> = AtomicPtr::new(ptr::null_mut());

/// The threads that are inside a previous handler, one entry per call. A handler installed over ours, and then replaced by ours,
/// calls ours as its own previous one. The entry shows that this time the next older handler has to be called.
static CHAINING: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// The last fault outside of guarded mappings: its thread, its address, and its repetitions.
static LAST_THREAD: AtomicUsize = AtomicUsize::new(0);
static LAST_ADDRESS: AtomicUsize = AtomicUsize::new(0);
static REPEATS: AtomicUsize = AtomicUsize::new(0);
/// The limit of repetitions. A handler that was switched off but left in place returns without doing anything, and the access
/// faults again for ever.
const MAX_REPEATS: usize = 1000;

static PAGE_SIZE: AtomicUsize = AtomicUsize::new(4096);

/// Returns the size of a page, once the guard is installed; before that the smallest possible one.
pub(super) fn page_size() -> usize {
    PAGE_SIZE.load(Ordering::Relaxed)
}

/// Set once the guard is installed. From then on a handler that replaces it is replaced in turn.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Installs the guard for the whole process. Another handler may replace it later (Python's `faulthandler.enable()` does). Each
/// mapping and each sync of a file then reinstalls the guard, and that handler gets the faults outside of our mappings.
///
/// # Errors
/// Those of `sigaction`.
pub fn install() -> io::Result<()> {
    // SAFETY: sysconf has no preconditions.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PAGE_SIZE.store(usize::try_from(page_size).unwrap_or(4096), Ordering::Relaxed);
    IS_INSTALLED.store(true, Ordering::Release);
    put_back()
}

/// Returns the number of faults in all mappings since the process started.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// Reinstalls the guard if another handler has replaced it. Costs one system call.
///
/// # Errors
/// Those of `sigaction`.
pub(super) fn put_back() -> io::Result<()> {
    if !IS_INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    let current = exchange_action(None)?;
    if current.sa_sigaction == handler_address() {
        return Ok(());
    }
    // The previous handler is listed before ours is set, because a fault may follow at once.
    remember(&current);
    // SAFETY: all-zero is a valid sigaction: no handler, no flags, an empty mask.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = handler_address();
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    let replaced = exchange_action(Some(&ours))?;
    if replaced.sa_sigaction != handler_address() {
        remember(&replaced);
    }
    Ok(())
}

fn handler_address() -> usize {
    on_sigbus as *const () as usize
}

/// Sets the action for SIGBUS, if one is given, and returns the old one.
fn exchange_action(new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    // SAFETY: all-zero is a valid sigaction.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both point to a sigaction or are null.
    if unsafe { libc::sigaction(libc::SIGBUS, new, &raw mut old) } == 0 {
        Ok(old)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Adds `action` as the newest previous handler, unless it is the newest already.
fn remember(action: &libc::sigaction) {
    let mut newest = PREVIOUS.load(Ordering::Acquire);
    let node = Box::into_raw(Box::new(Previous {
        action: *action,
        older: newest,
    }));
    loop {
        // SAFETY: nodes in the list live for ever and never change.
        let known = unsafe { newest.as_ref() }
            .is_some_and(|n| n.action.sa_sigaction == action.sa_sigaction && n.action.sa_flags == action.sa_flags);
        if known {
            // SAFETY: `node` came from `Box::into_raw` above and was not published.
            drop(unsafe { Box::from_raw(node) });
            return;
        }
        match PREVIOUS.compare_exchange(newest, node, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(raced) => {
                newest = raced;
                // SAFETY: `node` is not published yet, so nobody else reads it.
                unsafe { (*node).older = newest };
            }
        }
    }
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the location belongs to this thread; the interrupted code must find its value unchanged.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let code = (*info).si_code;
        let address = (*info).si_addr().addr();
        // Only these two codes come with an address: a SIGBUS sent by a process has its process id there.
        let is_fault = code == libc::BUS_ADRERR || code == libc::BUS_MCEERR_AR;
        if !(is_fault && absorb(address)) {
            // The address of errno identifies the thread without a system call.
            pass_on(signal, info, context, errno.addr(), address);
        }
        *errno = saved;
    }
}

/// Returns true if the address was in a mapping under guard and can be accessed now.
fn absorb(address: usize) -> bool {
    SLOTS.iter().any(|slot| {
        slot.range()
            .is_some_and(|(start, end)| (start..end).contains(&address) && slot.replace_by_zeros(address, start, end))
    })
}

/// Passes a fault outside of our mappings to the previous handler.
///
/// # Safety
/// Only the handler may call this, with its arguments.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, thread: usize, address: usize) {
    // SAFETY: the kernel passes a valid siginfo.
    let was_sent = unsafe { (*info).si_code } <= 0;
    let action = previous_action(thread).filter(|_| was_sent || !is_stuck(thread, address));
    let handler = action.map_or(libc::SIG_DFL, |a| a.sa_sigaction);
    if handler == libc::SIG_IGN && was_sent {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: both calls are allowed in a handler. A fault repeats at return and ends the process; a sent signal does not, so
        // it is sent again.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            if was_sent {
                libc::raise(signal);
            }
        }
        return;
    }
    let entry = CHAINING
        .iter()
        .find(|e| e.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok());
    if action.is_some_and(|a| a.sa_flags & libc::SA_SIGINFO != 0) {
        // SAFETY: sigaction returned this address as that of a handler with three arguments.
        let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(ptr::with_exposed_provenance::<()>(handler)) };
        call(signal, info, context);
    } else {
        // SAFETY: sigaction returned this address as that of a handler with one argument.
        let call: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(ptr::with_exposed_provenance::<()>(handler)) };
        call(signal);
    }
    if let Some(entry) = entry {
        entry.store(0, Ordering::Relaxed);
    }
}

/// Returns the newest previous handler that this thread is not executing.
fn previous_action(thread: usize) -> Option<&'static libc::sigaction> {
    let depth = CHAINING.iter().filter(|e| e.load(Ordering::Relaxed) == thread).count();
    // SAFETY: nodes in the list live for ever and never change.
    let mut node = unsafe { PREVIOUS.load(Ordering::Acquire).as_ref() };
    for _ in 0..depth {
        // SAFETY: as above.
        node = node.and_then(|n| unsafe { n.older.as_ref() });
    }
    node.map(|n| &n.action)
}

/// Returns true if the same access of the same thread has faulted [`MAX_REPEATS`] times in a row.
fn is_stuck(thread: usize, address: usize) -> bool {
    let same_thread = LAST_THREAD.swap(thread, Ordering::Relaxed) == thread;
    let same_address = LAST_ADDRESS.swap(address, Ordering::Relaxed) == address;
    if same_thread && same_address {
        REPEATS.fetch_add(1, Ordering::Relaxed) >= MAX_REPEATS
    } else {
        REPEATS.store(0, Ordering::Relaxed);
        false
    }
}
