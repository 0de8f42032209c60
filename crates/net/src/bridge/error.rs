//! What can go wrong between us and the kernel.

use std::io;
use std::net::Ipv4Addr;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum BridgeError {
    #[error("the bridge network needs root (CAP_NET_ADMIN)")]
    NotPermitted,
    #[error("another agentiso has the bridge network of this host; one at a time can")]
    Taken,
    #[error("{name} is there and is not agentiso's; set network.bridge_name to a name of its own")]
    Foreign { name: String },
    #[error("the kernel does not let us {what}: {source}")]
    Kernel {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("another machine has the address {address}")]
    AddressTaken { address: Ipv4Addr },
    #[error("{address} is not an address for a machine: it is the gateway's own, or not in its network")]
    AddressForeign { address: Ipv4Addr },
}

/// Says what was being done when the kernel refused.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, BridgeError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, BridgeError> {
        self.map_err(|source| match source.kind() == io::ErrorKind::PermissionDenied {
            true => BridgeError::NotPermitted,
            false => BridgeError::Kernel { what: what(), source },
        })
    }
}
