//! Sequences of counts, and the records they lead to.

use proptest::prelude::*;

use super::*;
use crate::bridge::flows::flow::tests::key;
use crate::flow::log::FlowEvent;

const SYN: u8 = 2;
const FIN: u8 = 1;
const RST: u8 = 4;

/// A guest's flow table and log, and a clock.
struct Scenario {
    flow_table: FlowTable,
    log: FlowLog,
    now: Instant,
}

impl Scenario {
    fn new() -> Self {
        Self { flow_table: FlowTable::default(), log: FlowLog::new(), now: Instant::now() }
    }

    /// Sets the kernel's count of packets with these flags so far, each with this payload.
    fn count(
        &mut self,
        flow: &Flow,
        direction: Direction,
        flags: u8,
        packets: u64,
        payload: u64,
    ) -> &mut Self {
        let (length, heads) = if flow.transport == Transport::Tcp { (8, 52) } else { (0, 28) };
        let bytes = packets * (heads + payload);
        self.flow_table.see(direction, Count { key: key(flow, length, flags), packets, bytes }, self.now);
        self
    }

    fn settle(&mut self) -> Done {
        let permission = |_: &Flow| Permission { rule: "allow_internet".to_owned(), name: None };
        self.flow_table.settle(self.now, &self.log, permission)
    }

    fn wait(&mut self, time: Duration) -> Done {
        self.now += time;
        self.settle()
    }

    /// The event, bytes and message of each record.
    fn logged(&self) -> Vec<(FlowEvent, u64, u64, Option<String>)> {
        let all = self.log.tail(usize::MAX).into_iter();
        all.map(|record| (record.event, record.bytes_up, record.bytes_down, record.message)).collect()
    }
}

fn flow(transport: Transport) -> Flow {
    Flow { transport, guest_port: 4000, remote: "10.42.0.3:80".parse().unwrap() }
}

use Direction::{Down, Up};
use FlowEvent::{Closed, Opened};

#[test]
fn counted_connection_closes_after_both_ends() {
    let (mut scenario, tcp) = (Scenario::new(), flow(Transport::Tcp));
    scenario.count(&tcp, Up, SYN, 1, 0).settle();
    assert_eq!(scenario.logged(), [(Opened, 0, 0, None)]);
    scenario.count(&tcp, Down, SYN, 1, 0).count(&tcp, Up, 0, 3, 100).count(&tcp, Up, FIN, 1, 50).settle();
    assert_eq!(scenario.logged().len(), 1);
    scenario.count(&tcp, Down, FIN, 1, 7).settle();
    assert_eq!(scenario.logged()[1..], [(Closed, 350, 7, None)]);
    // The last acknowledgement opens nothing, and then all keys may be removed.
    scenario.count(&tcp, Up, 0, 4, 75).settle();
    assert_eq!(scenario.wait(CLOSING / 2).up.len(), 0);
    let done = scenario.wait(CLOSING / 2);
    assert_eq!((done.up.len(), done.down.len(), scenario.logged().len()), (3, 2, 2));
    assert!(scenario.flow_table.is_empty());
}

#[test]
fn reused_ports_count_as_a_new_connection() {
    let (mut scenario, tcp) = (Scenario::new(), flow(Transport::Tcp));
    scenario.count(&tcp, Up, SYN, 1, 0).count(&tcp, Up, FIN, 1, 10).count(&tcp, Down, FIN, 1, 20).settle();
    scenario.count(&tcp, Up, SYN, 2, 0).count(&tcp, Down, 0, 1, 5).settle();
    scenario.count(&tcp, Down, RST, 1, 0).settle();
    let reset = Some("reset by the other side".to_owned());
    assert_eq!(
        scenario.logged(),
        [(Opened, 0, 0, None), (Closed, 10, 20, None), (Opened, 0, 0, None), (Closed, 0, 5, reset)]
    );
}

#[test]
fn unseen_connection_opens_once_the_peer_answers() {
    let (mut scenario, tcp) = (Scenario::new(), flow(Transport::Tcp));
    scenario.count(&tcp, Up, 0, 5, 10).settle();
    assert_eq!(scenario.logged(), []);
    scenario.count(&tcp, Down, RST, 5, 0).settle();
    assert_eq!(scenario.logged(), [], "it does not");
    scenario.count(&tcp, Down, 0, 1, 10).settle();
    assert_eq!(scenario.logged()[0], (Opened, 0, 0, None));
}

#[test]
fn silent_flows_close_after_their_timeout() {
    let (mut scenario, tcp, udp) = (Scenario::new(), flow(Transport::Tcp), flow(Transport::Udp));
    let nobody = Flow { guest_port: 4001, ..tcp };
    scenario.count(&udp, Up, 0, 1, 3).count(&udp, Down, 0, 1, 4).count(&nobody, Up, SYN, 1, 0).settle();
    scenario.count(&tcp, Up, SYN, 1, 0).count(&tcp, Down, SYN, 1, 0).settle();
    scenario.wait(UDP_IDLE - Duration::from_secs(1));
    assert_eq!(scenario.logged().len(), 3);
    // An answer restarts the timeout.
    scenario.count(&udp, Down, 0, 2, 4).settle();
    scenario.wait(UDP_IDLE - Duration::from_secs(1));
    assert_eq!(scenario.logged().len(), 3);
    scenario.wait(Duration::from_secs(1));
    assert_eq!(scenario.logged()[3..], [(Closed, 3, 8, None)]);
    scenario.wait(UNANSWERED);
    assert_eq!(scenario.logged().len(), 5);
    scenario.wait(IDLE);
    assert_eq!(scenario.logged().len(), 6);
    assert!(scenario.flow_table.is_empty());
}

#[test]
fn cut_flow_is_logged_and_may_reopen() {
    let (mut scenario, udp) = (Scenario::new(), flow(Transport::Udp));
    scenario.count(&udp, Up, 0, 1, 3).settle();
    assert!(scenario.flow_table.cut(|_, _| None).0.is_empty());
    let (cut, done) = scenario.flow_table.cut(|_, _| Some("shut".to_owned()));
    assert_eq!((cut.as_slice(), done.up.len()), (&[udp][..], 1));
    assert_eq!(scenario.logged()[1..], [(Closed, 3, 0, Some("shut".to_owned()))]);
    scenario.settle();
    scenario.count(&udp, Up, 0, 1, 9).settle();
    assert_eq!(scenario.logged()[2..], [(Opened, 0, 0, None)]);
}

proptest! {
    /// Every opened flow is closed once, for counts of any kind in any order.
    #[test]
    fn counted_flows_open_and_close_alternately(
        counts in prop::collection::vec((any::<bool>(), any::<bool>(), 0..8_u8, 0..5_u64, 0..200_u64), 0..60)
    ) {
        let mut scenario = Scenario::new();
        for (is_tcp, is_up, flags, packets, seconds) in counts {
            let flow = flow(if is_tcp { Transport::Tcp } else { Transport::Udp });
            let flags = if is_tcp { flags } else { 0 };
            scenario.count(&flow, if is_up { Up } else { Down }, flags, packets, 10);
            scenario.wait(Duration::from_secs(seconds));
        }
        scenario.wait(IDLE);
        prop_assert!(scenario.flow_table.is_empty());
        for transport in [Transport::Tcp, Transport::Udp] {
            let records = scenario.log.tail(usize::MAX).into_iter().filter(|record| record.transport == transport);
            let events: Vec<_> = records.map(|record| record.event).collect();
            prop_assert!(events.chunks(2).all(|pair| *pair == [Opened, Closed]), "{events:?}");
        }
    }
}
