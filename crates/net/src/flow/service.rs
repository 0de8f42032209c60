//! A service at a port of the gateway's own address, which the daemon provides for guests.

use std::net::Ipv4Addr;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// The log message for a guest that a service does not admit.
pub(crate) const NOT_ADMITTED: &str = "this workspace may not use this service of the host";

/// A connection of a guest to a service.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A service for guests at one port of the gateway, whatever their policies say about the outside.
pub trait Service: std::fmt::Debug + Send + Sync {
    fn port(&self) -> u16;

    /// Whether a guest may connect. Others are refused at once.
    fn admits(&self, _guest: Ipv4Addr) -> bool {
        true
    }

    /// Serves a connection to its end. `guest` is certain, because spoofed packets are dropped. The future is dropped
    /// when the guest has gone.
    fn serve(&self, guest: Ipv4Addr, stream: Box<dyn Duplex>) -> BoxFuture<'static, ()>;
}
