//! Writes the output of a VM to its logs while a daemon runs: the guest's console, and QEMU's standard streams.
//!
//! QEMU offers the console at a socket and discards output while no client is connected. QEMU's own output goes to a
//! named pipe, which holds a limited amount and refuses the rest. So neither a guest that prints endlessly nor one that
//! makes QEMU complain endlessly can fill the host's disk while no daemon runs; excess output is lost. While a daemon
//! runs, the logs are kept in bounds as they are written.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_sys::files::FileError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio_util::sync::CancellationToken;

use super::logs;

/// A console delivers some bytes at a time.
const PIECE: usize = 4096;

/// The thread needs room for one piece only.
const STACK: usize = 256 << 10;

/// QEMU closes its ends as it exits; everything that it sent before is readable by then.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The recording of one VM's output. When dropped, recording stops.
#[derive(Debug)]
pub(crate) struct Recorder {
    ended: CancellationToken,
    /// Closing this ends the thread.
    _stop: Option<OwnedFd>,
}

/// A source of output, and its log.
#[derive(Debug)]
pub(crate) struct Source {
    from: File,
    log: Log,
}

impl Source {
    /// The console that QEMU offers at a socket. QEMU need not serve it yet.
    pub(crate) fn console(socket: &Path, log: &Path) -> Result<Self, FileError> {
        let from = UnixStream::connect(socket).map_err(FileError::at("connect to", socket))?;
        Ok(Self { from: OwnedFd::from(from).into(), log: Log::open(log)? })
    }

    /// A pipe that [`make_pipe`] made. QEMU may be able to replace it by something else, which is refused.
    pub(crate) fn pipe(pipe: &Path, log: &Path) -> Result<Self, FileError> {
        let open = || {
            // Do not wait for a writer. The thread polls before it reads.
            let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
            let from = OpenOptions::new().read(true).custom_flags(flags).open(pipe)?;
            match from.metadata()?.file_type().is_fifo() {
                true => Ok(from),
                false => Err(std::io::ErrorKind::InvalidInput.into()),
            }
        };
        Ok(Self { from: open().map_err(FileError::at("open the pipe", pipe))?, log: Log::open(log)? })
    }

    /// Copies the available output. `false`: there will be no more.
    fn copy(&mut self) -> bool {
        let mut piece = [0; PIECE];
        match self.from.read(&mut piece) {
            Err(error) => {
                matches!(error.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock)
            }
            Ok(0) => false,
            // Continue even if the log cannot be written: a guest must not block on it.
            Ok(length) => {
                self.log.append(&piece[..length]);
                true
            }
        }
    }
}

/// Makes a named pipe for a program's output.
pub(crate) fn make_pipe(path: &Path) -> Result<(), FileError> {
    let made = mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
    made.map_err(|error| FileError::at("create the pipe", path)(error.into()))
}

impl Recorder {
    /// Appends all output from now on to the logs.
    pub(crate) fn start(sources: Vec<Source>) -> Result<Self, FileError> {
        let name = Path::new("the output of a VM");
        let (stop, held) = pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| FileError::at("create a pipe for", name)(error.into()))?;
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        // A separate thread, so that a log on a slow disk blocks nothing else.
        let thread = std::thread::Builder::new().name("recorder".to_owned()).stack_size(STACK);
        let copying = thread.spawn(move || {
            record(sources, &stop);
            drop(guard);
        });
        copying.map_err(FileError::at("start a thread that reads", name))?;
        Ok(Self { ended, _stop: Some(held) })
    }

    /// A recorder without sources.
    pub(crate) fn without_sources() -> Self {
        let ended = CancellationToken::new();
        ended.cancel();
        Self { ended, _stop: None }
    }

    /// Waits until all output of a VM that has ended is in its logs.
    pub(crate) async fn drained(&self) {
        if tokio::time::timeout(LAST_WORDS, self.ended.cancelled()).await.is_err() {
            tracing::warn!("console and standard error did not close in time");
        }
    }
}

fn record(mut sources: Vec<Source>, stop: &OwnedFd) {
    while !sources.is_empty() {
        let mut asked: Vec<PollFd<'_>> = sources
            .iter()
            .map(|source| PollFd::from_borrowed_fd(source.from.as_fd(), PollFlags::IN))
            .collect();
        asked.push(PollFd::new(stop, PollFlags::IN));
        match poll(&mut asked, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => {
                tracing::warn!(%error, "the output of a VM is no longer logged");
                return;
            }
        }
        let ready: Vec<bool> = asked.iter().map(|asked| !asked.revents().is_empty()).collect();
        drop(asked);
        if ready.last() == Some(&true) {
            return;
        }
        let mut ready = ready.into_iter();
        sources.retain_mut(|source| !ready.next().unwrap_or(false) || source.copy());
    }
}

