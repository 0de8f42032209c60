//! Whether this kernel can do what the log needs of it, tried out without changing anything.

use std::io;
use std::net::Ipv4Addr;

use agentiso_core::network::Network;
use thiserror::Error;

use super::GROUP;
use super::conntrack::Connections;
use crate::bridge::nft::Nftables;
use crate::bridge::render::{Ground, flows};
use crate::bridge::{refusals, tap};

/// What the log of connections has to do without.
#[derive(Debug, Error)]
pub enum LogLack {
    #[error(
        "the kernel cannot count in packet rules ({0}), so UDP and what passes between workspaces is in the log when it is refused only"
    )]
    Counts(#[source] io::Error),
    #[error(
        "the kernel's table of connections is out of reach ({0}), so those of a machine that ends stay in it for a while"
    )]
    Connections(#[source] io::Error),
}

/// Has the kernel look at the rules that count, without making them, and asks it for a connection that there is not.
pub fn try_flow_log() -> Result<(), LogLack> {
    let ground = Ground {
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
    let mut table = flows::table(&ground);
    let share = flows::share(&ground, "trial", Ipv4Addr::LOCALHOST);
    table.sets.extend(share.table.sets);
    table.chains.extend(share.table.chains);
    Nftables::open().and_then(|mut nft| nft.try_out(&table)).map_err(LogLack::Counts)?;
    Connections::open().and_then(|mut connections| connections.try_out()).map_err(LogLack::Connections)
}
