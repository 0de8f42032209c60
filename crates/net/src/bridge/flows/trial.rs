//! Tests whether this kernel supports what the flow log needs, without changing anything.

use std::io;
use std::net::Ipv4Addr;

use agentiso_core::network::Network;
use thiserror::Error;

use super::GROUP;
use super::conntrack::Connections;
use crate::bridge::nft::Nftables;
use crate::bridge::render::{BridgeLayout, flows};
use crate::bridge::{refusals, tap};

/// Kernel support that is missing for the flow log.
#[derive(Debug, Error)]
pub enum LogLack {
    #[error(
        "the kernel cannot count in packet rules ({0}), so the log shows UDP and traffic between workspaces only when it is refused"
    )]
    Counts(#[source] io::Error),
    #[error(
        "cannot access the kernel's connection table ({0}), so connections of a VM that ended stay in it for a while"
    )]
    Connections(#[source] io::Error),
}

/// Lets the kernel check the rules that count without applying them, and asks it for a connection that does not exist.
pub fn try_flow_log() -> Result<(), LogLack> {
    let layout = BridgeLayout {
        bridge: "br-agentiso".to_owned(),
        gateway: Ipv4Addr::LOCALHOST,
        subnet: Network::around(Ipv4Addr::LOCALHOST, 32),
        tap_prefix: tap::PREFIX,
        relay_port: 0,
        names_port: 0,
        names_tcp_port: 0,
        services: Vec::new(),
        log_group: refusals::GROUP,
        flows_group: GROUP,
    };
    let mut table = flows::table(&layout);
    let share = flows::share(&layout, "trial", Ipv4Addr::LOCALHOST);
    table.sets.extend(share.table.sets);
    table.chains.extend(share.table.chains);
    Nftables::open().and_then(|mut nft| nft.try_out(&table)).map_err(LogLack::Counts)?;
    Connections::open().and_then(|mut connections| connections.try_out()).map_err(LogLack::Connections)
}
