//! Prepares the files of a QEMU: opened ones that it inherits, and the jail that shows it the others.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use agentiso_sys::files::{self, FileError};
use agentiso_sys::jail::{Cell, Jail, View, give_to, make_readable, uid_of};
use agentiso_vm::Card;

use super::error::BootError;
use super::launch::{Host, Start};
use super::layers;
use crate::accelerator::Chosen;
use crate::qemu::argv::{Begin, Given, Layer, Memory};
use crate::qemu::tap;

const KVM_SET: u64 = 1;

const KVM: &str = "/dev/kvm";

pub(super) struct Equipment {
    pub(super) layers: Vec<Layer>,
    pub(super) kvm: Option<Given>,
    /// The connection of the network card, if QEMU cannot make it itself.
    pub(super) card: Option<OwnedFd>,
    /// All descriptors that QEMU inherits.
    pub(super) opened: Vec<OwnedFd>,
    pub(super) cell: Cell,
}

impl Equipment {
    pub(super) fn new(host: &Host, start: &Start) -> Result<Self, BootError> {
        let (layers, mut opened) = layers::open(&start.layers)?;
        let mut give = |set: u64, file: File| {
            let given = Given { set, fd: file.as_raw_fd() };
            opened.push(file.into());
            given
        };
        let kvm = match host.accelerator {
            Chosen::Tcg => None,
            Chosen::Kvm => {
                let device = Path::new(KVM);
                let opened = File::options().read(true).write(true).open(device);
                Some(give(KVM_SET, opened.map_err(FileError::at("open", device))?))
            }
        };
        let card = match &start.card {
            Some(Card::Tap(name)) => {
                Some(tap::open(name).map_err(FileError::at("open the device", Path::new(name)))?)
            }
            // If nothing listens, the VM starts without a network.
            Some(Card::Socket(path)) if host.jail == Jail::Landlock => {
                UnixStream::connect(path).ok().map(OwnedFd::from)
            }
            Some(Card::Socket(_)) | None => None,
        };
        let cell = cell(host, start)?;
        Ok(Self { layers, kvm, card, opened, cell })
    }
}

/// The jail with the files that QEMU opens by name.
fn cell(host: &Host, start: &Start) -> Result<Cell, FileError> {
    let uid = uid_of(start.id);
    let mut cell = Cell::new(host.jail, uid, &host.qemu.path).scratch(&start.run_dir);
    if start.begin == Begin::Boot {
        cell = cell.show(&host.kernel, View::ReadOnly).show(&host.initrd, View::ReadOnly);
    }
    match &start.memory {
        Memory::Private => {}
        Memory::Template(ram) => {
            make_readable(host.jail, ram)?;
            cell = cell.show(ram, View::ReadOnly);
        }
        Memory::Recorded(ram) => {
            let made = File::options().write(true).create(true).truncate(false).mode(0o600).open(ram);
            made.map_err(FileError::at("create", ram))?;
            give_to(host.jail, uid, ram)?;
            cell = cell.show(ram, View::Writable);
        }
    }
    if let Some(Card::Socket(socket)) = &start.card
        && let Some(dir) = socket.parent()
    {
        // Every daemon makes the socket anew. The directory stays and contains nothing else.
        files::make_private_dir(dir)?;
        give_to(host.jail, uid, dir)?;
        cell = cell.show(dir, View::ReadOnly);
    }
    Ok(cell)
}
