//! The command line of one VM, as a pure function of its settings.
//!
//! A template can only be restored into a VM that is built like the one that saved it. So everything that defines the
//! virtual hardware (board, CPU, memory, devices and their order) depends on [`Shape`] and the host alone; two VMs of
//! one shape differ only in paths, names and descriptors.
//!
//! Options with paths use QEMU's JSON form, because in the older `key=value,...` form a comma would end a value. Files
//! that a hostile QEMU must not be able to choose are passed as open descriptors.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use agentiso_core::ids::WorkspaceId;
use agentiso_core::resources::Resources;
use agentiso_vm::Card;
use serde_json::{Value, json};

use super::ram;
use super::version::QemuVersion;
use crate::accelerator::Chosen;
use crate::qmp::node_name;

/// The disk's device name, by which QEMU is asked for the node that it writes to.
pub(crate) const DISK_DEVICE: &str = "disk0";

/// The port the guest agent looks for.
pub(crate) const AGENT_PORT: &str = "agentiso";

/// QEMU's name for the agent's socket.
pub(crate) const AGENT_CHARDEV: &str = "agent";

/// The start of every VM's `-name`; with the run directory it distinguishes our processes from others.
pub const NAME_PREFIX: &str = "agentiso-";

/// The network card's address in every VM, until the agent gives the guest its own: a template's device state would
/// restore the address it was saved with anyway.
const PLACEHOLDER_MAC: &str = "02:00:00:00:00:01";

/// The largest packet. No physical wire limits it, and a small packet costs an emulated guest as much work as a large
/// one.
pub const MTU: u16 = 65_000;

/// Translated code kept per VM, in MiB. The default is a quarter of the host's memory; the commands of an agent fit
/// into this, and only the used part is touched.
const TRANSLATION_CACHE_MB: u32 = 128;

/// The guest's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub vcpus: u32,
    pub memory_mb: u32,
}

impl From<Resources> for Shape {
    fn from(resources: Resources) -> Self {
        Self { vcpus: resources.vcpus, memory_mb: resources.memory_mb }
    }
}

/// The backing of the guest's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Anonymous: a VM that boots for itself.
    Private,
    /// Written to a file that becomes a template.
    Recorded(PathBuf),
    /// A template's file, mapped copy-on-write: pages that no VM has changed are in the host's memory once.
    Template(PathBuf),
}

/// A file that QEMU is given open, because it cannot open it itself. QEMU knows it as a set of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub set: u64,
    pub fd: RawFd,
}

impl Given {
    /// The path under which QEMU opens it.
    fn path(self) -> String {
        set_path(self.set)
    }
}

/// The path under which QEMU opens a file of a descriptor set.
pub(crate) fn set_path(set: u64) -> String {
    format!("/dev/fdset/{set}")
}

/// A layer of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub file: PathBuf,
    pub given: Given,
}

/// The way in which the VM starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    Boot,
    /// Waits for device state, and then for `cont`.
    Restore,
}

/// Everything that the command line is made of.
#[derive(Clone, Debug)]
pub struct Vm<'a> {
    pub qemu: QemuVersion,
    pub accelerator: Chosen,
    pub id: WorkspaceId,
    pub shape: Shape,
    pub memory: Memory,
    pub begin: Begin,
    pub kernel: &'a Path,
    pub initrd: &'a Path,
    pub kernel_args: &'a str,
    /// From the head down to the image. Empty: an empty placeholder, so that the device exists and can be given any
    /// disk after a restore.
    pub layers: &'a [Layer],
    pub run_dir: &'a Path,
    pub card: &'a Card,
    /// The opened device of [`Card::Tap`], or a connection to [`Card::Socket`] for a QEMU that may not connect itself.
    pub card_fd: Option<RawFd>,
    /// The host's opened KVM device. `None`: QEMU opens it itself, if it uses it.
    pub kvm: Option<Given>,
    /// Whether the guest may run VMs itself and use performance counters.
    pub nested: bool,
    /// Listening sockets that QEMU inherits: clients can connect before QEMU serves them.
    pub qmp_fd: RawFd,
    pub agent_fd: RawFd,
    pub console_fd: RawFd,
}

/// The file whose path in the command line shows the run directory of the VM.
pub(crate) fn pid_file(run_dir: &Path) -> PathBuf {
    run_dir.join("qemu.pid")
}

