//! What the hub does about flows: looking at the counts of a machine, and ending what may not go on.

use std::io;
use std::net::SocketAddrV4;
use std::sync::{MutexGuard, PoisonError};

use tokio::time::Instant;

use super::counts::Counts;
use super::flow::Flow;
use super::ledger::Ground;
use crate::bridge::hub::Hub;
use crate::bridge::nft::Course;
use crate::bridge::place::Place;
use crate::rules::{Transport, Verdict};

impl Hub {
    /// `None` where the kernel cannot count.
    fn counts(&self) -> Option<MutexGuard<'_, Counts>> {
        self.counts.as_ref().map(|counts| counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins to count for a machine.
    pub(in crate::bridge) fn count(&self, place: &Place) {
        let added = self.counts().map(|mut counts| counts.add(place.short(), place.seat.address));
        if let Some(Err(error)) = added {
            tracing::warn!(device = place.tap, %error, "what the kernel carries is not in its log");
        }
    }

    /// Ends that. What is open is closed in the log.
    pub(in crate::bridge) fn count_no_more(&self, place: &Place) {
        self.part(place);
        let removed = self.counts().map(|mut counts| counts.remove(place.short(), place.seat.address));
        if let Some(Err(error)) = removed {
            tracing::debug!(device = place.tap, %error, "its counts are left");
        }
    }

    /// Brings the log up to what the kernel has counted. Whether anything is left to look after.
    pub(super) fn look(&self, place: &Place) -> bool {
        self.counts().is_some_and(|mut counts| self.look_with(&mut counts, place))
    }

    fn look_with(&self, counts: &mut Counts, place: &Place) -> bool {
        let mut ledger = place.ledger();
        if let Err(error) = self.try_look(counts, place, &mut ledger) {
            tracing::debug!(device = place.tap, %error, "its counts cannot be read");
        }
        !ledger.is_empty()
    }

    fn try_look(&self, counts: &mut Counts, place: &Place, ledger: &mut super::Ledger) -> io::Result<()> {
        // Answers first: whatever they answer is then among what was sent.
        for course in [Course::Down, Course::Up] {
            let counted = counts.read(place.short(), course)?;
            let now = Instant::now();
            counted.into_iter().for_each(|count| ledger.see(course, count, now));
        }
        let done = ledger.settle(Instant::now(), &place.log, |flow| self.ground(place, flow));
        counts.forget(place.short(), &done);
        Ok(())
    }

    /// What lets a flow of this machine pass.
    fn ground(&self, place: &Place, flow: &Flow) -> Ground {
        /// The policy has changed between the packet and its log.
        const EARLIER: &str = "an earlier policy";
        let Flow { transport, remote, .. } = *flow;
        if self.is_neighbour(*remote.ip()) {
            let name = self.place_at(*remote.ip()).map(|other| other.name());
            return Ground { rule: "allow_inter_vm".to_owned(), name };
        }
        match place.guard.judge(transport, remote) {
            Verdict::Allowed { rule, name } => Ground { rule, name },
            Verdict::Refused(_) => Ground { rule: EARLIER.to_owned(), name: None },
        }
    }

    /// Why this may not pass, if so, in the words of the gateway. `resolved` is the name it was opened by.
    pub(in crate::bridge) fn refusal(
        &self,
        place: &Place,
        transport: Transport,
        to: SocketAddrV4,
        resolved: Option<&str>,
    ) -> Option<String> {
        if !self.is_neighbour(*to.ip()) {
            return match place.guard.rejudge(transport, to, resolved) {
                Verdict::Refused(refusal) => Some(refusal.message),
                Verdict::Allowed { .. } => None,
            };
        }
        let Some(other) = self.place_at(*to.ip()).filter(|other| place.may_reach(other)) else {
            let own = place.guard.policy().allow_inter_vm;
            let who = if own { "the other VM" } else { "this VM" };
            return Some(format!("{who} has no allow_inter_vm, and they share no group"));
        };
        let port = to.port();
        let accepts = transport == Transport::Icmp || other.guard.policy().accepts_port(port);
        (!accepts).then(|| format!("port {port} is not among the other VM's allowed_ports"))
    }

    /// The rules of a machine have changed: what it has open, and others with it, goes on only if it still may.
    pub(in crate::bridge) fn review(&self, place: &Place) {
        self.end_flows(place, |opener, flow, resolved| {
            let Flow { transport, remote, .. } = *flow;
            self.refusal(opener, transport, remote, resolved)
        });
    }

    /// A machine is gone: whoever has its place next is somebody else. What it had open ends, and the kernel forgets it.
    pub(in crate::bridge) fn part(&self, place: &Place) {
        let gone = place.seat.address;
        let cut = self.end_flows(place, |opener, _, _| {
            let is_own = opener.seat.address == gone;
            Some(if is_own { "the VM is gone" } else { "the other VM is gone" }.to_owned())
        });
        if let Some(mut counts) = self.counts() {
            cut.iter().for_each(|(opener, flows)| counts.end(*opener, flows));
        }
    }

    /// Ends what a machine has opened, and what others have opened to it, if there is a reason. Returns it by who opened
    /// it.
    fn end_flows(
        &self,
        place: &Place,
        reason: impl Fn(&Place, &Flow, Option<&str>) -> Option<String>,
    ) -> Vec<(std::net::Ipv4Addr, Vec<Flow>)> {
        let Some(mut counts) = self.counts() else { return Vec::new() };
        let here = place.seat.address;
        let mut ended = Vec::new();
        let others = self.all();
        let others = others.iter().map(|other| &**other).filter(|other| other.seat.address != here);
        for opener in std::iter::once(place).chain(others) {
            let is_own = opener.seat.address == here;
            let concerns = |flow: &Flow| is_own || *flow.remote.ip() == here;
            if is_own || opener.may_reach(place) || opener.ledger().concerns(here) {
                self.look_with(&mut counts, opener);
            }
            let (flows, done) = opener
                .ledger()
                .cut(|flow, resolved| concerns(flow).then(|| reason(opener, flow, resolved)).flatten());
            counts.forget(opener.short(), &done);
            if !flows.is_empty() {
                ended.push((opener.seat.address, flows));
            }
        }
        ended
    }
}
