//! The SIGBUS guard: pages that go away under a mapping are counted; faults elsewhere still reach the handler that they reached
//! before.
#![allow(unsafe_code)]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mqstore::error::Error;
use mqstore::storage::{Access, Env, MappedFile, RealEnv, Region, SelectedBuffer, Step, install_guard};
use tempfile::TempDir;

use crate::child;

const PAGE: usize = 4096;

fn filled_file(dir: &Path, name: &str, pages: usize) -> std::path::PathBuf {
    let path = dir.join(name);
    fs::write(&path, vec![7; pages * PAGE]).unwrap();
    path
}

fn shorten(path: &Path, len: usize) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(len as u64).unwrap();
}

fn map(path: &Path, pages: usize, access: Access) -> Region {
    RealEnv::new().open(path, access).unwrap().map(pages * PAGE, access).unwrap()
}

#[test]
fn a_page_cut_off_under_a_mapping_reads_as_lost_and_nobody_dies() {
    install_guard().unwrap();
    let dir = TempDir::new().unwrap();
    let path = filled_file(dir.path(), "f", 8);
    let region = map(&path, 8, Access::Read);
    shorten(&path, 3 * PAGE);
    let mut page = [1; PAGE];
    assert!(region.read(2 * PAGE, &mut page), "what is still there reads");
    assert_eq!((page, region.faults()), ([7; PAGE], 0));
    assert!(!region.read(5 * PAGE, &mut page), "what is gone does not");
    assert_eq!((page, region.faults()), ([0; PAGE], 1));
    assert_eq!(region.intact_len(), 5 * PAGE);
    assert!(!region.read(3 * PAGE, &mut page));
    assert_eq!(
        region.intact_len(),
        3 * PAGE,
        "the first lost page is noted, however late it is met"
    );
    assert!(region.read(0, &mut page) && region.intact(0..3 * PAGE));
}

#[test]
fn a_range_lost_before_it_is_selected_is_lost_for_later_readers_too() {
    install_guard().unwrap();
    let dir = TempDir::new().unwrap();
    let path = filled_file(dir.path(), "f", 4);
    let file = MappedFile::open(&RealEnv::new(), path.clone(), 0, 4 * PAGE as u64).unwrap();
    let early = file.select(2 * PAGE..2 * PAGE + 10).unwrap();
    assert!(early.check_intact().is_ok() && early.bytes() == [7; 10]);
    shorten(&path, PAGE);
    assert_eq!(early.bytes(), [0; 10]);
    let late = file.select(3 * PAGE..3 * PAGE + 10).unwrap();
    assert_eq!(
        late.bytes(),
        [0; 10],
        "no fault of its own: the guard's zeros reach to the end"
    );
    assert!(early.check_intact().is_err() && late.check_intact().is_err() && file.faults() == 1);
    assert!(file.copy(3 * PAGE..3 * PAGE + 10).is_none());
    assert!(matches!(file.copy(0..PAGE), Some(SelectedBuffer::Owned(bytes)) if *bytes == [7; PAGE]));
    assert!(file.check_intact(0..PAGE).is_ok());
    let lost = file.check_intact(0..4 * PAGE).unwrap_err();
    assert!(
        matches!(&lost, Error::Corrupt { path: p, offset, .. } if *p == path && *offset == 2 * PAGE as u64),
        "{lost}"
    );
}

#[test]
fn a_write_to_a_lost_page_is_refused_after_the_fact() {
    install_guard().unwrap();
    let dir = TempDir::new().unwrap();
    let path = filled_file(dir.path(), "f", 4);
    let region = map(&path, 4, Access::ReadWrite);
    shorten(&path, PAGE);
    assert!(region.write(10, b"kept"));
    assert!(!region.write(2 * PAGE, b"lost") && !region.store_be_u32(3 * PAGE, 1));
    assert_eq!((region.faults(), region.intact_len()), (1, 2 * PAGE));
    assert_eq!(fs::read(&path).unwrap()[10..14], *b"kept");
}

