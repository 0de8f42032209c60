//! Runs the setup commands of a fork before it is handed over.

use std::time::Duration;

use agentiso_core::names::WorkspaceName;
use futures::StreamExt;

use crate::error::OpError;
use crate::standstill::{standstill, suspended};
use crate::vms::{AgentFailure, ExecEvent, ExecOutcome, ExecSpec, Vm};

/// Longer than an installation takes, shorter than a client waits for the fork.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// Bytes of a failed command's output that are repeated.
const TAIL_BYTES: u64 = 1024;

/// Runs the commands one after the other and stops at the first failure.
pub(super) async fn run(name: &WorkspaceName, vm: &dyn Vm, commands: &[String]) -> Result<(), OpError> {
    for (at, command) in commands.iter().enumerate() {
        let outcome = tokio::select! {
            // The guest's last output is worth more than the fact that the VM ended.
            biased;
            outcome = run_one(vm, command) => outcome,
            reason = vm.exited() => {
                return Err(OpError::VmDied { name: name.clone(), reason });
            }
            reason = standstill(vm) => return Err(suspended(name, reason)),
        };
        let outcome = outcome.map_err(|source| OpError::Guest {
            name: name.clone(),
            operation: "running a setup command",
            source,
        })?;
        if let Some(ended) = failure(&outcome) {
            return Err(OpError::SetupFailed {
                name: name.clone(),
                number: at + 1,
                command: command.clone(),
                ended,
                output: end_of_output(&outcome),
            });
        }
    }
    Ok(())
}

async fn run_one(vm: &dyn Vm, command: &str) -> Result<ExecOutcome, AgentFailure> {
    let spec = ExecSpec {
        timeout: Some(COMMAND_TIMEOUT),
        head_bytes: 0,
        tail_bytes: TAIL_BYTES,
        ..ExecSpec::shell(command)
    };
    let mut events = vm.agent().exec(spec).await?;
    while let Some(event) = events.next().await {
        match event? {
            ExecEvent::Exited(outcome) => return Ok(outcome),
            ExecEvent::Started { .. } | ExecEvent::Output { .. } => {}
        }
    }
    Err(AgentFailure::Broken { reason: "the guest stopped answering before the command ended".to_owned() })
}

/// The failure of the command in words, or `None` if it succeeded.
fn failure(outcome: &ExecOutcome) -> Option<String> {
    if outcome.timed_out {
        return Some(format!("did not end within {} s", COMMAND_TIMEOUT.as_secs()));
    }
    match (outcome.exit_code, outcome.signal) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("ended with {code}")),
        (None, Some(signal)) => Some(format!("was killed by signal {signal}")),
        (None, None) => Some("ended in an unknown way".to_owned()),
    }
}

/// The end of its output: stderr, or stdout if stderr is empty.
fn end_of_output(outcome: &ExecOutcome) -> String {
    let said = |head: &[u8], tail: &[u8]| String::from_utf8_lossy(&[head, tail].concat()).trim().to_owned();
    let (out, err) = (&outcome.stdout, &outcome.stderr);
    let words = said(&err.head, &err.tail);
    if words.is_empty() { said(&out.head, &out.tail) } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vms::Captured;

    #[test]
    fn setup_failure_reports_cause_and_output() {
        let said = |text: &'static str| Captured { tail: text.into(), ..Captured::default() };
        let failed = ExecOutcome {
            exit_code: Some(3),
            stdout: said("a\n"),
            stderr: said("b\n"),
            ..Default::default()
        };
        assert_eq!((failure(&failed).unwrap(), end_of_output(&failed)), ("ended with 3".into(), "b".into()));
        let killed = ExecOutcome { signal: Some(9), stdout: said("a\n"), ..Default::default() };
        assert_eq!(
            (failure(&killed).unwrap(), end_of_output(&killed)),
            ("was killed by signal 9".into(), "a".into())
        );
        let slow = ExecOutcome { timed_out: true, signal: Some(9), ..Default::default() };
        assert!(failure(&slow).unwrap().contains("300 s"));
        assert_eq!(failure(&ExecOutcome { exit_code: Some(0), ..Default::default() }), None);
    }
}
