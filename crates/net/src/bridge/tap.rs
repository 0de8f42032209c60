//! Creates TAP devices, the host's end of a VM's network card. They outlive the process that made them, so that a VM
//! and a daemon can each come and go.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;

use agentiso_core::ids::WorkspaceId;
use rustix::ioctl::{IntegerSetter, Setter, ioctl};

/// Prefix of the names of all our TAP devices.
pub(crate) const PREFIX: &str = "aiso";

/// `TUNSETIFF` and `TUNSETPERSIST`.
const SET_INTERFACE: rustix::ioctl::Opcode = 0x4004_54ca;
const SET_PERSISTENT: rustix::ioctl::Opcode = 0x4004_54cb;

/// `IFF_TAP | IFF_NO_PI`: frames without an additional header.
const FRAMES: u16 = 0x1002;

/// The size of `struct ifreq`, and of the name in it.
const REQUEST: usize = 40;
const NAME: usize = 16;

/// The name of a workspace's device: 12 of the 15 characters that a name may have.
pub fn tap_name(id: &WorkspaceId) -> String {
    format!("{PREFIX}{}", id.short())
}

/// Creates a device that stays when we close it.
pub(crate) fn make(name: &str) -> io::Result<()> {
    let device = open(name)?;
    // SAFETY: the kernel takes the number itself, not a pointer.
    unsafe { ioctl(device.as_fd(), IntegerSetter::<SET_PERSISTENT>::new_usize(1)) }?;
    Ok(())
}

/// Opens the device of this name, or creates one that disappears with the file.
fn open(name: &str) -> io::Result<File> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = [0_u8; REQUEST];
    // The last byte of the name stays zero.
    for (target, byte) in request[..NAME - 1].iter_mut().zip(name.bytes()) {
        *target = byte;
    }
    request[NAME..NAME + 2].copy_from_slice(&FRAMES.to_ne_bytes());
    // SAFETY: the kernel reads a `struct ifreq`, which is as long as this.
    unsafe { ioctl(device.as_fd(), Setter::<SET_INTERFACE, _>::new(request)) }?;
    Ok(device)
}
