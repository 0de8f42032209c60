//! Runs one command from its start to its outcome.
//!
//! ```text
//!   running --exit--> draining --both pipes at their end, or grace over--> done
//!      | deadline                 ^
//!      +---- group killed --------+
//! ```

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::task::Poll;
use std::time::Duration;

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use agentiso_protocol::schema::v1::exec_event::Event;
use bytes::Bytes;
use rustix::process::WaitIdStatus;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::capture::Capture;
use super::drain::drain;
use super::group::{BackgroundTasks, Group};
use super::output::{Output, ReadStatus};
use super::request::CheckedExec;
use crate::spawn::{Program, ProgramFile, SpawnError, spawn};

/// The time for which output is still read after the shell has ended while another process holds its pipes. The shell's
/// own output is in the pipes by then; this is for the end of a pipeline that the shell did not wait for.
pub(crate) const DRAIN_GRACE: Duration = Duration::from_millis(200);

/// The time that a killed group gets to die. Only a process that is stuck in the kernel takes longer.
const KILL_GRACE: Duration = Duration::from_secs(2);

const DEFAULT_WORKDIR: &std::ffi::CStr = c"/root";
const FALLBACK_WORKDIR: &std::ffi::CStr = c"/";

/// The outcome of a command.
#[derive(Debug)]
pub struct Outcome {
    status: Option<WaitIdStatus>,
    timed_out: bool,
    captures: [Capture; 2],
    duration: Duration,
}

/// The reason for which a command did not run.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The shell could not be started.
    #[error("cannot start /bin/sh")]
    Spawn(#[from] SpawnError),
    /// The requested working directory cannot be entered.
    #[error("cannot change to the working directory {path}")]
    Workdir {
        path: String,
        #[source]
        source: io::Error,
    },
    /// A system call failed that every command needs.
    #[error("cannot run the command")]
    System(#[from] io::Error),
}

/// The channel for events while the command runs.
pub type Sink = mpsc::Sender<Result<v1::ExecEvent, tonic::Status>>;

impl Outcome {
    /// The last event of the command.
    pub fn into_event(self) -> v1::ExecEvent {
        let [stdout, stderr] = self.captures.map(|capture| {
            let (head, tail, total_bytes) = capture.finish();
            v1::Captured { head, tail, total_bytes }
        });
        let status = self.status.as_ref();
        event(Event::Exited(v1::ExecExited {
            exit_code: status.and_then(WaitIdStatus::exit_status),
            // A leader that did not die in time will die of the SIGKILL that was sent.
            signal: status.map_or(Some(libc::SIGKILL), WaitIdStatus::terminating_signal),
            timed_out: self.timed_out,
            stdout: Some(stdout),
            stderr: Some(stderr),
            duration_us: u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX),
        }))
    }
}

fn event(event: Event) -> v1::ExecEvent {
    v1::ExecEvent { event: Some(event) }
}

/// Runs a command. Dropping the future kills its process group.
pub async fn run(
    request: CheckedExec,
    sink: Option<&Sink>,
    background: &BackgroundTasks,
) -> Result<Outcome, ExecError> {
    let started = Instant::now();
    let Started { group, outputs, pid } = start(&request, background)?;
    let captures = [(); 2].map(|()| Capture::new(request.head_bytes, request.tail_bytes));
    let mut running = Running { group, outputs, captures };
    if let Some(sink) = sink {
        // It fails only if the receiver is gone; then this future is about to be dropped.
        drop(sink.send(Ok(event(Event::Started(v1::ExecStarted { pid })))).await);
    }
    let timed_out = running.watch(started + request.timeout, sink).await;
    let Running { group, outputs, captures } = running;
    let status = group.finish()?;
    for output in outputs {
        drain(output, background);
    }
    Ok(Outcome { status, timed_out, captures, duration: started.elapsed() })
}

/// A command that was started, with its standard output and error.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) group: Group,
    pub(crate) outputs: [Output; 2],
    pub(crate) pid: u32,
}

/// Starts a command. Dropping its group kills it.
pub(crate) fn start(request: &CheckedExec, background: &BackgroundTasks) -> Result<Started, ExecError> {
    let (stdout, stdout_end) = Output::pipe()?;
    let (stderr, stderr_end) = Output::pipe()?;
    let child = start_shell(request, &stdout_end, &stderr_end)?;
    let pid = child.pid().as_raw_nonzero().get().unsigned_abs();
    Ok(Started { group: Group::new(child, background.clone())?, outputs: [stdout, stderr], pid })
}

