//! Errors of the bridge network.

use std::io;
use std::net::Ipv4Addr;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum BridgeError {
    #[error("the bridge network needs root (CAP_NET_ADMIN)")]
    NotPermitted,
    #[error("another agentiso already uses the bridge network of this host; only one can")]
    Taken,
    #[error(
        "the network device {name} exists and is not agentiso's; set network.bridge_name to another name"
    )]
    Foreign { name: String },
    #[error("cannot {what}: {source}")]
    Kernel {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("another VM has the address {address}")]
    AddressTaken { address: Ipv4Addr },
    #[error("{address} cannot be a VM's address: it is the gateway's own, or not in its network")]
    AddressForeign { address: Ipv4Addr },
}

/// Adds to an error what was being done when the kernel refused.
pub(crate) trait KernelContext<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, BridgeError>;
}

impl<T> KernelContext<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, BridgeError> {
        self.map_err(|source| match source.kind() == io::ErrorKind::PermissionDenied {
            true => BridgeError::NotPermitted,
            false => BridgeError::Kernel { what: what(), source },
        })
    }
}