#[test]
fn two_mappings_of_one_file_are_lost_one_by_one() {
    install_guard().unwrap();
    let dir = TempDir::new().unwrap();
    let path = filled_file(dir.path(), "f", 4);
    let (one, two) = (map(&path, 4, Access::Read), map(&path, 4, Access::Read));
    shorten(&path, PAGE);
    let mut byte = [0];
    assert!(!one.read(3 * PAGE, &mut byte));
    assert_eq!((one.faults(), two.faults()), (1, 0));
    shorten(&path, 4 * PAGE);
    assert!(
        two.read(3 * PAGE, &mut byte),
        "the file is long again: the other mapping never met the gap"
    );
    assert!(
        !one.read(3 * PAGE, &mut byte),
        "the first one stays lost until it is mapped again"
    );
    assert!(map(&path, 4, Access::Read).read(3 * PAGE, &mut byte));
}

#[test]
fn four_threads_meet_the_same_cut_and_each_gets_an_error() {
    install_guard().unwrap();
    let dir = TempDir::new().unwrap();
    let path = filled_file(dir.path(), "f", 64);
    let region = map(&path, 64, Access::Read);
    shorten(&path, 16 * PAGE);
    std::thread::scope(|scope| {
        for first in 0..4 {
            let region = &region;
            scope.spawn(move || {
                let mut page = [0; PAGE];
                for n in (0..64).rev().skip(first) {
                    assert_eq!(region.read(n * PAGE, &mut page), n < 16, "page {n}");
                    assert_eq!(page, [if n < 16 { 7 } else { 0 }; PAGE]);
                }
            });
        }
    });
    assert!(region.faults() >= 1 && region.intact_len() == 16 * PAGE);
}

/// Slots are reused while other threads fault. A handler that confused two slots would map zeros over foreign memory.
#[test]
fn mappings_that_come_and_go_never_lose_a_strangers_page() {
    install_guard().unwrap();
    let dir = TempDir::new().unwrap();
    let whole = filled_file(dir.path(), "whole", 4);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cutters: Vec<_> = (0..2)
            .map(|n| {
                scope.spawn({
                    let dir = dir.path();
                    move || cut_again_and_again(dir, n)
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut bytes = vec![0; 4 * PAGE];
                while !done.load(Ordering::Relaxed) {
                    let region = map(&whole, 4, Access::Read);
                    assert!(region.read(0, &mut bytes) && bytes.iter().all(|b| *b == 7) && region.faults() == 0);
                }
            });
        }
        let cut: usize = cutters.into_iter().map(|thread| thread.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        assert_eq!(cut, 2 * 500);
    });
}

fn cut_again_and_again(dir: &Path, thread: usize) -> usize {
    let path = dir.join(format!("cut{thread}"));
    let mut page = [0; PAGE];
    (0..500)
        .filter(|n| {
            let pages = 2 + n % 7;
            fs::write(&path, vec![7; pages * PAGE]).unwrap();
            let region = map(&path, pages, Access::Read);
            shorten(&path, PAGE);
            region.read(0, &mut page) && !region.read((pages - 1) * PAGE, &mut page) && region.faults() == 1
        })
        .count()
}

#[test]
fn a_foreign_fault_still_ends_the_process() {
    assert_eq!(
        child::run("guard::child_faults_elsewhere").status.signal(),
        Some(libc::SIGBUS)
    );
    assert_eq!(
        child::run("guard::child_faults_elsewhere_under_the_default").status.signal(),
        Some(libc::SIGBUS)
    );
}

#[test]
fn a_sent_sigbus_still_ends_the_process() {
    assert_eq!(
        child::run("guard::child_is_sent_a_sigbus").status.signal(),
        Some(libc::SIGBUS)
    );
}

#[test]
fn a_foreign_fault_reaches_the_handler_that_was_there_before() {
    assert_eq!(
        child::run("guard::child_has_a_handler_with_an_address").status.code(),
        Some(42)
    );
    assert_eq!(child::run("guard::child_has_a_plain_handler").status.code(), Some(43));
}

