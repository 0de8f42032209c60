//! The last records in memory, in two parts: refused or dropped packets, and opened and closed flows. A guest decides
//! how many there are of either, and must not be able to evict one kind with the other.

use std::collections::VecDeque;

use super::record::{FlowEvent, FlowRecord};

/// Records kept of each part: the activity of the last minutes, in less than a mebibyte for both.
pub const KEPT: usize = 1024;

/// The part that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Refusals,
    Flows,
}

impl Part {
    pub(super) fn of(record: &FlowRecord) -> Self {
        match record.event {
            FlowEvent::Refused | FlowEvent::Dropped => Self::Refusals,
            FlowEvent::Opened | FlowEvent::Closed => Self::Flows,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct RecentRecords {
    /// Each record with its number, which orders both parts.
    refusals: VecDeque<(u64, FlowRecord)>,
    flows: VecDeque<(u64, FlowRecord)>,
    next: u64,
}

impl RecentRecords {
    pub(super) fn add(&mut self, record: FlowRecord) {
        let part = match Part::of(&record) {
            Part::Refusals => &mut self.refusals,
            Part::Flows => &mut self.flows,
        };
        if part.len() == KEPT {
            part.pop_front();
        }
        part.push_back((self.next, record));
        self.next += 1;
    }

    /// The last records of both, oldest first.
    pub(super) fn last(&self, count: usize) -> Vec<FlowRecord> {
        let (mut refusals, mut flows) =
            (self.refusals.iter().rev().peekable(), self.flows.iter().rev().peekable());
        let newest_first = std::iter::from_fn(|| match (refusals.peek(), flows.peek()) {
            (Some(refusal), Some(flow)) if refusal.0 < flow.0 => flows.next(),
            (Some(_), _) => refusals.next(),
            (None, _) => flows.next(),
        });
        let mut last: Vec<_> = newest_first.take(count).map(|(_, record)| record.clone()).collect();
        last.reverse();
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Transport;
    use std::net::SocketAddrV4;

    fn record(event: FlowEvent, port: u16) -> FlowRecord {
        FlowRecord::now(event, Transport::Tcp, SocketAddrV4::new([192, 0, 2, 1].into(), port))
    }

    fn ports(records: &[FlowRecord]) -> Vec<u16> {
        records.iter().filter_map(|record| record.port).collect()
    }

    #[test]
    fn last_records_keep_their_order() {
        let mut recent = RecentRecords::default();
        for port in 1..=KEPT as u16 + 10 {
            recent.add(record(FlowEvent::Opened, port));
        }
        assert_eq!(recent.last(usize::MAX).len(), KEPT);
        recent.add(record(FlowEvent::Refused, 1));
        recent.add(record(FlowEvent::Closed, 2));
        recent.add(record(FlowEvent::Dropped, 3));
        assert_eq!(ports(&recent.last(4)), [KEPT as u16 + 10, 1, 2, 3]);
    }

    #[test]
    fn refusals_and_flows_do_not_evict_each_other() {
        for (few, many) in [(FlowEvent::Refused, FlowEvent::Opened), (FlowEvent::Closed, FlowEvent::Dropped)]
        {
            let mut recent = RecentRecords::default();
            (1..=3).for_each(|port| recent.add(record(few, port)));
            (0..20_000).for_each(|port| recent.add(record(many, port)));
            let last = recent.last(usize::MAX);
            assert_eq!(last.len(), KEPT + 3);
            assert_eq!(ports(&last[..3]), [1, 2, 3]);
        }
    }
}
