//! Runs a helper program in a jail to its end, such as `qemu-img` on a file that may be hostile.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use thiserror::Error;
use tokio::net::unix::pipe;

use super::child::ChildSetup;
use super::handle::{Exit, Process};
use super::spawn::{SpawnError, watch};
use crate::cgroup::Group;
use crate::files::FileError;
use crate::jail::Cell;

/// The length of its output that is quoted in errors.
const KEPT_OUTPUT: usize = 2000;

/// Output beyond this ends the reading.
const MAX_OUTPUT: usize = 1 << 20;

#[derive(Debug, Error)]
pub enum JailedError {
    #[error("{program} is not installed (looked for it in PATH)")]
    NotFound { program: String },
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("{program} did not finish within {seconds} s and was stopped")]
    TimedOut { program: String, seconds: u64 },
    #[error("{program} failed ({how}): {output}")]
    Failed { program: String, how: String, output: String },
}

impl JailedError {
    /// Whether the cause is a shortage that may pass by itself.
    pub(crate) fn is_transient(&self) -> bool {
        let lacks = |error: &io::Error| {
            let errno = error.raw_os_error();
            errno.is_some_and(|errno| {
                [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE].contains(&errno)
            })
        };
        match self {
            Self::TimedOut { .. } => true,
            Self::Spawn(SpawnError::Exec { source, .. } | SpawnError::Jail { source, .. }) => lacks(source),
            Self::Spawn(SpawnError::Process(_)) => true,
            Self::Spawn(SpawnError::Log(_)) | Self::File(_) | Self::NotFound { .. } | Self::Failed { .. } => {
                false
            }
        }
    }
}

/// A program with its arguments and its jail, ready to run.
#[derive(Debug)]
pub struct Jailed {
    program: PathBuf,
    arguments: Vec<OsString>,
    deadline: Duration,
    cell: Cell,
    /// The program's cgroup. `None`: the daemon's cgroup.
    group: Option<Group>,
}

/// Ends the program when it is no longer awaited.
struct KillOnDrop(Option<Process>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(process) = self.0.take() {
            process.kill_and_forget();
        }
    }
}

impl Jailed {
    pub fn new(program: &Path, deadline: Duration, cell: Cell) -> Self {
        let cell = Cell { file_bytes: Some(0), ..cell };
        Self { program: program.to_owned(), arguments: Vec::new(), deadline, cell, group: None }
    }

    /// For a program that makes a file: the file's largest size.
    #[must_use]
    pub fn writes_up_to(mut self, bytes: u64) -> Self {
        self.cell.file_bytes = Some(bytes);
        self
    }

    /// Puts the program into a cgroup of its own, which is removed with it.
    #[must_use]
    pub fn in_group(mut self, group: Option<Group>) -> Self {
        self.group = group;
        self
    }

    #[must_use]
    pub fn args<I: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = I>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Runs the program to its end and returns the end of its output. Dropping the future ends the program.
    pub async fn run(self) -> Result<String, JailedError> {
        let failed = |source| JailedError::Spawn(SpawnError::Exec { program: self.program.clone(), source });
        let (heard, said) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let mut output = Output::new(pipe::Receiver::from_owned_fd(heard).map_err(failed)?);
        let child =
            ChildSetup::new(&self.program, &self.arguments, said, Vec::new(), &self.cell).map_err(failed)?;
        let process = watch(child.in_group(self.group.as_ref()).run(&self.program)?)?;
        let mut ending = KillOnDrop(Some(process.clone()));
        let program = self.program.display().to_string();
        let exit = tokio::select! {
            exit = process.wait() => exit,
            never = output.listen() => match never {},
            () = tokio::time::sleep(self.deadline) => {
                return Err(JailedError::TimedOut { program, seconds: self.deadline.as_secs() });
            }
        };
        ending.0 = None;
        let output = output.end();
        match exit {
            Exit::Code(0) => Ok(output),
            Exit::Code(code) => {
                Err(JailedError::Failed { program, how: format!("exit status {code}"), output })
            }
            Exit::Signal(signal) => {
                Err(JailedError::Failed { program, how: format!("signal {signal}"), output })
            }
            Exit::Unknown => {
                Err(JailedError::Failed { program, how: "exit status unknown".to_owned(), output })
            }
        }
    }
}

/// The end of a program's output.
struct Output {
    pipe: Option<pipe::Receiver>,
    kept: Vec<u8>,
    length: usize,
}

impl Output {
    fn new(pipe: pipe::Receiver) -> Self {
        Self { pipe: Some(pipe), kept: Vec::new(), length: 0 }
    }

    /// Reads output for as long as this is awaited.
    async fn listen(&mut self) -> Infallible {
        loop {
            let Some(pipe) = &self.pipe else { return std::future::pending().await };
            if pipe.readable().await.is_err() {
                self.pipe = None;
            }
            self.take_in();
        }
    }

    /// Reads the available output.
    fn take_in(&mut self) {
        let mut bytes = [0; 4096];
        while let Some(pipe) = &self.pipe {
            match pipe.try_read(&mut bytes) {
                Ok(read) if read > 0 && self.length < MAX_OUTPUT => {
                    self.length += read;
                    self.kept.extend(&bytes[..read]);
                    self.kept.drain(..self.kept.len().saturating_sub(KEPT_OUTPUT));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It has ended its output, or prints too much.
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
    }

    fn end(mut self) -> String {
        self.take_in();
        String::from_utf8_lossy(&self.kept).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Jailed {
        Jailed::new(Path::new("/bin/sh"), DEADLINE, Cell::open()).args(["-c", script])
    }

    #[tokio::test]
    async fn end_of_helper_output_is_kept() {
        let said = shell("seq 100000; echo end").run().await.unwrap();
        assert!(said.len() <= KEPT_OUTPUT && said.ends_with("99999\n100000\nend"), "{said}");
        let error = shell("echo reason >&2; exit 3").run().await.unwrap_err().to_string();
        assert!(error.contains("exit status 3") && error.contains("reason"), "{error}");
    }

    #[test]
    fn shortages_and_timeouts_count_as_transient() {
        let of = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            JailedError::from(SpawnError::Jail {
                program: "qemu".into(),
                step: "its maps".to_owned(),
                source,
            })
        };
        assert!(of(libc::EAGAIN).is_transient() && of(libc::ENOMEM).is_transient());
        // ENOSPC is the error of a host that allows no user namespaces.
        assert!(
            !of(libc::EPERM).is_transient()
                && !of(libc::EACCES).is_transient()
                && !of(libc::ENOSPC).is_transient()
        );
        assert!(JailedError::TimedOut { program: "qemu".to_owned(), seconds: 1 }.is_transient());
    }

    #[tokio::test]
    async fn endlessly_printing_helper_is_cut_off() {
        let error = shell("exec cat /dev/zero").run().await.unwrap_err().to_string();
        assert!(error.contains("signal 13"), "{error}");
    }

    #[tokio::test]
    async fn helper_file_writes_are_limited() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let write = format!("head -c 4096 /dev/zero > {}", file.display());
        shell(&write).run().await.unwrap_err();
        assert_eq!(file.metadata().unwrap().len(), 0);
        shell(&write).writes_up_to(4096).run().await.unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4096);
    }

    #[tokio::test]
    async fn helper_memory_is_limited() {
        let script = "ulimit -d; ulimit -v";
        assert_eq!(shell(script).run().await.unwrap(), "2097152\n16777216");
    }
}
