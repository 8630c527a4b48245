//! Tests that need a process of their own: an ignored test of this binary is the whole program of the child.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Set for children, so that `--include-ignored` does not run their programs in the parent.
const MARK: &str = "MQSTORE_TEST_CHILD";
/// Printed by a child that waits for its parent.
const READY: &str = "child is ready";

/// Returns true in a child process; its program returns at once if not.
pub(crate) fn is_child() -> bool {
    std::env::var_os(MARK).is_some()
}

/// In the child: reports to the parent that it is ready, and waits for the parent.
pub(crate) fn wait_for_parent() {
    println!("{READY}");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn start(program: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", program, "--ignored", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The CPU time of this thread. Other load on the machine does not count.
pub(crate) fn on_core() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(times.split(' ').next().unwrap().parse().unwrap())
}

/// Runs a child to its end. A child that takes more than two minutes is killed, and the test fails.
pub(crate) fn run(program: &str) -> Output {
    run_within(program, Duration::from_secs(120))
}

/// Runs a child to its end. A child that takes longer is killed, and the test fails.
pub(crate) fn run_within(program: &str, limit: Duration) -> Output {
    let mut child = start(program, Path::new("."));
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > limit {
            child.kill().unwrap();
            panic!("{program} hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

/// A child that waits in [`wait_for_parent`]; it ends when this is dropped.
pub(crate) struct Waiting {
    child: Child,
    input: Option<ChildStdin>,
}

/// Starts a child in a directory and returns once it is ready.
pub(crate) fn run_until_ready(program: &str, dir: &Path) -> Waiting {
    let mut child = start(program, dir);
    let input = child.stdin.take();
    let output = BufReader::new(child.stdout.take().unwrap());
    let is_ready = output.lines().map_while(Result::ok).any(|line| line.contains(READY));
    assert!(is_ready, "{program} ended before it was ready");
    Waiting { child, input }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