#[test]
fn a_handler_that_repairs_its_own_faults_keeps_repairing_them() {
    let done = child::run("guard::child_has_a_handler_that_repairs");
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn the_guard_comes_back_after_another_handler_replaced_it() {
    assert_eq!(
        child::run("guard::child_is_replaced_and_installs_again").status.code(),
        Some(42)
    );
}

#[test]
fn a_mapping_puts_the_guard_back_where_another_handler_replaced_it() {
    assert_eq!(child::run("guard::child_is_replaced_and_maps").status.code(), Some(42));
}

#[test]
fn a_sync_puts_the_guard_back_where_another_handler_replaced_it() {
    assert_eq!(child::run("guard::child_is_replaced_and_syncs").status.code(), Some(42));
}

#[test]
fn without_the_guard_mappings_and_syncs_leave_foreign_handlers_in_place() {
    assert_eq!(child::run("guard::child_maps_without_the_guard").status.code(), Some(42));
}

#[test]
fn a_restored_handler_leaves_the_guard_and_foreign_faults_end_the_process() {
    let done = child::run("guard::child_has_a_handler_that_comes_and_goes");
    assert_eq!(done.status.signal(), Some(libc::SIGBUS), "{done:?}");
}

#[test]
fn two_handlers_that_replace_each_other_around_the_guard_end_the_process() {
    let done = child::run("guard::child_has_handlers_above_and_below_the_guard");
    assert_eq!(done.status.signal(), Some(libc::SIGBUS), "{done:?}");
    let calls = String::from_utf8_lossy(&done.stderr).matches(HANDED_BACK).count();
    assert_eq!(calls, 1, "{done:?}");
}

#[test]
fn a_handler_that_hands_back_to_ours_ends_the_process_once() {
    let done = child::run("guard::child_is_replaced_by_a_handler_that_hands_back");
    assert_eq!(done.status.signal(), Some(libc::SIGBUS));
    let calls = String::from_utf8_lossy(&done.stderr).matches(HANDED_BACK).count();
    assert_eq!(calls, 1, "{done:?}");
}

#[test]
fn a_handler_that_was_switched_off_in_place_does_not_hang_the_process() {
    assert_eq!(
        child::run("guard::child_has_a_handler_that_does_nothing").status.signal(),
        Some(libc::SIGBUS)
    );
}

#[test]
fn the_8193rd_mapping_is_refused_with_a_reason() {
    let done = child::run("guard::child_maps_too_much");
    assert!(done.status.success(), "{done:?}");
}

const HANDED_BACK: &str = "handed back";
static FOREIGN_PAGE: AtomicUsize = AtomicUsize::new(0);
static FOREIGN_CALLS: AtomicUsize = AtomicUsize::new(0);

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

fn set_handler(address: usize, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: all-zero is a valid sigaction; the handlers here match their flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = address;
        action.sa_flags = flags | libc::SA_NODEFER;
        let mut old: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, &raw mut old), 0);
        old
    }
}

fn no_core_dump() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `none` is a limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) }, 0);
}

/// Touches a missing page in a mapping that the guard does not know.
fn fault_elsewhere() -> u8 {
    no_core_dump();
    let dir = TempDir::new().unwrap();
    let path = filled_file(dir.path(), "f", 1);
    let file = fs::File::open(&path).unwrap();
    let mapping = memmap2::MmapOptions::new().len(PAGE).map_raw_read_only(&file).unwrap();
    shorten(&path, 0);
    drop(dir);
    FOREIGN_PAGE.store(mapping.as_ptr() as usize, Ordering::Relaxed);
    // SAFETY: mapped; the fault is the point.
    unsafe { mapping.as_ptr().read_volatile() }
}

#[test]
#[ignore = "a child's program"]
fn child_faults_elsewhere() {
    if child::is_child() {
        install_guard().unwrap();
        fault_elsewhere();
    }
}

#[test]
#[ignore = "a child's program"]
fn child_faults_elsewhere_under_the_default() {
    if child::is_child() {
        set_handler(libc::SIG_DFL, 0);
        install_guard().unwrap();
        fault_elsewhere();
    }
}

