//! A program that runs in a jail, answers and ends: `qemu-img` on a file that may be hostile.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use thiserror::Error;
use tokio::net::unix::pipe;

use super::birth::Birth;
use super::handle::{Exit, Process};
use super::spawn::{SpawnError, watch};
use crate::cgroup::Group;
use crate::files::FileError;
use crate::jail::Cell;

/// As much of what it printed as helps a reader of the error message.
const KEPT_OUTPUT: usize = 2000;

/// Nobody listens to a program that says more than this.
const MAX_OUTPUT: usize = 1 << 20;

#[derive(Debug, Error)]
pub enum JailedError {
    #[error("{program} is not installed (looked for it in PATH)")]
    NotFound { program: String },
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("{program} did not finish within {seconds} s and was ended")]
    TimedOut { program: String, seconds: u64 },
    #[error("{program} failed ({how}): {output}")]
    Failed { program: String, how: String, output: String },
}

impl JailedError {
    /// Whether it was for lack of something that the host may have a moment later.
    pub(crate) fn may_pass(&self) -> bool {
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
    /// Where it counts. Without one, where we do.
    group: Option<Group>,
}

/// Ends the program when nobody waits for it any more.
struct Ending(Option<Process>);

impl Drop for Ending {
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

    /// For a program that makes a file: how large it may become.
    #[must_use]
    pub fn writes_up_to(mut self, bytes: u64) -> Self {
        self.cell.file_bytes = Some(bytes);
        self
    }

    /// For a program that is to have a group of its own. The group goes with it.
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

    /// Runs the program to its end and returns what it printed, the last of it. A future that is dropped ends it.
    pub async fn run(self) -> Result<String, JailedError> {
        let failed = |source| JailedError::Spawn(SpawnError::Exec { program: self.program.clone(), source });
        let (heard, said) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let mut output = Output::new(pipe::Receiver::from_owned_fd(heard).map_err(failed)?);
        let birth =
            Birth::new(&self.program, &self.arguments, said, Vec::new(), &self.cell).map_err(failed)?;
        let process = watch(birth.in_group(self.group.as_ref()).run(&self.program)?)?;
        let mut ending = Ending(Some(process.clone()));
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
                Err(JailedError::Failed { program, how: "its end was missed".to_owned(), output })
            }
        }
    }
}

/// What a program prints: the last of it, however much it is.
struct Output {
    pipe: Option<pipe::Receiver>,
    kept: Vec<u8>,
    length: usize,
}

impl Output {
    fn new(pipe: pipe::Receiver) -> Self {
        Self { pipe: Some(pipe), kept: Vec::new(), length: 0 }
    }

    /// Takes in what is printed as long as somebody waits for this.
    async fn listen(&mut self) -> Infallible {
        loop {
            let Some(pipe) = &self.pipe else { return std::future::pending().await };
            if pipe.readable().await.is_err() {
                self.pipe = None;
            }
            self.take_in();
        }
    }

    /// Takes in what is there.
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
                // It has nothing more to say, or no end.
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
    async fn last_words_of_a_helper_are_kept() {
        let said = shell("seq 100000; echo end").run().await.unwrap();
        assert!(said.len() <= KEPT_OUTPUT && said.ends_with("99999\n100000\nend"), "{said}");
        let error = shell("echo reason >&2; exit 3").run().await.unwrap_err().to_string();
        assert!(error.contains("exit status 3") && error.contains("reason"), "{error}");
    }

    #[test]
    fn lack_of_room_is_told_from_refusal() {
        let of = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            JailedError::from(SpawnError::Jail {
                program: "qemu".into(),
                step: "its maps".to_owned(),
                source,
            })
        };
        assert!(of(libc::EAGAIN).may_pass() && of(libc::ENOMEM).may_pass());
        // The last is what a host says that allows no user namespaces.
        assert!(!of(libc::EPERM).may_pass() && !of(libc::EACCES).may_pass() && !of(libc::ENOSPC).may_pass());
        assert!(JailedError::TimedOut { program: "qemu".to_owned(), seconds: 1 }.may_pass());
    }

    #[tokio::test]
    async fn helper_that_prints_forever_is_not_heard() {
        let error = shell("exec cat /dev/zero").run().await.unwrap_err().to_string();
        assert!(error.contains("signal 13"), "{error}");
    }

    #[tokio::test]
    async fn helper_writes_no_more_than_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let write = format!("head -c 4096 /dev/zero > {}", file.display());
        shell(&write).run().await.unwrap_err();
        assert_eq!(file.metadata().unwrap().len(), 0);
        shell(&write).writes_up_to(4096).run().await.unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4096);
    }

    #[tokio::test]
    async fn helper_has_no_more_memory_than_it_may() {
        let script = "ulimit -d; ulimit -v";
        assert_eq!(shell(script).run().await.unwrap(), "2097152\n16777216");
    }
}
