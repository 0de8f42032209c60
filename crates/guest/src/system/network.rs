//! Configures the network device: its MAC address, its IP address, its route.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::error::{Step as _, SystemError};
use super::modules;
use super::uevent::wait_for;

/// The time that the device gets to appear once its driver is loaded.
const DEVICE_DEADLINE: Duration = Duration::from_secs(10);

const DEVICES: &str = "/sys/class/net";
const LOOPBACK: &str = "lo";
const USUAL_NAME: &str = "eth0";
const ETHERNET: libc::sa_family_t = 1;

/// The addresses of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) mac: [u8; 6],
    pub(super) address: Ipv4Addr,
    pub(super) prefix: u32,
    pub(super) gateway: Ipv4Addr,
}

/// Configures the first network device and loads its driver if needed. Returns the device's name.
///
/// Settings that are already right are left alone: under emulation, every step runs code that a VM has to translate
/// first after a restore.
pub(super) fn configure(initramfs: BorrowedFd<'_>, addresses: &Addresses) -> Result<String, SystemError> {
    let name = find_device(initramfs)?;
    let device = Device::new(&name).step("opening a socket")?;
    let (is_up, mac, address) = device.state();
    if mac != addresses.mac {
        device.set_mac(addresses.mac).step("setting the hardware address")?;
    }
    if is_up && address == addresses.address {
        // The guest was restored to its own snapshot: its connections stay open.
        return Ok(name);
    }
    // Replacing an address removes the routes of the old one.
    device.set_address(libc::SIOCSIFADDR, addresses.address).step("setting the address")?;
    let mask = Ipv4Addr::from(u32::MAX.checked_shl(32 - addresses.prefix).unwrap_or(0));
    device.set_address(libc::SIOCSIFNETMASK, mask).step("setting the netmask")?;
    if !is_up {
        device.set_up(true).step("bringing the network device up")?;
    }
    device.add_default_route(addresses.gateway).step("setting the default route")?;
    Ok(name)
}

fn find_device(initramfs: BorrowedFd<'_>) -> Result<String, SystemError> {
    if let Some(name) = first_device() {
        return Ok(name);
    }
    modules::load(initramfs, "virtio_net")?;
    let name = wait_for(DEVICE_DEADLINE, first_device)
        .step("waiting for the network device")?
        .ok_or_else(|| SystemError::NoDevice { device: "a network device".into() })?;
    // IPv6 is not answered by the network. Without an IPv6 address, programs do not try it.
    match fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).step("disabling IPv6 on the network device")?;
        }
        Ok(()) | Err(_) => {}
    }
    Ok(name)
}

/// Brings the loopback device up; the kernel gives it its address.
pub(crate) fn loopback_up() -> Result<(), SystemError> {
    let device = Device::new(LOOPBACK).step("opening a socket")?;
    device.set_up(true).step("bringing the loopback device up")
}

/// The first device with hardware, whatever its name.
fn first_device() -> Option<String> {
    // The usual name is tried first, because that takes one call instead of listing a directory.
    if Device::new(USUAL_NAME).is_ok_and(|device| device.state().1 != [0; 6]) {
        return Some(USUAL_NAME.to_owned());
    }
    let mut names: Vec<String> = fs::read_dir(DEVICES)
        .ok()?
        .filter_map(Result::ok)
        .filter(|entry| Path::new(&entry.path()).join("device").exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names.into_iter().next()
}

struct Device {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Device {
    fn new(name: &str) -> io::Result<Self> {
        let mut bytes = [0; libc::IFNAMSIZ];
        // The last byte stays zero.
        for (target, byte) in bytes[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
            *target = byte as libc::c_char;
        }
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, name: bytes })
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: all fields are integers, arrays and pointers, for which zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request
    }

    fn ioctl<T>(&self, number: libc::Ioctl, argument: &mut T) -> io::Result<()> {
        // SAFETY: the callers pair each request with the structure that it reads and writes.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), number, std::ptr::from_mut(argument)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: the call above has set this field of the union.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        let bit = libc::IFF_UP as libc::c_short;
        request.ifr_ifru.ifru_flags = if up { flags | bit } else { flags & !bit };
        self.ioctl(libc::SIOCSIFFLAGS, &mut request)
    }

    /// Whether it is up, its MAC address and its IP address. Unknown values are zero.
    fn state(&self) -> (bool, [u8; 6], Ipv4Addr) {
        let ask = |number| {
            let mut request = self.request();
            // A request that fails leaves the zeroes.
            let _ = self.ioctl(number, &mut request);
            request
        };
        let requests = [libc::SIOCGIFFLAGS, libc::SIOCGIFHWADDR, libc::SIOCGIFADDR].map(ask);
        // SAFETY: all fields are integers and arrays; each was set by its call, or is zero.
        let (flags, mac, address) = unsafe {
            (
                requests[0].ifr_ifru.ifru_flags,
                requests[1].ifr_ifru.ifru_hwaddr.sa_data,
                requests[2].ifr_ifru.ifru_addr.sa_data,
            )
        };
        let byte = |data: &[libc::c_char], at: usize| data[at] as u8;
        let address = std::array::from_fn::<u8, 4, _>(|at| byte(&address, 2 + at));
        (
            flags & libc::IFF_UP as libc::c_short != 0,
            std::array::from_fn(|at| byte(&mac, at)),
            Ipv4Addr::from(address),
        )
    }

    fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        let mut data = [0; 14];
        for (target, byte) in data.iter_mut().zip(mac) {
            *target = byte as libc::c_char;
        }
        let mut request = self.request();
        request.ifr_ifru.ifru_hwaddr = libc::sockaddr { sa_family: ETHERNET, sa_data: data };
        self.ioctl(libc::SIOCSIFHWADDR, &mut request)
    }

    fn set_address(&self, number: libc::Ioctl, address: Ipv4Addr) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_addr = socket_address(address);
        self.ioctl(number, &mut request)
    }

    fn add_default_route(&self, gateway: Ipv4Addr) -> io::Result<()> {
        // SAFETY: all fields are integers, arrays and pointers, for which zero is valid.
        let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
        route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_gateway = socket_address(gateway);
        route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
        match self.ioctl(libc::SIOCADDRT, &mut route) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    // Two bytes of port, then the address in network order.
    for (target, byte) in data[2..].iter_mut().zip(address.octets()) {
        *target = byte as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}
