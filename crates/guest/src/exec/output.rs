//! Reads the output pipes of a command.
//!
//! ```text
//!             much was printed
//!   Watched -------------------> Bulk: read every few milliseconds, not at every line
//!      ^---------------------------'
//!          nothing for a while
//! ```
//!
//! A watched pipe wakes the agent at every write of the command, and the agent then takes processor time from the
//! command. For a command that prints without end this costs more than the output itself. So its pipe is made large, is
//! no longer watched, and is read every few milliseconds.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep, sleep};

use crate::watch;

/// Most bytes taken by one read.
const READ_BYTES: usize = 256 * 1024;

/// Reads of one pipe before other pipes are read.
const READS_PER_POLL: usize = 8;

/// Output after which a pipe changes to `Bulk`.
const BULK_AFTER_BYTES: u64 = 256 * 1024;

/// Size of a pipe in `Bulk`: the output of a fast command between two reads.
const BULK_PIPE_BYTES: usize = 1024 * 1024;

/// Time between two reads of such a pipe: too short to be noticed, long enough to fill a good part of the pipe.
const BULK_PAUSE: Duration = Duration::from_millis(2);

/// Empty reads in a row after which the pipe is watched again.
const BULK_EMPTY_READS: u32 = 16;

thread_local! {
    /// One buffer for all commands of this thread. Reads do not wait, so it is never needed twice at the same time.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The reading end of one pipe.
#[derive(Debug)]
pub(crate) struct Output {
    state: State,
    /// Bytes read since the pipe was last watched.
    read: u64,
}

#[derive(Debug)]
enum State {
    Watched(AsyncFd<OwnedFd>),
    Bulk { pipe: OwnedFd, pause: Pin<Box<Sleep>>, empty_reads: u32 },
    Closed,
}

/// The result of polling a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadStatus {
    /// Something was read or the end was found.
    Progress,
    /// Nothing to read; the task will be woken.
    Waiting,
}

/// The result of reading a pipe until it is empty.
enum ReadResult {
    Data,
    Empty,
    End,
}

impl Output {
    /// Makes a pipe: our end, and the end for the command.
    pub(super) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our end must not block. The command's end is a separate file description and stays blocking, as programs
        // expect it.
        fcntl_setfl(&read, fcntl_getfl(&read)? | OFlags::NONBLOCK)?;
        let pipe = watch::descriptor(read, Interest::READABLE)?;
        Ok((Self { state: State::Watched(pipe), read: 0 }, write))
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed)
    }

    /// Reads the available bytes, up to `limit` at a time, as long as `sink` returns true.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
        mut sink: impl FnMut(&[u8]) -> bool,
    ) -> ReadStatus {
        match &mut self.state {
            State::Closed => ReadStatus::Waiting,
            State::Watched(pipe) => {
                let Poll::Ready(ready) = pipe.poll_read_ready(cx) else { return ReadStatus::Waiting };
                let Ok(mut guard) = ready else { return self.close() };
                let mut drained = false;
                let found = read_all(guard.get_inner(), limit, &mut drained, &mut self.read, &mut sink);
                if drained {
                    guard.clear_ready();
                }
                match found {
                    ReadResult::End => self.close(),
                    ReadResult::Data => {
                        if self.read >= BULK_AFTER_BYTES {
                            self.begin_bulk();
                        }
                        ReadStatus::Progress
                    }
                    // Polled again to register the waker.
                    ReadResult::Empty => match pipe.poll_read_ready(cx) {
                        Poll::Ready(_) => ReadStatus::Progress,
                        Poll::Pending => ReadStatus::Waiting,
                    },
                }
            }
            State::Bulk { pipe, pause, empty_reads } => {
                if pause.as_mut().poll(cx).is_pending() {
                    return ReadStatus::Waiting;
                }
                let mut drained = false;
                let found = read_all(pipe, limit, &mut drained, &mut self.read, &mut sink);
                if drained {
                    pause.as_mut().reset(Instant::now() + BULK_PAUSE);
                }
                match found {
                    ReadResult::End => self.close(),
                    ReadResult::Data => {
                        *empty_reads = 0;
                        ReadStatus::Progress
                    }
                    ReadResult::Empty => {
                        *empty_reads += 1;
                        if *empty_reads >= BULK_EMPTY_READS {
                            self.end_bulk();
                        }
                        // The caller polls again at once, which registers the waker for the new state.
                        ReadStatus::Progress
                    }
                }
            }
        }
    }

    fn close(&mut self) -> ReadStatus {
        self.state = State::Closed;
        ReadStatus::Progress
    }

    fn begin_bulk(&mut self) {
        if let State::Watched(pipe) = std::mem::replace(&mut self.state, State::Closed) {
            let pipe = pipe.into_inner();
            // A failure is ignored: with the smaller pipe everything works, only slower.
            let _ = fcntl_setpipe_size(&pipe, BULK_PIPE_BYTES);
            self.state = State::Bulk { pipe, pause: Box::pin(sleep(BULK_PAUSE)), empty_reads: 0 };
        }
    }

    fn end_bulk(&mut self) {
        if let State::Bulk { pipe, .. } = std::mem::replace(&mut self.state, State::Closed) {
            // It was watched before, so this fails only if the kernel is out of memory. Then the rest of the output is
            // lost.
            if let Ok(pipe) = watch::descriptor(pipe, Interest::READABLE) {
                self.state = State::Watched(pipe);
            }
            self.read = 0;
        }
    }
}

/// Reads up to [`READS_PER_POLL`] times; `drained` is set if the pipe is empty then.
fn read_all(
    pipe: &OwnedFd,
    limit: usize,
    drained: &mut bool,
    total: &mut u64,
    sink: &mut impl FnMut(&[u8]) -> bool,
) -> ReadResult {
    let mut found = ReadResult::Empty;
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            // The kernel zeroes it page by page, so only used pages take memory.
            *buffer = vec![0; READ_BYTES];
        }
        for _ in 0..READS_PER_POLL {
            match rustix::io::read(pipe, &mut buffer[..limit.min(READ_BYTES)]) {
                Ok(count) if count > 0 => {
                    *total += count as u64;
                    found = ReadResult::Data;
                    if !sink(&buffer[..count]) {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    *drained = true;
                    break;
                }
                Ok(_) | Err(_) => {
                    found = ReadResult::End;
                    break;
                }
            }
        }
    });
    found
}
