//! The identity of a VM as its own kernel and files show it: its names and its network settings.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use agentiso_core::address::format_mac;
use agentiso_vm::{Identity, NetworkIdentity};

use super::guest::Guest;
use super::verdict::Finding;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedIdentity {
    /// The kernel's host name.
    hostname: String,
    /// `/etc/hostname`
    name_file: String,
    /// The names of the VM itself in `/etc/hosts`.
    own_names: Vec<String>,
    machine_id: String,
    /// The addresses of all devices with hardware behind them.
    macs: Vec<String>,
    /// Local addresses, without those of the loopback device.
    addresses: BTreeSet<Ipv4Addr>,
    /// Gateways of default routes.
    gateways: Vec<Ipv4Addr>,
    /// Prefix lengths of the subnets that are reached without a gateway.
    prefixes: Vec<u8>,
    nameservers: Vec<String>,
}

impl ObservedIdentity {
    /// Needs no network tools in the image, because the kernel's own tables suffice.
    pub(super) async fn read(guest: Guest<'_>) -> Result<Self, Finding> {
        let [hostname, name_file, hosts, machine_id, macs, trie, routes, resolver] = guest
            .ask([
                "cat /proc/sys/kernel/hostname",
                "cat /etc/hostname",
                "cat /etc/hosts",
                "cat /etc/machine-id",
                "for d in /sys/class/net/*; do if [ -e $d/device ]; then cat $d/address; fi; done",
                "cat /proc/net/fib_trie",
                "cat /proc/net/route",
                "cat /etc/resolv.conf",
            ])
            .await?;
        let routes = routes_of(&routes);
        Ok(Self {
            hostname,
            name_file,
            own_names: own_names(&hosts),
            machine_id,
            macs: macs.lines().map(str::to_owned).collect(),
            addresses: local_addresses(&trie),
            gateways: routes.iter().filter(|r| r.mask == 0).map(|r| r.gateway).collect(),
            prefixes: routes.iter().filter(|r| r.gateway.is_unspecified()).map(Route::prefix).collect(),
            nameservers: nameservers(&resolver),
        })
    }

    /// Checks that its names are the promised ones.
    pub(super) fn names_match(&self, promised: &Identity) -> Result<(), Finding> {
        let name = &promised.hostname;
        expect("the host name", &self.hostname, name)?;
        expect("/etc/hostname", &self.name_file, name)?;
        expect("its name in /etc/hosts", &self.own_names, &vec![name.clone()])?;
        expect("/etc/machine-id", &self.machine_id, &promised.machine_id)
    }

    /// Checks that its network settings are the promised ones.
    pub(super) fn network_matches(&self, promised: &NetworkIdentity) -> Result<(), Finding> {
        let dns: Vec<_> = promised.dns.iter().map(Ipv4Addr::to_string).collect();
        expect("the hardware address", &self.macs, &vec![format_mac(promised.mac)])?;
        expect("the address", &self.addresses, &BTreeSet::from([promised.address]))?;
        expect("the default route", &self.gateways, &vec![promised.gateway])?;
        expect("the subnet's prefix", &self.prefixes, &vec![promised.prefix])?;
        expect("the name servers in /etc/resolv.conf", &self.nameservers, &dns)
    }

    /// Checks that another VM has other names.
    pub(super) fn names_differ(&self, other: &Self) -> Result<(), Finding> {
        differ("the host name", &self.hostname, &other.hostname)?;
        differ("/etc/hostname", &self.name_file, &other.name_file)?;
        differ("the machine id", &self.machine_id, &other.machine_id)
    }

    /// Checks that another VM has other addresses.
    pub(super) fn network_differs(&self, other: &Self) -> Result<(), Finding> {
        differ("the hardware address", &self.macs, &other.macs)?;
        differ("the address", &self.addresses, &other.addresses)
    }

    /// Checks that nothing has changed.
    pub(super) fn is_unchanged_from(&self, earlier: &Self) -> Result<(), Finding> {
        if self == earlier {
            return Ok(());
        }
        Err(Finding::wrong(format!("its identity changed from {earlier:?} to {self:?}")))
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Result<(), Finding> {
    if found == wanted {
        return Ok(());
    }
    Err(Finding::wrong(format!("{what} is {found:?} instead of {wanted:?}")))
}

fn differ<T: PartialEq + std::fmt::Debug>(what: &str, one: &T, other: &T) -> Result<(), Finding> {
    if one != other {
        return Ok(());
    }
    Err(Finding::wrong(format!("another VM also has {what} {one:?}")))
}

/// Debian lists a host's own name under this address.
fn own_names(hosts: &str) -> Vec<String> {
    let words = hosts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| words.first() == Some(&"127.0.1.1"))
        .flat_map(|w| w[1..].to_vec())
        .map(str::to_owned)
        .collect()
}

/// The addresses that `/proc/net/fib_trie` calls local. The type is on the line after the address.
fn local_addresses(trie: &str) -> BTreeSet<Ipv4Addr> {
    let mut found = BTreeSet::new();
    let mut latest = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            latest = address.parse::<Ipv4Addr>().ok();
        } else if line.starts_with("/32 host LOCAL") {
            found.extend(latest.filter(|address| !address.is_loopback()));
        }
    }
    found
}

