//! Copies bytes in both directions between the standard streams and a socket, on plain threads. The bytes are not
//! parsed.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

/// The size of the buffer. Most lines of JSON-RPC are shorter; file contents take a few reads.
const BUFFER: usize = 64 * 1024;

/// The time that the daemon gets to close its side after the client has closed its own. The daemon cancels running
/// calls and delivers the answers that are ready. Clients give up after 15 s.
const CLOSING_LIMIT: Duration = Duration::from_secs(5);

/// The reason for which the pipe ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client closed standard input or stopped reading standard output.
    Client,
    /// The daemon closed the connection while the client was still connected.
    Daemon,
}

/// Copies until one side ends. A thread that still blocks in a read then ends with the process.
pub(crate) fn run(
    mut input: impl Read + Send + 'static,
    mut output: impl Write + Send + 'static,
    socket: UnixStream,
) -> io::Result<End> {
    let (report, ends) = mpsc::channel();
    let to_daemon = socket.try_clone()?;
    let from_daemon = socket.try_clone()?;
    let reporter = report.clone();
    std::thread::spawn(move || {
        let mut to_daemon = to_daemon;
        // A failed write means that the daemon is gone; the other direction notices that too and reports it.
        let read_all = copy(&mut input, &mut to_daemon);
        if read_all.is_ok() {
            // Reported before the shutdown: the daemon may close its side at once, but the client ended first.
            let _ = reporter.send(End::Client);
            let _ = to_daemon.shutdown(Shutdown::Write);
        }
    });
    std::thread::spawn(move || {
        let mut from_daemon = from_daemon;
        let end = match copy(&mut from_daemon, &mut output) {
            Err(Failed::Write) => End::Client,
            Ok(()) | Err(Failed::Read) => End::Daemon,
        };
        let _ = report.send(end);
    });
    // Both threads hold a sender, so there is always a first report.
    let first = ends.recv().unwrap_or(End::Daemon);
    if first == End::Client {
        // Answers that are ready are still delivered; then the daemon closes its side.
        let _ = ends.recv_timeout(CLOSING_LIMIT);
    }
    Ok(first)
}

#[derive(Debug)]
enum Failed {
    Read,
    Write,
}

fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<(), Failed> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(Failed::Read),
        };
        // Flushed at once, because a client may wait for this reply before it sends more.
        to.write_all(&buffer[..count]).and_then(|()| to.flush()).map_err(|_| Failed::Write)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A daemon that sends everything back after it has read to the end.
    fn echo_after_eof(mut socket: UnixStream) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            socket.read_to_end(&mut all).unwrap();
            socket.write_all(&all).unwrap();
        })
    }

    #[test]
    fn pending_output_is_delivered_after_client_eof() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let daemon = echo_after_eof(theirs);
        let sink = Sink::default();
        let text = vec![b'x'; 3 * BUFFER + 7];
        assert_eq!(run(Cursor::new(text.clone()), sink.clone(), ours).unwrap(), End::Client);
        daemon.join().unwrap();
        assert_eq!(*sink.0.lock().unwrap(), text);
    }

    #[test]
    fn pipe_ends_when_daemon_closes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // An input that never ends, like that of a waiting client.
        let (_keep, input) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(run(input, Sink::default(), ours).unwrap(), End::Daemon);
    }
}
