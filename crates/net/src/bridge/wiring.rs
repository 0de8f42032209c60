//! Everything that we set up in the kernel: the bridge, its ports, our tables.
//!
//! After a crash it is found again by its names, put in order, and used. Nothing else is touched: a bridge of that name
//! with another hardware address belongs to someone else.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::error::{BridgeError, KernelContext};
use super::links::{Link, Links};
use super::nft::{Family, Nftables, Set, Table};
use super::tap;
use crate::flow::GATEWAY_MAC;

/// The port of one VM at the bridge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortConfig<'a> {
    pub(crate) tap: &'a str,
    pub(crate) mac: [u8; 6],
    pub(crate) address: Ipv4Addr,
}

#[derive(Debug)]
pub(crate) struct Wiring {
    links: Links,
    nft: Nftables,
    bridge: u32,
    name: String,
    mtu: u16,
}

impl Wiring {
    /// Creates the bridge, or takes over the one that an earlier daemon left. Ports without a connected VM are removed:
    /// those that are needed are created again.
    pub(crate) fn open(name: &str, address: Ipv4Addr, prefix: u8, mtu: u16) -> Result<Self, BridgeError> {
        let mut links = Links::open().context(|| "configure links".to_owned())?;
        let nft = Nftables::open().context(|| "write packet rules".to_owned())?;
        let there = links.all().context(|| "list links".to_owned())?;
        let mut in_use = false;
        for tap in there.iter().filter(|link| is_ours(link)) {
            match tap.carrier {
                true => in_use = true,
                false => links.remove(tap.index).context(|| format!("remove {}", tap.name))?,
            }
        }
        let found = there.into_iter().find(|link| link.name == name);
        let bridge = match found {
            Some(link) if link.kind.as_deref() != Some("bridge") || link.mac != Some(GATEWAY_MAC) => {
                return Err(BridgeError::Foreign { name: name.to_owned() });
            }
            Some(link) if in_use => link.index,
            // No VM is connected, so its old configuration does not matter.
            Some(link) => {
                links.remove(link.index).context(|| format!("remove {name}"))?;
                make(&mut links, name)?
            }
            None => make(&mut links, name)?,
        };
        let mut wiring = Self { links, nft, bridge, name: name.to_owned(), mtu };
        wiring.configure(address, prefix).inspect_err(|_| {
            if !in_use {
                wiring.remove_bridge();
            }
        })?;
        Ok(wiring)
    }

    fn configure(&mut self, address: Ipv4Addr, prefix: u8) -> Result<(), BridgeError> {
        let name = self.name.clone();
        // First, so that it never gets an IPv6 address.
        without_ipv6(&name)?;
        // Packets are forwarded if their incoming interface allows it: between VMs, and from them.
        set(&["ipv4", "conf", &name, "forwarding"], "1")?;
        // Its ports are isolated from each other, so the bridge answers ARP requests of one for the address of another.
        set(&["ipv4", "conf", &name, "proxy_arp_pvlan"], "1")?;
        set(&["ipv4", "neigh", &name, "proxy_delay"], "0")?;
        // It answers for its own address, not for the host's addresses on other interfaces.
        set(&["ipv4", "conf", &name, "arp_ignore"], "1")?;
        // A packet must not choose a route that the rules did not judge.
        set(&["ipv4", "conf", &name, "accept_source_route"], "0")?;
        set(&["ipv4", "conf", &name, "accept_redirects"], "0")?;
        self.links
            .set_address(self.bridge, address, prefix)
            .context(|| format!("give {name} the address {address}/{prefix}"))?;
        self.links.raise(self.bridge, self.mtu).context(|| format!("bring {name} up"))
    }

    /// Creates and connects the port of a VM, which may already be running. The rules decide what it may send.
    pub(crate) fn add_port(&mut self, config: PortConfig<'_>) -> Result<(), BridgeError> {
        let made = match self.find(config.tap)? {
            Some(_) => false,
            None => {
                tap::make(config.tap).context(|| format!("create the device {}", config.tap))?;
                true
            }
        };
        self.connect(config).inspect_err(|_| {
            if made {
                self.remove_port(config);
            }
        })
    }

    fn connect(&mut self, config: PortConfig<'_>) -> Result<(), BridgeError> {
        let PortConfig { tap, mac, address } = config;
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let port = self.find(tap)?.ok_or_else(missing).context(|| format!("find {tap}"))?;
        without_ipv6(tap)?;
        self.links
            .make_port(port.index, self.bridge)
            .context(|| format!("make {tap} a port of {}", self.name))?;
        self.links.set_card(port.index, mac).context(|| format!("bind the MAC address to {tap}"))?;
        self.links
            .set_neighbour(self.bridge, address, mac)
            .context(|| format!("bind the address {address} to {tap}"))?;
        self.links.raise(port.index, self.mtu).context(|| format!("bring {tap} up"))
    }

    /// Limits the traffic to a VM, in bytes per second.
    pub(crate) fn set_rate(&mut self, tap: &str, rate: Option<u64>) -> Result<(), BridgeError> {
        match self.find(tap)? {
            Some(port) => {
                self.links.set_rate(port.index, rate).context(|| format!("limit the rate of {tap}"))
            }
            None => Ok(()),
        }
    }

