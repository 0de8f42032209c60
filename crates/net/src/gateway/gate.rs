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
    /// What the flow was allowed as.
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
        Ok(Self { guard, to, changed, rule, name, state })
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
        if let Claim::Sni(name) | Claim::Host(name) = &claim {
            self.name = Some(name.clone());
        }
        let verdict = asked.then(|| self.guard.judge_claim(self.to, &claim));
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
        allowed(self.guard.rejudge(Transport::Tcp, self.to, self.name.as_deref()))?;
        let asked = self.guard.needs_claim(self.to);
        match &mut self.state {
            State::Looking { holding, .. } => *holding |= asked,
            // The name was judged above.
            State::Said(Claim::Sni(_) | Claim::Host(_)) => {}
            State::Said(claim @ (Claim::NoSni | Claim::NoHost | Claim::Opaque)) => {
                if asked {
                    allowed(self.guard.judge_claim(self.to, claim))?;
                }
            }
        }
        Ok(())
    }
}

fn allowed(verdict: Verdict) -> Result<(String, Option<String>), Refusal> {
    match verdict {
        Verdict::Allowed { rule, name } => Ok((rule, name)),
        Verdict::Refused(refusal) => Err(refusal),
    }
}
