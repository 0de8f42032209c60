//! Limits on what one VM may have open at once, and for how long.

use std::time::Duration;

/// Most queries of one VM that are answered at once.
pub(crate) const QUERIES: usize = 64;

/// Most forwards of one VM.
pub(crate) const FORWARDS: usize = 64;

/// Timeout for opening a connection.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Interval of keep-alive probes to a quiet guest.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10 * 60);

/// The same for a guest that has closed its side while its server is silent. A guest that is gone for good, and not
/// only listening, forgets the connection after a minute and answers the probe with a reset.
pub(crate) const ASKED_AT_THE_END: Duration = Duration::from_secs(15);

/// Timeout for a guest that sends nothing, not even an answer to keep-alive probes. Long, because a VM may be paused.
pub(crate) const IDLE: Duration = Duration::from_secs(2 * 60 * 60);

/// Idle time of an association, as in home routers. A program that needs more sends something.
pub(crate) const UDP_IDLE: Duration = Duration::from_secs(60);

/// Open files for the rest of the daemon: the ledger, images, clients, questions of the resolver.
const OTHER_FILES: usize = 1024;

/// Open files of a VM besides its connections: its sockets and pipes, and its forwards.
const FILES_PER_VM: usize = 32 + FORWARDS;

/// Sockets that a VM gets even if there are too few for all: few VMs use all of theirs.
const LEAST_SOCKETS: usize = 40;

/// Limits on what one VM may have open at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// TCP connections, inbound and outbound.
    pub flows: usize,
    /// TCP connections whose server has not answered yet.
    pub connecting: usize,
    /// Size of each buffer of a connection, while there are few connections. Many get smaller ones; see [`Budget`](super::budget::Budget).
    pub buffer: usize,
    pub associations: usize,
    /// Frames of the guest per second, however small. A guest that sends more has to wait.
    pub frames: u32,
}

impl Limits {
    pub const DEFAULT: Self =
        Self { flows: 1024, connecting: 128, buffer: 256 * 1024, associations: 256, frames: 50_000 };

    /// These limits, or lower ones if the process may open too few files for so many VMs: each connection and
    /// association has a socket, and one VM must not use up those of another, nor of anything else.
    #[must_use]
    pub fn within(self, open_files: usize, vms: usize) -> Self {
        let share = open_files.saturating_sub(OTHER_FILES) / vms.max(1);
        let sockets = share.saturating_sub(FILES_PER_VM).max(LEAST_SOCKETS);
        // One in five is an association, as in the default limits.
        let associations = self.associations.min(sockets / 5);
        Self { flows: self.flows.min(sockets - associations), associations, ..self }
    }
}

const _: () = assert!(KEEP_ALIVE.as_secs() * 2 < IDLE.as_secs());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_share_the_open_file_limit() {
        let within = |files, vms| {
            let limits = Limits::DEFAULT.within(files, vms);
            (limits.flows, limits.associations)
        };
        let all = (Limits::DEFAULT.flows, Limits::DEFAULT.associations);
        assert_eq!(within(1 << 20, 100), all);
        assert_eq!(within(20_000, 10), all);
        let (flows, associations) = within(20_000, 20);
        assert!(flows >= 512 && 20 * (flows + associations) < 20_000);
        assert_eq!(within(1024, 20), (32, 8));
        assert_eq!(within(0, 0), (32, 8));
    }
}
