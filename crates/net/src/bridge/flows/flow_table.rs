//! The flows of one guest that the kernel carries, derived from the kernel's counts. This file uses neither a clock nor
//! the kernel.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::time::Instant;

use super::flow::{Flow, read};
use super::tally::{Sums, Tally};
use crate::bridge::nft::{Count, Direction, KEY};
use crate::flow::account::Account;
use crate::flow::account::End;
use crate::flow::limits::{IDLE, UDP_IDLE};
use crate::flow::log::FlowLog;
use crate::policy::Transport;

/// Timeout of a connection without an answer, as in the kernel.
const UNANSWERED: Duration = Duration::from_secs(120);

/// Time for which an ended connection is kept for its last acknowledgements.
const CLOSING: Duration = Duration::from_secs(30);

/// The rule that allows a flow, and the name of its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Permission {
    pub(super) rule: String,
    pub(super) name: Option<String>,
}

/// Keys that are to be removed from the kernel's sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub(super) up: Vec<[u8; KEY]>,
    pub(super) down: Vec<[u8; KEY]>,
}

impl Done {
    fn add(&mut self, entry: Entry) {
        self.up.extend(entry.up.keys());
        self.down.extend(entry.down.keys());
    }
}

#[derive(Debug, Default)]
pub(crate) struct FlowTable(HashMap<Flow, Entry>);

#[derive(Debug)]
struct Entry {
    up: Tally,
    down: Tally,
    /// Counts when the last flow with this key ended.
    before: [Sums; 2],
    /// Whether there was one.
    has_ended: bool,
    changed: Instant,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    account: Account,
    /// The name that the destination was resolved from when the flow was opened.
    name: Option<String>,
}

impl FlowTable {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a flow to this address.
    pub(super) fn concerns(&self, other: Ipv4Addr) -> bool {
        self.0.keys().any(|flow| *flow.remote.ip() == other)
    }

    /// Takes the kernel's count of one key.
    pub(super) fn see(&mut self, direction: Direction, count: Count, now: Instant) {
        let Some((flow, _)) = read(&count.key) else { return };
        let entry = self.0.entry(flow).or_insert_with(|| Entry {
            up: Tally::default(),
            down: Tally::default(),
            before: Default::default(),
            has_ended: false,
            changed: now,
            open: None,
        });
        let tally = match direction {
            Direction::Up => &mut entry.up,
            Direction::Down => &mut entry.down,
        };
        if tally.see(count) {
            entry.changed = now;
        }
    }

    /// Records flows that have begun or ended in the log. Returns the keys that need no counting any more.
    pub(super) fn settle(
        &mut self,
        now: Instant,
        log: &FlowLog,
        mut permission: impl FnMut(&Flow) -> Permission,
    ) -> Done {
        let mut quiet = Vec::new();
        for (flow, entry) in &mut self.0 {
            let sums = [entry.up.sums(), entry.down.sums()];
            let [up, down] = [sums[0].since(&entry.before[0]), sums[1].since(&entry.before[1])];
            if entry.open.is_none() && begins(flow.transport, &up, &down, entry.has_ended) {
                let Permission { rule, name } = permission(flow);
                let Flow { transport, guest_port, remote } = *flow;
                let account = Account::opened(log, transport, guest_port, remote, &rule, name.as_deref());
                entry.open = Some(Open { account, name });
            }
            if let Some(open) = &mut entry.open {
                (open.account.up, open.account.down) = (up.bytes, down.bytes);
                if let Some(end) = end(&up, &down) {
                    open.account.set_end(&end);
                    entry.open = None;
                    entry.has_ended = true;
                    entry.before = sums;
                }
            }
            let patience = match (flow.transport, &entry.open) {
                (Transport::Udp | Transport::Icmp, _) => UDP_IDLE,
                (Transport::Tcp, Some(_)) if down.packets > 0 => IDLE,
                (Transport::Tcp, Some(_)) => UNANSWERED,
                (Transport::Tcp, None) => CLOSING,
            };
            if now.saturating_duration_since(entry.changed) >= patience {
                quiet.push(*flow);
            }
        }
        let mut done = Done::default();
        quiet.iter().filter_map(|flow| self.0.remove(flow)).for_each(|entry| done.add(entry));
        done
    }

    /// Ends the flows for which `reason` returns one. It gets each flow with the name it was opened by.
    pub(super) fn cut(
        &mut self,
        mut reason: impl FnMut(&Flow, Option<&str>) -> Option<String>,
    ) -> (Vec<Flow>, Done) {
        let mut cut = Vec::new();
        let mut done = Done::default();
        self.0.retain(|flow, entry| {
            let resolved = entry.open.as_ref().and_then(|open| open.name.as_deref());
            let Some(message) = reason(flow, resolved) else { return true };
            if let Some(mut open) = entry.open.take() {
                open.account.set_message(message);
            }
            cut.push(*flow);
            done.up.extend(std::mem::take(&mut entry.up).keys());
            done.down.extend(std::mem::take(&mut entry.down).keys());
            false
        });
        (cut, done)
    }
}

/// Whether the counts since the last flow show a new one. A connection whose beginning was not seen, because no daemon
/// was running, counts if the other side takes part in it.
fn begins(transport: Transport, up: &Sums, down: &Sums, has_ended: bool) -> bool {
    match transport {
        Transport::Udp | Transport::Icmp => up.packets > 0,
        Transport::Tcp => {
            let is_known = up.packets > up.resetting && down.packets > down.resetting;
            up.opening > 0 || (is_known && !has_ended)
        }
    }
}

fn end(up: &Sums, down: &Sums) -> Option<End> {
    if up.ending > 0 && down.ending > 0 {
        Some(End::Finished)
    } else if up.resetting > 0 {
        Some(End::GuestReset)
    } else if down.resetting > 0 {
        Some(End::HostReset)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
