//! The virtio-serial port as an asynchronous stream.
//!
//! The port reports a hang-up as long as the host is not connected, and takes it back when the host connects. The
//! runtime treats a hang-up as final and would report readiness without end, so the port is registered anew after every
//! hang-up. While the host is not connected, a separate epoll instance watches for the change: unlike the port itself,
//! it never reports a hang-up.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::event::{Timespec, epoll};
use rustix::fs::{Mode, OFlags, open};
use tokio::io::unix::{AsyncFd, AsyncFdReadyMutGuard};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::transport::Transport;
use crate::watch;

/// The name that the host gives to the port.
pub const PORT_NAME: &str = "agentiso";

const PORTS: &str = "/sys/class/virtio-ports";

/// The open port.
#[derive(Debug)]
pub struct Port {
    // Absent only while the registration is renewed.
    file: Option<AsyncFd<OwnedFd>>,
}

/// The device file of the port, if the VM has one.
pub fn find() -> Option<PathBuf> {
    let entries = fs::read_dir(PORTS).ok()?;
    entries.filter_map(Result::ok).find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        let device = Path::new("/dev").join(entry.file_name());
        (name.trim_end() == PORT_NAME && device.exists()).then_some(device)
    })
}

impl Port {
    /// Opens the port's device file. Only one process can have it open.
    pub fn open(device: &Path) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = open(device, flags, Mode::empty())?;
        Ok(Self { file: Some(register(file)?) })
    }

    fn renew(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            self.file = Some(register(file.into_inner())?);
        }
        Ok(())
    }

    /// Tries an operation whenever the port is ready, until it succeeds or fails.
    fn poll_io(
        &mut self,
        cx: &mut Context<'_>,
        interest: Interest,
        mut operation: impl FnMut(&OwnedFd) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let file = self.file.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            let mut guard = ready!(if interest.is_readable() {
                file.poll_read_ready_mut(cx)
            } else {
                file.poll_write_ready_mut(cx)
            })?;
            match operation(guard.get_inner()) {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) if hung_up(&guard, interest) => {
                    self.renew()?;
                    // The other direction of the same task was registered with the old registration.
                    cx.waker().wake_by_ref();
                }
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

fn register(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    watch::descriptor(file, Interest::READABLE | Interest::WRITABLE)
}

fn hung_up(guard: &AsyncFdReadyMutGuard<'_, OwnedFd>, interest: Interest) -> bool {
    let ready = guard.ready();
    if interest.is_readable() { ready.is_read_closed() } else { ready.is_write_closed() }
}

impl AsyncRead for Port {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let space = target.initialize_unfilled();
        let count = ready!(this.poll_io(cx, Interest::READABLE, |file| rustix::io::read(file, &mut *space)))?;
        target.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Port {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_io(cx, Interest::WRITABLE, |file| rustix::io::write(file, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Transport for Port {
    async fn wait_peer(&mut self) -> io::Result<bool> {
        let watched = self.file.take().ok_or(io::ErrorKind::NotConnected)?.into_inner();
        let watcher = watch::descriptor(epoll::create(epoll::CreateFlags::CLOEXEC)?, Interest::READABLE)?;
        // Edge-triggered: only a change of the port's state makes the watcher readable again.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(watcher.get_ref(), &watched, epoll::EventData::new_u64(0), flags)?;
        loop {
            let mut guard = watcher.readable().await?;
            if is_connected(watcher.get_ref())? {
                break;
            }
            guard.clear_ready();
        }
        drop(watcher);
        self.file = Some(register(watched)?);
        Ok(true)
    }
}

/// Whether the watcher has seen that the host is connected. It consumes the event.
fn is_connected(watcher: &OwnedFd) -> io::Result<bool> {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
    let count = epoll::wait(watcher, &mut events, Some(&none))?;
    let flags = events[0].flags;
    Ok(count == 1 && !flags.contains(epoll::EventFlags::HUP))
}
