//! Running of other programs: found in the usual directories, with a deadline, and killed when no longer needed.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Directories of administrator tools, which are not in the PATH of ordinary users.
const MORE_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program's path, if it is installed.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(MORE_DIRS.iter().map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}

/// A process that is killed and reaped on drop.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Waits for the end of the process; false after the time limit.
    fn ends_within(&self, limit: Duration) -> Result<bool> {
        let pid = Pid::from_child(&self.0);
        let fd = pidfd_open(pid, PidfdFlags::empty()).context("watching a process")?;
        let timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        Ok(poll(&mut fds, Some(&timeout)).context("waiting for a process")? == 1)
    }
}

/// Runs a program that must succeed and discards its output. The error contains its standard error.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    let name = name(command);
    let mut errors = tempfile::tempfile().context("a file for error messages")?;
    let stderr = errors.try_clone().context("a file for error messages")?;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .with_context(|| format!("{name} could not be started"))?;
    let mut running = Running(child);
    if !running.ends_within(limit)? {
        bail!("{name} did not end within {limit:?}");
    }
    let status = running.0.wait().with_context(|| format!("waiting for {name}"))?;
    if !status.success() {
        let mut text = String::new();
        std::io::Seek::rewind(&mut errors).context("reading error messages")?;
        // A message that is not UTF-8 is shown as far as possible.
        let _ = errors.read_to_string(&mut text);
        bail!("{name} failed ({status}): {}", text.trim());
    }
    Ok(())
}

/// Runs a program to its successful end and counts the bytes it prints.
pub(crate) fn count_output(command: &mut Command, limit: Duration) -> Result<u64> {
    let name = name(command);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("{name} could not be started"))?;
    let mut running = Running(child);
    let stdout = running.0.stdout.take().context("a pipe was asked for")?;
    let (send, counted) = mpsc::channel();
    // The thread ends when the pipe closes, at the latest with the process.
    std::thread::spawn(move || send.send(drain(stdout)));
    let bytes = match counted.recv_timeout(limit) {
        Ok(bytes) => bytes.with_context(|| format!("reading from {name}"))?,
        Err(_) => bail!("{name} did not end within {limit:?}"),
    };
    if !running.ends_within(limit)? || !running.0.wait().context("waiting")?.success() {
        bail!("{name} failed");
    }
    Ok(bytes)
}

/// Reads to the end in pieces of a pipe's size, so that the reader does not affect the measurement.
fn drain(mut source: impl Read) -> std::io::Result<u64> {
    let mut buffer = vec![0; 64 * 1024];
    let mut total = 0;
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(total),
            n => total += n as u64,
        }
    }
}

fn name(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_program_reports_its_error() {
        let error = run(Command::new("sh").args(["-c", "echo no luck >&2; exit 3"]), Duration::from_secs(30));
        let text = format!("{:#}", error.unwrap_err());
        assert!(text.contains("no luck") && text.contains("sh failed"), "{text}");
    }

    #[test]
    fn hanging_program_is_killed() {
        let error = run(Command::new("sleep").arg("100"), Duration::from_millis(20)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
    }

    #[test]
    fn output_is_counted_to_its_end() {
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 300000 /dev/zero"]);
        assert_eq!(count_output(&mut command, Duration::from_secs(30)).unwrap(), 300_000);
    }
}