fn start_shell(
    request: &CheckedExec,
    stdout: &OwnedFd,
    stderr: &OwnedFd,
) -> Result<crate::spawn::Child, ExecError> {
    let null = File::open("/dev/null")?;
    let attempt = |workdir| {
        spawn(&Program {
            file: ProgramFile::Path(c"/bin/sh"),
            args: &request.args,
            env: &request.env,
            workdir: Some(workdir),
            stdio: [Some(null.as_fd()), Some(stdout.as_fd()), Some(stderr.as_fd())],
            session: true,
            oom_score: c"0",
            share_root: false,
        })
    };
    match &request.workdir {
        Some(workdir) => attempt(workdir).map_err(|error| match error {
            SpawnError::Workdir(source) => {
                ExecError::Workdir { path: workdir.to_string_lossy().into_owned(), source }
            }
            other @ (SpawnError::Clone(_) | SpawnError::Exec(_) | SpawnError::SetUp(_)) => other.into(),
        }),
        None => match attempt(DEFAULT_WORKDIR) {
            Err(SpawnError::Workdir(_)) => Ok(attempt(FALLBACK_WORKDIR)?),
            result => Ok(result?),
        },
    }
}

struct Running {
    group: Group,
    outputs: [Output; 2],
    captures: [Capture; 2],
}

impl Running {
    /// Reads until the command has ended. Returns true if it was killed because its time was up.
    async fn watch(&mut self, deadline: Instant, sink: Option<&Sink>) -> bool {
        let mut timed_out = false;
        let mut ended = false;
        let timer = sleep_until(deadline);
        tokio::pin!(timer);
        let mut permit = None;
        loop {
            if ended && !self.outputs.iter().any(Output::is_open) {
                return timed_out;
            }
            let may_read = sink.is_none() || permit.is_some();
            let reading = may_read && self.outputs.iter().any(Output::is_open);
            tokio::select! {
                // The deadline comes first, so that it holds even if the command prints without pause. The end comes
                // before output, because it shortens the deadline; no output is lost by that. Output is last, because
                // it may never pause.
                biased;
                () = &mut timer => {
                    if ended || timed_out {
                        return timed_out;
                    }
                    timed_out = true;
                    self.group.kill();
                    timer.as_mut().reset(Instant::now() + KILL_GRACE);
                }
                () = self.group.ended(), if !ended => {
                    ended = true;
                    timer.as_mut().reset(Instant::now() + DRAIN_GRACE);
                }
                result = reserve(sink), if !may_read => match result {
                    Some(reserved) => permit = Some(reserved),
                    // The receiver is gone, and this future is about to be dropped.
                    None => return timed_out,
                },
                piece = read(&mut self.outputs, &mut self.captures, permit.is_some()), if reading => {
                    if let (Some(output), Some(reserved)) = (piece, permit.take()) {
                        reserved.send(Ok(event(Event::Output(output))));
                    }
                    // The command may print for ever, and other calls must run too.
                    tokio::task::consume_budget().await;
                }
            }
        }
    }
}

async fn reserve(sink: Option<&Sink>) -> Option<mpsc::Permit<'_, Result<v1::ExecEvent, tonic::Status>>> {
    sink?.reserve().await.ok()
}

/// Reads from both pipes as soon as one has bytes. With `single`, one piece of one pipe is read and also returned.
async fn read(
    outputs: &mut [Output; 2],
    captures: &mut [Capture; 2],
    single: bool,
) -> Option<v1::ExecOutput> {
    const STREAMS: [v1::OutputStream; 2] = [v1::OutputStream::Stdout, v1::OutputStream::Stderr];
    let limit = if single { limits::CHUNK_BYTES } else { usize::MAX };
    let mut piece = None;
    read_outputs(outputs, limit, |stream, bytes| {
        captures[stream].push(bytes);
        if single {
            let data = Bytes::copy_from_slice(bytes);
            piece = Some(v1::ExecOutput { stream: STREAMS[stream].into(), data });
        }
        !single
    })
    .await;
    piece
}

/// Reads from both pipes as soon as one has bytes, at most `limit` bytes at a time. `sink` gets the number of the pipe
/// and the bytes, and returns whether to go on.
pub(crate) async fn read_outputs(
    outputs: &mut [Output; 2],
    limit: usize,
    mut sink: impl FnMut(usize, &[u8]) -> bool,
) {
    poll_fn(|cx| {
        let mut progress = false;
        for (stream, output) in outputs.iter_mut().enumerate() {
            let mut more = true;
            let status = output.poll_read(cx, limit, |bytes| {
                more = sink(stream, bytes);
                more
            });
            progress |= status == ReadStatus::Progress;
            if !more {
                return Poll::Ready(());
            }
        }
        if progress { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
