//! Runs programs that answer and end. VMs are started elsewhere: see [`crate::process`].
//!
//! Every run has a deadline and bounded output; an error names the program and carries the end of its stderr.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// More than any tool we call prints; output beyond this is dropped, not kept in memory.
const MAX_OUTPUT: usize = 4 << 20;

/// The length of stderr that is quoted in errors.
const STDERR_IN_ERRORS: usize = 2000;

#[derive(Debug, Error)]
pub enum CommandError {
    #[error("{program} is not installed (looked for it in PATH)")]
    NotFound { program: String },
    #[error("{program} could not be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("the output of {program} could not be read: {source}")]
    Output { program: String, source: io::Error },
    #[error("{program} did not finish within {seconds} s and was stopped")]
    TimedOut { program: String, seconds: u64 },
    #[error("{program} failed ({status}): {stderr}")]
    Failed { program: String, status: ExitStatus, stderr: String },
}

/// A program with its arguments, ready to run.
#[derive(Debug)]
pub struct Invocation {
    program: OsString,
    arguments: Vec<OsString>,
    deadline: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub stdout: String,
    pub stderr: String,
}

impl Invocation {
    pub fn new(program: impl AsRef<OsStr>, deadline: Duration) -> Self {
        Self { program: program.as_ref().to_owned(), arguments: Vec::new(), deadline }
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub fn args<I: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = I>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    /// Runs the program to its end. Dropping the future kills it.
    pub async fn run(self) -> Result<Finished, CommandError> {
        let program = self.name();
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| match source.kind() == io::ErrorKind::NotFound {
                true => CommandError::NotFound { program: program.clone() },
                false => CommandError::Start { program: program.clone(), source },
            })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let work = async { tokio::try_join!(bounded(stdout), bounded(stderr), child.wait()) };
        let seconds = self.deadline.as_secs();
        let (stdout, stderr, status) = tokio::time::timeout(self.deadline, work)
            .await
            .map_err(|_| CommandError::TimedOut { program: program.clone(), seconds })?
            .map_err(|source| CommandError::Output { program: program.clone(), source })?;
        if status.success() {
            return Ok(Finished { stdout, stderr });
        }
        let stderr = last_chars(stderr.trim(), STDERR_IN_ERRORS).to_owned();
        Err(CommandError::Failed { program, status, stderr })
    }
}

/// Reads to the end, keeps at most [`MAX_OUTPUT`].
async fn bounded(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let Some(pipe) = pipe else { return Ok(String::new()) };
    let mut kept = Vec::new();
    let mut limited = pipe.take(MAX_OUTPUT as u64);
    limited.read_to_end(&mut kept).await?;
    tokio::io::copy(&mut limited.into_inner(), &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

fn last_chars(text: &str, count: usize) -> &str {
    let start = text.char_indices().rev().nth(count.saturating_sub(1)).map_or(0, |(at, _)| at);
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn command_output_is_returned() {
        let done = Invocation::new("sh", SOON).args(["-c", "echo out; echo err >&2"]).run().await.unwrap();
        assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("out\n", "err\n"));
    }

    #[tokio::test]
    async fn command_failure_names_program_and_quotes_stderr() {
        let error =
            Invocation::new("sh", SOON).arg("-c").arg("echo why >&2; exit 3").run().await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh failed") && text.contains("why") && text.contains('3'), "{text}");
    }

    #[tokio::test]
    async fn missing_program_is_reported_as_not_found() {
        let error = Invocation::new("agentiso-no-such-program", SOON).run().await.unwrap_err();
        assert!(matches!(error, CommandError::NotFound { .. }), "{error}");
    }

    #[tokio::test]
    async fn hanging_program_ends_at_its_deadline() {
        let error = Invocation::new("sleep", Duration::from_millis(100)).arg("1000").run().await.unwrap_err();
        assert!(matches!(error, CommandError::TimedOut { .. }), "{error}");
    }

    #[tokio::test]
    async fn overlong_output_is_drained_and_cut() {
        let done = Invocation::new("head", SOON).args(["-c", "9000000", "/dev/zero"]).run().await.unwrap();
        assert_eq!(done.stdout.len(), MAX_OUTPUT);
    }

    #[test]
    fn text_end_is_cut_between_characters() {
        assert_eq!(last_chars("aäöü", 2), "öü");
        assert_eq!(last_chars("ab", 5), "ab");
        assert_eq!(last_chars("", 5), "");
    }
}
