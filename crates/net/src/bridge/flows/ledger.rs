//! The flows of one guest that the kernel carries, from what it has counted of them. No clock and no kernel in here.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::time::Instant;

use super::flow::{Flow, read};
use super::tally::{Sums, Tally};
use crate::bridge::nft::{Count, Course, KEY};
use crate::gateway::account::Account;
use crate::gateway::flow::End;
use crate::gateway::settings::{IDLE, UDP_IDLE};
use crate::log::FlowLog;
use crate::rules::Transport;

/// A connection that nobody answers is given up, as the kernel does it.
const UNANSWERED: Duration = Duration::from_secs(120);

/// What still comes after a connection has ended are the last acknowledgements.
const CLOSING: Duration = Duration::from_secs(30);

/// What lets a flow pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ground {
    pub(super) rule: String,
    pub(super) name: Option<String>,
}

/// Keys that the kernel may forget.
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
pub(crate) struct Ledger(HashMap<Flow, Entry>);

#[derive(Debug)]
struct Entry {
    up: Tally,
    down: Tally,
    /// What was counted when the last flow with this key ended.
    before: [Sums; 2],
    /// There was one.
    has_ended: bool,
    changed: Instant,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    account: Account,
    /// The name that the other side was resolved from when it was opened.
    name: Option<String>,
}

impl Ledger {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is anything with this other side.
    pub(super) fn concerns(&self, other: Ipv4Addr) -> bool {
        self.0.keys().any(|flow| *flow.remote.ip() == other)
    }

    /// Takes in what the kernel has counted under one key.
    pub(super) fn see(&mut self, course: Course, count: Count, now: Instant) {
        let Some((flow, _)) = read(&count.key) else { return };
        let entry = self.0.entry(flow).or_insert_with(|| Entry {
            up: Tally::default(),
            down: Tally::default(),
            before: Default::default(),
            has_ended: false,
            changed: now,
            open: None,
        });
        let tally = match course {
            Course::Up => &mut entry.up,
            Course::Down => &mut entry.down,
        };
        if tally.see(count) {
            entry.changed = now;
        }
    }

    /// Opens and closes in the log what has begun and ended. Returns what needs no counting any more.
    pub(super) fn settle(
        &mut self,
        now: Instant,
        log: &FlowLog,
        mut ground: impl FnMut(&Flow) -> Ground,
    ) -> Done {
        let mut quiet = Vec::new();
        for (flow, entry) in &mut self.0 {
            let sums = [entry.up.sums(), entry.down.sums()];
            let [up, down] = [sums[0].since(&entry.before[0]), sums[1].since(&entry.before[1])];
            if entry.open.is_none() && begins(flow.transport, &up, &down, entry.has_ended) {
                let Ground { rule, name } = ground(flow);
                let Flow { transport, guest_port, remote } = *flow;
                let account = Account::opened(log, transport, guest_port, remote, &rule, name.as_deref());
                entry.open = Some(Open { account, name });
            }
            if let Some(open) = &mut entry.open {
                (open.account.up, open.account.down) = (up.bytes, down.bytes);
                if let Some(end) = end(&up, &down) {
                    open.account.ends(&end);
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

    /// Ends what may not go on, for the reason that is given for each. `resolved` is the name it was opened by.
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
                open.account.says(message);
            }
            cut.push(*flow);
            done.up.extend(std::mem::take(&mut entry.up).keys());
            done.down.extend(std::mem::take(&mut entry.down).keys());
            false
        });
        (cut, done)
    }
}

/// Whether there is a flow, by what was counted since the last one. A connection whose beginning was not seen, because no
/// daemon was there, is one if the other side knows of it too.
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