#[test]
#[ignore = "a child's program"]
fn child_is_sent_a_sigbus() {
    if child::is_child() {
        no_core_dump();
        set_handler(libc::SIG_DFL, 0);
        install_guard().unwrap();
        // SAFETY: no preconditions.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

extern "C" fn exit_42_at_the_right_address(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: a kernel-made siginfo.
    unsafe {
        let expected = (*info).si_addr() as usize == FOREIGN_PAGE.load(Ordering::Relaxed);
        libc::_exit(if expected { 42 } else { 1 })
    }
}

extern "C" fn exit_43(_: libc::c_int) {
    // SAFETY: allowed in a handler.
    unsafe { libc::_exit(43) }
}

extern "C" fn repair(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    FOREIGN_CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the page belongs to the mapping that faulted.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap((*info).si_addr(), PAGE, libc::PROT_READ, flags, -1, 0);
    }
}

extern "C" fn hand_back(signal: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: write and raise are allowed in a handler.
    unsafe {
        libc::write(2, HANDED_BACK.as_ptr().cast(), HANDED_BACK.len());
        libc::raise(signal);
    }
}

extern "C" fn do_nothing(_: libc::c_int) {}

#[test]
#[ignore = "a child's program"]
fn child_has_a_handler_with_an_address() {
    if child::is_child() {
        set_handler(exit_42_at_the_right_address as Handler as usize, libc::SA_SIGINFO);
        install_guard().unwrap();
        fault_elsewhere();
    }
}

#[test]
#[ignore = "a child's program"]
fn child_has_a_plain_handler() {
    if child::is_child() {
        set_handler(exit_43 as extern "C" fn(libc::c_int) as usize, 0);
        install_guard().unwrap();
        fault_elsewhere();
    }
}

#[test]
#[ignore = "a child's program"]
fn child_has_a_handler_that_repairs() {
    if child::is_child() {
        set_handler(repair as Handler as usize, libc::SA_SIGINFO);
        install_guard().unwrap();
        for n in 1..=3 {
            assert_eq!(fault_elsewhere(), 0);
            assert_eq!(FOREIGN_CALLS.load(Ordering::Relaxed), n);
        }
    }
}

#[test]
#[ignore = "a child's program"]
fn child_is_replaced_and_installs_again() {
    if child::is_child() {
        install_guard().unwrap();
        let ours = set_handler(exit_42_at_the_right_address as Handler as usize, libc::SA_SIGINFO).sa_sigaction;
        install_guard().unwrap();
        install_guard().unwrap();
        let dir = TempDir::new().unwrap();
        let path = filled_file(dir.path(), "f", 2);
        let region = map(&path, 2, Access::Read);
        shorten(&path, 0);
        assert!(!region.read(0, &mut [0]), "our own fault is ours again");
        assert_eq!(set_handler(ours, libc::SA_SIGINFO).sa_sigaction, ours);
        fault_elsewhere();
    }
}

/// Behaves as Python's faulthandler: enabled after ours, it keeps ours as its previous handler and raises the signal again.
#[test]
#[ignore = "a child's program"]
fn child_is_replaced_by_a_handler_that_hands_back() {
    if child::is_child() {
        set_handler(libc::SIG_DFL, 0);
        install_guard().unwrap();
        set_handler(hand_back as Handler as usize, libc::SA_SIGINFO);
        install_guard().unwrap();
        fault_elsewhere();
    }
}

#[test]
#[ignore = "a child's program"]
fn child_has_a_handler_that_does_nothing() {
    if child::is_child() {
        set_handler(do_nothing as extern "C" fn(libc::c_int) as usize, 0);
        install_guard().unwrap();
        fault_elsewhere();
    }
}

/// Checks that a fault in a mapping of the guard's is a count, and no signal, at the first touch.
fn own_fault_is_ours(region: &Region) -> bool {
    !region.read(0, &mut [0]) && region.faults() == 1
}

#[test]
#[ignore = "a child's program"]
fn child_is_replaced_and_maps() {
    if child::is_child() {
        install_guard().unwrap();
        let dir = TempDir::new().unwrap();
        let (before, after) = (filled_file(dir.path(), "before", 2), filled_file(dir.path(), "after", 2));
        let mapped_before = map(&before, 2, Access::Read);
        set_handler(exit_42_at_the_right_address as Handler as usize, libc::SA_SIGINFO);
        let mapped_after = map(&after, 2, Access::Read);
        shorten(&before, 0);
        shorten(&after, 0);
        assert!(own_fault_is_ours(&mapped_before) && own_fault_is_ours(&mapped_after));
        fault_elsewhere();
    }
}

#[test]
#[ignore = "a child's program"]
fn child_is_replaced_and_syncs() {
    if child::is_child() {
        install_guard().unwrap();
        let dir = TempDir::new().unwrap();
        let path = filled_file(dir.path(), "f", 2);
        let file = RealEnv::new().open(&path, Access::ReadWrite).unwrap();
        let region = file.map(2 * PAGE, Access::ReadWrite).unwrap();
        set_handler(exit_42_at_the_right_address as Handler as usize, libc::SA_SIGINFO);
        file.sync(Step::LogRange).unwrap();
        shorten(&path, 0);
        assert!(own_fault_is_ours(&region));
        fault_elsewhere();
    }
}

#[test]
#[ignore = "a child's program"]
fn child_maps_without_the_guard() {
    if child::is_child() {
        set_handler(exit_42_at_the_right_address as Handler as usize, libc::SA_SIGINFO);
        let dir = TempDir::new().unwrap();
        let path = filled_file(dir.path(), "f", 2);
        let file = RealEnv::new().open(&path, Access::ReadWrite).unwrap();
        let region = file.map(2 * PAGE, Access::ReadWrite).unwrap();
        file.sync(Step::LogRange).unwrap();
        let (theirs, other) = (
            exit_42_at_the_right_address as Handler as usize,
            exit_43 as extern "C" fn(libc::c_int),
        );
        assert_eq!(
            set_handler(other as usize, 0).sa_sigaction,
            theirs,
            "nobody asked for the guard"
        );
        set_handler(theirs, libc::SA_SIGINFO);
        drop(region);
        fault_elsewhere();
    }
}

/// Acts as `faulthandler.enable()` and `faulthandler.disable()` do, twice, with mappings at every point between.
#[test]
#[ignore = "a child's program"]
fn child_has_a_handler_that_comes_and_goes() {
    if child::is_child() {
        set_handler(libc::SIG_DFL, 0);
        install_guard().unwrap();
        let dir = TempDir::new().unwrap();
        let path = filled_file(dir.path(), "f", 2);
        for _ in 0..2 {
            let ours = set_handler(do_nothing as extern "C" fn(libc::c_int) as usize, 0);
            let while_it_is_there = map(&path, 2, Access::Read);
            set_handler(ours.sa_sigaction, ours.sa_flags);
            let when_it_is_gone = map(&path, 2, Access::Read);
            shorten(&path, 0);
            assert!(own_fault_is_ours(&while_it_is_there) && own_fault_is_ours(&when_it_is_gone));
            filled_file(dir.path(), "f", 2);
        }
        fault_elsewhere();
    }
}

/// One handler was there before the guard and one came after it; both raise the signal again, as `faulthandler` does, and the
/// guard is put back above both.
#[test]
#[ignore = "a child's program"]
fn child_has_handlers_above_and_below_the_guard() {
    if child::is_child() {
        set_handler(do_nothing as extern "C" fn(libc::c_int) as usize, 0);
        install_guard().unwrap();
        let dir = TempDir::new().unwrap();
        let path = filled_file(dir.path(), "f", 2);
        // The lower handler is removed again, although the guard is above it.
        set_handler(libc::SIG_DFL, 0);
        let region = map(&path, 2, Access::Read);
        set_handler(hand_back as Handler as usize, libc::SA_SIGINFO);
        let again = map(&path, 2, Access::Read);
        shorten(&path, 0);
        assert!(own_fault_is_ours(&region) && own_fault_is_ours(&again));
        fault_elsewhere();
    }
}

#[test]
#[ignore = "a child's program"]
fn child_maps_too_much() {
    if child::is_child() {
        let dir = TempDir::new().unwrap();
        let path = filled_file(dir.path(), "f", 1);
        let file = RealEnv::new().open(&path, Access::Read).unwrap();
        let mut regions: Vec<Region> = (0..8192).map(|_| file.map(PAGE, Access::Read).unwrap()).collect();
        let refused = file.map(PAGE, Access::Read).unwrap_err();
        assert!(refused.to_string().contains("8192 files are mapped already"), "{refused}");
        regions.swap_remove(4000);
        assert!(file.map(PAGE, Access::Read).unwrap().read(0, &mut [0]));
        assert!(regions.iter().all(|region| region.bytes(0..4) == Some(&[7; 4])));
    }
}
