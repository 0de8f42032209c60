//! Opens a VM's TAP device for a QEMU that has neither the right to do so nor the device in its network namespace.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::ioctl::{Setter, ioctl};

/// `TUNSETIFF`.
const SET_INTERFACE: rustix::ioctl::Opcode = 0x4004_54ca;

/// `IFF_TAP | IFF_NO_PI`: frames without a header of the driver.
const FRAMES: u16 = 0x1002;

/// The size of `struct ifreq`, and of the name in it.
const REQUEST: usize = 40;
const NAME: usize = 16;

/// Opens the existing device of this name.
pub(crate) fn open(name: &str) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = [0_u8; REQUEST];
    // The last byte of the name stays zero.
    for (target, byte) in request[..NAME - 1].iter_mut().zip(name.bytes()) {
        *target = byte;
    }
    request[NAME..NAME + 2].copy_from_slice(&FRAMES.to_ne_bytes());
    // SAFETY: the kernel reads a `struct ifreq`, which is as long as this.
    unsafe { ioctl(device.as_fd(), Setter::<SET_INTERFACE, _>::new(request)) }?;
    Ok(device.into())
}
