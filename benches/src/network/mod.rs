//! The network of a workspace, compared with QEMU's own network and with passt: the same VM with another cable.
//!
//! All VMs run at once and are measured in turns, so that other load of the host affects them alike. They connect to a
//! server of the benchmark at an address of the host; nothing leaves the host.

mod cable;
pub(crate) mod neighbour;
mod server;

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use agentiso_testkit::{Client, TestHost, TestWorkspace};
use anyhow::{Context, Result};
use serde_json::json;

use crate::figures::{Figures, Key, Measured};
use crate::setup::Setup;
use cable::Cable;
use server::Server;

/// The bytes of one transfer: enough for TCP windows to open, and not too slow under emulation.
const BYTES: u64 = 64 << 20;

/// The size of a small request, and of its answer.
const SMALL: usize = 64;

const GUEST: &str = include_str!("guest.py");

/// The measurements through one cable.
#[derive(Default)]
struct Measurements {
    down: Duration,
    up: Duration,
    echoes: Vec<Duration>,
    connects: Vec<Duration>,
}

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let Some(address) = own_address() else {
        return Ok(absent(&Cable::ALL, "the host has no address besides the loopback's"));
    };
    let server = Server::start(address)?;
    let (there, missing): (Vec<_>, Vec<_>) = Cable::ALL.into_iter().partition(|cable| cable.is_installed());
    let mut figures = absent(&missing, "not installed");
    let laid = there.iter().map(|cable| cable.prepare(setup)).collect::<Result<Vec<_>>>()?;
    let hosts: Vec<TestHost> = laid.iter().map(|laid| setup.host(&laid.config)).collect();
    let clients: Vec<Client> = hosts.iter().map(TestHost::client).collect();
    let reached = json!({"network_policy": {"allow_cidrs": [format!("{address}:{}", server.port())]}});
    let workspaces: Vec<_> = clients.iter().map(|client| client.workspace_with(reached.clone())).collect();
    for workspace in &workspaces {
        workspace.write("/root/net.py", GUEST);
    }
    let mut taken: Vec<Measurements> = there.iter().map(|_| Measurements::default()).collect();
    // The first round is a warm-up: translated code, windows, caches.
    for round in 0..=setup.runs.transfers {
        for (workspace, taken) in workspaces.iter().zip(&mut taken) {
            let one = once(&server, workspace, setup)?;
            if round > 0 {
                taken.down += one.down;
                taken.up += one.up;
                taken.echoes.extend(one.echoes);
                taken.connects.extend(one.connects);
            }
        }
    }
    workspaces.into_iter().for_each(TestWorkspace::destroy);
    let carried = BYTES * setup.runs.transfers as u64;
    for (cable, taken) in there.iter().zip(taken) {
        let [down, up, echo, connect] = cable.keys();
        figures.set(down, Measured::transfer(carried, taken.down));
        figures.set(up, Measured::transfer(carried, taken.up));
        figures.set(echo, Measured::times(taken.echoes));
        figures.set(connect, Measured::times(taken.connects));
    }
    Ok(figures)
}

/// One round of measurements through one cable.
fn once(server: &Server, workspace: &TestWorkspace<'_>, setup: &Setup) -> Result<Measurements> {
    let run = |what: &str, amount: u64| {
        let command = format!("python3 /root/net.py {what} {} {} {amount}", server.address(), server.port());
        workspace.sh(&command)
    };
    run("down", BYTES);
    let down = server.time()?;
    run("up", BYTES);
    let up = server.time()?;
    run("echo", setup.runs.round_trips as u64);
    let echoes = server.times()?;
    let connected = run("connect", setup.runs.connections as u64);
    let micros: Vec<u64> = serde_json::from_str(&connected).context("the guest's times")?;
    Ok(Measurements { down, up, echoes, connects: micros.into_iter().map(Duration::from_micros).collect() })
}

fn absent(cables: &[Cable], why: &str) -> Figures {
    absent_keys(cables.iter().flat_map(|cable| cable.keys()), why)
}

fn absent_keys(keys: impl IntoIterator<Item = Key>, why: &str) -> Figures {
    let mut figures = Figures::default();
    for key in keys {
        figures.set(key, Measured::Absent(why.to_owned()));
    }
    figures
}

/// The address from which the host would connect to others. Connecting a UDP socket sends nothing.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}
