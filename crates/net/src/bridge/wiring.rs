//! What we have set up in the kernel: the bridge, its ports, our tables.
//!
//! All of it is found again by its name after a crash, put in order, and used. Nothing else is touched: a bridge of
//! that name with another hardware address is somebody else's.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::error::{BridgeError, Doing};
use super::links::{Link, Links};
use super::nft::{Family, Nftables, Set, Table};
use super::tap;
use crate::gateway::GATEWAY_MAC;

/// One machine's end at the bridge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plug<'a> {
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
    /// Makes the bridge, or takes up the one that an earlier daemon left. Ports to which no machine is connected go:
    /// those that are wanted are made again.
    pub(crate) fn open(name: &str, address: Ipv4Addr, prefix: u8, mtu: u16) -> Result<Self, BridgeError> {
        let mut links = Links::open().doing(|| "configure links".to_owned())?;
        let nft = Nftables::open().doing(|| "write packet rules".to_owned())?;
        let there = links.all().doing(|| "list links".to_owned())?;
        let mut in_use = false;
        for tap in there.iter().filter(|link| is_ours(link)) {
            match tap.carrier {
                true => in_use = true,
                false => links.remove(tap.index).doing(|| format!("remove {}", tap.name))?,
            }
        }
        let found = there.into_iter().find(|link| link.name == name);
        let bridge = match found {
            Some(link) if link.kind.as_deref() != Some("bridge") || link.mac != Some(GATEWAY_MAC) => {
                return Err(BridgeError::Foreign { name: name.to_owned() });
            }
            Some(link) if in_use => link.index,
            // Nobody is connected: what it was configured for does not matter.
            Some(link) => {
                links.remove(link.index).doing(|| format!("remove {name}"))?;
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
        // First, so that it never has an address of that kind.
        without_ipv6(&name)?;
        // Packets are forwarded if the interface they come in by says so: between machines, and from them.
        set(&["ipv4", "conf", &name, "forwarding"], "1")?;
        // Its ports do not hear each other, so it answers when one asks for the address of another.
        set(&["ipv4", "conf", &name, "proxy_arp_pvlan"], "1")?;
        set(&["ipv4", "neigh", &name, "proxy_delay"], "0")?;
        // It answers for its own address, not for those that the host has elsewhere.
        set(&["ipv4", "conf", &name, "arp_ignore"], "1")?;
        // A packet goes where its rules were asked about, and nowhere that it says itself.
        set(&["ipv4", "conf", &name, "accept_source_route"], "0")?;
        set(&["ipv4", "conf", &name, "accept_redirects"], "0")?;
        self.links
            .set_address(self.bridge, address, prefix)
            .doing(|| format!("give {name} the address {address}/{prefix}"))?;
        self.links.raise(self.bridge, self.mtu).doing(|| format!("bring {name} up"))
    }

    /// Connects a port for a machine, whose card may be there already. What it may send, the rules say.
    pub(crate) fn plug(&mut self, plug: Plug<'_>) -> Result<(), BridgeError> {
        let made = match self.find(plug.tap)? {
            Some(_) => false,
            None => {
                tap::make(plug.tap).doing(|| format!("make the device {}", plug.tap))?;
                true
            }
        };
        self.connect(plug).inspect_err(|_| {
            if made {
                self.unplug(plug);
            }
        })
    }

    fn connect(&mut self, plug: Plug<'_>) -> Result<(), BridgeError> {
        let Plug { tap, mac, address } = plug;
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let port = self.find(tap)?.ok_or_else(missing).doing(|| format!("find {tap}"))?;
        without_ipv6(tap)?;
        self.links
            .make_port(port.index, self.bridge)
            .doing(|| format!("make {tap} a port of {}", self.name))?;
        self.links.set_card(port.index, mac).doing(|| format!("fix the card at {tap}"))?;
        self.links
            .set_neighbour(self.bridge, address, mac)
            .doing(|| format!("fix the address {address} at {tap}"))?;
        self.links.raise(port.index, self.mtu).doing(|| format!("bring {tap} up"))
    }

    /// Limits what goes to a machine, in bytes in a second.
    pub(crate) fn set_rate(&mut self, tap: &str, rate: Option<u64>) -> Result<(), BridgeError> {
        match self.find(tap)? {
            Some(port) => self.links.set_rate(port.index, rate).doing(|| format!("limit the rate of {tap}")),
            None => Ok(()),
        }
    }

    /// Takes a machine off the bridge until it is plugged in again: its rules could not be written.
    pub(crate) fn cut(&mut self, tap: &str) -> Result<(), BridgeError> {
        match self.find(tap)? {
            Some(port) => self.links.lower(port.index).doing(|| format!("take {tap} down")),
            None => Ok(()),
        }
    }

    /// Puts a machine that was taken off back on.
    pub(crate) fn mend(&mut self, tap: &str) -> Result<(), BridgeError> {
        match self.find(tap)? {
            Some(port) => self.links.raise(port.index, self.mtu).doing(|| format!("bring {tap} up")),
            None => Ok(()),
        }
    }

    /// Removes a port. One that a machine is still connected to stays, for it could not be connected again.
    pub(crate) fn unplug(&mut self, plug: Plug<'_>) {
        if let Err(error) = self.try_unplug(plug) {
            tracing::warn!(device = plug.tap, %error, "a port of the bridge is left");
        }
    }

    fn try_unplug(&mut self, plug: Plug<'_>) -> Result<(), BridgeError> {
        // It may never have been there.
        let _ = self.links.forget_neighbour(self.bridge, plug.address);
        match self.find(plug.tap)? {
            Some(port) if !port.carrier => {
                self.links.remove(port.index).doing(|| format!("remove {}", plug.tap))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Removes the ports and addresses of all machines but these: those of an earlier daemon that are gone by now. A port to
    /// which a machine is still connected stays, with its address.
    pub(crate) fn sweep(&mut self, wanted: &[Plug<'_>]) -> Result<(), BridgeError> {
        let mut in_use = false;
        for link in self.links.all().doing(|| "list links".to_owned())?.iter().filter(|link| is_ours(link)) {
            if wanted.iter().any(|plug| plug.tap == link.name) {
                continue;
            }
            match link.carrier {
                true => in_use = true,
                false => {
                    self.links.remove(link.index).doing(|| format!("remove {}", link.name))?;
                    tracing::warn!(device = link.name, "removed a port of a machine that is gone");
                }
            }
        }
        // Which of the addresses it has, nobody knows.
        if in_use {
            return Ok(());
        }
        for address in self.links.fixed_neighbours(self.bridge).doing(|| "list neighbours".to_owned())? {
            if !wanted.iter().any(|plug| plug.address == address) {
                let forgotten = self.links.forget_neighbour(self.bridge, address);
                forgotten.doing(|| format!("forget the address {address}"))?;
            }
        }
        Ok(())
    }

    pub(crate) fn set_rules(&mut self, tables: &[Table]) -> Result<(), BridgeError> {
        self.nft.replace(tables).doing(|| "write packet rules".to_owned())
    }

    pub(crate) fn add_elements(&mut self, sets: &[Set]) -> Result<(), BridgeError> {
        self.nft.add(Family::Ip, sets).doing(|| "add addresses to packet rules".to_owned())
    }

    /// Removes everything. If a machine is still connected, all stays as it is: the rules hold without us.
    pub(crate) fn close(&mut self) {
        match self.links.all() {
            Ok(links) if links.iter().any(|link| is_ours(link) && link.carrier) => {
                tracing::warn!(bridge = self.name, "machines are still connected: the bridge stays");
            }
            Ok(links) => {
                for tap in links.iter().filter(|link| is_ours(link)) {
                    if let Err(error) = self.links.remove(tap.index) {
                        tracing::warn!(device = tap.name, %error, "a port of the bridge is left");
                    }
                }
                self.remove_bridge();
            }
            Err(error) => tracing::warn!(bridge = self.name, %error, "the bridge is left"),
        }
    }

    fn remove_bridge(&mut self) {
        if let Err(error) = self.nft.remove() {
            tracing::warn!(%error, "packet rules are left");
        }
        if let Err(error) = self.links.remove(self.bridge) {
            tracing::warn!(bridge = self.name, %error, "the bridge is left");
        }
    }

    fn find(&mut self, tap: &str) -> Result<Option<Link>, BridgeError> {
        self.links.find(tap).doing(|| "list links".to_owned())
    }
}

fn make(links: &mut Links, name: &str) -> Result<u32, BridgeError> {
    links.make_bridge(name, GATEWAY_MAC).doing(|| format!("make the bridge {name}"))?;
    let made = links.find(name).doing(|| "list links".to_owned())?;
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    made.map(|link| link.index).ok_or_else(missing).doing(|| format!("find {name}"))
}

fn is_ours(link: &Link) -> bool {
    link.kind.as_deref() == Some("tun") && link.name.starts_with(tap::PREFIX)
}

/// Keeps the kernel from speaking IPv6 by an interface, if it knows how to.
fn without_ipv6(interface: &str) -> Result<(), BridgeError> {
    match setting(&["ipv6", "conf", interface, "disable_ipv6"], "1") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing(|| format!("switch IPv6 off on {interface}"))
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
    setting(path, value).doing(|| format!("set net.{} to {value}", path.join(".")))
}