struct Route {
    gateway: Ipv4Addr,
    mask: u32,
}

impl Route {
    fn prefix(&self) -> u8 {
        self.mask.count_ones() as u8
    }
}

/// The valid rows of `/proc/net/route`. Addresses are in the processor's byte order.
fn routes_of(table: &str) -> Vec<Route> {
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::from_be);
    let row = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let gateway = number(fields.get(2)?)?.into();
        Some(Route { gateway, mask: number(fields.get(7)?)? })
    };
    table.lines().skip(1).filter_map(row).collect()
}

fn nameservers(resolver: &str) -> Vec<String> {
    let lines = resolver.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.map(|rest| rest.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.42.0.0/16 2 0 2
        |-- 10.42.0.0
           /16 link UNICAST
        |-- 10.42.0.9
           /32 host LOCAL
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
Local:
        |-- 10.42.0.9
           /32 host LOCAL
        |-- 10.42.255.255
           /32 link BROADCAST
";
    const ROUTES: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t01002A0A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t00002A0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
";

    fn observed() -> ObservedIdentity {
        let routes = routes_of(ROUTES);
        ObservedIdentity {
            hostname: "a".to_owned(),
            name_file: "a".to_owned(),
            own_names: own_names("127.0.0.1\tlocalhost\n127.0.1.1\ta\n"),
            machine_id: "0a".repeat(16),
            macs: vec!["02:00:00:00:00:09".to_owned()],
            addresses: local_addresses(TRIE),
            gateways: routes.iter().filter(|r| r.mask == 0).map(|r| r.gateway).collect(),
            prefixes: routes.iter().filter(|r| r.gateway.is_unspecified()).map(Route::prefix).collect(),
            nameservers: nameservers("# x\nnameserver 10.42.0.1\n"),
        }
    }

    fn promised() -> NetworkIdentity {
        NetworkIdentity {
            mac: [2, 0, 0, 0, 0, 9],
            address: Ipv4Addr::new(10, 42, 0, 9),
            prefix: 16,
            gateway: Ipv4Addr::new(10, 42, 0, 1),
            dns: vec![Ipv4Addr::new(10, 42, 0, 1)],
        }
    }

    #[test]
    fn promised_network_is_read_from_kernel_tables() {
        observed().network_matches(&promised()).unwrap();
    }

    #[test]
    fn every_network_deviation_is_found() {
        let changes: [fn(&mut ObservedIdentity); 6] = [
            |p| p.macs = vec!["02:00:00:00:00:01".to_owned()],
            // The parent's address besides its own.
            |p| p.addresses.extend([Ipv4Addr::new(10, 42, 0, 2)]),
            |p| p.gateways.clear(),
            |p| p.gateways.push(Ipv4Addr::new(169, 254, 0, 1)),
            |p| p.prefixes = vec![24],
            |p| p.nameservers.push("169.254.0.1".to_owned()),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut changed = observed();
            change(&mut changed);
            assert!(changed.network_matches(&promised()).is_err(), "change {at}");
            assert!(changed.is_unchanged_from(&observed()).is_err(), "change {at}");
        }
        observed().is_unchanged_from(&observed()).unwrap();
    }

    #[test]
    fn wrong_or_shared_vm_names_are_found() {
        let identity =
            Identity { hostname: "a".to_owned(), machine_id: "0a".repeat(16), network: Some(promised()) };
        observed().names_match(&identity).unwrap();
        assert!(observed().names_differ(&observed()).is_err());
        assert!(observed().network_differs(&observed()).is_err());
        let changes: [fn(&mut ObservedIdentity); 4] = [
            |p| p.hostname = "template".to_owned(),
            |p| p.name_file = "template".to_owned(),
            |p| p.own_names = Vec::new(),
            |p| p.machine_id = "0".repeat(31) + "1",
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut changed = observed();
            change(&mut changed);
            assert!(changed.names_match(&identity).is_err(), "change {at}");
        }
    }
}
