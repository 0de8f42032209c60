//! The resolver's state, shared by all guests: upstreams, cache, questions in flight.

use std::net::SocketAddr;
use std::time::Duration;

use agentiso_core::network::DomainName;
use hickory_proto::rr::RecordType;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::cache::{Cache, CachedOutcome, Outcome};
use super::flights::Flights;
use super::upstream::{TOTAL, Upstreams};
use super::wire;
use crate::policy::Guard;

/// Questions of all guests that are upstream at once. Each has a socket of the host.
const MAX_QUESTIONS: usize = 512;

/// Timeout of a guest's question, in the queue and for the answer.
const WAIT: Duration = Duration::from_secs(5);

const _: () = assert!(TOTAL.as_millis() < WAIT.as_millis());

#[derive(Debug)]
pub struct Resolver {
    upstreams: Upstreams,
    cache: Cache,
    flights: Flights,
    questions: Semaphore,
}

impl Resolver {
    /// A resolver that asks these servers, in this order of preference. Without any it answers only for neighbours.
    pub fn new(upstreams: Vec<SocketAddr>) -> Self {
        Self {
            upstreams: Upstreams::new(upstreams),
            cache: Cache::default(),
            flights: Flights::default(),
            questions: Semaphore::new(MAX_QUESTIONS),
        }
    }

    /// Looks up the name in the cache or upstream. The caller has checked the policy.
    pub(super) async fn look_up(
        &self,
        guard: &Guard,
        domain: &DomainName,
        kind: RecordType,
    ) -> CachedOutcome {
        let key = (domain.clone(), kind);
        if let Some(held) = self.cache.get(&key, Instant::now()) {
            return held;
        }
        let failed = |why: &str| CachedOutcome::new(Outcome::Failed(why.to_owned()), Instant::now());
        let asking = async {
            let Ok(_turn) = guard.lookups().acquire().await else { return failed("the guest is gone") };
            self.flights.join(&key, self.ask(&key.0, kind)).await
        };
        timeout(WAIT, asking).await.unwrap_or_else(|_| failed("too many names are being looked up at once"))
    }

    async fn ask(&self, domain: &DomainName, kind: RecordType) -> CachedOutcome {
        let outcome = match (wire::name(domain), self.questions.acquire().await) {
            (Some(name), Ok(_socket)) => match self.upstreams.ask(&name, kind).await {
                Ok(found) => Outcome::Found(Box::new(found)),
                Err(message) => Outcome::Failed(message),
            },
            (None, _) => Outcome::Failed(format!("{domain} is not a valid DNS name")),
            (Some(_), Err(_)) => Outcome::Failed("the resolver is closed".to_owned()),
        };
        let now = Instant::now();
        let held = CachedOutcome::new(outcome, now);
        self.cache.put((domain.clone(), kind), held.clone(), now);
        held
    }
}