pub fn argv(vm: &Vm<'_>) -> Vec<OsString> {
    let mut args = Args::default();
    args.option("-name", format!("{NAME_PREFIX}{}", vm.id));
    args.option("-pidfile", pid_file(vm.run_dir));
    // Only the devices named below: no default devices, no configuration of the user, no window.
    args.flag("-nodefaults").flag("-no-user-config").option("-display", "none");
    // A guest that resets itself ends: the agent's shutdown and a kernel panic both arrive as a reset.
    args.flag("-no-reboot");
    args.option("-msg", "timestamp=on");
    // QEMU filters its own system calls: no new programs, no privileges, no changes of priority.
    args.option("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    given(&mut args, vm);
    board(&mut args, vm);
    if vm.begin == Begin::Boot {
        // A restored guest has both in its memory; QEMU would only hold them once more.
        args.option("-kernel", vm.kernel).option("-initrd", vm.initrd);
        args.option("-append", vm.kernel_args);
    }
    devices(&mut args, vm);
    args.option("-chardev", format!("socket,id=qmp,fd={},server=on,wait=off", vm.qmp_fd));
    args.option("-mon", "chardev=qmp,mode=control");
    if vm.begin == Begin::Restore {
        // `-S`: the guest runs only after `cont`, whatever state the template was saved in.
        args.flag("-S").option("-incoming", "defer");
    }
    args.0
}

/// The descriptors that QEMU inherits. The note on each describes it, for a later lookup.
fn given(args: &mut Args, vm: &Vm<'_>) {
    let mut give = |given: Given, note: &str| {
        args.option("-add-fd", format!("set={},fd={},opaque={note}", given.set, given.fd));
    };
    if let Some(kvm) = vm.kvm {
        give(kvm, "kvm");
    }
    for (depth, layer) in vm.layers.iter().enumerate() {
        give(layer.given, &layer_note(&layer.file, depth == 0));
    }
}

/// The note on a layer that QEMU is given.
pub(crate) fn layer_note(layer: &Path, writable: bool) -> String {
    let name = layer.file_name().unwrap_or_default().to_string_lossy();
    // Layer names are generated by us and contain no comma.
    format!("{}:{name}", if writable { "rw" } else { "ro" })
}

/// Board, processor and memory.
fn board(args: &mut Args, vm: &Vm<'_>) {
    // `acpi=on`: Debian's kernel finds virtio-mmio devices through ACPI. Timers and interrupt controllers keep
    // their defaults: without `pit` and `pic` an emulated guest hangs. The rest keeps guest memory out of core
    // dumps, and out of the host's page merging, through which guests could observe each other.
    args.option("-machine", "microvm,acpi=on,rtc=on,memory-backend=mem,dump-guest-core=off,mem-merge=off");
    match vm.accelerator {
        Chosen::Kvm => {
            let device = vm.kvm.map(|kvm| format!(",device={}", kvm.path())).unwrap_or_default();
            args.option("-accel", format!("kvm{device}"));
            args.option("-cpu", format!("host{}", withheld_features(vm.nested)))
        }
        // `thread=single`: with one thread per processor, one may run code that another has just changed. The kernel
        // changes its own code while it runs; on a busy host one in a hundred boots then panics or hangs.
        Chosen::Tcg => args
            .option("-accel", format!("tcg,thread=single,tb-size={TRANSLATION_CACHE_MB}"))
            .option("-cpu", format!("max{}", withheld_features(vm.nested))),
    };
    args.option("-smp", vm.shape.vcpus.to_string());
    args.option("-m", ram::option(vm.shape.memory_mb));
    let size = ram::bytes(vm.shape.memory_mb);
    let memory = match &vm.memory {
        Memory::Private => json!({"qom-type": "memory-backend-ram", "id": "mem", "size": size}),
        Memory::Recorded(file) => json!({
            "qom-type": "memory-backend-file", "id": "mem", "size": size, "mem-path": text(file), "share": true,
        }),
        // Opened read-only and mapped privately, writable in this process alone: no VM can damage a template.
        Memory::Template(file) => json!({
            "qom-type": "memory-backend-file", "id": "mem", "size": size, "mem-path": text(file), "share": false,
            "readonly": true, "rom": "off",
        }),
    };
    args.json("-object", memory);
}

/// Processor features that guests do not get: virtualization of their own, and performance counters, which could show
/// other activity of the host. QEMU accepts the name of a feature that the processor does not have.
fn withheld_features(nested: bool) -> &'static str {
    if nested { "" } else { ",vmx=off,svm=off,pmu=off" }
}

