//! Gives the guest its own identity after a boot or a restore: clock, random numbers, names, addresses.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use agentiso_protocol::limits;
use agentiso_protocol::link::NONCE_BYTES;
use agentiso_protocol::schema::v1;
use rustix::system::sethostname;
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use super::error::{Step as _, SystemError};
use super::names::{hosts, is_hostname, is_machine_id, resolv_conf};
use super::network::{self, Addresses};
use crate::files::replace_file;

/// Requests of the kernel's random number generator, from `linux/random.h`.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;

/// The least random bytes from which the generator is reseeded: 128 bits.
const MIN_STIRRED_BYTES: usize = 16;

const _: () = assert!(NONCE_BYTES >= MIN_STIRRED_BYTES, "a connection's name is enough");

const FILE_MODE: Option<u32> = Some(0o644);

/// A valid request.
#[derive(Debug)]
struct Checked<'a> {
    time: Timespec,
    entropy: &'a [u8],
    hostname: &'a str,
    machine_id: &'a str,
    network: Option<(Addresses, Vec<Ipv4Addr>)>,
}

/// Applies the whole request or returns an error. It may be repeated.
pub(super) fn identify(
    initramfs: BorrowedFd<'_>,
    request: &v1::IdentifyRequest,
) -> Result<v1::IdentifyResponse, SystemError> {
    let checked = check(request)?;
    // Random numbers come first, because all later steps may draw some.
    reseed(checked.entropy).step("reseeding the random number generator")?;
    clock_settime(ClockId::Realtime, checked.time).step("setting the clock")?;
    sethostname(checked.hostname.as_bytes()).step("setting the host name")?;
    write_if_changed("/etc/hostname", &format!("{}\n", checked.hostname))?;
    let current = fs::read_to_string("/etc/hosts").ok();
    write_if_changed("/etc/hosts", &hosts(current.as_deref(), checked.hostname))?;
    write_if_changed("/etc/machine-id", &format!("{}\n", checked.machine_id))?;
    let Some((addresses, dns)) = checked.network else {
        return Ok(v1::IdentifyResponse::default());
    };
    let interface = network::configure(initramfs, &addresses)?;
    write_resolv_conf(&resolv_conf(&dns))?;
    Ok(v1::IdentifyResponse { interface })
}

/// Mixes random bytes from the host into the random number generator as soon as it connects, well before `identify`, so
/// that VMs of one template differ. The bytes count with their full entropy. Fewer than [`MIN_STIRRED_BYTES`] could be
/// guessed and are ignored.
pub(super) fn stir(random: &[u8]) -> io::Result<()> {
    if random.len() < MIN_STIRRED_BYTES {
        return Ok(());
    }
    reseed(random)
}

/// Sets the clock to this time if it is behind, and returns by how much. The time was right when it was sent, so a
/// clock that is ahead of it may be right and is not changed.
pub(super) fn catch_up(realtime_ns: i64) -> Result<u64, SystemError> {
    let now = clock_gettime(ClockId::Realtime);
    let now_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    let behind = u64::try_from(i128::from(realtime_ns) - now_ns).unwrap_or(0);
    if behind > 0 {
        clock_settime(ClockId::Realtime, timespec(realtime_ns)).step("setting the clock")?;
    }
    Ok(behind)
}

fn timespec(realtime_ns: i64) -> Timespec {
    Timespec { tv_sec: realtime_ns / 1_000_000_000, tv_nsec: realtime_ns % 1_000_000_000 }
}

fn check(request: &v1::IdentifyRequest) -> Result<Checked<'_>, SystemError> {
    if request.realtime_ns <= 0 {
        return Err(SystemError::invalid("the time", request.realtime_ns.to_string()));
    }
    let entropy = &request.entropy[..];
    if !(limits::MIN_ENTROPY_BYTES..=limits::MAX_ENTROPY_BYTES).contains(&entropy.len()) {
        return Err(SystemError::invalid("the length of the entropy", entropy.len().to_string()));
    }
    if !is_hostname(&request.hostname) {
        return Err(SystemError::invalid("the host name", &request.hostname));
    }
    if !is_machine_id(&request.machine_id) {
        return Err(SystemError::invalid("the machine id", &request.machine_id));
    }
    Ok(Checked {
        time: timespec(request.realtime_ns),
        entropy,
        hostname: &request.hostname,
        machine_id: &request.machine_id,
        network: request.network.as_ref().map(check_network).transpose()?,
    })
}

fn check_network(network: &v1::Network) -> Result<(Addresses, Vec<Ipv4Addr>), SystemError> {
    let address = |what, text: &str| text.parse().map_err(|_| SystemError::invalid(what, text));
    let mac = <[u8; 6]>::try_from(&network.mac[..]).ok().filter(|mac| mac[0] & 1 == 0);
    if !(1..=32).contains(&network.prefix) {
        return Err(SystemError::invalid("the prefix", network.prefix.to_string()));
    }
    if network.dns.len() > limits::MAX_NAME_SERVERS {
        return Err(SystemError::invalid("the number of name servers", network.dns.len().to_string()));
    }
    let addresses = Addresses {
        mac: mac.ok_or_else(|| {
            SystemError::invalid("the hardware address", format!("{:02x?}", &network.mac[..]))
        })?,
        address: address("the address", &network.address)?,
        prefix: network.prefix,
        gateway: address("the gateway", &network.gateway)?,
    };
    let dns: Result<_, _> = network.dns.iter().map(|text| address("a name server", text)).collect();
    Ok((addresses, dns?))
}

