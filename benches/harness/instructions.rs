//! Counts the instructions of a piece of work: another process does it, single-stepped by this one.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// The prefix of the argument of the process that does the work.
const ARGUMENT: &str = "--stepped=";

/// Returns the name of the requested work, if this is the stepped process.
pub fn asked(arguments: &[String]) -> Option<String> {
    let asked = arguments.iter().find_map(|argument| argument.strip_prefix(ARGUMENT));
    asked.map(str::to_owned)
}

/// Does the counted work in the stepped process.
pub fn stepped(work: impl FnOnce()) {
    stop();
    work();
    stop();
}

fn stop() {
    // SAFETY: it stops this process until its parent continues it.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Returns the number of user instructions of the named work; `None` if no process may be stepped here.
pub fn of(work: &str) -> Option<u64> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(format!("{ARGUMENT}{work}"));
    // SAFETY: one system call, which allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let mut child = command.spawn().ok()?;
    let pid = child.id() as libc::pid_t;
    let (mut instructions, mut stops) = (0, 0);
    while let Some(signal) = stopped_by(pid) {
        stops += u32::from(signal == libc::SIGSTOP);
        instructions += u64::from(stops == 1);
        let request = if stops == 1 {
            libc::PTRACE_SINGLESTEP
        } else {
            libc::PTRACE_CONT
        };
        // The stops are ours; any other signal ends the child.
        let signal = if matches!(signal, libc::SIGSTOP | libc::SIGTRAP) {
            0
        } else {
            signal
        };
        // SAFETY: the child is stopped; the call continues it.
        unsafe { libc::ptrace(request, pid, ptr::null_mut::<libc::c_void>(), signal) };
    }
    // The child has been waited for.
    drop(child.try_wait());
    (stops == 2).then_some(instructions)
}

/// Waits until the process stops, and returns the signal; `None` if it has ended.
fn stopped_by(pid: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is writable.
    let found = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    (found == pid && libc::WIFSTOPPED(status)).then(|| libc::WSTOPSIG(status))
}
