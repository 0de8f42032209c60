//! One machine at the bridge: what all its tasks share.

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

use super::flows::Ledger;
use super::named::{self, Said};
use super::render::{Guest, Named};
use super::wiring::Plug;
use crate::budget::Budget;
use crate::gateway::settings::QUERIES;
use crate::gateway::{Limits, Seat};
use crate::life::Life;
use crate::log::{Complaints, FlowEvent, FlowLog, FlowRecord};
use crate::rules::{Guard, Transport};

/// Addresses that one machine's names have led to. Beyond, the ones that expire first are forgotten.
const MAX_ADDRESSES: usize = 4096;

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) seat: Seat,
    pub(crate) tap: String,
    pub(crate) guard: Guard,
    pub(crate) log: FlowLog,
    name: RwLock<String>,
    groups: RwLock<BTreeSet<String>>,
    /// Addresses that the machine was told for names.
    bound: Mutex<HashMap<Ipv4Addr, Bound>>,
    /// Its rules could not be written, so its port is down.
    pub(crate) cut: AtomicBool,
    complaints: Complaints,
    /// What the kernel carries for it.
    ledger: Mutex<Ledger>,
    pub(crate) flows: Arc<Semaphore>,
    pub(crate) connecting: Arc<Semaphore>,
    pub(crate) queries: Arc<Semaphore>,
    /// Memory of the connections that we carry for it.
    pub(crate) budget: Budget,
    pub(crate) tasks: TaskTracker,
    /// What runs its tasks, and nobody else's if whoever attached it has seen to that.
    pub(crate) runtime: Handle,
    pub(crate) ended: CancellationToken,
    /// What the machine that has the place has going on.
    life: Mutex<Life>,
    /// No machine has the place.
    vacant: AtomicBool,
}

/// An address that names have led to.
#[derive(Clone, Debug)]
struct Bound {
    until: Instant,
    /// Until when the rules know it: not always as long, because they need not be told at once.
    written: Instant,
    /// What names say about it, as the rules know it.
    said: Vec<Said>,
}

/// What the rules know of an address that the machine is about to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// All there is to know.
    Current,
    /// Nothing: it can be added.
    None,
    /// Something else, or not for long enough.
    Outdated,
}

impl Place {
    /// Its tasks run on the runtime that this is called within.
    pub(crate) fn new(seat: Seat, tap: String, guard: Guard, log: FlowLog, limits: Limits) -> Self {
        let ended = CancellationToken::new();
        Self {
            name: RwLock::new(seat.name.clone()),
            seat,
            tap,
            guard,
            log,
            groups: RwLock::default(),
            bound: Mutex::default(),
            cut: AtomicBool::new(false),
            complaints: Complaints::new(),
            ledger: Mutex::default(),
            flows: Arc::new(Semaphore::new(limits.flows)),
            connecting: Arc::new(Semaphore::new(limits.connecting)),
            queries: Arc::new(Semaphore::new(QUERIES)),
            budget: Budget::default(),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
            life: Mutex::new(Life::within(&ended)),
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

    /// Whether both machines let each other in.
    pub(crate) fn may_reach(&self, other: &Self) -> bool {
        let open = |place: &Self| place.guard.policy().allow_inter_vm;
        (open(self) && open(other)) || !self.groups().is_disjoint(&other.groups())
    }

    /// What its chains and sets are called by.
    pub(crate) fn short(&self) -> &str {
        self.tap.trim_start_matches(super::tap::PREFIX)
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn plug(&self) -> Plug<'_> {
        Plug { tap: &self.tap, mac: self.seat.mac, address: self.seat.address }
    }

    /// Remembers an address that the machine is told for a name. Returns what the rules know of it.
    pub(crate) fn bind(&self, address: Ipv4Addr, until: Instant) -> Knowledge {
        /// The rules need not know it to the second.
        const CLOSE_ENOUGH: Duration = Duration::from_secs(60);
        let said = named::of(&self.guard, &self.guard.policy(), address);
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(known) = bound.get_mut(&address).filter(|known| known.until > now) {
            let current = known.said == said && known.written + CLOSE_ENOUGH >= until;
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
        bound.insert(address, Bound { until, written: until, said });
        Knowledge::None
    }

    /// The machine as the rules see it, with all that names say about addresses it was told. Whoever asks writes it.
    pub(crate) fn guest(&self) -> Guest {
        let policy = self.guard.policy();
        let now = Instant::now();
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.retain(|_, known| known.until > now);
        for (address, known) in bound.iter_mut() {
            known.said = named::of(&self.guard, &policy, *address);
            known.written = known.until;
        }
        self.guest_with((*policy).clone(), &bound, now)
    }

    /// What [`guest`](Self::guest) gave could not be written: the rules know less than they should.
    pub(crate) fn not_written(&self) {
        let now = Instant::now();
        for known in self.bound.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            known.written = now;
        }
    }

    /// As [`guest`](Self::guest), with these addresses alone.
    pub(crate) fn guest_told(&self, addresses: &[Ipv4Addr]) -> Guest {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner).clone();
        bound.retain(|address, _| addresses.contains(address));
        self.guest_with((*self.guard.policy()).clone(), &bound, Instant::now())
    }

    fn guest_with(&self, policy: NetworkPolicy, bound: &HashMap<Ipv4Addr, Bound>, now: Instant) -> Guest {
        let mut named: Vec<Named> = Vec::new();
        for (address, known) in bound {
            let left = known.until.saturating_duration_since(now);
            named.extend(known.said.iter().map(|said| said.about(*address, left)));
        }
        named.sort_unstable_by_key(|named| (named.address, named.port));
        Guest {
            short: self.short().to_owned(),
            tap: self.tap.clone(),
            mac: self.seat.mac,
            address: self.seat.address,
            named,
            policy,
            groups: self.groups(),
        }
    }

    /// Starts a task that ends, wherever it is, with the machine that has the place.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let life = self.life.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.tasks.spawn_on(life.part(work), &self.runtime);
    }