/// Mixes bytes from the host into the kernel's entropy pool and reseeds the generator from it. Otherwise the VMs of one
/// template would draw the same numbers.
fn reseed(entropy: &[u8]) -> io::Result<()> {
    /// `struct rand_pool_info` with its buffer.
    #[repr(C)]
    struct PoolInfo {
        bits: libc::c_int,
        bytes: libc::c_int,
        buffer: [u8; limits::MAX_ENTROPY_BYTES],
    }
    let random = File::open("/dev/urandom")?;
    let bytes = entropy.len().min(limits::MAX_ENTROPY_BYTES);
    let mut info = PoolInfo { bits: (bytes * 8) as libc::c_int, bytes: bytes as libc::c_int, buffer: [0; _] };
    info.buffer[..bytes].copy_from_slice(&entropy[..bytes]);
    // SAFETY: the descriptor is open; RNDADDENTROPY reads two integers and as many bytes as the second one says,
    // which are all inside `info`. RNDRESEEDCRNG takes no argument.
    let results = unsafe {
        [
            libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, &raw const info),
            libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG),
        ]
    };
    if results.contains(&-1) { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes a file only if its content differs, so that a restore writes nothing to the disk without need. The file is
/// overwritten in place, which is much less work than replacing it. If the VM crashes meanwhile, the file is written
/// again at its next start.
fn write_if_changed(path: &str, content: &str) -> Result<(), SystemError> {
    let mut options = File::options();
    let opened = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let is_plain = |file: &File| file.metadata().is_ok_and(|found| found.is_file() && found.nlink() == 1);
    let Some(mut file) = opened.ok().filter(is_plain) else {
        return Ok(replace_file(Path::new(path), FILE_MODE, content.as_bytes())?);
    };
    let mut current = Vec::new();
    // One byte more than expected shows that the file is too long.
    let enough = content.len() as u64 + 1;
    Read::by_ref(&mut file).take(enough).read_to_end(&mut current).step("reading an identity file")?;
    if current != content.as_bytes() {
        file.write_all_at(content.as_bytes(), 0).step("writing an identity file")?;
    }
    if current.len() > content.len() {
        file.set_len(content.len() as u64).step("truncating an identity file")?;
    }
    Ok(())
}

/// Writes the resolver's file. A symbolic link is replaced, because a link into `/run` would point to nothing.
fn write_resolv_conf(content: &str) -> Result<(), SystemError> {
    const PATH: &str = "/etc/resolv.conf";
    if fs::symlink_metadata(PATH).is_ok_and(|found| found.is_symlink()) {
        fs::remove_file(PATH).step("replacing the link /etc/resolv.conf")?;
    }
    write_if_changed(PATH, content)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use agentiso_protocol::schema::v1;

    use super::{check, write_if_changed};

    fn request() -> v1::IdentifyRequest {
        v1::IdentifyRequest {
            realtime_ns: 1,
            entropy: vec![1; 64].into(),
            hostname: "ws".into(),
            machine_id: "ab".repeat(16),
            network: Some(v1::Network {
                mac: vec![2, 0, 0, 0, 0, 1].into(),
                address: "10.42.0.2".into(),
                prefix: 16,
                gateway: "10.42.0.1".into(),
                dns: vec!["10.42.0.1".into()],
            }),
        }
    }

    #[test]
    fn identify_request_parts_are_validated() {
        assert!(check(&request()).is_ok());
        let refused = |change: fn(&mut v1::IdentifyRequest)| {
            let mut request = request();
            change(&mut request);
            check(&request).expect_err("it is refused").to_string()
        };
        assert!(refused(|r| r.realtime_ns = 0).contains("the time"));
        assert!(refused(|r| r.entropy = vec![1; 63].into()).contains("entropy"));
        assert!(refused(|r| r.hostname = "a\nb".into()).contains("host name"));
        assert!(refused(|r| r.machine_id = "x".into()).contains("machine id"));
        let network = |change: fn(&mut v1::Network)| {
            let mut request = request();
            change(request.network.as_mut().expect("there is one"));
            check(&request).expect_err("it is refused").to_string()
        };
        assert!(network(|n| n.mac = vec![1; 6].into()).contains("hardware address"));
        assert!(network(|n| n.address = "::1".into()).contains("the address"));
        assert!(network(|n| n.prefix = 33).contains("prefix"));
        assert!(network(|n| n.gateway = "x".into()).contains("gateway"));
        assert!(network(|n| n.dns = vec!["1.1.1.1".into(); 4]).contains("name servers"));
    }

    #[test]
    fn write_if_changed_replaces_any_previous_content() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("hostname");
        let text = path.to_str().expect("a name");
        for before in [None, Some(""), Some("a\n"), Some("abc\n"), Some("abc\nd"), Some("a longer one\n")] {
            if let Some(before) = before {
                fs::write(&path, before).expect("written");
            }
            write_if_changed(text, "abc\n").expect("written");
            assert_eq!(fs::read_to_string(&path).expect("read"), "abc\n", "{before:?}");
        }
    }

    #[test]
    fn write_if_changed_spares_hard_linked_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let [path, other] = ["hostname", "other"].map(|name| dir.path().join(name));
        fs::write(&other, "mine\n").expect("written");
        fs::hard_link(&other, &path).expect("linked");
        write_if_changed(path.to_str().expect("a name"), "abc\n").expect("written");
        assert_eq!(fs::read_to_string(&other).expect("read"), "mine\n");
        fs::remove_file(&path).expect("removed");
        symlink("target", &path).expect("linked");
        write_if_changed(path.to_str().expect("a name"), "abc\n").expect("written");
        assert_eq!(fs::read_to_string(dir.path().join("target")).expect("read"), "abc\n");
    }
}
