//! Runs the suite's questions as commands in a VM.

use std::time::Duration;

use agentiso_host::Vm;
use agentiso_vm::{ExecSpec, VmSpec};

use super::verdict::Finding;

/// The slowest question waits twenty seconds for a process, in an emulated guest on a busy host.
const QUESTION_DEADLINE: Duration = Duration::from_secs(90);

/// The part of a failed command's output that is shown.
const SHOWN: usize = 400;

/// Separates the answers to several questions that are asked at once.
const MARK: &str = "@@next@@";

/// A running VM, and the properties it was promised.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'a> {
    pub spec: &'a VmSpec,
    pub vm: &'a Vm,
}

impl Guest<'_> {
    pub fn name(&self) -> &str {
        &self.spec.identity.hostname
    }

    /// Runs a command, which must succeed, and returns its trimmed output.
    pub(super) async fn sh(&self, command: &str) -> Result<String, Finding> {
        let agent = self.vm.agent().await?;
        let outcome = agent.exec(ExecSpec::shell(command).within(QUESTION_DEADLINE)).await?.outcome().await?;
        let stdout = String::from_utf8_lossy(&outcome.stdout.head);
        if outcome.exit_code == Some(0) {
            return Ok(stdout.trim().to_owned());
        }
        let stderr = String::from_utf8_lossy(&outcome.stderr.head);
        let said: String = format!("{stdout}{stderr}").trim().chars().take(SHOWN).collect();
        let end = match (outcome.timed_out, outcome.exit_code) {
            (true, _) => format!("did not finish within {} s", QUESTION_DEADLINE.as_secs()),
            (false, Some(code)) => format!("exited with status {code}"),
            (false, None) => "was killed".to_owned(),
        };
        Err(Finding::wrong(format!("in {}, `{}` {end}: {said}", self.name(), first_line(command))))
    }

    /// Asks several questions at once, and returns the answers in the same order.
    pub(super) async fn ask<const N: usize>(&self, questions: [&str; N]) -> Result<[String; N], Finding> {
        let text = self.sh(&questions.join(&format!("\necho; echo {MARK}\n"))).await?;
        split(&text).ok_or_else(|| Finding::wrong(format!("{} answered {text:?}", self.name())))
    }

    pub(super) async fn has_program(&self, name: &str) -> Result<bool, Finding> {
        Ok(self.sh(&format!("if command -v {name} >/dev/null; then echo yes; fi")).await? == "yes")
    }
}

fn first_line(command: &str) -> &str {
    command.trim_start().lines().next().unwrap_or_default()
}

fn split<const N: usize>(text: &str) -> Option<[String; N]> {
    let answers: Vec<_> = text.split(MARK).map(|answer| answer.trim().to_owned()).collect();
    answers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_answers_are_split_and_counted() {
        let text = format!("a\n\n{MARK}\n\n{MARK}\nb c");
        assert_eq!(split::<3>(&text), Some(["a".to_owned(), String::new(), "b c".to_owned()]));
        assert_eq!(split::<2>(&text), None);
    }
}
