//! Runs commands in the guest.

use std::collections::BTreeMap;
use std::time::Duration;

use agentiso_core::paths::GuestPath;
use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use agentiso_vm::{Captured, ExecEvent, ExecOutcome, ExecSpec, OutputStream};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::client::AgentClient;
use super::error::AgentError;
use super::system::too_large;

/// Time that the guest may take beyond the command's own limit: for killing, draining and sending up to 4 MiB from an
/// emulated VM on a busy host.
pub(super) const EXEC_MARGIN: Duration = Duration::from_secs(30);

/// Events waiting for a reader; HTTP/2 holds the guest back beyond that.
const QUEUED_EVENTS: usize = 4;

/// A command that was sent to the guest. Dropping it kills the command's process group.
#[derive(Debug)]
pub struct ExecStream {
    events: mpsc::Receiver<Result<ExecEvent, AgentError>>,
    _call: AbortOnDropHandle<()>,
}

impl ExecStream {
    /// The next event; `None` after the last, which is [`ExecEvent::Exited`] or an error.
    pub async fn next(&mut self) -> Option<Result<ExecEvent, AgentError>> {
        self.events.recv().await
    }

    /// Waits for the end of the command and skips all other events.
    pub async fn outcome(mut self) -> Result<ExecOutcome, AgentError> {
        while let Some(event) = self.next().await {
            if let ExecEvent::Exited(outcome) = event? {
                return Ok(outcome);
            }
        }
        Err(AgentError::Disconnected { call: "exec" })
    }
}

impl AgentClient {
    /// Starts a command. It runs whether or not the events are read, as long as the stream is kept; with
    /// [`ExecSpec::stream`] a reader that stops reading stops the command at its next output.
    pub async fn exec(&self, spec: ExecSpec) -> Result<ExecStream, AgentError> {
        let request = to_wire(spec)?;
        let deadline = Duration::from_millis(request.timeout_ms) + EXEC_MARGIN;
        let (sender, events) = mpsc::channel(QUEUED_EVENTS);
        let client = self.clone();
        let call = tokio::spawn(async move {
            let last = match timeout(deadline, client.forward(request, &sender)).await {
                Ok(result) => result,
                Err(_elapsed) => Err(AgentError::TimedOut { call: "exec", after: deadline }),
            };
            // The send fails only if the receiver was dropped; then nothing wants the event.
            drop(sender.send(last.map(ExecEvent::Exited)).await);
        });
        Ok(ExecStream { events, _call: AbortOnDropHandle::new(call) })
    }

    async fn forward(
        &self,
        request: v1::ExecRequest,
        sender: &mpsc::Sender<Result<ExecEvent, AgentError>>,
    ) -> Result<ExecOutcome, AgentError> {
        let wanted = (request.head_bytes, request.tail_bytes);
        let mut stub = self.stub::<v1::ExecEvent>();
        let answer = stub.exec(request).await.map_err(|status| self.failure("exec", &status))?;
        let mut events = answer.into_inner();
        while let Some(event) = events.message().await.map_err(|status| self.failure("exec", &status))? {
            match from_wire(event, wanted)? {
                ExecEvent::Exited(outcome) => return Ok(outcome),
                event @ (ExecEvent::Started { .. } | ExecEvent::Output { .. }) => {
                    if sender.send(Ok(event)).await.is_err() {
                        break;
                    }
                }
            }
        }
        Err(AgentError::violation("exec", "the stream ended before the command did"))
    }
}

