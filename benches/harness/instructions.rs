//! How many instructions a piece of work takes: another process does it, and stops after each of them.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// What the arguments of the process that does the work begin with.
const ARGUMENT: &str = "--stepped=";

/// The work that this process is asked to do, by its name, if it is the other process.
pub fn asked(arguments: &[String]) -> Option<String> {
    let asked = arguments.iter().find_map(|argument| argument.strip_prefix(ARGUMENT));
    asked.map(str::to_owned)
}

/// Called in the other process: does the work that is counted.
pub fn stepped(work: impl FnOnce()) {
    stop();
    work();
    stop();
}

fn stop() {
    // SAFETY: it stops the process until its parent lets it go on.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// The instructions of the work of this name, those of the system left out; `None` where a process may not be stepped.
pub fn of(work: &str) -> Option<u64> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(format!("{ARGUMENT}{work}"));
    // SAFETY: one call of the system, which allocates nothing.
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
        // The stops are ours; of any other signal the child dies.
        let signal = if matches!(signal, libc::SIGSTOP | libc::SIGTRAP) {
            0
        } else {
            signal
        };
        // SAFETY: the child is stopped, and goes on.
        unsafe { libc::ptrace(request, pid, ptr::null_mut::<libc::c_void>(), signal) };
    }
    // It has been waited for.
    drop(child.try_wait());
    (stops == 2).then_some(instructions)
}

/// Waits until the process stops: for which signal. `None` when it has ended.
fn stopped_by(pid: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is writable.
    let found = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    (found == pid && libc::WIFSTOPPED(status)).then(|| libc::WSTOPSIG(status))
}
