//! What a flow must pass before its bytes leave, and again whenever the policy changes.

use std::net::SocketAddrV4;

use tokio::sync::watch;

use crate::rules::{Guard, Refusal, Transport, Verdict};
use crate::sniff::{Claim, Sniffer};

/// Stands before the host's end of a flow. All bytes of the guest pass through [`look`](Gate::look) until they have
/// said whom they are for; where the guard wants to know that first, they are held back until then.
#[derive(Debug)]
pub(crate) struct Gate {
    guard: Guard,
    to: SocketAddrV4,
    changed: watch::Receiver<u64>,
    rule: String,
    /// The name the guest resolved the address from: what the flow is judged by, again and again.
    resolved: Option<String>,
    /// The name for the log, which the guest may have chosen itself.
    name: Option<String>,
    state: State,
}

#[derive(Debug)]
enum State {
    Looking { sniffer: Sniffer, holding: bool },
    Said(Claim),
}

impl Gate {
    /// Asks the guard whether there may be such a flow.
    pub(crate) fn open(guard: Guard, to: SocketAddrV4) -> Result<Self, Refusal> {
        // First, so that no change after the verdict is missed.
        let changed = guard.watch();
        let (rule, name) = allowed(guard.judge(Transport::Tcp, to))?;
        let state = State::Looking { sniffer: Sniffer::default(), holding: guard.needs_claim(to) };
        Ok(Self { guard, to, changed, rule, resolved: name.clone(), name, state })
    }

    pub(crate) fn rule(&self) -> &str {
        &self.rule
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn is_looking(&self) -> bool {
        matches!(self.state, State::Looking { .. })
    }

    /// Whether the guest's bytes must not leave yet.
    pub(crate) fn is_holding(&self) -> bool {
        matches!(self.state, State::Looking { holding: true, .. })
    }

    /// Looks at the guest's next bytes.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let State::Looking { sniffer, .. } = &mut self.state else { return Ok(()) };
        match sniffer.push(bytes) {
            Some(claim) => self.said(claim),
            None => Ok(()),
        }
    }

    /// The guest says no more, or takes too long: what it has said so far must do.
    pub(crate) fn end(&mut self) -> Result<(), Refusal> {
        let State::Looking { sniffer, .. } = &mut self.state else { return Ok(()) };
        let claim = sniffer.finish();
        self.said(claim)
    }

    fn said(&mut self, claim: Claim) -> Result<(), Refusal> {
        let asked = self.is_holding();
        if let Claim::Sni(name) | Claim::Host(name) | Claim::GitHost(name) = &claim {
            self.name = Some(name.clone());
        }
        let verdict = asked.then(|| self.guard.rejudge_claim(self.to, self.resolved.as_deref(), &claim));
        self.state = State::Said(claim);
        if let Some(verdict) = verdict {
            let (rule, name) = allowed(verdict)?;
            self.rule = rule;
            self.name = name.or(self.name.take());
        }
        Ok(())
    }

    /// Resolves when the policy has changed; [`judge_again`](Self::judge_again) then says what it means for the flow.
    pub(crate) async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            // Nobody can change it any more.
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn judge_again(&mut self) -> Result<(), Refusal> {
        let resolved = self.resolved.as_deref();
        let verdict = match &mut self.state {
            State::Looking { holding, .. } => {
                *holding |= self.guard.needs_claim(self.to);
                self.guard.rejudge(Transport::Tcp, self.to, resolved)
            }
            State::Said(claim) => self.guard.rejudge_claim(self.to, resolved, claim),
        };
        allowed(verdict).map(|_| ())
    }
}

fn allowed(verdict: Verdict) -> Result<(String, Option<String>), Refusal> {
    match verdict {
        Verdict::Allowed { rule, name } => Ok((rule, name)),
        Verdict::Refused(refusal) => Err(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::HostAddresses;
    use agentiso_core::network::{DomainName, NetworkPolicy};
    use serde_json::json;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    const THERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(9, 9, 9, 9), 80);

    fn policy(value: serde_json::Value) -> NetworkPolicy {
        serde_json::from_value(value).unwrap()
    }

    fn guard(value: serde_json::Value) -> Guard {
        Guard::new(policy(value), HostAddresses::fixed([]), Ipv4Addr::new(10, 42, 0, 1))
    }

    fn request(gate: &mut Gate, host: &str) -> Result<(), Refusal> {
        gate.look(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
    }

    #[test]
    fn a_name_that_the_guest_wrote_keeps_no_flow_alive() {
        let guard = guard(json!({"allow_internet": true}));
        let mut gate = Gate::open(guard.clone(), THERE).unwrap();
        request(&mut gate, "example.com").unwrap();
        assert_eq!(gate.name(), Some("example.com"));
        guard.set_policy(policy(json!({"allow_domains": ["example.com"]})));
        assert!(gate.judge_again().is_err(), "the address was never resolved from it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_to_a_resolved_name_goes_on_until_a_rule_speaks_against_what_it_said() {
        let guard = guard(json!({"allow_domains": ["*.example.com"]}));
        guard.bind(&DomainName::parse("a.example.com").unwrap(), *THERE.ip(), Duration::ZERO);
        let mut gate = Gate::open(guard.clone(), THERE).unwrap();
        tokio::time::advance(Duration::from_secs(3600)).await;
        request(&mut gate, "b.example.com").unwrap();
        guard.set_policy(policy(json!({"allow_domains": ["*.example.com"], "bandwidth_mbps": 1})));
        gate.judge_again().unwrap();
        let denied = json!({"allow_domains": ["*.example.com"], "deny_domains": ["b.example.com"]});
        guard.set_policy(policy(denied));
        assert!(gate.judge_again().is_err());
    }
}
