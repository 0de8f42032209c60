//! The network connection of a workspace's card. QEMU is started through a script that replaces its network argument,
//! so that everything else is the same as in agentiso.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{getgid, getuid};
use serde_json::{Value, json};

use crate::figures::Key;
use crate::program::{self, Running};
use crate::setup::Setup;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cable {
    /// agentiso's gateway.
    Gateway,
    /// `-netdev user` with the guest's addresses and no other options.
    Slirp,
    /// passt with its largest packet size.
    Passt,
}

/// A prepared cable: lines for the configuration, and the process that it needs.
pub(super) struct PreparedCable {
    pub(super) config: String,
    _running: Option<Running>,
}

/// Replaces the network of the card by NETDEV, and its MTU.
const SCRIPT: &str = r#"#!/bin/sh
for word do
  shift
  case "$word" in
    *'"type":"stream"'*) word='NETDEV' ;;
    *'"virtio-net-device"'*) word=$(printf %s "$word" | sed 'HOST_MTU') ;;
  esac
  set -- "$@" "$word"
done
exec QEMU "$@"
"#;

/// The time in which passt must listen.
const PASST_LIMIT: Duration = Duration::from_secs(10);

impl Cable {
    pub(super) const ALL: [Self; 3] = [Self::Gateway, Self::Slirp, Self::Passt];

    pub(super) fn keys(self) -> [Key; 4] {
        match self {
            Self::Gateway => [Key::NetDown, Key::NetUp, Key::NetEcho, Key::NetConnect],
            Self::Slirp => [Key::SlirpDown, Key::SlirpUp, Key::SlirpEcho, Key::SlirpConnect],
            Self::Passt => [Key::PasstDown, Key::PasstUp, Key::PasstEcho, Key::PasstConnect],
        }
    }

    /// Whether the cable is available. Not every QEMU is built with its own network.
    pub(super) fn is_installed(self) -> bool {
        match self {
            Self::Gateway => true,
            Self::Slirp => qemu().is_some_and(|qemu| has_user_network(&qemu)),
            Self::Passt => program::find("passt").is_some(),
        }
    }

    /// Prepares the cable. Templates are off, so that all VMs start alike.
    pub(super) fn prepare(self, setup: &Setup) -> Result<PreparedCable> {
        let config = "[vm]\ntemplates = false\n".to_owned();
        match self {
            Self::Gateway => Ok(PreparedCable { config, _running: None }),
            Self::Slirp => {
                // Its MTU is the usual one, whatever the card's option says.
                let usual = r#"s/,"host_mtu":[0-9]*//; s/"host_mtu":[0-9]*,//"#;
                let netdev =
                    json!({"type": "user", "id": "net0", "net": "10.42.0.0/16", "host": "10.42.0.1"});
                let qemu = exchanged(&setup.dir.join("qemu-slirp"), &netdev, usual)?;
                Ok(PreparedCable { config: config + &qemu, _running: None })
            }
            Self::Passt => {
                let socket = setup.dir.join("passt.sock");
                let running = passt(&socket)?;
                let largest = r#"s/"host_mtu":[0-9]*/"host_mtu":65520/"#;
                let address = json!({"type": "unix", "path": socket});
                let netdev = json!({"type": "stream", "id": "net0", "server": false, "addr": address});
                let qemu = exchanged(&setup.dir.join("qemu-passt"), &netdev, largest)?;
                Ok(PreparedCable { config: config + &qemu, _running: Some(running) })
            }
        }
    }
}

/// The configuration line for a QEMU with another network.
fn exchanged(path: &Path, netdev: &Value, host_mtu: &str) -> Result<String> {
    let qemu = qemu().context("there is no QEMU")?;
    let script = SCRIPT.replace("NETDEV", &netdev.to_string()).replace("HOST_MTU", host_mtu);
    let script = script.replace("QEMU", &qemu.display().to_string());
    fs::write(path, script).with_context(|| format!("writing {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).context("making it a program")?;
    Ok(format!("qemu_binary = \"{}\"\n", path.display()))
}

/// Starts passt as the user of the benchmark, who owns the socket's directory.
fn passt(socket: &Path) -> Result<Running> {
    let user = format!("{}:{}", getuid().as_raw(), getgid().as_raw());
    let child = Command::new("passt")
        .args(["--foreground", "--quiet", "--ipv4-only", "--runas", &user, "--mtu", "65520"])
        .args(["--address", "10.42.0.2", "--netmask", "16", "--gateway", "10.42.0.1", "--socket"])
        .arg(socket)
        .stdin(Stdio::null())
        // It prints how to start QEMU, which is not needed.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("passt could not be started")?;
    let running = Running(child);
    agentiso_testkit::eventually("passt listens", PASST_LIMIT, || socket.exists());
    Ok(running)
}

fn qemu() -> Option<PathBuf> {
    program::find("qemu-system-x86_64")
}

fn has_user_network(qemu: &Path) -> bool {
    let help = Command::new(qemu).args(["-netdev", "help"]).output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).lines().any(|line| line.trim() == "user"))
}
