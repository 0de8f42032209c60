//! The effect of a workspace that floods the network on its neighbour: small requests beside an idle workspace, one
//! that computes, and one that sends as many datagrams as it can.
//!
//! A neighbour that computes uses as much CPU as one that floods. The additional delay of the flood is caused by the
//! network.

use std::net::UdpSocket;
use std::time::Duration;

use agentiso_testkit::{TestWorkspace, eventually};
use anyhow::{Context, Result};
use serde_json::json;

use super::server::Server;
use super::{GUEST, absent_keys, own_address};
use crate::figures::{Figures, Key, Measured};
use crate::setup::Setup;

/// The time limit of the neighbour's load. It is longer than any measurement, so the load ends even if it is not
/// stopped.
const LIMIT_SECS: u32 = 600;

/// The time for the neighbour to start its load.
const STARTED: Duration = Duration::from_secs(30);

/// The load of the neighbour, and the figure for it.
const MEANWHILE: [(Option<&str>, Key); 3] = [
    (None, Key::NeighbourRests),
    (Some("compute"), Key::NeighbourComputes),
    (Some("flood"), Key::NeighbourFloods),
];

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let Some(address) = own_address() else {
        let keys = MEANWHILE.map(|(_, key)| key);
        return Ok(absent_keys(keys, "the host has no address besides the loopback's"));
    };
    let server = Server::start(address)?;
    // Datagrams arrive at a socket that is never read, so that receiving them costs the host as little as possible.
    let _sink = UdpSocket::bind((address, server.port())).context("listening for datagrams")?;
    let host = setup.host("");
    let client = host.client();
    let reached = json!({"network_policy": {"allow_cidrs": [format!("{address}:{}", server.port())]}});
    let (one, neighbour) = (client.workspace_with(reached.clone()), client.workspace_with(reached));
    for workspace in [&one, &neighbour] {
        workspace.write("/root/net.py", GUEST);
    }
    let mut taken = MEANWHILE.map(|_| Vec::new());
    // The first round is a warm-up.
    for round in 0..=setup.runs.transfers {
        for ((what, _), taken) in MEANWHILE.iter().zip(&mut taken) {
            let busy = what.map(|what| Busy::start(&neighbour, &server, what)).transpose()?;
            let times = echoes(&server, &one, setup)?;
            if let Some(busy) = busy {
                busy.end();
            }
            if round > 0 {
                taken.extend(times);
            }
        }
    }
    [one, neighbour].into_iter().for_each(TestWorkspace::destroy);
    let mut figures = Figures::default();
    for ((_, key), taken) in MEANWHILE.into_iter().zip(taken) {
        figures.set(key, Measured::times(taken));
    }
    Ok(figures)
}

fn command(server: &Server, what: &str, amount: u64) -> String {
    format!("python3 /root/net.py {what} {} {} {amount}", server.address(), server.port())
}

fn echoes(server: &Server, workspace: &TestWorkspace<'_>, setup: &Setup) -> Result<Vec<Duration>> {
    workspace.sh(&command(server, "echo", setup.runs.round_trips as u64));
    server.times()
}

/// A neighbour with a running load.
struct Busy<'a> {
    neighbour: &'a TestWorkspace<'a>,
    job: i64,
}

impl<'a> Busy<'a> {
    fn start(neighbour: &'a TestWorkspace<'a>, server: &Server, what: &str) -> Result<Self> {
        let command = command(server, what, LIMIT_SECS.into());
        let started =
            neighbour.tool("exec_background", json!({"action": "start", "command": command})).json();
        let job = started["job_id"].as_i64().context("the neighbour's job has no id")?;
        // Waits for the load, because the interpreter takes longer to start than the measurement takes.
        let is_busy = || {
            let poll = json!({"action": "poll", "job_id": job});
            neighbour.tool("exec_background", poll).json()["stdout"].as_str() == Some("busy\n")
        };
        eventually("the neighbour is busy", STARTED, is_busy);
        Ok(Self { neighbour, job })
    }

    fn end(self) {
        self.neighbour.tool("exec_background", json!({"action": "kill", "job_id": self.job}));
    }
}
