//! Threads that wait: a test continues once another thread sleeps in the call that it tests.

use std::fs;
use std::thread;
use std::time::Duration;

/// Returns the number of this thread in `/proc/self/task`.
pub fn thread_number() -> String {
    let own = fs::read_link("/proc/thread-self").unwrap();
    own.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Waits until the thread of this number sleeps.
pub fn wait_until_asleep(thread: &str) {
    while !is_asleep(thread) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn is_asleep(thread: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().trim_start().starts_with('S')
}
