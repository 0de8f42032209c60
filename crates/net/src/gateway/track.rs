//! Which connections between VMs were opened, and by whom: replies pass, everything else must be allowed to open.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use tokio::time::Instant;

use crate::rules::Transport;

/// Connections that one VM may have opened to others.
const LIMIT: usize = 4096;

/// How long a quiet connection is remembered.
const TCP_IDLE: Duration = Duration::from_secs(2 * 60 * 60);
const UDP_IDLE: Duration = Duration::from_secs(60);

/// After both ends have said goodbye.
const CLOSING: Duration = Duration::from_secs(30);

/// The whole table is looked through at most so often.
const SWEEP: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    pub(crate) opener: SocketAddrV4,
    pub(crate) target: SocketAddrV4,
}

/// What a packet means for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Data,
    End,
    Reset,
}

/// Who sent a packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Opener,
    Target,
}

/// The connections that one VM has opened.
#[derive(Debug)]
pub(crate) struct Tracks {
    connections: HashMap<Connection, Track>,
    swept: Instant,
}

#[derive(Debug)]
struct Track {
    expires: Instant,
    opener_ended: bool,
    target_ended: bool,
}

impl Tracks {
    pub(crate) fn new(now: Instant) -> Self {
        Self { connections: HashMap::new(), swept: now }
    }

    /// Whether there is such a connection. It is kept for a while longer, or ended.
    pub(crate) fn pass(&mut self, connection: &Connection, side: Side, sign: Sign, now: Instant) -> bool {
        let Some(track) = self.connections.get_mut(connection) else { return false };
        if track.expires <= now {
            self.connections.remove(connection);
            return false;
        }
        match (sign, side) {
            (Sign::Reset, _) => {
                self.connections.remove(connection);
                return true;
            }
            (Sign::End, Side::Opener) => track.opener_ended = true,
            (Sign::End, Side::Target) => track.target_ended = true,
            (Sign::Data, _) => {}
        }
        let closing = track.opener_ended && track.target_ended;
        track.expires = now + if closing { CLOSING } else { idle(connection.transport) };
        true
    }

    /// Remembers a connection; `false` if there are too many.
    pub(crate) fn open(&mut self, connection: Connection, now: Instant) -> bool {
        if self.connections.len() >= LIMIT && now - self.swept >= SWEEP {
            self.swept = now;
            self.connections.retain(|_, track| track.expires > now);
        }
        if self.connections.len() >= LIMIT {
            return false;
        }
        let expires = now + idle(connection.transport);
        self.connections.insert(connection, Track { expires, opener_ended: false, target_ended: false });
        true
    }

    /// A VM is gone: whoever has its address next is somebody else.
    pub(crate) fn forget(&mut self, address: Ipv4Addr) {
        self.connections.retain(|connection, _| *connection.target.ip() != address);
    }
}

fn idle(transport: Transport) -> Duration {
    match transport {
        Transport::Tcp => TCP_IDLE,
        Transport::Udp | Transport::Icmp => UDP_IDLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(port: u16) -> Connection {
        Connection {
            transport: Transport::Tcp,
            opener: SocketAddrV4::new(Ipv4Addr::new(10, 42, 0, 2), port),
            target: SocketAddrV4::new(Ipv4Addr::new(10, 42, 0, 3), 80),
        }
    }

    #[test]
    fn only_what_was_opened_passes_and_only_until_it_ends() {
        let now = Instant::now();
        let mut tracks = Tracks::new(now);
        assert!(!tracks.pass(&connection(1), Side::Target, Sign::Data, now));
        assert!(tracks.open(connection(1), now));
        assert!(tracks.pass(&connection(1), Side::Target, Sign::Data, now));
        assert!(tracks.pass(&connection(1), Side::Opener, Sign::End, now));
        assert!(tracks.pass(&connection(1), Side::Target, Sign::End, now));
        assert!(!tracks.pass(&connection(1), Side::Opener, Sign::Data, now + CLOSING));
        assert!(tracks.open(connection(1), now));
        assert!(tracks.pass(&connection(1), Side::Opener, Sign::Reset, now));
        assert!(!tracks.pass(&connection(1), Side::Target, Sign::Data, now));
        assert!(tracks.open(connection(1), now));
        tracks.forget(Ipv4Addr::new(10, 42, 0, 3));
        assert!(!tracks.pass(&connection(1), Side::Target, Sign::Data, now));
    }

    #[test]
    fn there_is_a_limit_and_what_has_ended_does_not_count_for_long() {
        let now = Instant::now();
        let mut tracks = Tracks::new(now);
        assert!((0..LIMIT).all(|port| tracks.open(connection(port as u16), now)));
        assert!(!tracks.open(connection(60_000), now));
        let later = now + TCP_IDLE + SWEEP;
        assert!(tracks.open(connection(60_000), later));
    }
}
