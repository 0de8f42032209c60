//! Reports from a daemon that was started in the background to its starter: that it listens, or why it does not.
//!
//! The starter gives it the writing end of a pipe as standard input: a known descriptor, whose number need not be
//! passed, and whose closing is itself an event.

use std::env;

/// Environment variable set by a starter that waits at the reading end of standard input.
pub(crate) const VARIABLE: &str = "AGENTISO_READY";
pub(crate) const ON_STDIN: &str = "stdin";

/// A report to the starter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyReport {
    Ready,
    /// Another daemon holds the lock.
    Held,
    Failed(String),
}

impl ReadyReport {
    fn line(&self) -> String {
        match self {
            Self::Ready => "ready\n".to_owned(),
            Self::Held => "held\n".to_owned(),
            Self::Failed(reason) => format!("failed {}\n", reason.replace('\n', " ")),
        }
    }

    /// Parses a report. `None`: the daemon ended without one.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let line = line.strip_suffix('\n')?;
        match line {
            "ready" => Some(Self::Ready),
            "held" => Some(Self::Held),
            _ => line.strip_prefix("failed ").map(|reason| Self::Failed(reason.to_owned())),
        }
    }
}

/// The daemon's end of the pipe. To be taken once, at start.
#[derive(Debug)]
pub struct Readiness {
    awaited: bool,
}

impl Readiness {
    pub(crate) fn from_env() -> Self {
        Self { awaited: env::var_os(VARIABLE).is_some_and(|value| value == ON_STDIN) }
    }

    /// Reports to the starter, if there is one. It reads one line, so the pipe may stay open afterwards.
    pub fn report(self, report: &ReadyReport) {
        if !self.awaited {
            return;
        }
        if let Err(error) = write_all(report.line().as_bytes()) {
            // The daemon serves other clients even if its starter gave up.
            tracing::warn!(%error, "the process that started the daemon is gone");
        }
    }
}

fn write_all(mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::write(std::io::stdin(), bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_pipe() {
        for report in [ReadyReport::Ready, ReadyReport::Held, ReadyReport::Failed("no disk".to_owned())] {
            assert_eq!(ReadyReport::parse(&report.line()), Some(report));
        }
        assert_eq!(
            ReadyReport::parse(&ReadyReport::Failed("a\nb".to_owned()).line()),
            Some(ReadyReport::Failed("a b".to_owned()))
        );
        assert_eq!(ReadyReport::parse(""), None);
        assert_eq!(ReadyReport::parse("rea"), None);
    }
}
