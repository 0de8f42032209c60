//! The two pipes of a command.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::task::{Context, Poll};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::watch;

/// Most bytes taken by one read.
const READ_BYTES: usize = 256 * 1024;

/// Size that a pipe gets once it was found full: fewer switches between command and agent for much output.
const LARGE_PIPE_BYTES: usize = 1024 * 1024;

/// What a pipe holds by default; a read of that much means that the command is waiting for us.
const DEFAULT_PIPE_BYTES: usize = 64 * 1024;

/// Reads of one pipe before others get their turn.
const READS_PER_TURN: usize = 4;

thread_local! {
    /// One buffer for all commands of this thread: reads do not wait, so it is never needed twice at a time.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The reading end of one pipe; absent after its end.
#[derive(Debug)]
pub(super) struct Output {
    pipe: Option<AsyncFd<OwnedFd>>,
    enlarged: bool,
}

/// What one turn brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Something was read or the end was found.
    Progress,
    /// Nothing to read; the task will be woken.
    Waiting,
}

impl Output {
    /// A pipe: our end, and the end for the command.
    pub(super) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our end must not block; the command's is a description of its own and stays as programs expect it.
        fcntl_setfl(&read, fcntl_getfl(&read)? | OFlags::NONBLOCK)?;
        let pipe = watch::descriptor(read, Interest::READABLE)?;
        Ok((Self { pipe: Some(pipe), enlarged: false }, write))
    }

    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads what is there, up to `limit` bytes at a time, as long as `sink` wants more.
    pub(super) fn poll_turn(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
        mut sink: impl FnMut(&[u8]) -> bool,
    ) -> Turn {
        let mut turn = Turn::Waiting;
        for _ in 0..READS_PER_TURN {
            let Some(pipe) = &self.pipe else { break };
            let Poll::Ready(ready) = pipe.poll_read_ready(cx) else { break };
            let Ok(mut guard) = ready else {
                self.pipe = None;
                return Turn::Progress;
            };
            let read = BUFFER.with_borrow_mut(|buffer| {
                if buffer.is_empty() {
                    // Zeroed by the kernel page by page, so only what is used takes memory.
                    *buffer = vec![0; READ_BYTES];
                }
                let read = rustix::io::read(pipe, &mut buffer[..limit.min(READ_BYTES)]);
                read.map(|count| (count, count == 0 || sink(&buffer[..count])))
            });
            match read {
                Ok((0, _)) => {
                    self.pipe = None;
                    return Turn::Progress;
                }
                Ok((count, more)) => {
                    turn = Turn::Progress;
                    if count >= DEFAULT_PIPE_BYTES && !self.enlarged {
                        self.enlarged = true;
                        // Without the larger pipe everything works, only slower.
                        let _ = fcntl_setpipe_size(pipe.get_ref().as_fd(), LARGE_PIPE_BYTES);
                    }
                    if !more {
                        break;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(_) => {
                    self.pipe = None;
                    return Turn::Progress;
                }
            }
        }
        turn
    }
}
