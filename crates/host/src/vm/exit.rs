//! The reason why a VM ended, derived from QEMU's announcement, the exit status and the logs.

use std::fmt;
use std::path::Path;

use agentiso_sys::files;
use agentiso_sys::process::Exit;

use crate::qmp::ShutdownCause;

/// The length of QEMU's stderr that is quoted.
const STDERR_TAIL: u64 = 2000;

/// A panic's first line is followed by registers and a call trace of a few KiB.
const CONSOLE_TAIL: u64 = 64 << 10;

const PANIC_MARK: &str = "Kernel panic - not syncing";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitCause {
    /// The guest switched itself off.
    GuestShutdown,
    /// The guest reset itself, which ends the VM.
    GuestReset,
    /// The guest's kernel panicked; the line it printed.
    GuestPanic(String),
    /// We told QEMU to quit.
    Quit,
    /// We killed QEMU.
    Killed,
    /// QEMU was ended by this signal, which we did not send.
    Signal(i32),
    /// QEMU exited by itself with this status.
    Status(i32),
    /// QEMU is gone; it was not our child, so the kernel did not report its exit status.
    Vanished,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitReason {
    pub cause: ExitCause,
    /// The end of QEMU's output in this run; often empty.
    pub stderr_tail: String,
}

impl ExitReason {
    /// Decides the cause: QEMU's announcement explains a clean exit, the exit status explains any other.
    pub(crate) fn of(exit: Exit, announced: Option<ShutdownCause>, console: &Path, stderr: &Path) -> Self {
        let panic = || {
            let log = files::tail(console, CONSOLE_TAIL);
            let at = log.rfind(PANIC_MARK)?;
            log[at..].lines().next().map(|line| line.trim_end().to_owned())
        };
        let cause = match (exit, announced) {
            (Exit::Signal(signal), _) => ExitCause::Signal(signal),
            (Exit::Code(0) | Exit::Unknown, Some(ShutdownCause::GuestShutdown)) => ExitCause::GuestShutdown,
            (Exit::Code(0) | Exit::Unknown, Some(ShutdownCause::GuestReset | ShutdownCause::GuestPanic)) => {
                panic().map_or(ExitCause::GuestReset, ExitCause::GuestPanic)
            }
            (Exit::Code(0) | Exit::Unknown, Some(ShutdownCause::HostQuit)) => ExitCause::Quit,
            // QEMU exits cleanly when it is asked to terminate; the signal is still the cause.
            (Exit::Code(0) | Exit::Unknown, Some(ShutdownCause::HostSignal)) => {
                ExitCause::Signal(libc::SIGTERM)
            }
            // The announcement was missed, for example while the VM was coming up. The console may show a panic.
            (Exit::Code(0), None) => panic().map_or(ExitCause::Status(0), ExitCause::GuestPanic),
            (Exit::Code(code), _) => ExitCause::Status(code),
            (Exit::Unknown, Some(ShutdownCause::Unnamed(_)) | None) => ExitCause::Vanished,
        };
        Self { cause, stderr_tail: files::tail(stderr, STDERR_TAIL).trim().to_owned() }
    }
}

impl ExitReason {
    /// Names agentiso as the cause of a SIGKILL that it sent.
    pub(crate) fn killed_by_us(self) -> Self {
        let cause = match self.cause {
            // The kernel does not report the signal of a process that is not our child.
            ExitCause::Signal(libc::SIGKILL) | ExitCause::Vanished => ExitCause::Killed,
            other @ (ExitCause::GuestShutdown
            | ExitCause::GuestReset
            | ExitCause::GuestPanic(_)
            | ExitCause::Quit
            | ExitCause::Killed
            | ExitCause::Signal(_)
            | ExitCause::Status(_)) => other,
        };
        Self { cause, ..self }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            ExitCause::GuestShutdown => f.write_str("the guest shut itself down")?,
            ExitCause::GuestReset => f.write_str("the guest reset itself")?,
            ExitCause::GuestPanic(line) => write!(f, "the guest's kernel panicked: {line}")?,
            ExitCause::Quit => f.write_str("QEMU was told to quit")?,
            ExitCause::Killed => f.write_str("QEMU was killed by agentiso")?,
            ExitCause::Signal(signal) => {
                write!(f, "QEMU was killed by signal {signal}{}", signal_name(*signal))?
            }
            ExitCause::Status(code) => write!(f, "QEMU exited with status {code}")?,
            ExitCause::Vanished => f.write_str("QEMU is gone")?,
        }
        match (&self.cause, self.stderr_tail.lines().last()) {
            (ExitCause::Signal(_) | ExitCause::Status(_) | ExitCause::Vanished, Some(line)) => {
                write!(f, ": {line}")
            }
            (ExitCause::Signal(_) | ExitCause::Status(_) | ExitCause::Vanished, None)
            | (
                ExitCause::GuestShutdown
                | ExitCause::GuestReset
                | ExitCause::GuestPanic(_)
                | ExitCause::Quit
                | ExitCause::Killed,
                _,
            ) => Ok(()),
        }
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGKILL => " (SIGKILL: killed from outside, or by the kernel for lack of memory)",
        libc::SIGTERM => " (SIGTERM)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS: no space for its memory file)",
        libc::SIGSYS => " (SIGSYS: a forbidden system call)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(exit: Exit, announced: Option<ShutdownCause>, console: &str, stderr: &str) -> ExitReason {
        let dir = tempfile::tempdir().unwrap();
        let (c, s) = (dir.path().join("c"), dir.path().join("s"));
        std::fs::write(&c, console).unwrap();
        std::fs::write(&s, stderr).unwrap();
        ExitReason::of(exit, announced, &c, &s)
    }

    #[test]
    fn signal_outranks_an_announced_shutdown() {
        let reason = reason(Exit::Signal(9), Some(ShutdownCause::GuestShutdown), "", "");
        assert_eq!(reason.cause, ExitCause::Signal(9));
        assert!(reason.to_string().contains("SIGKILL"), "{reason}");
    }

    #[test]
    fn kill_by_agentiso_is_named_as_such() {
        for exit in [Exit::Signal(9), Exit::Unknown] {
            let text = reason(exit, None, "", "").killed_by_us().to_string();
            assert_eq!(text, "QEMU was killed by agentiso");
        }
        // A VM that ended by itself at that moment keeps its own cause.
        assert_eq!(reason(Exit::Code(1), None, "", "").killed_by_us().cause, ExitCause::Status(1));
    }

    #[test]
    fn reset_after_panic_is_reported_as_panic() {
        let console = "[1.0] Kernel panic - not syncing: Attempted to kill init!\n[1.1] CPU: 0\n";
        let text = reason(Exit::Code(0), Some(ShutdownCause::GuestReset), console, "").to_string();
        assert_eq!(text, "the guest's kernel panicked: Kernel panic - not syncing: Attempted to kill init!");
        let unannounced = reason(Exit::Code(0), None, console, "").to_string();
        assert_eq!(unannounced, text);
        assert_eq!(
            reason(Exit::Code(0), Some(ShutdownCause::GuestReset), "bye", "").cause,
            ExitCause::GuestReset
        );
    }

    #[test]
    fn failed_qemu_exit_quotes_its_stderr() {
        let text = reason(Exit::Code(1), None, "", "warning\nno such device\n").to_string();
        assert_eq!(text, "QEMU exited with status 1: no such device");
    }

    #[test]
    fn unknown_exit_status_falls_back_to_announcement() {
        assert_eq!(reason(Exit::Unknown, None, "", "").cause, ExitCause::Vanished);
        assert_eq!(reason(Exit::Unknown, Some(ShutdownCause::HostQuit), "", "").cause, ExitCause::Quit);
    }
}
