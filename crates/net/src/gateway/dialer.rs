//! How the outside is reached: the host's own sockets, unless a test puts something else there.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use futures::future::BoxFuture;
use tokio::net::{TcpStream, UdpSocket};

/// Opens the host's side of a flow that the guard has allowed.
pub trait Dialer: std::fmt::Debug + Send + Sync {
    fn connect(&self, to: SocketAddrV4) -> BoxFuture<'_, io::Result<TcpStream>>;

    /// A socket that sends to this address and hears from no other.
    fn datagrams(&self, to: SocketAddrV4) -> BoxFuture<'_, io::Result<UdpSocket>>;
}

/// The host's sockets, with the routes and addresses that the host has.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSockets;

impl Dialer for HostSockets {
    fn connect(&self, to: SocketAddrV4) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(to).await?;
            // The guest's own stack decides what waits for more.
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
