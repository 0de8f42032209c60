//! Bytes both ways between our standard streams and a socket, on plain threads: nothing here looks at them.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

/// A line of JSON-RPC is mostly smaller; file contents go in a few turns.
const BUFFER: usize = 64 * 1024;

/// How long the daemon may take to end its side once the client has ended its own: it cancels what runs and
/// delivers what is ready. Clients give up on us after 15 s.
const CLOSING_LIMIT: Duration = Duration::from_secs(5);

/// Why the pipe came to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client closed our standard input, or stopped reading our output.
    Client,
    /// The daemon went away while the client was still there.
    Daemon,
}

/// Pipes until one side ends. Threads that still block in a read are left to the end of the process.
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
        // A failed write means that the daemon is gone, which the other direction notices as its end.
        let read_all = copy(&mut input, &mut to_daemon);
        if read_all.is_ok() {
            // In this order: the daemon may close its side at once, and the client was first all the same.
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
        // What is ready is still delivered; the daemon closes its side when it is done.
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
        // Flushed at once: a reply that waits for the next one never arrives.
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

    /// A daemon that answers everything it got once its reader is done.
    fn echo_after_eof(mut socket: UnixStream) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            socket.read_to_end(&mut all).unwrap();
            socket.write_all(&all).unwrap();
        })
    }

    #[test]
    fn what_is_ready_when_the_client_ends_is_still_delivered() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let daemon = echo_after_eof(theirs);
        let sink = Sink::default();
        let text = vec![b'x'; 3 * BUFFER + 7];
        assert_eq!(run(Cursor::new(text.clone()), sink.clone(), ours).unwrap(), End::Client);
        daemon.join().unwrap();
        assert_eq!(*sink.0.lock().unwrap(), text);
    }

    #[test]
    fn a_daemon_that_goes_away_ends_the_pipe() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // An input that never ends, as a client that waits.
        let (_keep, input) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(run(input, Sink::default(), ours).unwrap(), End::Daemon);
    }
}
