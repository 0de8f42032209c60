//! The command line of one machine, as a pure function of what it should be.
//!
//! A template can only be restored into the machine that saved it. So everything that makes the machine (board,
//! CPU, memory, devices and their order) depends on [`Shape`] and the host alone; what differs between two
//! machines of one shape is paths, names and descriptors.
//!
//! Options with paths use QEMU's JSON form where there is one; in the older `key=value,...` form a comma in a
//! value is doubled.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use agentiso_core::ids::WorkspaceId;
use serde_json::{Value, json};

use super::version::QemuVersion;
use crate::accelerator::Chosen;
use crate::qmp::node_name;

/// The disk's name on the machine, by which QEMU is asked what it writes to.
pub const DISK_DEVICE: &str = "disk0";

/// The port the guest agent looks for.
pub const AGENT_PORT: &str = "agentiso";

/// The agent's socket, as QEMU calls it.
pub const AGENT_CHARDEV: &str = "agent";

/// The start of every machine's `-name`; with the run directory it tells our processes from others.
pub const NAME_PREFIX: &str = "agentiso-";

/// The network card's address in every machine, until the agent gives the guest its own: a template's device
/// state would bring back the one it was saved with anyway.
const PLACEHOLDER_MAC: &str = "02:00:00:00:00:01";

/// The largest packet. There is no wire that would have to carry it, and every packet costs an emulated guest as much
/// work as a large one.
pub const MTU: u16 = 65_000;

/// Translated code kept per machine, in MiB. The default is a quarter of the host's memory; what an agent's
/// commands need fits into this, and it is only touched as far as it is used.
const TRANSLATION_CACHE_MB: u32 = 128;

/// What the guest sees of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub vcpus: u32,
    pub memory_mb: u32,
}

/// Where the guest's memory lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Anonymous: a machine that boots for itself.
    Private,
    /// Written to a file that becomes a template.
    Recorded(PathBuf),
    /// A template's file, mapped copy-on-write: what no machine has changed is in the host's memory once.
    Template(PathBuf),
}

/// What the network card is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Card {
    /// A socket on which the gateway listens, now or later.
    Socket(PathBuf),
    /// A TAP device that is there already.
    Tap(String),
}

/// How the machine begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    Boot,
    /// Wait for device state, and then for `cont`.
    Restore,
}

/// Everything the command line is made of.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    pub qemu: QemuVersion,
    pub accelerator: Chosen,
    pub id: WorkspaceId,
    pub shape: Shape,
    pub memory: Memory,
    pub begin: Begin,
    pub kernel: &'a Path,
    pub initrd: &'a Path,
    pub kernel_args: &'a str,
    /// `None`: an empty placeholder, so that the device exists and can be given any disk after a restore.
    pub disk: Option<&'a Path>,
    pub run_dir: &'a Path,
    pub card: &'a Card,
    pub console_log: &'a Path,
    /// Listening sockets that QEMU inherits: clients can connect before it serves them.
    pub qmp_fd: RawFd,
    pub agent_fd: RawFd,
}

/// The file whose path in the command line says which run directory the machine belongs to.
pub fn pid_file(run_dir: &Path) -> PathBuf {
    run_dir.join("qemu.pid")
}

