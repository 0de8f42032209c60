//! Tracks connections between VMs and which VM opened them: replies pass, everything else must be allowed to open.
//!
//! A connection's [`Account`] is kept with it, so that the log of the VM that opened it gets a closing record, however
//! it ends.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::time::Duration;

use smoltcp::wire::TcpSeqNumber;
use tokio::time::Instant;

use crate::flow::account::Account;
use crate::policy::Transport;

/// Most connections that one VM may have opened to others.
pub(crate) const LIMIT: usize = 4096;

/// Most bytes that one of them uses, mostly for the texts of its record.
pub(crate) const TRACK: usize = 2048;

/// Idle time after which a connection is forgotten.
const TCP_IDLE: Duration = Duration::from_secs(2 * 60 * 60);
const UDP_IDLE: Duration = Duration::from_secs(60);

/// The same after both ends have closed.
const CLOSING: Duration = Duration::from_secs(30);

/// Shortest interval between two sweeps of a full table.
const SWEEP: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    pub(crate) opener: SocketAddrV4,
    pub(crate) target: SocketAddrV4,
}

/// The effect of a packet on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketKind {
    Data,
    End,
    Reset,
}

/// The sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Opener,
    Target,
}

/// Facts about a packet that matter for its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketInfo {
    pub(crate) side: Side,
    pub(crate) kind: PacketKind,
    /// Bytes of payload.
    pub(crate) bytes: usize,
    /// The sequence number that its sender uses next.
    pub(crate) next: Option<TcpSeqNumber>,
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
    opener: End,
    target: End,
    /// `None` after both ends have closed.
    account: Option<Account>,
}

impl Track {
    /// Sets the message of its closing record.
    fn set_message(&mut self, message: String) {
        if let Some(account) = &mut self.account {
            account.set_message(message);
        }
    }
}

/// One end of a connection, as seen from its packets.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    has_ended: bool,
    next: Option<TcpSeqNumber>,
}

/// A connection that we ended, and the next sequence number of each end, which the other end accepts a reset with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutConnection {
    pub(crate) connection: Connection,
    pub(crate) opener_next: Option<TcpSeqNumber>,
    pub(crate) target_next: Option<TcpSeqNumber>,
}

impl Tracks {
    pub(crate) fn new(now: Instant) -> Self {
        Self { connections: HashMap::new(), swept: now }
    }

    /// Whether there is such a connection. The packet updates its state and expiry.
    pub(crate) fn pass(&mut self, connection: &Connection, info: PacketInfo, now: Instant) -> bool {
        let Some(track) = self.connections.get_mut(connection) else { return false };
        if track.expires <= now {
            self.connections.remove(connection);
            return false;
        }
        let sender = match info.side {
            Side::Opener => &mut track.opener,
            Side::Target => &mut track.target,
        };
        // A retransmission does not move the sequence number back.
        if let Some(next) = info.next
            && sender.next.is_none_or(|before| next > before)
        {
            sender.next = Some(next);
        }
        sender.has_ended |= info.kind == PacketKind::End;
        if let Some(account) = &mut track.account {
            match info.side {
                Side::Opener => account.up += info.bytes as u64,
                Side::Target => account.down += info.bytes as u64,
            }
        }
        if info.kind == PacketKind::Reset {
            let by = match info.side {
                Side::Opener => "reset by the guest",
                Side::Target => "reset by the other side",
            };
            track.set_message(by.to_owned());
            self.connections.remove(connection);
            return true;
        }
        if track.opener.has_ended && track.target.has_ended {
            // Only the last acknowledgements still come.
            track.account = None;
            track.expires = now + CLOSING;
        } else {
            track.expires = now + idle(connection.transport);
        }
        true
    }

    /// Adds a connection; `false` if there are too many.
    pub(crate) fn open(
        &mut self,
        connection: Connection,
        account: impl FnOnce() -> Account,
        now: Instant,
    ) -> bool {
        if self.connections.len() >= LIMIT && now - self.swept >= SWEEP {
            self.sweep(now);
        }
        if self.connections.len() >= LIMIT {
            return false;
        }
        let expires = now + idle(connection.transport);
        let (opener, target) = (End::default(), End::default());
        self.connections.insert(connection, Track { expires, opener, target, account: Some(account()) });
        true
    }

