//! The host's own addresses, which a guest must not reach as if they were public.
//!
//! They are read from the kernel's routing table, because it decides where a connection ends. The host's addresses
//! change while the daemon runs (another wireless network, a container bridge), so they are read again when they are
//! older than [`REFRESH`].

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io};

use agentiso_core::network::Network;

/// World-readable; shows the network namespace of the reader.
const TABLE: &str = "/proc/net/fib_trie";

/// Time for which a new address of the host may stay unknown. Reading takes some ten microseconds.
const REFRESH: Duration = Duration::from_secs(5);

/// Cheap to clone; all clones share the addresses.
#[derive(Clone)]
pub struct HostAddresses(Arc<Mutex<KnownAddresses>>);

struct KnownAddresses {
    networks: Vec<Network>,
    /// Time at which the table was read. `None`: fixed addresses.
    read: Option<Instant>,
}

impl HostAddresses {
    /// The addresses of this host, kept up to date.
    pub fn of_this_host() -> io::Result<Self> {
        let networks = local_networks(&fs::read_to_string(TABLE)?);
        Ok(Self(Arc::new(Mutex::new(KnownAddresses { networks, read: Some(Instant::now()) }))))
    }

    /// Only the given addresses.
    pub fn fixed(addresses: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let networks = addresses.into_iter().map(|address| Network::around(address, 32)).collect();
        Self(Arc::new(Mutex::new(KnownAddresses { networks, read: None })))
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.read.is_some_and(|read| read.elapsed() >= REFRESH) {
            known.read = Some(Instant::now());
            match fs::read_to_string(TABLE) {
                Ok(text) => known.networks = local_networks(&text),
                Err(error) => {
                    tracing::warn!(%error, "the host's addresses could not be read; the old ones are kept")
                }
            }
        }
        known.networks.iter().any(|network| network.contains(address))
    }
}

impl fmt::Debug for HostAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(known.networks.iter().map(ToString::to_string)).finish()
    }
}

/// Finds, in the kernel's drawing of its routing trie, every network that is delivered on the host itself:
///
/// ```text
///            |-- 192.168.1.5
///               /32 host LOCAL
/// ```
fn local_networks(table: &str) -> Vec<Network> {
    let mut networks: Vec<Network> = Vec::new();
    let mut leaf = None;
    for line in table.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse::<Ipv4Addr>().ok();
        } else if let (Some(address), Some(rest), true) =
            (leaf, line.strip_prefix('/'), line.ends_with(" LOCAL"))
            && let Some(Ok(prefix)) = rest.split(' ').next().map(str::parse)
        {
            let network = Network::around(address, prefix);
            if !networks.contains(&network) {
                networks.push(network);
            }
        }
    }
    networks
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWING: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 192.168.1.0/24 2 0 2
        |-- 192.168.1.0
           /24 link UNICAST
        |-- 192.168.1.5
           /32 host LOCAL
        |-- 192.168.1.255
           /32 link BROADCAST
Local:
  +-- 127.0.0.0/8 2 0 2
     |-- 127.0.0.0
        /8 host LOCAL
     |-- 192.168.1.5
        /32 host LOCAL
";

    #[test]
    fn local_networks_are_read_from_kernel_table() {
        let found: Vec<String> = local_networks(DRAWING).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.168.1.5", "127.0.0.0/8"]);
        assert!(local_networks("|-- x\n/32 host LOCAL\n|-- 1.2.3.4\n/x host LOCAL\n/").is_empty());
    }

    #[test]
    fn host_addresses_include_the_loopback() {
        let host = HostAddresses::of_this_host().unwrap();
        assert!(host.contains(Ipv4Addr::LOCALHOST));
        assert!(!host.contains(Ipv4Addr::new(192, 0, 2, 77)));
    }
}