/// The devices. Their order determines their addresses, so it must stay the same.
fn devices(args: &mut Args, vm: &Vm<'_>) {
    // A socket instead of a file: output while no client is connected is discarded, so that no guest can fill the
    // host's disk.
    args.option("-chardev", format!("socket,id=console,fd={},server=on,wait=off", vm.console_fd));
    args.option("-serial", "chardev:console");

    args.json("-device", json!({"driver": "virtio-serial-device", "max_ports": 2}));
    args.option("-chardev", format!("socket,id={AGENT_CHARDEV},fd={},server=on,wait=off", vm.agent_fd));
    args.json(
        "-device",
        json!({"driver": "virtserialport", "nr": 1, "chardev": AGENT_CHARDEV, "name": AGENT_PORT}),
    );

    let (node, disk) = disk(vm.layers);
    args.json("-blockdev", disk);
    args.json("-device", json!({"driver": "virtio-blk-device", "id": DISK_DEVICE, "drive": node}));

    args.json("-netdev", netdev(vm));
    // No announcement after a restore: it would carry the address of the VM that was saved.
    args.json(
        "-device",
        json!({
            "driver": "virtio-net-device", "netdev": "net0", "mac": PLACEHOLDER_MAC, "guest_announce": false,
            "host_mtu": MTU,
        }),
    );
}

/// The host's side of the network card. The guest's view must not depend on it, or a template could not be restored.
fn netdev(vm: &Vm<'_>) -> Value {
    match vm.card {
        Card::Socket(_) if let Some(fd) = vm.card_fd => json!({
            "type": "stream", "id": "net0", "server": false, "addr": {"type": "fd", "str": fd.to_string()},
        }),
        Card::Socket(path) => {
            // Nothing has to listen yet: until then packets are dropped.
            let mut netdev = json!({
                "type": "stream", "id": "net0", "server": false,
                "addr": {"type": "unix", "path": text(path)},
            });
            // The interval in milliseconds came with QEMU 9.2, which deprecates the one in seconds.
            match vm.qemu >= (QemuVersion { major: 9, minor: 2 }) {
                true => netdev["reconnect-ms"] = json!(1000),
                false => netdev["reconnect"] = json!(1),
            }
            netdev
        }
        // Configured by its creator. Without the offload header, which a socket does not have either.
        Card::Tap(_) => json!({
            "type": "tap", "id": "net0", "fd": vm.card_fd.map(|fd| fd.to_string()),
        }),
    }
}

/// A writable qcow2 file as a node of QEMU's block layer. `backing` is the node below, in QEMU's form.
pub(crate) fn qcow2_node(name: &str, set: u64, backing: Value) -> Value {
    json!({
        "driver": "qcow2", "node-name": name,
        // Space that the guest deletes or overwrites with zeroes is returned to the host.
        "discard": "unmap", "detect-zeroes": "unmap",
        // The host's page cache is used, and a flush of the guest reaches the disk.
        "cache": {"direct": false, "no-flush": false},
        "file": {"driver": "file", "node-name": file_node(name), "filename": set_path(set), "discard": "unmap",
                 "cache": {"direct": false, "no-flush": false}},
        // Never the backing file from the header, which a hostile QEMU could have written.
        "backing": backing,
    })
}

/// A frozen layer.
pub(crate) fn frozen_node(name: &str, set: u64, backing: Value) -> Value {
    // The file node has no `read-only` option and follows this node: QEMU (10.0) makes both writable when it merges the
    // layer below, and aborts if it cannot.
    json!({
        "driver": "qcow2", "node-name": name, "read-only": true, "backing": backing,
        "file": {"driver": "file", "node-name": file_node(name), "filename": set_path(set)},
    })
}

/// The file node below a qcow2 node; the file that grows on the host.
pub(crate) fn file_node(name: &str) -> String {
    format!("{name}-file")
}

/// The disk's node name and options.
fn disk(layers: &[Layer]) -> (String, Value) {
    let Some((head, frozen)) = layers.split_first() else {
        let node = "disk".to_owned();
        let disk = json!({"driver": "null-co", "node-name": node, "size": 64 << 20, "read-zeroes": true});
        return (node, disk);
    };
    let below = frozen
        .iter()
        .rev()
        .fold(Value::Null, |below, layer| frozen_node(&node_name(&layer.file), layer.given.set, below));
    let node = node_name(&head.file);
    let disk = qcow2_node(&node, head.given.set, below);
    (node, disk)
}

/// Paths come from our own directories, which the configuration requires to be UTF-8 where it is written in TOML; an
/// invalid byte is replaced, and QEMU then reports the file that it cannot open.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
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
