//! Faults that tests inject: at named steps the process can abort, as in a crash or power cut, or pause while the test
//! acts on a VM; named writes can fail; and the kind of jail can be chosen.
//!
//! Without the feature `fault-injection`, the calls do nothing.

/// The steps of operations on one VM. The daemon has steps of its own.
pub const POINTS: [&str; 8] = [
    "snapshot.noted",
    "snapshot.pivoted",
    "snapshot.resumed",
    "snapshot.converting",
    "snapshot.converted",
    "restore.switched",
    "delete.merging",
    "delete.merged",
];

/// The writes that can be made to fail.
pub const WRITES: [&str; 7] =
    ["ledger.write", "ledger.sync", "files.write", "files.sync", "transfer.sync", "mail.write", "mail.sync"];

/// The environment variable that names the step.
pub const VARIABLE: &str = "AGENTISO_FAULT";

/// The environment variable that names a socket. If it is set, the process does not abort at the step: it connects,
/// sends the step's name, and continues when the other side hangs up.
pub const SOCKET: &str = "AGENTISO_FAULT_SOCKET";

/// The environment variable that names a file. The file is read at every step and write, so that a test can choose the
/// next fault while the process runs. It contains `die STEP`, `hold STEP SOCKET`, `ENOSPC WRITE` or `EIO WRITE`, and
/// is removed before the fault happens. The socket of `hold` works like that of [`SOCKET`].
pub const FILE: &str = "AGENTISO_FAULT_FILE";

/// The environment variable that names the only kind of jail for VMs, so that a test can use a weaker one than the
/// host supports.
pub const JAIL: &str = "AGENTISO_FAULT_JAIL";

/// The limit for `hold`. A test that takes longer has forgotten the process.
#[cfg(feature = "fault-injection")]
const HELD_AT_MOST: std::time::Duration = std::time::Duration::from_secs(120);

#[cfg(feature = "fault-injection")]
pub(crate) fn allows_jail(kind: &str) -> bool {
    std::env::var_os(JAIL).is_none_or(|wanted| wanted == kind)
}

#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub(crate) fn allows_jail(_kind: &str) -> bool {
    true
}

pub fn point(name: &str) {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list of fault points");
    reached(name);
}

/// Marks a step of the process.
#[cfg(feature = "fault-injection")]
pub fn reached(name: &str) {
    match take_order(&["die", "hold"], name) {
        None => {}
        Some(("hold", socket)) => return hold(name, std::path::Path::new(&socket)),
        Some(_) => std::process::abort(),
    }
    if std::env::var_os(VARIABLE).is_none_or(|wanted| wanted != name) {
        return;
    }
    match std::env::var_os(SOCKET) {
        None => std::process::abort(),
        Some(socket) => hold(name, std::path::Path::new(&socket)),
    }
}

/// Marks a write. Returns an error if a test ordered one.
#[cfg(feature = "fault-injection")]
pub fn write(name: &str) -> std::io::Result<()> {
    debug_assert!(WRITES.contains(&name), "{name} is not in the list of writes");
    let error = match take_order(&["ENOSPC", "EIO"], name) {
        None => return Ok(()),
        Some(("ENOSPC", _)) => rustix::io::Errno::NOSPC,
        Some(_) => rustix::io::Errno::IO,
    };
    Err(error.into())
}

/// The fault that the file orders for this step or write, and the rest of its text. Removing the file claims the
/// order, so it is carried out only once.
#[cfg(feature = "fault-injection")]
fn take_order<'a>(faults: &[&'a str], place: &str) -> Option<(&'a str, String)> {
    take_order_from(std::path::Path::new(&std::env::var_os(FILE)?), faults, place)
}

#[cfg(feature = "fault-injection")]
fn take_order_from<'a>(file: &std::path::Path, faults: &[&'a str], place: &str) -> Option<(&'a str, String)> {
    let text = std::fs::read_to_string(file).ok()?;
    let (fault, rest) = text.trim().split_once(' ')?;
    let (wanted, more) = rest.split_once(' ').unwrap_or((rest, ""));
    let fault = faults.iter().find(|known| **known == fault)?;
    (wanted == place && std::fs::remove_file(file).is_ok()).then(|| (*fault, more.to_owned()))
}

/// Waits until the test hangs up or ends. If no test listens, continue.
#[cfg(feature = "fault-injection")]
fn hold(name: &str, socket: &std::path::Path) {
    use std::io::{Read as _, Write as _};
    let Ok(mut test) = std::os::unix::net::UnixStream::connect(socket) else { return };
    let said = test
        .set_read_timeout(Some(HELD_AT_MOST))
        .and_then(|()| test.write_all(name.as_bytes()))
        .and_then(|()| test.shutdown(std::net::Shutdown::Write));
    if said.is_ok() {
        let _ended_or_reset = test.read_to_end(&mut Vec::new());
    }
}

#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub fn reached(_name: &str) {}

#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub fn write(_name: &str) -> std::io::Result<()> {
    Ok(())
}

#[cfg(all(test, feature = "fault-injection"))]
mod tests {
    use super::*;

    #[test]
    fn fault_file_strikes_once_at_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fault");
        std::fs::write(&file, "ENOSPC ledger.write\n").unwrap();
        let struck =
            |faults: &[&'static str], place| take_order_from(&file, faults, place).map(|(fault, _)| fault);
        assert_eq!(struck(&["ENOSPC", "EIO"], "files.write"), None, "another place");
        assert_eq!(struck(&["die"], "ledger.write"), None, "another fault");
        assert_eq!(struck(&["ENOSPC", "EIO"], "ledger.write"), Some("ENOSPC"));
        assert_eq!(struck(&["ENOSPC", "EIO"], "ledger.write"), None, "it is over");
    }

    #[test]
    fn held_process_goes_on_after_the_hang_up() {
        use std::io::Read as _;
        let dir = tempfile::tempdir().unwrap();
        let (file, socket) = (dir.path().join("fault"), dir.path().join("held by it"));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::write(&file, format!("hold stop.halted {}", socket.display())).unwrap();
        let (fault, at) = take_order_from(&file, &["die", "hold"], "stop.halted").unwrap();
        assert_eq!((fault, at.as_str()), ("hold", socket.to_str().unwrap()));
        let held = || {
            let at = at.clone();
            std::thread::spawn(move || hold("stop.halted", std::path::Path::new(&at)))
        };
        let process = held();
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "stop.halted");
        assert!(!process.is_finished());
        drop(stream);
        process.join().unwrap();
        // The connection is never accepted, and ends with the listener.
        let process = held();
        drop(listener);
        process.join().unwrap();
    }
}