    /// Removes connections that have ended or expired.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.swept = now;
        self.connections.retain(|_, track| track.expires > now);
    }

    /// Ends the connections for which `refusal` returns a reason, and returns them.
    pub(crate) fn cut(
        &mut self,
        mut refusal: impl FnMut(&Connection) -> Option<String>,
    ) -> Vec<CutConnection> {
        let mut cut = Vec::new();
        self.connections.retain(|connection, track| {
            let Some(message) = refusal(connection) else { return true };
            track.set_message(message);
            cut.push(CutConnection {
                connection: *connection,
                opener_next: track.opener.next,
                target_next: track.target.next,
            });
            false
        });
        cut
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
    use std::net::Ipv4Addr;

    use super::*;
    use crate::flow::log::{FlowEvent, FlowLog};

    fn connection(port: u16) -> Connection {
        Connection {
            transport: Transport::Tcp,
            opener: SocketAddrV4::new(Ipv4Addr::new(10, 42, 0, 2), port),
            target: SocketAddrV4::new(Ipv4Addr::new(10, 42, 0, 3), 80),
        }
    }

    fn account(log: &FlowLog) -> Account {
        let target = connection(1).target;
        Account::opened(log, Transport::Tcp, 1, target, "allow_inter_vm", None)
    }

    fn info(side: Side, kind: PacketKind) -> PacketInfo {
        PacketInfo { side, kind, bytes: 10, next: Some(TcpSeqNumber(7)) }
    }

    #[test]
    fn only_opened_connections_pass_until_they_end() {
        let (now, log) = (Instant::now(), FlowLog::new());
        let mut tracks = Tracks::new(now);
        let (from, to) = (Side::Opener, Side::Target);
        assert!(!tracks.pass(&connection(1), info(to, PacketKind::Data), now));
        assert!(tracks.open(connection(1), || account(&log), now));
        assert!(tracks.pass(&connection(1), info(to, PacketKind::Data), now));
        assert!(tracks.pass(&connection(1), info(from, PacketKind::End), now));
        assert!(tracks.pass(&connection(1), info(to, PacketKind::End), now));
        assert!(!tracks.pass(&connection(1), info(from, PacketKind::Data), now + CLOSING));
        assert!(tracks.open(connection(1), || account(&log), now));
        assert!(tracks.pass(&connection(1), info(from, PacketKind::Reset), now));
        assert!(!tracks.pass(&connection(1), info(to, PacketKind::Data), now));
        assert!(tracks.open(connection(1), || account(&log), now));
        let gone = Ipv4Addr::new(10, 42, 0, 3);
        tracks.cut(|connection| (*connection.target.ip() == gone).then(|| "the other VM is gone".to_owned()));
        assert!(!tracks.pass(&connection(1), info(to, PacketKind::Data), now));
        let ends: Vec<_> =
            log.tail(9).into_iter().filter(|record| record.event == FlowEvent::Closed).collect();
        let told: Vec<_> =
            ends.iter().map(|end| (end.bytes_up, end.bytes_down, end.message.as_deref())).collect();
        let gone = (0, 0, Some("the other VM is gone"));
        assert_eq!(told, [(10, 20, None), (10, 0, Some("reset by the guest")), gone]);
    }

    #[test]
    fn expired_connections_free_their_table_entries() {
        let (now, log) = (Instant::now(), FlowLog::new());
        let mut tracks = Tracks::new(now);
        assert!((0..LIMIT).all(|port| tracks.open(connection(port as u16), || account(&log), now)));
        assert!(!tracks.open(connection(60_000), || account(&log), now));
        let later = now + TCP_IDLE + SWEEP;
        assert!(tracks.open(connection(60_000), || account(&log), later));
    }

    #[test]
    fn cut_connections_are_logged_and_resettable() {
        let (now, log) = (Instant::now(), FlowLog::new());
        let mut tracks = Tracks::new(now);
        assert!([1, 2].iter().all(|port| tracks.open(connection(*port), || account(&log), now)));
        assert!(tracks.pass(&connection(1), info(Side::Target, PacketKind::Data), now));
        let cut = tracks.cut(|connection| (connection.opener.port() == 1).then(|| "shut".to_owned()));
        assert_eq!(cut.len(), 1);
        assert_eq!((cut[0].opener_next, cut[0].target_next), (None, Some(TcpSeqNumber(7))));
        assert!(!tracks.pass(&connection(1), info(Side::Target, PacketKind::Data), now));
        assert!(tracks.pass(&connection(2), info(Side::Target, PacketKind::Data), now));
        assert_eq!(log.tail(1)[0].message.as_deref(), Some("shut"));
    }
}
