//! Named steps at which a test can have the process die, as a crash or a power cut would, or stand still while the test
//! does something to a machine.
//!
//! Without the feature `fault-injection` the calls are empty.

/// The steps within what is done to one machine. Those between are the daemon's.
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

/// The variable that names the step.
pub const VARIABLE: &str = "AGENTISO_FAULT";

/// The variable that names a socket. With it the process does not die at the step: it connects, says which step it is
/// at, and goes on when the other side hangs up.
pub const SOCKET: &str = "AGENTISO_FAULT_SOCKET";

pub(crate) fn point(name: &str) {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list of fault points");
    reached(name);
}

/// The process has come to a step.
#[cfg(feature = "fault-injection")]
pub fn reached(name: &str) {
    if std::env::var_os(VARIABLE).is_none_or(|wanted| wanted != name) {
        return;
    }
    match std::env::var_os(SOCKET) {
        None => std::process::abort(),
        Some(socket) => hold(name, std::path::Path::new(&socket)),
    }
}

/// Nobody who listens is nobody who wants to be waited for: a step that is passed once more does not stop.
#[cfg(feature = "fault-injection")]
fn hold(name: &str, socket: &std::path::Path) {
    use std::io::{Read as _, Write as _};
    let Ok(mut test) = std::os::unix::net::UnixStream::connect(socket) else { return };
    let said = test.write_all(name.as_bytes()).and_then(|()| test.shutdown(std::net::Shutdown::Write));
    if said.is_ok() {
        let _ended_or_reset = test.read_to_end(&mut Vec::new());
    }
}

#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub fn reached(_name: &str) {}