pub fn argv(machine: &Machine<'_>) -> Vec<OsString> {
    let mut args = Args::default();
    args.option("-name", format!("{NAME_PREFIX}{}", machine.id));
    args.option("-pidfile", pid_file(machine.run_dir));
    // Nothing but what is named below: no default devices, no configuration of the user, no window.
    args.flag("-nodefaults").flag("-no-user-config").option("-display", "none");
    // A guest that resets itself ends: the agent's shutdown and a kernel panic both arrive as a reset.
    args.flag("-no-reboot");
    args.option("-msg", "timestamp=on");
    // QEMU filters its own system calls: no new programs, no privileges, no changes of priority.
    args.option("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    board(&mut args, machine);
    if machine.begin == Begin::Boot {
        // A guest that is restored has both in its memory; QEMU would only hold them in its own once more.
        args.option("-kernel", machine.kernel).option("-initrd", machine.initrd);
        args.option("-append", machine.kernel_args);
    }
    devices(&mut args, machine);
    args.option("-chardev", format!("socket,id=qmp,fd={},server=on,wait=off", machine.qmp_fd));
    args.option("-mon", "chardev=qmp,mode=control");
    if machine.begin == Begin::Restore {
        // `-S`: whatever state the template was saved in, the guest runs when we say so.
        args.flag("-S").option("-incoming", "defer");
    }
    args.0
}

/// Board, processor and memory.
fn board(args: &mut Args, machine: &Machine<'_>) {
    // `acpi=on`: Debian's kernel finds virtio-mmio devices through ACPI. Timers and interrupt controllers keep
    // their defaults: without `pit` and `pic` an emulated guest hangs. The rest keeps guest memory out of core
    // dumps, and out of the host's page merging, through which guests could observe each other.
    args.option("-machine", "microvm,acpi=on,rtc=on,memory-backend=mem,dump-guest-core=off,mem-merge=off");
    match machine.accelerator {
        Chosen::Kvm => args.option("-accel", "kvm").option("-cpu", "host"),
        // `thread=single`: with a thread for each processor, one may go on to run code that another has just changed.
        // The kernel changes its own while it runs; on a busy host every hundredth boot then ends in a panic, or never.
        Chosen::Tcg => args
            .option("-accel", format!("tcg,thread=single,tb-size={TRANSLATION_CACHE_MB}"))
            .option("-cpu", "max"),
    };
    args.option("-smp", machine.shape.vcpus.to_string());
    args.option("-m", format!("{}M", machine.shape.memory_mb));
    let size = u64::from(machine.shape.memory_mb) << 20;
    let memory = match &machine.memory {
        Memory::Private => json!({"qom-type": "memory-backend-ram", "id": "mem", "size": size}),
        Memory::Recorded(file) => json!({
            "qom-type": "memory-backend-file", "id": "mem", "size": size, "mem-path": text(file), "share": true,
        }),
        // Opened read-only, mapped privately, writable in this process alone: no machine can harm a template.
        Memory::Template(file) => json!({
            "qom-type": "memory-backend-file", "id": "mem", "size": size, "mem-path": text(file), "share": false,
            "readonly": true, "rom": "off",
        }),
    };
    args.json("-object", memory);
}

/// Devices. Their order gives them their addresses, so it is part of the machine.
fn devices(args: &mut Args, machine: &Machine<'_>) {
    // Appended, so that the log of a machine that was started again keeps what came before.
    args.option("-chardev", format!("file,id=console,path={},append=on", doubled(machine.console_log)));
    args.option("-serial", "chardev:console");

    args.json("-device", json!({"driver": "virtio-serial-device", "max_ports": 2}));
    args.option("-chardev", format!("socket,id={AGENT_CHARDEV},fd={},server=on,wait=off", machine.agent_fd));
    args.json(
        "-device",
        json!({"driver": "virtserialport", "nr": 1, "chardev": AGENT_CHARDEV, "name": AGENT_PORT}),
    );

    let (node, disk) = disk(machine.disk);
    args.json("-blockdev", disk);
    args.json("-device", json!({"driver": "virtio-blk-device", "id": DISK_DEVICE, "drive": node}));

    args.json("-netdev", netdev(machine));
    // Without the announcement after a restore: it would go out under the address of the machine that was saved.
    args.json(
        "-device",
        json!({
            "driver": "virtio-net-device", "netdev": "net0", "mac": PLACEHOLDER_MAC, "guest_announce": false,
            "host_mtu": MTU,
        }),
    );
}

/// The host's side of the network card. What the guest sees of it must not depend on it, or a template could not be
/// restored.
fn netdev(machine: &Machine<'_>) -> Value {
    match machine.card {
        Card::Socket(path) => {
            // Nobody has to listen there: until somebody does, packets go nowhere.
            let mut netdev = json!({
                "type": "stream", "id": "net0", "server": false,
                "addr": {"type": "unix", "path": text(path)},
            });
            // The interval in milliseconds came with QEMU 9.2, which deprecates the one in seconds.
            match machine.qemu >= (QemuVersion { major: 9, minor: 2 }) {
                true => netdev["reconnect-ms"] = json!(1000),
                false => netdev["reconnect"] = json!(1),
            }
            netdev
        }
        // Configured by who made it. Without the header for offloads, which a socket does not have either.
        Card::Tap(name) => json!({
            "type": "tap", "id": "net0", "ifname": name, "script": "no", "downscript": "no", "vnet_hdr": false,
        }),
    }
}

/// A qcow2 file as a node of QEMU's block layer.
pub(crate) fn qcow2_node(name: &str, file: &Path) -> Value {
    json!({
        "driver": "qcow2", "node-name": name,
        // What the guest deletes, or overwrites with zeroes, is given back to the host.
        "discard": "unmap", "detect-zeroes": "unmap",
        // The host's page cache is used, and a flush of the guest reaches the disk.
        "cache": {"direct": false, "no-flush": false},
        "file": {"driver": "file", "node-name": file_node(name), "filename": text(file), "discard": "unmap",
                 "cache": {"direct": false, "no-flush": false}},
    })
}

/// The node of the file below a qcow2 node: what grows on the host.
pub(crate) fn file_node(name: &str) -> String {
    format!("{name}-file")
}

/// The disk, and the node's name.
fn disk(file: Option<&Path>) -> (String, Value) {
    match file {
        Some(file) => (node_name(file), qcow2_node(&node_name(file), file)),
        None => {
            let node = "disk".to_owned();
            let disk = json!({"driver": "null-co", "node-name": node, "size": 64 << 20, "read-zeroes": true});
            (node, disk)
        }
    }
}

/// Paths come from our own directories, which the configuration requires to be UTF-8 where it is written in
/// TOML; a byte that is not is replaced, and QEMU then says which file it cannot open.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A value inside QEMU's `key=value,...` syntax.
fn doubled(path: &Path) -> String {
    text(path).replace(',', ",,")
}

#[derive(Default)]
struct Args(Vec<OsString>);

impl Args {
    fn flag(&mut self, flag: &str) -> &mut Self {
        self.0.push(flag.into());
        self
    }

    fn option(&mut self, flag: &str, value: impl Into<OsString>) -> &mut Self {
        self.0.push(flag.into());
        self.0.push(value.into());
        self
    }

    fn json(&mut self, flag: &str, value: Value) -> &mut Self {
        self.option(flag, value.to_string())
    }
}

#[cfg(test)]
mod tests;