#[derive(Debug)]
struct Log {
    file: File,
    path: PathBuf,
    /// Bytes written since its length was last checked.
    unseen: u64,
    /// Whether the last write failed, which is logged once.
    failed: bool,
}

impl Log {
    fn open(path: &Path) -> Result<Self, FileError> {
        // Appended, so that the log of a restarted VM keeps the earlier output.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = file.map_err(FileError::at("open the log", path))?;
        Ok(Self { file, path: path.to_owned(), unseen: 0, failed: false })
    }

    fn append(&mut self, bytes: &[u8]) {
        /// The amount by which a log may exceed its bound.
        const LOOK_AFTER: u64 = 256 << 10;
        self.unseen += bytes.len() as u64;
        let written = self.file.write_all(bytes).and_then(|()| match self.unseen > LOOK_AFTER {
            true => {
                self.unseen = 0;
                logs::bound(&self.path).map(drop)
            }
            false => Ok(()),
        });
        if let Err(error) = &written
            && !self.failed
        {
            tracing::warn!(log = %self.path.display(), %error, "the output of a VM is not logged");
        }
        self.failed = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn console_log_is_bounded_and_keeps_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, log) = (dir.path().join("console.sock"), dir.path().join("console.log"));
        std::fs::write(&log, "an earlier run\n").unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let recorder = Recorder::start(vec![Source::console(&socket, &log).unwrap()]).unwrap();
        let printing = tokio::task::spawn_blocking(move || {
            let (mut guest, _) = listener.accept().unwrap();
            guest.write_all(b"first words\n").unwrap();
            for _ in 0..20 {
                guest.write_all(&vec![b'x'; 1 << 20]).unwrap();
            }
            guest.write_all(b"\nlast words").unwrap();
        });
        printing.await.unwrap();
        recorder.ended.cancelled().await;
        recorder.drained().await;
        let length = std::fs::metadata(&log).unwrap().len();
        assert!(length < 9 << 20, "{length}");
        assert!(std::fs::read_to_string(&log).unwrap().ends_with("\nlast words"));
    }

    /// A writer's end of the pipe, as a program has for its standard error.
    fn writer(pipe: &Path) -> File {
        OpenOptions::new().read(true).append(true).custom_flags(libc::O_NONBLOCK).open(pipe).unwrap()
    }

    #[tokio::test]
    async fn stderr_is_bounded_without_a_reader() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, log) = (dir.path().join("stderr.pipe"), dir.path().join("stderr.log"));
        make_pipe(&pipe).unwrap();
        let mut qemu = writer(&pipe);
        qemu.write_all(b"words to nobody\n").unwrap();
        let flood = vec![b'x'; 64 << 10];
        let refused = (0..100).find_map(|_| qemu.write_all(&flood).err()).expect("it has a bound");
        assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
        assert!(!log.exists());
        // One daemon stops and another one starts.
        for round in 0..2 {
            let recorder = Recorder::start(vec![Source::pipe(&pipe, &log).unwrap()]).unwrap();
            let ended = recorder.ended.clone();
            let words = format!("\nwords of round {round}\n");
            let said = || std::fs::read_to_string(&log).unwrap();
            while qemu.write_all(words.as_bytes()).is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            while !said().contains(&words) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(said().starts_with("words to nobody\n"));
            drop(recorder);
            ended.cancelled().await;
        }
        let recorder = Recorder::start(vec![Source::pipe(&pipe, &log).unwrap()]).unwrap();
        drop(qemu);
        recorder.ended.cancelled().await;
    }

    #[tokio::test]
    async fn console_without_a_socket_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = Source::console(&dir.path().join("none"), &dir.path().join("log")).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }

    #[test]
    fn pipe_replaced_by_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, secret) = (dir.path().join("stderr.pipe"), dir.path().join("secret"));
        std::fs::write(&secret, "secret").unwrap();
        std::os::unix::fs::symlink(&secret, &pipe).unwrap();
        assert!(Source::pipe(&pipe, &dir.path().join("log")).is_err(), "a link");
        std::fs::remove_file(&pipe).unwrap();
        std::fs::hard_link(&secret, &pipe).unwrap();
        assert!(Source::pipe(&pipe, &dir.path().join("log")).is_err(), "a file");
    }
}
