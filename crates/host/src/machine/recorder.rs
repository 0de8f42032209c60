//! What a guest prints to its console, written to a log for as long as somebody of ours listens.
//!
//! QEMU offers the console at a socket and throws away what is printed while nobody is connected. So a guest that prints
//! without end cannot fill the host's disk while no daemon runs; what it prints in that time is lost. While a daemon
//! runs, the log is kept in bounds as it is written.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::logs;
use crate::files::FileError;

/// A console delivers some bytes at a time.
const PIECE: usize = 4096;

/// The thread keeps one piece and writes it.
const STACK: usize = 256 << 10;

/// QEMU closes the socket as it exits; what it sent before is there already.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The console of one machine, being written down. Dropped, it is listened to no more.
#[derive(Debug)]
pub(crate) struct Console {
    ended: CancellationToken,
    stream: UnixStream,
}

impl Drop for Console {
    fn drop(&mut self) {
        // Ends the thread. It fails only if QEMU has ended, and then the thread has too.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Console {
    /// Connects to a console and appends to its log what is printed from now on. QEMU need not have begun to serve the
    /// socket.
    pub(crate) fn follow(socket: &Path, log: &Path) -> Result<Self, FileError> {
        let connect = || {
            let stream = UnixStream::connect(socket)?;
            Ok((stream.try_clone()?, stream))
        };
        let (reader, stream) = connect().map_err(FileError::at("connect to", socket))?;
        let log = Log::open(log)?;
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        // A thread of its own: a log on a slow disk keeps nobody else waiting.
        let thread = std::thread::Builder::new().name("console".to_owned()).stack_size(STACK);
        let copying = thread.spawn(move || {
            copy(reader, log);
            drop(guard);
        });
        copying.map_err(FileError::at("start a thread that reads", socket))?;
        Ok(Self { ended, stream })
    }

    /// Waits until all that a machine which has ended printed is in the log.
    pub(crate) async fn drained(&self) {
        if tokio::time::timeout(LAST_WORDS, self.ended.cancelled()).await.is_err() {
            tracing::warn!("console did not close in time");
        }
    }
}

fn copy(mut stream: UnixStream, mut log: Log) {
    let mut piece = [0; PIECE];
    loop {
        match stream.read(&mut piece) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
            // Read on whatever becomes of the log: a guest must not wait for it.
            Ok(length) => log.append(&piece[..length]),
        }
    }
}

struct Log {
    file: File,
    path: PathBuf,
    /// Bytes since its length was last looked at.
    unseen: u64,
    /// Whether the last write failed, which is told once.
    failed: bool,
}

impl Log {
    fn open(path: &Path) -> Result<Self, FileError> {
        // Appended, so that the log of a machine that was started again keeps what came before.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = file.map_err(FileError::at("open the log", path))?;
        Ok(Self { file, path: path.to_owned(), unseen: 0, failed: false })
    }

    fn append(&mut self, bytes: &[u8]) {
        /// How far a log may exceed its bound.
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
            tracing::warn!(log = %self.path.display(), %error, "what a guest prints is not written down");
        }
        self.failed = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn console_log_is_complete_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, log) = (dir.path().join("console.sock"), dir.path().join("console.log"));
        std::fs::write(&log, "an earlier run\n").unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let console = Console::follow(&socket, &log).unwrap();
        let printing = tokio::task::spawn_blocking(move || {
            let (mut guest, _) = listener.accept().unwrap();
            guest.write_all(b"first words\n").unwrap();
            for _ in 0..20 {
                guest.write_all(&vec![b'x'; 1 << 20]).unwrap();
            }
            guest.write_all(b"\nlast words").unwrap();
        });
        printing.await.unwrap();
        console.ended.cancelled().await;
        console.drained().await;
        let length = std::fs::metadata(&log).unwrap().len();
        assert!(length < 9 << 20, "{length}");
        assert!(std::fs::read_to_string(&log).unwrap().ends_with("\nlast words"));
    }

    #[tokio::test]
    async fn console_without_a_socket_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = Console::follow(&dir.path().join("none"), &dir.path().join("log")).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }
}
