//! What a flow must pass before its bytes leave, and again whenever the policy changes.
//!
//! ```text
//!            ┌─ TLS, git, opaque ─────────────▶ pass
//!   looking ─┤
//!            └─ HTTP under rules about names ─▶ each head held until it was judged, bodies pass
//! ```

use std::net::SocketAddrV4;
use std::time::Duration;

use tokio::sync::watch;

use crate::rules::{Guard, Refusal, RefusalCode, Transport, Verdict};
use crate::sniff::{Broken, Claim, MAX_BYTES, Requests, Sniffer};

/// How long a guest may take over the first bytes that say whom they are for, once it has begun.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long it may say nothing where nothing passes before it has shown a name. Browsers open connections that they use
/// a while later.
const SILENCE: Duration = Duration::from_secs(30);

/// Stands before the host's end of a flow. All bytes of the guest are [offered](Gate::offer) to it; those that must not
/// leave yet it holds.
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
    /// Bytes of the guest that have not left, of which the first `free` may.
    held: Vec<u8>,
    free: usize,
    /// Something has left.
    begun: bool,
    /// The server has said something.
    heard: bool,
}

#[derive(Debug)]
enum State {
    Looking {
        sniffer: Sniffer,
        holding: bool,
        /// Nothing passes, either way, before there is a name.
        needs_name: bool,
    },
    /// HTTP, of which every request is judged; the claim is the last one's.
    Following { claim: Claim, requests: Box<Requests> },
    /// Nothing more is looked at. `shut`: nothing more may come either.
    Said { claim: Claim, shut: bool },
}

/// What becomes of bytes that were offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// So many of them may leave; those that do are told to [`passed`](Gate::passed).
    Pass(usize),
    /// So many of them were taken. None: there is no room until the server has answered.
    Held(usize),
}

impl Gate {
    /// Asks the guard whether there may be such a flow.
    pub(crate) fn open(guard: Guard, to: SocketAddrV4) -> Result<Self, Refusal> {
        // First, so that no change after the verdict is missed.
        let changed = guard.watch();
        let (rule, name) = allowed(guard.judge(Transport::Tcp, to))?;
        let holding = guard.needs_claim(to, name.as_deref());
        let needs_name = holding && guard.needs_name(to, name.as_deref());
        let state = State::Looking { sniffer: Sniffer::default(), holding, needs_name };
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

    /// How soon the guest must have said what it has begun to say, or must begin.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let unfinished = self.held.len() > self.free;
        match &self.state {
            State::Looking { holding: true, .. } if unfinished => Some(PATIENCE),
            State::Looking { needs_name, .. } => needs_name.then_some(SILENCE),
            State::Following { requests, .. } => (unfinished && !requests.is_waiting()).then_some(PATIENCE),
            State::Said { .. } => None,
        }
    }

    /// Whether the guest must show a name before it may hear anything.
    pub(crate) fn needs_name(&self) -> bool {
        matches!(self.state, State::Looking { needs_name: true, .. })
    }

    /// Whether it looks at what the server says, and not only at whether it says anything. It begins to before the request
    /// that is answered has left.
    pub(crate) fn is_following(&self) -> bool {
        matches!(self.state, State::Following { .. })
    }

