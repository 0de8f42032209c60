//! Commands for a guest, and their output.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::failure::AgentFailure;

/// Bytes kept of each stream unless the caller says otherwise, from the tool contract.
const DEFAULT_MAX_OUTPUT: u64 = 262_144;

/// A command for the guest's `/bin/sh -c`.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecSpec {
    pub command: String,
    /// `None` stands for `/root`.
    pub workdir: Option<GuestPath>,
    pub env: BTreeMap<String, String>,
    /// The process group is killed when this time is over.
    pub timeout: Option<Duration>,
    /// Bytes kept of the beginning of each stream.
    pub head_bytes: u64,
    /// Bytes kept of the end of each stream, beyond the head.
    pub tail_bytes: u64,
    /// Whether output is also sent while the command runs.
    pub stream: bool,
}

/// Omits the values of variables, which may be secrets.
impl fmt::Debug for ExecSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSpec")
            .field("command", &self.command)
            .field("workdir", &self.workdir)
            .field("env", &self.env.keys())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl ExecSpec {
    pub fn shell(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            workdir: None,
            env: BTreeMap::new(),
            timeout: None,
            head_bytes: DEFAULT_MAX_OUTPUT,
            tail_bytes: 0,
            stream: false,
        }
    }

    /// The same with a time limit.
    pub fn within(self, limit: Duration) -> Self {
        Self { timeout: Some(limit), ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecEvent {
    Started {
        pid: u32,
    },
    /// Only with [`ExecSpec::stream`].
    Output {
        stream: OutputStream,
        data: Bytes,
    },
    /// The last event.
    Exited(ExecOutcome),
}

/// Events of a running command. Dropping the stream kills the command's process group.
pub type ExecEvents = BoxStream<'static, Result<ExecEvent, AgentFailure>>;

/// The kept part of one stream: all of it if `total_bytes` equals the lengths of head and tail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    pub head: Bytes,
    pub tail: Bytes,
    pub total_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutcome {
    /// `None` when a signal ended it.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub stdout: Captured,
    pub stderr: Captured,
    pub duration: Duration,
}

/// A command for the guest's `/bin/sh -c` without a time limit.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    pub command: String,
    /// `None` stands for `/root`.
    pub workdir: Option<GuestPath>,
    pub env: BTreeMap<String, String>,
}

/// Omits the values of variables, which may be secrets.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("command", &self.command)
            .field("workdir", &self.workdir)
            .field("env", &self.env.keys())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, ExecSpec};

    #[test]
    fn debug_text_hides_variable_values() {
        let env: std::collections::BTreeMap<_, _> = [("TOKEN".to_owned(), "hush".to_owned())].into();
        let job = Command { command: "true".to_owned(), workdir: None, env: env.clone() };
        let exec = ExecSpec { env, ..ExecSpec::shell("true") };
        for text in [format!("{job:?}"), format!("{exec:?}")] {
            assert!(text.contains("TOKEN") && !text.contains("hush"), "{text}");
        }
    }
}
