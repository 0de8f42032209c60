//! One VM's guard: the state that decisions need, shared by everything that carries the VM's flows.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use agentiso_core::network::{DomainName, NetworkPolicy};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::bindings::Bindings;
use super::host::HostAddresses;
use super::judge::Judge;
use super::verdict::{Refusal, Transport, Verdict};
use crate::policy::sniff::Claim;

/// Names of one guest that are looked up upstream at once; further lookups wait. Few enough that a guest whose names
/// are never answered does not keep other guests from the resolvers.
const MAX_LOOKUPS: usize = 32;

/// Cheap to clone; all clones are the same guard.
#[derive(Clone, Debug)]
pub struct Guard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    policy: RwLock<Arc<NetworkPolicy>>,
    generation: watch::Sender<u64>,
    bindings: Mutex<Bindings>,
    host: HostAddresses,
    gateway: Ipv4Addr,
    lookups: Semaphore,
}

impl Guard {
    pub fn new(policy: NetworkPolicy, host: HostAddresses, gateway: Ipv4Addr) -> Self {
        Self(Arc::new(Inner {
            policy: RwLock::new(Arc::new(policy)),
            generation: watch::Sender::new(0),
            bindings: Mutex::default(),
            host,
            gateway,
            lookups: Semaphore::new(MAX_LOOKUPS),
        }))
    }

    /// Judges by this policy from here on, and notifies all watchers.
    pub fn set_policy(&self, policy: NetworkPolicy) {
        *self.0.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        self.0.generation.send_modify(|generation| *generation += 1);
    }

    pub fn policy(&self) -> Arc<NetworkPolicy> {
        Arc::clone(&self.0.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The policy's generation. When it changes, an open flow must ask [`Guard::rejudge`].
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }

    /// Whether this flow may be opened. For TCP the answer is provisional if [`Guard::needs_claim`].
    pub fn judge(&self, protocol: Transport, to: SocketAddrV4) -> Verdict {
        self.with_judge(to, None, |judge| judge.open(protocol))
    }

    /// Whether an open flow may go on. `resolved` is the name that [`Guard::judge`] gave when the flow was opened. It
    /// counts even if its binding has expired: only a changed policy ends a flow. A name that the guest itself put into
    /// the connection must not be given here.
    pub(crate) fn rejudge(&self, protocol: Transport, to: SocketAddrV4, resolved: Option<&str>) -> Verdict {
        self.with_judge(to, resolved, |judge| judge.open(protocol))
    }

    /// Whether a TCP flow may go on after its first bytes are known; `resolved` as in [`Guard::rejudge`].
    pub(crate) fn rejudge_claim(&self, to: SocketAddrV4, resolved: Option<&str>, claim: &Claim) -> Verdict {
        self.with_judge(to, resolved, |judge| judge.claim(claim))
    }

    /// Whether the first bytes of a TCP flow must be inspected before they leave. `resolved` as in [`Guard::rejudge`].
    pub(crate) fn needs_claim(&self, to: SocketAddrV4, resolved: Option<&str>) -> bool {
        self.with_judge(to, resolved, |judge| judge.needs_claim())
    }

    /// Whether a TCP flow must show a name that can be judged before anything passes in either direction. `resolved` as
    /// in [`Guard::rejudge`].
    pub(crate) fn needs_name(&self, to: SocketAddrV4, resolved: Option<&str>) -> bool {
        self.with_judge(to, resolved, |judge| judge.needs_name())
    }

    /// Whether the guest may look up this name.
    pub(crate) fn judge_name(&self, name: &DomainName) -> Verdict {
        super::judge::name(&self.policy(), name)
    }

    /// The reason to hide this address from the guest, if any. Addresses that it could not reach on any port are
    /// hidden: a public name that leads to a private address is an attack, or of no use.
    pub(crate) fn address_refusal(&self, address: Ipv4Addr) -> Option<Refusal> {
        self.with_judge(SocketAddrV4::new(address, 0), None, |judge| judge.address_refusal())
    }

    /// Remembers that the guest received this address for this name.
    pub fn bind(&self, name: &DomainName, address: Ipv4Addr, ttl: Duration) {
        let mut bindings = self.0.bindings.lock().unwrap_or_else(PoisonError::into_inner);
        bindings.add(name, address, ttl, Instant::now());
    }

    /// Limits the lookups of this guest that are in progress.
    pub(crate) fn lookups(&self) -> &Semaphore {
        &self.0.lookups
    }

    fn with_judge<T>(&self, to: SocketAddrV4, resolved: Option<&str>, ask: impl FnOnce(Judge<'_>) -> T) -> T {
        let policy = self.policy();
        let mut names = {
            let bindings = self.0.bindings.lock().unwrap_or_else(PoisonError::into_inner);
            bindings.names(*to.ip(), Instant::now())
        };
        if let Some(name) = resolved.and_then(|name| DomainName::from_wire(name).ok()) {
            names.retain(|other| *other != name);
            names.insert(0, name);
        }
        let is_host = self.0.host.contains(*to.ip());
        ask(Judge { policy: &policy, names: &names, is_host, gateway: self.0.gateway, to })
    }
}
