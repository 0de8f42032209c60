//! The gate of one flow: holds the guest's bytes until the policy allows them to leave, and judges the flow again
//! whenever the policy changes.
//!
//! ```text
//!            ┌─ TLS, git, opaque ─────────────▶ pass
//!   sniffing ┤
//!            └─ HTTP under rules about names ─▶ each head is held until it was judged, bodies pass
//! ```

use std::net::SocketAddrV4;
use std::time::Duration;

use tokio::sync::watch;

use crate::policy::sniff::{Broken, Claim, MAX_BYTES, Requests, Sniffer};
use crate::policy::{Guard, Refusal, RefusalCode, Transport, Verdict};

/// Time for a guest to complete its first bytes, once it has begun.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for which it may stay silent if nothing passes before it has shown a name. Browsers open connections that they
/// use a while later.
const SILENCE: Duration = Duration::from_secs(30);

/// Stands in front of the host's end of a flow. All bytes of the guest are [offered](Gate::offer) to it; it holds those
/// that must not leave yet.
#[derive(Debug)]
pub(crate) struct Gate {
    guard: Guard,
    to: SocketAddrV4,
    changed: watch::Receiver<u64>,
    rule: String,
    /// The name the guest resolved the address from. The flow is judged by it, again and again.
    resolved: Option<String>,
    /// The name for the log, which the guest may have chosen itself.
    name: Option<String>,
    state: State,
    /// Bytes of the guest that have not left. The first `free` of them may leave.
    held: Vec<u8>,
    free: usize,
    /// Whether any byte has left.
    begun: bool,
    /// Whether the server has sent anything.
    heard: bool,
}

#[derive(Debug)]
enum State {
    Sniffing {
        sniffer: Sniffer,
        holding: bool,
        /// Nothing passes in either direction before there is a name.
        needs_name: bool,
    },
    /// HTTP, every request of which is judged; the claim is that of the last one.
    Following { claim: Claim, requests: Box<Requests> },
    /// Nothing more is inspected. `shut`: the guest may not send anything more either.
    Decided { claim: Claim, shut: bool },
}

/// The result of offering bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// This many of them may leave; the caller reports those that did with [`passed`](Gate::passed).
    Pass(usize),
    /// This many of them were taken. Zero: there is no room until the server has answered.
    Held(usize),
}

impl Gate {
    /// Asks the guard whether this flow is allowed.
    pub(crate) fn open(guard: Guard, to: SocketAddrV4) -> Result<Self, Refusal> {
        // Subscribes first, so that no change after the verdict is missed.
        let changed = guard.watch();
        let (rule, name) = allowed(guard.judge(Transport::Tcp, to))?;
        let holding = guard.needs_claim(to, name.as_deref());
        let needs_name = holding && guard.needs_name(to, name.as_deref());
        let state = State::Sniffing { sniffer: Sniffer::default(), holding, needs_name };
        let resolved = name.clone();
        let held = Vec::new();
        Ok(Self {
            guard,
            to,
            changed,
            rule,
            resolved,
            name,
            state,
            held,
            free: 0,
            begun: false,
            heard: false,
        })
    }

    pub(crate) fn rule(&self) -> &str {
        &self.rule
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Time for the guest to complete what it has begun, or to begin. `None`: no limit.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let unfinished = self.held.len() > self.free;
        match &self.state {
            State::Sniffing { holding: true, .. } if unfinished => Some(PATIENCE),
            State::Sniffing { needs_name, .. } => needs_name.then_some(SILENCE),
            State::Following { requests, .. } => (unfinished && !requests.is_waiting()).then_some(PATIENCE),
            State::Decided { .. } => None,
        }
    }

    /// Whether the guest must show a name before it may receive anything.
    pub(crate) fn needs_name(&self) -> bool {
        matches!(self.state, State::Sniffing { needs_name: true, .. })
    }

