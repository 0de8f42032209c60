//! Waits for devices. The kernel announces each new device, so polling is not needed.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The group of announcements that come from the kernel itself.
const KERNEL_GROUP: u32 = 1;

/// Calls `look` at the beginning and after each announcement of the kernel, until it finds something or the time is up.
pub fn wait_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> io::Result<Option<T>> {
    if let Some(found) = look() {
        return Ok(Some(found));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(KOBJECT_UEVENT))?;
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
    let deadline = Instant::now() + limit;
    loop {
        // Called again after the socket is bound, so that no device is missed in between.
        if let Some(found) = look() {
            return Ok(Some(found));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The content of announcements does not matter.
        let mut message = [0_u8; 4096];
        while recv(&socket, &mut message, RecvFlags::empty()).is_ok() {}
    }
}
