//! One VM at the bridge: the state that all its tasks share.

use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use agentiso_core::network::NetworkPolicy;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::flows::FlowTable;
use super::name_access::{PortAccess, port_access};
use super::render::{Guest, NamedAddress};
use super::wiring::PortConfig;
use crate::flow::budget::Budget;
use crate::flow::limits::QUERIES;
use crate::flow::log::{Complaints, FlowEvent, FlowLog, FlowRecord};
use crate::flow::task_group::TaskGroup;
use crate::flow::{Limits, NetIdentity};
use crate::policy::{Guard, Transport};

/// Most addresses that are remembered for the names of one VM. Beyond that, those that expire first are forgotten.
const MAX_ADDRESSES: usize = 4096;

#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) identity: NetIdentity,
    pub(crate) tap: String,
    pub(crate) guard: Guard,
    pub(crate) log: FlowLog,
    name: RwLock<String>,
    groups: RwLock<BTreeSet<String>>,
    /// Addresses that the VM received for names.
    bound: Mutex<HashMap<Ipv4Addr, Bound>>,
    /// Its rules could not be written, so its port is down.
    pub(crate) disconnected: AtomicBool,
    complaints: Complaints,
    /// Flows that the kernel carries for it.
    flow_table: Mutex<FlowTable>,
    pub(crate) flows: Arc<Semaphore>,
    pub(crate) connecting: Arc<Semaphore>,
    pub(crate) queries: Arc<Semaphore>,
    /// Memory of the connections that we relay for it.
    pub(crate) budget: Budget,
    pub(crate) tasks: TaskTracker,
    /// The runtime of its tasks: its lane, if the caller of [`Vm::new`] has entered one.
    pub(crate) runtime: Handle,
    pub(crate) ended: CancellationToken,
    /// Tasks of the running VM.
    vm_tasks: Mutex<TaskGroup>,
    /// No VM runs on this attachment.
    vacant: AtomicBool,
}

/// An address that names were resolved to.
#[derive(Clone, Debug)]
struct Bound {
    until: Instant,
    /// Until when the rules contain it: it may be earlier than `until`, because they are not updated at once.
    written: Instant,
    /// The access by names, as the rules have it.
    access: Vec<PortAccess>,
}

/// The state of the rules for an address that the VM is about to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// The current access, for long enough.
    Current,
    /// Nothing: it can be added.
    None,
    /// Another access, or not for long enough.
    Outdated,
}

impl Vm {
    /// Its tasks run on the runtime that this is called within.
    pub(crate) fn new(
        identity: NetIdentity,
        tap: String,
        guard: Guard,
        log: FlowLog,
        limits: Limits,
    ) -> Self {
        let ended = CancellationToken::new();
        Self {
            name: RwLock::new(identity.name.clone()),
            identity,
            tap,
            guard,
            log,
            groups: RwLock::default(),
            bound: Mutex::default(),
            disconnected: AtomicBool::new(false),
            complaints: Complaints::new(),
            flow_table: Mutex::default(),
            flows: Arc::new(Semaphore::new(limits.flows)),
            connecting: Arc::new(Semaphore::new(limits.connecting)),
            queries: Arc::new(Semaphore::new(QUERIES)),
            budget: Budget::default(),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
            vm_tasks: Mutex::new(TaskGroup::within(&ended)),
            vacant: AtomicBool::new(false),
            ended,
        }
    }

    pub(crate) fn name(&self) -> String {
        self.name.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_name(&self, name: &str) {
        name.clone_into(&mut self.name.write().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn set_groups(&self, groups: BTreeSet<String>) {
        *self.groups.write().unwrap_or_else(PoisonError::into_inner) = groups;
    }

    fn groups(&self) -> BTreeSet<String> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether both VMs allow connections between them.
    pub(crate) fn may_reach(&self, other: &Self) -> bool {
        let open = |vm: &Self| vm.guard.policy().allow_inter_vm;
        (open(self) && open(other)) || !self.groups().is_disjoint(&other.groups())
    }

    /// The suffix of the names of its chains and sets.
    pub(crate) fn short(&self) -> &str {
        self.tap.trim_start_matches(super::tap::PREFIX)
    }

    pub(crate) fn flow_table(&self) -> MutexGuard<'_, FlowTable> {
        self.flow_table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn port_config(&self) -> PortConfig<'_> {
        PortConfig { tap: &self.tap, mac: self.identity.mac, address: self.identity.address }
    }

    /// Remembers an address that the VM receives for a name. Returns what the rules contain for it.
    pub(crate) fn bind(&self, address: Ipv4Addr, until: Instant) -> Knowledge {
        /// The rules may expire this much too early.
        const CLOSE_ENOUGH: Duration = Duration::from_secs(60);
        let access = port_access(&self.guard, &self.guard.policy(), address);
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(known) = bound.get_mut(&address).filter(|known| known.until > now) {
            let current = known.access == access && known.written + CLOSE_ENOUGH >= until;
            known.until = known.until.max(until);
            return if current { Knowledge::Current } else { Knowledge::Outdated };
        }
        if bound.len() >= MAX_ADDRESSES {
            bound.retain(|_, known| known.until > now);
            let first = bound.iter().min_by_key(|(_, known)| known.until).map(|(address, _)| *address);
            if let Some(first) = first.filter(|_| bound.len() >= MAX_ADDRESSES) {
                bound.remove(&first);
            }
        }
        bound.insert(address, Bound { until, written: until, access });
        Knowledge::None
    }

    /// The VM as the rules see it, with all addresses that it received for names. The caller must write it, because
    /// they are marked as written.
    pub(crate) fn guest(&self) -> Guest {
        let policy = self.guard.policy();
        let now = Instant::now();
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.retain(|_, known| known.until > now);
        for (address, known) in bound.iter_mut() {
            known.access = port_access(&self.guard, &policy, *address);
            known.written = known.until;
        }
        self.guest_with((*policy).clone(), &bound, now)
    }

    /// The result of [`guest`](Self::guest) could not be written: marks the addresses as not written.
    pub(crate) fn not_written(&self) {
        let now = Instant::now();
        for known in self.bound.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            known.written = now;
        }
    }

    /// As [`guest`](Self::guest), but only with these addresses.
    pub(crate) fn guest_told(&self, addresses: &[Ipv4Addr]) -> Guest {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner).clone();
        bound.retain(|address, _| addresses.contains(address));
        self.guest_with((*self.guard.policy()).clone(), &bound, Instant::now())
    }

