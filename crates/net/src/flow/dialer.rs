//! Opens connections to the outside: through the host's own sockets, unless a test replaces them.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use futures::future::BoxFuture;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use tokio::net::{TcpStream, UdpSocket};

/// Opens the host's side of a flow that the guard has allowed.
pub trait Dialer: std::fmt::Debug + Send + Sync {
    fn connect(&self, to: SocketAddrV4) -> BoxFuture<'_, io::Result<TcpStream>>;

    /// A socket that exchanges datagrams with this address only.
    fn datagrams(&self, to: SocketAddrV4) -> BoxFuture<'_, io::Result<UdpSocket>>;
}

/// The host's sockets, with the routes and addresses that the host has.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSockets;

fn has_room(socket: &OwnedFd) -> io::Result<bool> {
    let mut asked = [PollFd::new(socket, PollFlags::OUT)];
    Ok(poll(&mut asked, Some(&Timespec::default()))? > 0)
}

impl Dialer for HostSockets {
    fn connect(&self, to: SocketAddrV4) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(async move {
            let socket = net::socket_with(
                AddressFamily::INET,
                SocketType::STREAM,
                SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
                None,
            )?;
            match net::connect(&socket, &to) {
                Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // A server nearby has already answered; waiting for the event would take longer than that.
            let answered = has_room(&socket)?;
            let stream = TcpStream::from_std(socket.into())?;
            if !answered {
                stream.writable().await?;
            }
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
            // The guest's own stack has already decided when to send.
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }

    fn datagrams(&self, to: SocketAddrV4) -> BoxFuture<'_, io::Result<UdpSocket>> {
        Box::pin(async move {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
            socket.connect(to).await?;
            Ok(socket)
        })
    }
}