    /// Takes a VM's port down until [`bring_up`](Self::bring_up), because its rules could not be written.
    pub(crate) fn take_down(&mut self, tap: &str) -> Result<(), BridgeError> {
        match self.find(tap)? {
            Some(port) => self.links.lower(port.index).context(|| format!("take {tap} down")),
            None => Ok(()),
        }
    }

    /// Brings a VM's port up again after [`take_down`](Self::take_down).
    pub(crate) fn bring_up(&mut self, tap: &str) -> Result<(), BridgeError> {
        match self.find(tap)? {
            Some(port) => self.links.raise(port.index, self.mtu).context(|| format!("bring {tap} up")),
            None => Ok(()),
        }
    }

    /// Removes a port. The port of a connected VM stays, because it could not be connected again.
    pub(crate) fn remove_port(&mut self, config: PortConfig<'_>) {
        if let Err(error) = self.try_remove_port(config) {
            tracing::warn!(device = config.tap, %error, "cannot remove a port of the bridge");
        }
    }

    fn try_remove_port(&mut self, config: PortConfig<'_>) -> Result<(), BridgeError> {
        // The entry may be missing.
        let _ = self.links.forget_neighbour(self.bridge, config.address);
        match self.find(config.tap)? {
            Some(port) if !port.carrier => {
                self.links.remove(port.index).context(|| format!("remove {}", config.tap))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Removes the ports and addresses of all VMs but these: those that an earlier daemon left and that are gone by
    /// now. The port of a connected VM stays, with its address.
    pub(crate) fn sweep(&mut self, wanted: &[PortConfig<'_>]) -> Result<(), BridgeError> {
        let mut in_use = false;
        for link in self.links.all().context(|| "list links".to_owned())?.iter().filter(|link| is_ours(link))
        {
            if wanted.iter().any(|config| config.tap == link.name) {
                continue;
            }
            match link.carrier {
                true => in_use = true,
                false => {
                    self.links.remove(link.index).context(|| format!("remove {}", link.name))?;
                    tracing::warn!(device = link.name, "removed the port of a VM that is gone");
                }
            }
        }
        // It is unknown which of the addresses it uses.
        if in_use {
            return Ok(());
        }
        for address in self.links.fixed_neighbours(self.bridge).context(|| "list neighbours".to_owned())? {
            if !wanted.iter().any(|config| config.address == address) {
                let forgotten = self.links.forget_neighbour(self.bridge, address);
                forgotten.context(|| format!("remove the address {address}"))?;
            }
        }
        Ok(())
    }

    pub(crate) fn set_rules(&mut self, tables: &[Table]) -> Result<(), BridgeError> {
        self.nft.replace(tables).context(|| "write packet rules".to_owned())
    }

    pub(crate) fn add_elements(&mut self, sets: &[Set]) -> Result<(), BridgeError> {
        self.nft.add(Family::Ip, sets).context(|| "add addresses to packet rules".to_owned())
    }

    /// Removes everything. If a VM is still connected, everything stays: the rules hold without us.
    pub(crate) fn close(&mut self) {
        match self.links.all() {
            Ok(links) if links.iter().any(|link| is_ours(link) && link.carrier) => {
                tracing::warn!(bridge = self.name, "VMs are still connected; the bridge is kept");
            }
            Ok(links) => {
                for tap in links.iter().filter(|link| is_ours(link)) {
                    if let Err(error) = self.links.remove(tap.index) {
                        tracing::warn!(device = tap.name, %error, "cannot remove a port of the bridge");
                    }
                }
                self.remove_bridge();
            }
            Err(error) => tracing::warn!(bridge = self.name, %error, "cannot remove the bridge"),
        }
    }

    fn remove_bridge(&mut self) {
        if let Err(error) = self.nft.remove() {
            tracing::warn!(%error, "cannot remove the packet rules");
        }
        if let Err(error) = self.links.remove(self.bridge) {
            tracing::warn!(bridge = self.name, %error, "cannot remove the bridge");
        }
    }

    fn find(&mut self, tap: &str) -> Result<Option<Link>, BridgeError> {
        self.links.find(tap).context(|| "list links".to_owned())
    }
}

fn make(links: &mut Links, name: &str) -> Result<u32, BridgeError> {
    links.make_bridge(name, GATEWAY_MAC).context(|| format!("create the bridge {name}"))?;
    let made = links.find(name).context(|| "list links".to_owned())?;
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    made.map(|link| link.index).ok_or_else(missing).context(|| format!("find {name}"))
}

fn is_ours(link: &Link) -> bool {
    link.kind.as_deref() == Some("tun") && link.name.starts_with(tap::PREFIX)
}

/// Disables IPv6 on an interface, if the kernel supports it at all.
fn without_ipv6(interface: &str) -> Result<(), BridgeError> {
    match setting(&["ipv6", "conf", interface, "disable_ipv6"], "1") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(|| format!("switch IPv6 off on {interface}"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes one of the kernel's network settings, in the namespace of the calling thread.
fn setting(path: &[&str], value: &str) -> io::Result<()> {
    let path: PathBuf = ["/proc/sys/net"].iter().chain(path).collect();
    fs::write(path, value)
}

fn set(path: &[&str], value: &str) -> Result<(), BridgeError> {
    setting(path, value).context(|| format!("set net.{} to {value}", path.join(".")))
}