    /// Whether the gate inspects the server's bytes, and does not only need to know that there are some. This starts
    /// before the request that is answered has left.
    pub(crate) fn is_following(&self) -> bool {
        matches!(self.state, State::Following { .. })
    }

    /// Whether the meaning of the next bytes depends on the server's answer.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(&self.state, State::Following { requests, .. } if requests.is_waiting())
    }

    /// Whether no byte is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Held bytes that may leave.
    pub(crate) fn free(&self) -> &[u8] {
        &self.held[..self.free]
    }

    /// This many of the [`free`](Self::free) bytes have left.
    pub(crate) fn left(&mut self, count: usize) {
        self.begun |= count > 0;
        self.held.drain(..count);
        self.free -= count;
    }

    /// Offers the guest's next bytes. Call it only if no held byte may leave.
    pub(crate) fn offer(&mut self, bytes: &[u8]) -> Result<Offer, Refusal> {
        match &mut self.state {
            State::Decided { shut: true, .. } => return Err(self.not_followed()),
            State::Decided { .. } if self.held.is_empty() => return Ok(Offer::Pass(bytes.len())),
            State::Following { requests, .. } if self.held.is_empty() => {
                match requests.as_ref().clone().body(bytes) {
                    Ok(0) => {}
                    Ok(count) => return Ok(Offer::Pass(count)),
                    Err(broken) => return Err(self.broken(broken)),
                }
            }
            State::Sniffing { .. } | State::Following { .. } | State::Decided { .. } => {}
        }
        let taken = bytes.len().min(MAX_BYTES.saturating_sub(self.held.len()));
        self.held.extend_from_slice(&bytes[..taken]);
        self.inspect(&bytes[..taken])?;
        Ok(Offer::Held(taken))
    }

    /// These bytes of an [`Offer::Pass`] have left.
    pub(crate) fn passed(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let State::Following { requests, .. } = &mut self.state else { return Ok(()) };
        match requests.body(bytes) {
            Ok(_) => Ok(()),
            Err(broken) => Err(self.broken(broken)),
        }
    }

    /// Takes the server's bytes before the guest receives them.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.heard = true;
        let State::Following { requests, .. } = &mut self.state else { return Ok(()) };
        match requests.heard(bytes) {
            Ok(()) => self.follow(),
            Err(broken) => Err(self.broken(broken)),
        }
    }

    /// The guest sends no more, or takes too long: the gate decides by the bytes so far.
    pub(crate) fn end(&mut self) -> Result<(), Refusal> {
        let unfinished = self.patience().is_some();
        match &mut self.state {
            State::Sniffing { sniffer, .. } => {
                let claim = sniffer.finish();
                self.decide(claim)
            }
            State::Following { .. } if unfinished => Err(self.broken(Broken("a header without an end"))),
            State::Following { .. } | State::Decided { .. } => Ok(()),
        }
    }

    /// Inspects bytes that were added to the held ones.
    fn inspect(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        match &mut self.state {
            State::Sniffing { sniffer, holding, .. } => {
                let holding = *holding;
                match sniffer.push(bytes) {
                    Some(claim) => self.decide(claim)?,
                    None if !holding => self.free = self.held.len(),
                    None => {}
                }
                Ok(())
            }
            State::Following { .. } => self.follow(),
            State::Decided { .. } => {
                self.free = self.held.len();
                Ok(())
            }
        }
    }

    fn decide(&mut self, claim: Claim) -> Result<(), Refusal> {
        let asked = matches!(self.state, State::Sniffing { holding: true, .. });
        if let Claim::Sni(name) | Claim::Host(name) | Claim::GitHost(name) | Claim::Encrypted(Some(name)) =
            &claim
        {
            self.name = Some(name.clone());
        }
        let verdict = asked.then(|| self.guard.rejudge_claim(self.to, self.resolved.as_deref(), &claim));
        let is_http = matches!(claim, Claim::Host(_));
        self.state = State::Decided { claim: claim.clone(), shut: false };
        if let Some(verdict) = verdict {
            let (rule, name) = allowed(verdict)?;
            self.rule = rule;
            self.name = name.or(self.name.take());
            if is_http && self.begun {
                return Err(self.not_followed());
            }
            if is_http {
                let mut requests = Box::new(Requests::new());
                if self.heard {
                    // No answer is awaited, so this cannot fail.
                    let _ = requests.heard(&[]);
                }
                self.state = State::Following { claim, requests };
                return self.follow();
            }
        }
        self.free = self.held.len();
        Ok(())
    }

    /// Continues in the held bytes: bodies may leave, and heads that were judged.
    fn follow(&mut self) -> Result<(), Refusal> {
        while self.free < self.held.len() {
            let State::Following { requests, .. } = &mut self.state else { return Ok(()) };
            let rest = &self.held[self.free..];
            let read = requests.body(rest).and_then(|count| match count {
                0 => requests.head(rest),
                count => Ok(Some((count, Claim::Opaque))),
            });
            match read {
                Ok(None) => return Ok(()),
                Ok(Some((count, Claim::Opaque))) => self.free += count,
                Ok(Some((count, claim))) => {
                    allowed(self.guard.rejudge_claim(self.to, self.resolved.as_deref(), &claim))?;
                    self.free += count;
                    if let State::Following { claim: last, .. } = &mut self.state {
                        *last = claim;
                    }
                }
                Err(broken) => return Err(self.broken(broken)),
            }
        }
        Ok(())
    }

    fn broken(&self, Broken(what): Broken) -> Refusal {
        let to = self.to;
        let message = format!(
            "the connection to {to} has HTTP that servers may read in different ways ({what}), so its host is uncertain"
        );
        Refusal::new(RefusalCode::NameHidden, message)
    }

    fn not_followed(&self) -> Refusal {
        let message = format!(
            "the connection to {} was opened before there were rules about names; the program has to connect again",
            self.to
        );
        Refusal::new(RefusalCode::NameHidden, message)
    }

    /// Completes when the policy has changed; [`judge_again`](Self::judge_again) then applies the change to the flow.
    pub(crate) async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            // The policy cannot change any more.
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn judge_again(&mut self) -> Result<(), Refusal> {
        let resolved = self.resolved.as_deref();
        let verdict = match &mut self.state {
            State::Sniffing { holding, needs_name, .. } => {
                *holding |= self.guard.needs_claim(self.to, resolved);
                *needs_name = *holding && self.guard.needs_name(self.to, resolved);
                self.guard.rejudge(Transport::Tcp, self.to, resolved)
            }
            State::Following { claim, .. } => self.guard.rejudge_claim(self.to, resolved, claim),
            State::Decided { claim, shut } => {
                // The start of its next request is unknown, so the guest may send no more. The server's answer may
                // still arrive.
                *shut |= matches!(claim, Claim::Host(_)) && self.guard.needs_claim(self.to, resolved);
                self.guard.rejudge_claim(self.to, resolved, claim)
            }
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
    use crate::policy::HostAddresses;
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
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(gate.offer(request.as_bytes())?, Offer::Held(request.len()));
        assert_eq!(gate.free(), request.as_bytes(), "it may leave");
        gate.left(request.len());
        Ok(())
    }

    #[test]
    fn name_sent_by_guest_keeps_no_flow_alive() {
        let guard = guard(json!({"allow_internet": true}));
        let mut gate = Gate::open(guard.clone(), THERE).unwrap();
        request(&mut gate, "example.com").unwrap();
        assert_eq!(gate.name(), Some("example.com"));
        guard.set_policy(policy(json!({"allow_domains": ["example.com"]})));
        assert!(gate.judge_again().is_err(), "the address was never resolved from it");
    }

    #[tokio::test(start_paused = true)]
    async fn flow_ends_once_its_claimed_name_is_denied() {
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

    #[test]
    fn silent_connection_hears_nothing_under_deny_list() {
        let guard = guard(json!({"allow_internet": true, "deny_domains": ["bad.example"]}));
        let mut gate = Gate::open(guard, THERE).unwrap();
        assert!(gate.needs_name());
        assert_eq!(gate.patience(), Some(SILENCE));
        assert_eq!(gate.offer(b"GET / ").unwrap(), Offer::Held(6));
        assert_eq!(gate.patience(), Some(PATIENCE));
        assert!(gate.needs_name() && gate.free().is_empty());
        assert_eq!(gate.end().unwrap_err().code, RefusalCode::NameHidden);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connection_hears_nothing_after_its_binding_expired() {
        let guard = guard(json!({"allow_domains": ["*.example"]}));
        guard.bind(&DomainName::parse("a.example").unwrap(), *THERE.ip(), Duration::ZERO);
        let mut gate = Gate::open(guard.clone(), THERE).unwrap();
        tokio::time::advance(Duration::from_secs(3600)).await;
        guard.set_policy(policy(json!({"allow_domains": ["*.example"], "deny_domains": ["bad.example"]})));
        gate.judge_again().unwrap();
        assert!(gate.needs_name() && gate.patience().is_some());
    }

    #[test]
    fn deny_list_ends_connections_without_a_name() {
        let guard = guard(json!({"allow_internet": true}));
        let mut opaque = Gate::open(guard.clone(), THERE).unwrap();
        opaque.offer(b"SSH-2.0-x\r\n").unwrap();
        let mut silent = Gate::open(guard.clone(), THERE).unwrap();
        assert!(!silent.needs_name() && silent.patience().is_none());
        guard.set_policy(policy(json!({"allow_internet": true, "deny_domains": ["bad.example"]})));
        assert_eq!(opaque.judge_again().unwrap_err().code, RefusalCode::NameHidden);
        silent.judge_again().unwrap();
        assert!(silent.needs_name() && silent.patience().is_some());
        request(&mut silent, "good.example").unwrap();
        assert!(!silent.needs_name(), "it has shown one");
    }

    #[test]
    fn every_request_is_judged_and_bodies_pass() {
        let guard = guard(json!({"allow_domains": ["a.example"]}));
        guard.bind(&DomainName::parse("a.example").unwrap(), *THERE.ip(), Duration::from_secs(60));
        let mut gate = Gate::open(guard.clone(), THERE).unwrap();
        request(&mut gate, "a.example").unwrap();
        let upload = b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000\r\n\r\n";
        assert_eq!(gate.offer(upload).unwrap(), Offer::Held(upload.len()));
        gate.left(upload.len());
        for _ in 0..10 {
            assert_eq!(gate.offer(&[b'x'; 100_000]).unwrap(), Offer::Pass(100_000), "it is not held");
            gate.passed(&[b'x'; 60_000]).unwrap();
            gate.passed(&[b'x'; 40_000]).unwrap();
        }
        request(&mut gate, "a.example").unwrap();
        let refusal = request(&mut gate, "b.example").unwrap_err();
        assert_eq!(refusal.code, RefusalCode::NameMismatch);
        assert!(gate.free().is_empty(), "nothing of it leaves");
    }

    #[test]
    fn http_connection_predating_name_rules_sends_nothing_more() {
        let guard = guard(json!({"allow_internet": true}));
        guard.bind(&DomainName::parse("a.example").unwrap(), *THERE.ip(), Duration::from_secs(60));
        let mut gate = Gate::open(guard.clone(), THERE).unwrap();
        request(&mut gate, "a.example").unwrap();
        guard.set_policy(policy(json!({"allow_domains": ["a.example"]})));
        gate.judge_again().unwrap();
        assert!(request(&mut gate, "a.example").is_err());
    }
}