    /// Whether what comes next depends on what the server says.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(&self.state, State::Following { requests, .. } if requests.is_waiting())
    }

    /// Whether no byte is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// What was held and may leave.
    pub(crate) fn free(&self) -> &[u8] {
        &self.held[..self.free]
    }

    /// So many of the bytes that may leave have left.
    pub(crate) fn left(&mut self, count: usize) {
        self.begun |= count > 0;
        self.held.drain(..count);
        self.free -= count;
    }

    /// Offers the guest's next bytes, when nothing that was held before may leave.
    pub(crate) fn offer(&mut self, bytes: &[u8]) -> Result<Offer, Refusal> {
        match &mut self.state {
            State::Said { shut: true, .. } => return Err(self.not_followed()),
            State::Said { .. } if self.held.is_empty() => return Ok(Offer::Pass(bytes.len())),
            State::Following { requests, .. } if self.held.is_empty() => {
                match requests.as_ref().clone().body(bytes) {
                    Ok(0) => {}
                    Ok(count) => return Ok(Offer::Pass(count)),
                    Err(broken) => return Err(self.broken(broken)),
                }
            }
            State::Looking { .. } | State::Following { .. } | State::Said { .. } => {}
        }
        let taken = bytes.len().min(MAX_BYTES.saturating_sub(self.held.len()));
        self.held.extend_from_slice(&bytes[..taken]);
        self.look(&bytes[..taken])?;
        Ok(Offer::Held(taken))
    }

    /// These of the bytes that may leave have left.
    pub(crate) fn passed(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let State::Following { requests, .. } = &mut self.state else { return Ok(()) };
        match requests.body(bytes) {
            Ok(_) => Ok(()),
            Err(broken) => Err(self.broken(broken)),
        }
    }

    /// What the server says, before the guest hears it.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.heard = true;
        let State::Following { requests, .. } = &mut self.state else { return Ok(()) };
        match requests.heard(bytes) {
            Ok(()) => self.follow(),
            Err(broken) => Err(self.broken(broken)),
        }
    }

    /// The guest says no more, or takes too long: what it has said so far must do.
    pub(crate) fn end(&mut self) -> Result<(), Refusal> {
        let unfinished = self.patience().is_some();
        match &mut self.state {
            State::Looking { sniffer, .. } => {
                let claim = sniffer.finish();
                self.said(claim)
            }
            State::Following { .. } if unfinished => Err(self.broken(Broken("a head has no end"))),
            State::Following { .. } | State::Said { .. } => Ok(()),
        }
    }

    /// Looks at bytes that were added to those that are held.
    fn look(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        match &mut self.state {
            State::Looking { sniffer, holding, .. } => {
                let holding = *holding;
                match sniffer.push(bytes) {
                    Some(claim) => self.said(claim)?,
                    None if !holding => self.free = self.held.len(),
                    None => {}
                }
                Ok(())
            }
            State::Following { .. } => self.follow(),
            State::Said { .. } => {
                self.free = self.held.len();
                Ok(())
            }
        }
    }

    fn said(&mut self, claim: Claim) -> Result<(), Refusal> {
        let asked = matches!(self.state, State::Looking { holding: true, .. });
        if let Claim::Sni(name) | Claim::Host(name) | Claim::GitHost(name) | Claim::Encrypted(Some(name)) =
            &claim
        {
            self.name = Some(name.clone());
        }
        let verdict = asked.then(|| self.guard.rejudge_claim(self.to, self.resolved.as_deref(), &claim));
        let is_http = matches!(claim, Claim::Host(_));
        self.state = State::Said { claim: claim.clone(), shut: false };
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
                    // Nothing is waited for, so nothing can be broken.
                    let _ = requests.heard(&[]);
                }
                self.state = State::Following { claim, requests };
                return self.follow();
            }
        }
        self.free = self.held.len();
        Ok(())
    }

    /// Reads on in what is held: bodies may leave, and heads that were judged.
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
            "the connection to {to} is HTTP that servers may read in different ways ({what}), so nobody can tell to whom \
             it goes"
        );
        Refusal::new(RefusalCode::NameHidden, message)
    }

    fn not_followed(&self) -> Refusal {
        let message = format!(
            "the connection to {} is from before the rules about names; programs connect again",
            self.to
        );
        Refusal::new(RefusalCode::NameHidden, message)
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
            State::Looking { holding, needs_name, .. } => {
                *holding |= self.guard.needs_claim(self.to, resolved);
                *needs_name = *holding && self.guard.needs_name(self.to, resolved);
                self.guard.rejudge(Transport::Tcp, self.to, resolved)
            }
            State::Following { claim, .. } => self.guard.rejudge_claim(self.to, resolved, claim),
            State::Said { claim, shut } => {
                // Where its next request begins, nobody knows any more. What the server still says may come.
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
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(gate.offer(request.as_bytes())?, Offer::Held(request.len()));
        assert_eq!(gate.free(), request.as_bytes(), "it may leave");
        gate.left(request.len());
        Ok(())
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
    fn every_request_of_a_connection_is_judged_and_bodies_pass() {
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
    fn a_connection_from_before_the_rules_may_be_listened_to_and_not_used_again() {
        let guard = guard(json!({"allow_internet": true}));
        guard.bind(&DomainName::parse("a.example").unwrap(), *THERE.ip(), Duration::from_secs(60));
        let mut gate = Gate::open(guard.clone(), THERE).unwrap();
        request(&mut gate, "a.example").unwrap();
        guard.set_policy(policy(json!({"allow_domains": ["a.example"]})));
        gate.judge_again().unwrap();
        assert!(request(&mut gate, "a.example").is_err());
    }
}