    /// Whether no machine has the place, so that nobody answers.
    pub(crate) fn is_vacant(&self) -> bool {
        self.vacant.load(Ordering::SeqCst)
    }

    pub(crate) fn occupy(&self) {
        self.vacant.store(false, Ordering::SeqCst);
    }

    /// The machine is gone: what we carried for it is cut. Nothing of it is left when this returns.
    pub(crate) async fn vacate(self: Arc<Self>) {
        self.vacant.store(true, Ordering::SeqCst);
        let next = Life::within(&self.ended);
        let last = std::mem::replace(&mut *self.life.lock().unwrap_or_else(PoisonError::into_inner), next);
        last.end().await;
    }

    /// Puts something that was refused into the log, unless there was too much of that already.
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
    use crate::rules::{GRACE, HostAddresses};
    use agentiso_core::network::DomainName;
    use serde_json::json;

    const THERE: Ipv4Addr = Ipv4Addr::new(9, 9, 9, 9);

    fn place() -> Place {
        let policy = serde_json::from_value(json!({"allow_domains": ["a.example"]})).unwrap();
        let guard = Guard::new(policy, HostAddresses::fixed([]), Ipv4Addr::new(10, 42, 0, 1));
        let seat = Seat { name: "vm".to_owned(), mac: [2; 6], address: Ipv4Addr::new(10, 42, 0, 2) };
        Place::new(seat, "aiso00000002".to_owned(), guard, FlowLog::new(), Limits::DEFAULT)
    }

    /// Has the machine be told the address, as names are answered.
    fn tell(place: &Place, ttl: Duration) -> Knowledge {
        place.guard.bind(&DomainName::parse("a.example").unwrap(), THERE, ttl);
        place.bind(THERE, Instant::now() + ttl + GRACE)
    }

    /// Until when an element that is written at this moment is in the kernel.
    fn expires(guest: &Guest) -> Instant {
        Instant::now() + guest.named[0].left
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_asked_for_often_stays_in_the_rules() {
        let (place, ttl) = (place(), Duration::from_secs(30));
        assert_eq!(tell(&place, ttl), Knowledge::None);
        let mut in_kernel = expires(&place.guest_told(&[THERE]));
        let mut written = 0;
        for _ in 0..200 {
            tokio::time::advance(Duration::from_secs(20)).await;
            match tell(&place, ttl) {
                Knowledge::Current => {}
                Knowledge::Outdated => {
                    in_kernel = expires(&place.guest());
                    written += 1;
                }
                Knowledge::None => panic!("it is known"),
            }
            let relied_on = Instant::now() + ttl;
            assert!(in_kernel >= relied_on, "the rules forget it while the machine relies on it");
        }
        assert!(written < 100, "not with every question: {written}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_again_and_again_is_told_of_so_often_and_no_more() {
        let place = place();
        for port in 0..10_000 {
            let to = SocketAddrV4::new(THERE, port);
            place.refused(Transport::Tcp, Some(1), to, None, "no".to_owned());
        }
        assert_eq!(place.log.tail(usize::MAX).len(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_written_is_tried_again() {
        let (place, ttl) = (place(), Duration::from_secs(30));
        assert_eq!(tell(&place, ttl), Knowledge::None);
        assert_eq!(tell(&place, ttl), Knowledge::Current);
        place.not_written();
        assert_eq!(tell(&place, ttl), Knowledge::Outdated);
        place.guest();
        assert_eq!(tell(&place, ttl), Knowledge::Current);
    }
}
