//! Stories of flows, told in counts.

use proptest::prelude::*;

use super::*;
use crate::bridge::flows::flow::tests::key;
use crate::log::FlowEvent;

const SYN: u8 = 2;
const FIN: u8 = 1;
const RST: u8 = 4;

/// A guest's ledger and log, and a clock.
struct Story {
    ledger: Ledger,
    log: FlowLog,
    now: Instant,
}

impl Story {
    fn new() -> Self {
        Self { ledger: Ledger::default(), log: FlowLog::new(), now: Instant::now() }
    }

    /// So many packets with these flags were counted so far, each with so many bytes.
    fn count(&mut self, flow: &Flow, course: Course, flags: u8, packets: u64, payload: u64) -> &mut Self {
        let (length, heads) = if flow.transport == Transport::Tcp { (8, 52) } else { (0, 28) };
        let bytes = packets * (heads + payload);
        self.ledger.see(course, Count { key: key(flow, length, flags), packets, bytes }, self.now);
        self
    }

    fn settle(&mut self) -> Done {
        let ground = |_: &Flow| Ground { rule: "allow_internet".to_owned(), name: None };
        self.ledger.settle(self.now, &self.log, ground)
    }

    fn wait(&mut self, time: Duration) -> Done {
        self.now += time;
        self.settle()
    }

    /// The log, a word and the bytes for each record.
    fn told(&self) -> Vec<(FlowEvent, u64, u64, Option<String>)> {
        let all = self.log.tail(usize::MAX).into_iter();
        all.map(|record| (record.event, record.bytes_up, record.bytes_down, record.message)).collect()
    }
}

fn flow(transport: Transport) -> Flow {
    Flow { transport, guest_port: 4000, remote: "10.42.0.3:80".parse().unwrap() }
}

use Course::{Down, Up};
use FlowEvent::{Closed, Opened};

#[test]
fn a_connection_opens_with_its_first_packet_and_closes_when_both_sides_have_ended() {
    let (mut story, tcp) = (Story::new(), flow(Transport::Tcp));
    story.count(&tcp, Up, SYN, 1, 0).settle();
    assert_eq!(story.told(), [(Opened, 0, 0, None)]);
    story.count(&tcp, Down, SYN, 1, 0).count(&tcp, Up, 0, 3, 100).count(&tcp, Up, FIN, 1, 50).settle();
    assert_eq!(story.told().len(), 1);
    story.count(&tcp, Down, FIN, 1, 7).settle();
    assert_eq!(story.told()[1..], [(Closed, 350, 7, None)]);
    // The last acknowledgement opens nothing, and then the kernel may forget all of it.
    story.count(&tcp, Up, 0, 4, 75).settle();
    assert_eq!(story.wait(CLOSING / 2).up.len(), 0);
    let done = story.wait(CLOSING / 2);
    assert_eq!((done.up.len(), done.down.len(), story.told().len()), (3, 2, 2));
    assert!(story.ledger.is_empty());
}

#[test]
fn the_same_ports_again_are_another_connection_with_its_own_bytes() {
    let (mut story, tcp) = (Story::new(), flow(Transport::Tcp));
    story.count(&tcp, Up, SYN, 1, 0).count(&tcp, Up, FIN, 1, 10).count(&tcp, Down, FIN, 1, 20).settle();
    story.count(&tcp, Up, SYN, 2, 0).count(&tcp, Down, 0, 1, 5).settle();
    story.count(&tcp, Down, RST, 1, 0).settle();
    let reset = Some("reset by the other side".to_owned());
    assert_eq!(
        story.told(),
        [(Opened, 0, 0, None), (Closed, 10, 20, None), (Opened, 0, 0, None), (Closed, 0, 5, reset)]
    );
}

#[test]
fn a_connection_whose_beginning_nobody_saw_is_one_if_the_other_side_knows_it() {
    let (mut story, tcp) = (Story::new(), flow(Transport::Tcp));
    story.count(&tcp, Up, 0, 5, 10).settle();
    assert_eq!(story.told(), []);
    story.count(&tcp, Down, RST, 5, 0).settle();
    assert_eq!(story.told(), [], "it does not");
    story.count(&tcp, Down, 0, 1, 10).settle();
    assert_eq!(story.told()[0], (Opened, 0, 0, None));
}

#[test]
fn what_is_silent_is_closed_datagrams_sooner_than_connections() {
    let (mut story, tcp, udp) = (Story::new(), flow(Transport::Tcp), flow(Transport::Udp));
    let nobody = Flow { guest_port: 4001, ..tcp };
    story.count(&udp, Up, 0, 1, 3).count(&udp, Down, 0, 1, 4).count(&nobody, Up, SYN, 1, 0).settle();
    story.count(&tcp, Up, SYN, 1, 0).count(&tcp, Down, SYN, 1, 0).settle();
    story.wait(UDP_IDLE - Duration::from_secs(1));
    assert_eq!(story.told().len(), 3);
    // An answer is a sign of life.
    story.count(&udp, Down, 0, 2, 4).settle();
    story.wait(UDP_IDLE - Duration::from_secs(1));
    assert_eq!(story.told().len(), 3);
    story.wait(Duration::from_secs(1));
    assert_eq!(story.told()[3..], [(Closed, 3, 8, None)]);
    story.wait(UNANSWERED);
    assert_eq!(story.told().len(), 5);
    story.wait(IDLE);
    assert_eq!(story.told().len(), 6);
    assert!(story.ledger.is_empty());
}

#[test]
fn what_may_not_go_on_is_closed_for_a_reason_and_opens_again_when_it_may() {
    let (mut story, udp) = (Story::new(), flow(Transport::Udp));
    story.count(&udp, Up, 0, 1, 3).settle();
    assert!(story.ledger.cut(|_, _| None).0.is_empty());
    let (cut, done) = story.ledger.cut(|_, _| Some("shut".to_owned()));
    assert_eq!((cut.as_slice(), done.up.len()), (&[udp][..], 1));
    assert_eq!(story.told()[1..], [(Closed, 3, 0, Some("shut".to_owned()))]);
    story.settle();
    story.count(&udp, Up, 0, 1, 9).settle();
    assert_eq!(story.told()[2..], [(Opened, 0, 0, None)]);
}

proptest! {
    /// Whatever is counted, in whatever order: every flow that was opened is closed once.
    #[test]
    fn opened_and_closed_are_told_in_turns(
        counts in prop::collection::vec((any::<bool>(), any::<bool>(), 0..8_u8, 0..5_u64, 0..200_u64), 0..60)
    ) {
        let mut story = Story::new();
        for (is_tcp, is_up, flags, packets, seconds) in counts {
            let flow = flow(if is_tcp { Transport::Tcp } else { Transport::Udp });
            let flags = if is_tcp { flags } else { 0 };
            story.count(&flow, if is_up { Up } else { Down }, flags, packets, 10);
            story.wait(Duration::from_secs(seconds));
        }
        story.wait(IDLE);
        prop_assert!(story.ledger.is_empty());
        for transport in [Transport::Tcp, Transport::Udp] {
            let records = story.log.tail(usize::MAX).into_iter().filter(|record| record.transport == transport);
            let events: Vec<_> = records.map(|record| record.event).collect();
            prop_assert!(events.chunks(2).all(|pair| *pair == [Opened, Closed]), "{events:?}");
        }
    }
}
