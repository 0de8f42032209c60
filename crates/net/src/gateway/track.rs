//! Which connections between VMs were opened, and by whom: replies pass, everything else must be allowed to open.
//!
//! A connection's [`Account`] is kept with it, so that however it goes, the log of who opened it has its end.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::time::Duration;

use smoltcp::wire::TcpSeqNumber;
use tokio::time::Instant;

use super::account::Account;
use crate::rules::Transport;

/// Connections that one VM may have opened to others.
pub(crate) const LIMIT: usize = 4096;

/// What one of them takes at most: mostly the texts of its record.
pub(crate) const TRACK: usize = 2048;

/// How long a quiet connection is remembered.
const TCP_IDLE: Duration = Duration::from_secs(2 * 60 * 60);
const UDP_IDLE: Duration = Duration::from_secs(60);

/// After both ends have said goodbye.
const CLOSING: Duration = Duration::from_secs(30);

/// A full table is looked through at most so often.
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

/// What a packet says of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing {
    pub(crate) side: Side,
    pub(crate) sign: Sign,
    /// What it carries, heads not counted.
    pub(crate) bytes: usize,
    /// The sequence number with which its sender goes on after it.
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
    /// Until both ends have said goodbye.
    account: Option<Account>,
}

impl Track {
    /// For the record of its end.
    fn says(&mut self, message: String) {
        if let Some(account) = &mut self.account {
            account.says(message);
        }
    }
}

/// One end of a connection, as far as its packets told.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    has_ended: bool,
    next: Option<TcpSeqNumber>,
}

/// A connection that was ended by us, and the sequence numbers with which each end would have gone on: with these the
/// other believes a reset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) connection: Connection,
    pub(crate) opener_next: Option<TcpSeqNumber>,
    pub(crate) target_next: Option<TcpSeqNumber>,
}

impl Tracks {
    pub(crate) fn new(now: Instant) -> Self {
        Self { connections: HashMap::new(), swept: now }
    }

    /// Whether there is such a connection. It is kept for a while longer, or ended.
    pub(crate) fn pass(&mut self, connection: &Connection, passing: Passing, now: Instant) -> bool {
        let Some(track) = self.connections.get_mut(connection) else { return false };
        if track.expires <= now {
            self.connections.remove(connection);
            return false;
        }
        let sender = match passing.side {
            Side::Opener => &mut track.opener,
            Side::Target => &mut track.target,
        };
        // What is sent again does not go back behind what was sent.
        if let Some(next) = passing.next
            && sender.next.is_none_or(|before| next > before)
        {
            sender.next = Some(next);
        }
        sender.has_ended |= passing.sign == Sign::End;
        if let Some(account) = &mut track.account {
            match passing.side {
                Side::Opener => account.up += passing.bytes as u64,
                Side::Target => account.down += passing.bytes as u64,
            }
        }
        if passing.sign == Sign::Reset {
            let by = match passing.side {
                Side::Opener => "reset by the guest",
                Side::Target => "reset by the other side",
            };
            track.says(by.to_owned());
            self.connections.remove(connection);
            return true;
        }
        if track.opener.has_ended && track.target.has_ended {
            // What still comes are the last acknowledgements.
            track.account = None;
            track.expires = now + CLOSING;
        } else {
            track.expires = now + idle(connection.transport);
        }
        true
    }

    /// Remembers a connection; `false` if there are too many.
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

    /// Forgets what has ended or what nobody used for long.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.swept = now;
        self.connections.retain(|_, track| track.expires > now);
    }

    /// Ends the connections that may not go on, for the reason that is given for each.
    pub(crate) fn cut(&mut self, mut refusal: impl FnMut(&Connection) -> Option<String>) -> Vec<Cut> {
        let mut cut = Vec::new();
        self.connections.retain(|connection, track| {
            let Some(message) = refusal(connection) else { return true };
            track.says(message);
            cut.push(Cut {
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
    use crate::log::{FlowEvent, FlowLog};

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

    fn passing(side: Side, sign: Sign) -> Passing {
        Passing { side, sign, bytes: 10, next: Some(TcpSeqNumber(7)) }
    }

    #[test]
    fn only_what_was_opened_passes_and_only_until_it_ends() {
        let (now, log) = (Instant::now(), FlowLog::new());
        let mut tracks = Tracks::new(now);
        let (from, to) = (Side::Opener, Side::Target);
        assert!(!tracks.pass(&connection(1), passing(to, Sign::Data), now));
        assert!(tracks.open(connection(1), || account(&log), now));
        assert!(tracks.pass(&connection(1), passing(to, Sign::Data), now));
        assert!(tracks.pass(&connection(1), passing(from, Sign::End), now));
        assert!(tracks.pass(&connection(1), passing(to, Sign::End), now));
        assert!(!tracks.pass(&connection(1), passing(from, Sign::Data), now + CLOSING));
        assert!(tracks.open(connection(1), || account(&log), now));
        assert!(tracks.pass(&connection(1), passing(from, Sign::Reset), now));
        assert!(!tracks.pass(&connection(1), passing(to, Sign::Data), now));
        assert!(tracks.open(connection(1), || account(&log), now));
        let gone = Ipv4Addr::new(10, 42, 0, 3);
        tracks.cut(|connection| (*connection.target.ip() == gone).then(|| "the other VM is gone".to_owned()));
        assert!(!tracks.pass(&connection(1), passing(to, Sign::Data), now));
        let ends: Vec<_> =
            log.tail(9).into_iter().filter(|record| record.event == FlowEvent::Closed).collect();
        let told: Vec<_> =
            ends.iter().map(|end| (end.bytes_up, end.bytes_down, end.message.as_deref())).collect();
        let gone = (0, 0, Some("the other VM is gone"));
        assert_eq!(told, [(10, 20, None), (10, 0, Some("reset by the guest")), gone]);
    }

    #[test]
    fn there_is_a_limit_and_what_has_ended_does_not_count_for_long() {
        let (now, log) = (Instant::now(), FlowLog::new());
        let mut tracks = Tracks::new(now);
        assert!((0..LIMIT).all(|port| tracks.open(connection(port as u16), || account(&log), now)));
        assert!(!tracks.open(connection(60_000), || account(&log), now));
        let later = now + TCP_IDLE + SWEEP;
        assert!(tracks.open(connection(60_000), || account(&log), later));
    }

    #[test]
    fn what_is_cut_is_told_and_both_ends_can_be_reset() {
        let (now, log) = (Instant::now(), FlowLog::new());
        let mut tracks = Tracks::new(now);
        assert!([1, 2].iter().all(|port| tracks.open(connection(*port), || account(&log), now)));
        assert!(tracks.pass(&connection(1), passing(Side::Target, Sign::Data), now));
        let cut = tracks.cut(|connection| (connection.opener.port() == 1).then(|| "shut".to_owned()));
        assert_eq!(cut.len(), 1);
        assert_eq!((cut[0].opener_next, cut[0].target_next), (None, Some(TcpSeqNumber(7))));
        assert!(!tracks.pass(&connection(1), passing(Side::Target, Sign::Data), now));
        assert!(tracks.pass(&connection(2), passing(Side::Target, Sign::Data), now));
        assert_eq!(log.tail(1)[0].message.as_deref(), Some("shut"));
    }
}
