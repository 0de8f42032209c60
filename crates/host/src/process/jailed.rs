//! A program that runs in a jail, answers and ends: `qemu-img` on a file that may be hostile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use thiserror::Error;

use super::birth::Birth;
use super::handle::{Exit, Process};
use super::spawn::{SpawnError, watch};
use crate::files::FileError;
use crate::jail::Cell;

/// As much of what it printed as helps a reader of the error message.
const KEPT_OUTPUT: u64 = 2000;

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

/// A program with its arguments and its jail, ready to run.
#[derive(Debug)]
pub struct Jailed {
    program: PathBuf,
    arguments: Vec<OsString>,
    deadline: Duration,
    cell: Cell,
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
        Self { program: program.to_owned(), arguments: Vec::new(), deadline, cell }
    }

    #[must_use]
    pub fn args<I: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = I>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Runs the program to its end and returns what it printed, the last of it. A future that is dropped ends it.
    pub async fn run(self) -> Result<String, JailedError> {
        let failed = |source| JailedError::Spawn(SpawnError::Exec { program: self.program.clone(), source });
        let output =
            memfd_create("agentiso-output", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let mut output = File::from(output);
        let copy = output.try_clone().map_err(failed)?;
        let birth = Birth::new(&self.program, &self.arguments, copy.into(), Vec::new(), &self.cell)
            .map_err(failed)?;
        let process = watch(birth.run(&self.program)?)?;
        let mut ending = Ending(Some(process.clone()));
        let program = self.program.display().to_string();
        let exit = tokio::time::timeout(self.deadline, process.wait()).await.map_err(|_elapsed| {
            JailedError::TimedOut { program: program.clone(), seconds: self.deadline.as_secs() }
        })?;
        ending.0 = None;
        let output = tail(&mut output).map_err(failed)?;
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

fn tail(file: &mut File) -> io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(KEPT_OUTPUT)))?;
    let mut bytes = Vec::new();
    file.take(KEPT_OUTPUT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}
