//! Checks the host for the bridge network.

use std::fs;
use std::path::{Path, PathBuf};

use agentiso_core::config::{Backend, NetworkConfig};
use agentiso_daemon::LogLack;

use super::report::Outcome;

const NAME: &str = "bridge";

/// Checks the host for the bridge; `None` if the bridge is not configured.
pub(super) fn bridge(config: &NetworkConfig) -> Option<Outcome> {
    match config.backend.chosen() {
        Backend::Gateway => None,
        Backend::Bridge => Some(examine(config)),
    }
}

fn examine(config: &NetworkConfig) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Outcome::failed(NAME, "network.backend = \"bridge\" needs root", "set it to \"auto\"");
    }
    if !Path::new("/dev/net/tun").exists() {
        return Outcome::failed(NAME, "/dev/net/tun does not exist", "modprobe tun");
    }
    let uplink = fs::read_to_string("/proc/net/route").ok().and_then(|table| default_route(&table));
    match uplink.filter(|uplink| !forwards(uplink)) {
        None => match agentiso_daemon::try_flow_log() {
            Ok(()) => Outcome::ok(NAME, format!("{} with {}", config.bridge_name, config.gateway_ip)),
            Err(lack @ LogLack::Counts(_)) => Outcome::note(
                NAME,
                lack.to_string(),
                "use a kernel with NF_TABLES_INET and NFT_LOG, or set network.backend to \"gateway\"",
            ),
            Err(lack @ LogLack::Connections(_)) => {
                Outcome::note(NAME, lack.to_string(), "modprobe nf_conntrack_netlink")
            }
        },
        Some(uplink) => Outcome::note(
            NAME,
            format!("forwarding is off for {uplink}, so workspaces get no UDP replies; TCP and DNS work"),
            format!("sysctl -w net.ipv4.conf.{uplink}.forwarding=1"),
        ),
    }
}

/// The interface of the host's default route.
fn default_route(table: &str) -> Option<String> {
    let mut columns = table.lines().skip(1).map(|line| line.split_whitespace());
    columns.find_map(|mut columns| {
        let (interface, target) = (columns.next()?, columns.next()?);
        (target == "00000000").then(|| interface.to_owned())
    })
}

/// Whether the interface forwards incoming packets.
fn forwards(interface: &str) -> bool {
    let path: PathBuf = ["/proc/sys/net/ipv4/conf", interface, "forwarding"].iter().collect();
    fs::read_to_string(path).is_ok_and(|value| value.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_route_is_read_from_route_table() {
        let table = "Iface\tDestination\tGateway\neth1\t0000A8C0\t00000000\neth0\t00000000\t0101A8C0\n";
        assert_eq!(default_route(table).as_deref(), Some("eth0"));
        assert_eq!(default_route("Iface\n\nx\n"), None);
    }
}
