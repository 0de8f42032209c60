//! One connection of QEMU, registered for readability only.
//!
//! A socket that is also registered for writability would wake us whenever QEMU has taken a frame. So we wait for
//! writability only when the socket is full.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Both halves of a connection.
#[derive(Clone, Debug)]
pub(super) struct Socket(Arc<AsyncFd<UnixStream>>);

impl Socket {
    pub(super) fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        Ok(Self(Arc::new(watched(stream.into_std()?, Interest::READABLE)?)))
    }

    /// Waits for bytes and returns how many came; zero when QEMU is gone.
    pub(super) async fn read(&self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|socket| socket.get_ref().read(space)) {
                Ok(Ok(count)) => {
                    // A read that did not fill the space took everything; another one would return nothing.
                    if (1..space.len()).contains(&count) {
                        ready.clear_ready();
                    }
                    return Ok(count);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_nothing) => {}
            }
        }
    }

    pub(super) async fn write_all(&self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut room: Option<AsyncFd<UnixStream>> = None;
        while !slices.is_empty() {
            match self.0.get_ref().write_vectored(slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut slices, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match &room {
                    Some(room) => room.writable().await?.clear_ready(),
                    // From here on, writability is reported.
                    None => room = Some(watched(self.0.get_ref().try_clone()?, Interest::WRITABLE)?),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn watched(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    // SAFETY: the stream owns its descriptor, which stays open and the same until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(stream, interest) }?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn large_write_waits_for_room_and_arrives_whole() {
        let (ours, mut theirs) = tokio::net::UnixStream::pair().unwrap();
        let socket = Socket::new(ours).unwrap();
        let bytes: Vec<u8> = (0..4 << 20).map(|at: u32| (at % 251) as u8).collect();
        let (head, tail) = bytes.split_at(7);
        let mut slices = [IoSlice::new(head), IoSlice::new(tail)];
        let mut got = Vec::new();
        let reading = async {
            let mut some = vec![0; 100_000];
            while got.len() < bytes.len() {
                let count = theirs.read(&mut some).await.unwrap();
                got.extend_from_slice(&some[..count]);
            }
        };
        let both = async { tokio::join!(socket.write_all(&mut slices), reading).0 };
        tokio::time::timeout(Duration::from_secs(20), both).await.expect("it does not hang").unwrap();
        assert_eq!(got, bytes);
    }

    #[tokio::test]
    async fn socket_reads_all_bytes_before_the_end() {
        let (ours, mut theirs) = tokio::net::UnixStream::pair().unwrap();
        let socket = Socket::new(ours).unwrap();
        let mut space = [0; 16];
        for text in ["one", "exactly sixteen!", "three"] {
            theirs.write_all(text.as_bytes()).await.unwrap();
            let count = socket.read(&mut space).await.unwrap();
            assert_eq!(&space[..count], text.as_bytes());
        }
        // Bytes and the end at once: the end must not be lost with the bytes.
        theirs.write_all(b"last").await.unwrap();
        drop(theirs);
        assert_eq!(socket.read(&mut space).await.unwrap(), 4);
        let end = tokio::time::timeout(Duration::from_secs(20), socket.read(&mut space));
        assert_eq!(end.await.expect("it does not hang").unwrap(), 0);
    }
}
