//! The two pipes of a command.
//!
//! ```text
//!             much was printed
//!   Watched -------------------> Bulk: read every few milliseconds, not at every line
//!      ^---------------------------'
//!          nothing for a while
//! ```
//!
//! A watched pipe wakes the agent at every write of the command, which then is in turn held up by the agent. For a
//! command that prints without end this costs more than the output itself. So its pipe is made large, is no longer
//! watched, and is emptied when a short time has passed.

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

/// Reads of one pipe before others get their turn.
const READS_PER_TURN: usize = 8;

/// Output after which a command is taken for one that prints much.
const BULK_AFTER_BYTES: u64 = 256 * 1024;

/// Size of a pipe that is emptied from time to time: what a fast command prints in between.
const BULK_PIPE_BYTES: usize = 1024 * 1024;

/// Time between two readings of such a pipe. Too short to be noticed, long enough for a good part of the pipe.
const BULK_PAUSE: Duration = Duration::from_millis(2);

/// Empty readings in a row after which the pipe is watched again.
const BULK_EMPTY_TURNS: u32 = 16;

thread_local! {
    /// One buffer for all commands of this thread: reads do not wait, so it is never needed twice at a time.
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
    Bulk { pipe: OwnedFd, pause: Pin<Box<Sleep>>, empty_turns: u32 },
    Closed,
}

/// What one turn brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Something was read or the end was found.
    Progress,
    /// Nothing to read; the task will be woken.
    Waiting,
}

/// What reading until nothing is left came to.
enum Found {
    Something,
    Nothing,
    End,
}

impl Output {
    /// A pipe: our end, and the end for the command.
    pub(super) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our end must not block; the command's is a description of its own and stays as programs expect it.
        fcntl_setfl(&read, fcntl_getfl(&read)? | OFlags::NONBLOCK)?;
        let pipe = watch::descriptor(read, Interest::READABLE)?;
        Ok((Self { state: State::Watched(pipe), read: 0 }, write))
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed)
    }

    /// Reads what is there, up to `limit` bytes at a time, as long as `sink` wants more.
    pub(super) fn poll_turn(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
        mut sink: impl FnMut(&[u8]) -> bool,
    ) -> Turn {
        match &mut self.state {
            State::Closed => Turn::Waiting,
            State::Watched(pipe) => {
                let Poll::Ready(ready) = pipe.poll_read_ready(cx) else { return Turn::Waiting };
                let Ok(mut guard) = ready else { return self.close() };
                let mut drained = false;
                let found = read_all(guard.get_inner(), limit, &mut drained, &mut self.read, &mut sink);
                if drained {
                    guard.clear_ready();
                }
                match found {
                    Found::End => self.close(),
                    Found::Something => {
                        if self.read >= BULK_AFTER_BYTES {
                            self.begin_bulk();
                        }
                        Turn::Progress
                    }
                    // Asks again, so that the task is woken.
                    Found::Nothing => match pipe.poll_read_ready(cx) {
                        Poll::Ready(_) => Turn::Progress,
                        Poll::Pending => Turn::Waiting,
                    },
                }
            }
            State::Bulk { pipe, pause, empty_turns } => {
                if pause.as_mut().poll(cx).is_pending() {
                    return Turn::Waiting;
                }
                let mut drained = false;
                let found = read_all(pipe, limit, &mut drained, &mut self.read, &mut sink);
                if drained {
                    pause.as_mut().reset(Instant::now() + BULK_PAUSE);
                }
                match found {
                    Found::End => self.close(),
                    Found::Something => {
                        *empty_turns = 0;
                        Turn::Progress
                    }
                    Found::Nothing => {
                        *empty_turns += 1;
                        if *empty_turns >= BULK_EMPTY_TURNS {
                            self.end_bulk();
                        }
                        // Polled again at once, which registers whatever it waits for now.
                        Turn::Progress
                    }
                }
            }
        }
    }

    fn close(&mut self) -> Turn {
        self.state = State::Closed;
        Turn::Progress
    }

    fn begin_bulk(&mut self) {
        if let State::Watched(pipe) = std::mem::replace(&mut self.state, State::Closed) {
            let pipe = pipe.into_inner();
            // Without the larger pipe everything works, only slower.
            let _ = fcntl_setpipe_size(&pipe, BULK_PIPE_BYTES);
            self.state = State::Bulk { pipe, pause: Box::pin(sleep(BULK_PAUSE)), empty_turns: 0 };
        }
    }

    fn end_bulk(&mut self) {
        if let State::Bulk { pipe, .. } = std::mem::replace(&mut self.state, State::Closed) {
            // It was watched before, so this fails only when the kernel is out of memory; then the output ends here.
            if let Ok(pipe) = watch::descriptor(pipe, Interest::READABLE) {
                self.state = State::Watched(pipe);
            }
            self.read = 0;
        }
    }
}

/// Reads up to a few times; `drained` is set when nothing was left.
fn read_all(
    pipe: &OwnedFd,
    limit: usize,
    drained: &mut bool,
    total: &mut u64,
    sink: &mut impl FnMut(&[u8]) -> bool,
) -> Found {
    let mut found = Found::Nothing;
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            // Zeroed by the kernel page by page, so only what is used takes memory.
            *buffer = vec![0; READ_BYTES];
        }
        for _ in 0..READS_PER_TURN {
            match rustix::io::read(pipe, &mut buffer[..limit.min(READ_BYTES)]) {
                Ok(count) if count > 0 => {
                    *total += count as u64;
                    found = Found::Something;
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
                    found = Found::End;
                    break;
                }
            }
        }
    });
    found
}