fn to_wire(spec: ExecSpec) -> Result<v1::ExecRequest, AgentError> {
    check_command(&spec.command, spec.workdir.as_ref(), &spec.env)?;
    let head_bytes = spec.head_bytes.min(limits::MAX_CAPTURE_BYTES);
    let timeout_ms =
        spec.timeout.map_or(u64::MAX, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    Ok(v1::ExecRequest {
        shell: spec.command.into(),
        workdir: workdir(spec.workdir.as_ref()),
        env: spec.env.into_iter().collect(),
        timeout_ms: timeout_ms.clamp(1, limits::MAX_EXEC_TIMEOUT_MS),
        head_bytes,
        tail_bytes: spec.tail_bytes.min(limits::MAX_CAPTURE_BYTES - head_bytes),
        stream: spec.stream,
    })
}

/// Refuses a command that would not fit into a request.
pub(super) fn check_command(
    command: &str,
    workdir: Option<&GuestPath>,
    env: &BTreeMap<String, String>,
) -> Result<(), AgentError> {
    too_large("the command", command.len(), limits::MAX_COMMAND_BYTES)?;
    too_large(
        "the working directory",
        workdir.map_or(0, |path| path.as_str().len()),
        limits::MAX_PATH_BYTES,
    )?;
    let environment = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    too_large("the environment", environment, limits::MAX_ENV_BYTES)
}

/// The guest takes an empty path for its default.
pub(super) fn workdir(path: Option<&GuestPath>) -> Bytes {
    path.map_or_else(Bytes::new, |path| Bytes::copy_from_slice(path.as_str().as_bytes()))
}

fn from_wire(event: v1::ExecEvent, wanted: (u64, u64)) -> Result<ExecEvent, AgentError> {
    use v1::exec_event::Event;
    match event.event {
        Some(Event::Started(started)) => Ok(ExecEvent::Started { pid: started.pid }),
        Some(Event::Output(output)) => {
            let stream = match output.stream() {
                v1::OutputStream::Stdout => OutputStream::Stdout,
                v1::OutputStream::Stderr => OutputStream::Stderr,
                v1::OutputStream::Unspecified => {
                    return Err(AgentError::violation("exec", "output without a stream"));
                }
            };
            if output.data.len() > limits::MAX_CHUNK_BYTES {
                return Err(AgentError::violation("exec", "an oversized piece of output"));
            }
            Ok(ExecEvent::Output { stream, data: output.data })
        }
        Some(Event::Exited(exited)) => Ok(ExecEvent::Exited(ExecOutcome {
            exit_code: exited.exit_code,
            signal: exited.signal,
            timed_out: exited.timed_out,
            stdout: captured("exec", exited.stdout, wanted)?,
            stderr: captured("exec", exited.stderr, wanted)?,
            duration: Duration::from_micros(exited.duration_us),
        })),
        None => Err(AgentError::violation("exec", "an unknown event")),
    }
}

pub(super) fn captured(
    call: &'static str,
    output: Option<v1::Captured>,
    (head, tail): (u64, u64),
) -> Result<Captured, AgentError> {
    let output = output.unwrap_or_default();
    let (kept_head, kept_tail) = (output.head.len() as u64, output.tail.len() as u64);
    if kept_head > head || kept_tail > tail || kept_head + kept_tail > output.total_bytes {
        return Err(AgentError::violation(call, "inconsistent output sizes"));
    }
    Ok(Captured { head: output.head, tail: output.tail, total_bytes: output.total_bytes })
}

#[cfg(test)]
mod tests {
    use agentiso_protocol::limits;
    use agentiso_protocol::schema::v1;

    use super::{AgentError, captured, from_wire};

    #[test]
    fn contradictory_captured_output_is_refused() {
        let output = |head: usize, tail: usize, total_bytes| {
            let (head, tail) = (vec![0; head].into(), vec![0; tail].into());
            captured("exec", Some(v1::Captured { head, tail, total_bytes }), (4, 2))
        };
        assert!(output(4, 2, 6).is_ok() && output(0, 0, u64::MAX).is_ok() && output(1, 1, 3).is_ok());
        for (head, tail, total) in [(5, 0, 9), (0, 3, 9), (4, 2, 5), (1, 0, 0)] {
            assert!(matches!(output(head, tail, total), Err(AgentError::Violation { .. })), "{head} {tail}");
        }
    }

    #[test]
    fn malformed_exec_events_are_refused() {
        let event = |event| from_wire(v1::ExecEvent { event }, (0, 0));
        assert!(event(None).is_err());
        let output = |stream, length: usize| {
            let data = vec![0; length].into();
            event(Some(v1::exec_event::Event::Output(v1::ExecOutput { stream, data })))
        };
        assert!(output(1, 10).is_ok() && output(2, limits::MAX_CHUNK_BYTES).is_ok());
        assert!(output(0, 10).is_err() && output(9, 10).is_err());
        assert!(output(1, limits::MAX_CHUNK_BYTES + 1).is_err());
    }
}