    fn guest_with(&self, policy: NetworkPolicy, bound: &HashMap<Ipv4Addr, Bound>, now: Instant) -> Guest {
        let mut named: Vec<NamedAddress> = Vec::new();
        for (address, known) in bound {
            let left = known.until.saturating_duration_since(now);
            named.extend(known.access.iter().map(|access| access.at(*address, left)));
        }
        named.sort_unstable_by_key(|named| (named.address, named.port));
        Guest {
            short: self.short().to_owned(),
            tap: self.tap.clone(),
            mac: self.identity.mac,
            address: self.identity.address,
            named,
            policy,
            groups: self.groups(),
        }
    }

    /// Starts a task that ends, wherever it is, with the running VM.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let group = self.vm_tasks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.tasks.spawn_on(group.wrap(work), &self.runtime);
    }

    /// Whether no VM runs on this attachment, so that nothing answers.
    pub(crate) fn is_vacant(&self) -> bool {
        self.vacant.load(Ordering::SeqCst)
    }

    pub(crate) fn occupy(&self) {
        self.vacant.store(false, Ordering::SeqCst);
    }

    /// The VM has ended: its relayed connections are cut. All its tasks have ended when this returns.
    pub(crate) async fn vacate(self: Arc<Self>) {
        self.vacant.store(true, Ordering::SeqCst);
        let next = TaskGroup::within(&self.ended);
        let last =
            std::mem::replace(&mut *self.vm_tasks.lock().unwrap_or_else(PoisonError::into_inner), next);
        last.end().await;
    }

    /// Records a refusal in the log, unless there were too many within this second.
    pub(crate) fn refused(
        &self,
        transport: Transport,
        guest_port: Option<u16>,
        to: SocketAddrV4,
        name: Option<String>,
        message: String,
    ) {
        if !self.complaints.admit() {
            return;
        }
        let mut record = FlowRecord::now(FlowEvent::Refused, transport, to);
        record.guest_port = guest_port;
        record.name = name;
        record.message = Some(message);
        self.log.record(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{GRACE, HostAddresses};
    use agentiso_core::network::DomainName;
    use serde_json::json;

    const THERE: Ipv4Addr = Ipv4Addr::new(9, 9, 9, 9);

    fn vm() -> Vm {
        let policy = serde_json::from_value(json!({"allow_domains": ["a.example"]})).unwrap();
        let guard = Guard::new(policy, HostAddresses::fixed([]), Ipv4Addr::new(10, 42, 0, 1));
        let identity =
            NetIdentity { name: "vm".to_owned(), mac: [2; 6], address: Ipv4Addr::new(10, 42, 0, 2) };
        Vm::new(identity, "aiso00000002".to_owned(), guard, FlowLog::new(), Limits::DEFAULT)
    }

    /// Gives the VM the address, as an answer to a name does.
    fn tell(vm: &Vm, ttl: Duration) -> Knowledge {
        vm.guard.bind(&DomainName::parse("a.example").unwrap(), THERE, ttl);
        vm.bind(THERE, Instant::now() + ttl + GRACE)
    }

    /// Expiry of an element that is written to the kernel at this instant.
    fn expires(guest: &Guest) -> Instant {
        Instant::now() + guest.named[0].left
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_lookups_keep_an_address_in_rules() {
        let (vm, ttl) = (vm(), Duration::from_secs(30));
        assert_eq!(tell(&vm, ttl), Knowledge::None);
        let mut in_kernel = expires(&vm.guest_told(&[THERE]));
        let mut written = 0;
        for _ in 0..200 {
            tokio::time::advance(Duration::from_secs(20)).await;
            match tell(&vm, ttl) {
                Knowledge::Current => {}
                Knowledge::Outdated => {
                    in_kernel = expires(&vm.guest());
                    written += 1;
                }
                Knowledge::None => panic!("it is known"),
            }
            let relied_on = Instant::now() + ttl;
            assert!(in_kernel >= relied_on, "the rules forget it while the VM relies on it");
        }
        assert!(written < 100, "not with every question: {written}");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_refusals_are_logged_within_a_limit() {
        let vm = vm();
        for port in 0..10_000 {
            let to = SocketAddrV4::new(THERE, port);
            vm.refused(Transport::Tcp, Some(1), to, None, "no".to_owned());
        }
        assert_eq!(vm.log.tail(usize::MAX).len(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_rule_writes_are_retried() {
        let (vm, ttl) = (vm(), Duration::from_secs(30));
        assert_eq!(tell(&vm, ttl), Knowledge::None);
        assert_eq!(tell(&vm, ttl), Knowledge::Current);
        vm.not_written();
        assert_eq!(tell(&vm, ttl), Knowledge::Outdated);
        vm.guest();
        assert_eq!(tell(&vm, ttl), Knowledge::Current);
    }
}
