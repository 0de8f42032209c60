//! Answers that have not expired, shared by all guests. The answer to a name does not depend on the guest; whether the
//! guest may receive it does, and is checked every time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentiso_core::network::DomainName;
use hickory_proto::rr::RecordType;
use tokio::time::Instant;

use super::found::{Found, MAX_NEGATIVE_TTL, MAX_TTL};

/// Answers kept, of at most [`MAX_KEPT_RECORDS`] each: some megabytes, whatever the guests ask for.
const MAX_ENTRIES: usize = 4096;
const MAX_KEPT_RECORDS: usize = 32;

/// Time for which a failure is cached, so that a guest that asks in a loop does not make the host ask in a loop.
const FAILURE_TTL: Duration = Duration::from_secs(2);

const _: () = assert!(FAILURE_TTL.as_secs() < MAX_NEGATIVE_TTL.as_secs());
const _: () = assert!(MAX_NEGATIVE_TTL.as_secs() < MAX_TTL.as_secs());

pub(super) type Key = (DomainName, RecordType);

/// The result of asking upstream.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Found(Box<Found>),
    Failed(String),
}

/// An outcome and its expiry.
#[derive(Clone, Debug)]
pub(super) struct CachedOutcome {
    pub(super) outcome: Arc<Outcome>,
    until: Instant,
}

impl CachedOutcome {
    pub(super) fn new(outcome: Outcome, now: Instant) -> Self {
        let ttl = match &outcome {
            Outcome::Found(found) => found.ttl,
            Outcome::Failed(_) => FAILURE_TTL,
        };
        Self { outcome: Arc::new(outcome), until: now + ttl }
    }

    pub(super) fn remaining(&self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }

    fn is_small(&self) -> bool {
        match &*self.outcome {
            Outcome::Found(found) => found.records.len() <= MAX_KEPT_RECORDS,
            Outcome::Failed(_) => true,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<Key, CachedOutcome>>);

impl Cache {
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<CachedOutcome> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|held| held.until > now).cloned()
    }

    pub(super) fn put(&self, key: Key, held: CachedOutcome, now: Instant) {
        if held.until <= now || !held.is_small() {
            return;
        }
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MAX_ENTRIES && !entries.contains_key(&key) {
            entries.retain(|_, held| held.until > now);
            // One pass makes room for many: the eighth that expires first is removed.
            if entries.len() >= MAX_ENTRIES {
                let mut ends: Vec<Instant> = entries.values().map(|held| held.until).collect();
                let (_, limit, _) = ends.select_nth_unstable(MAX_ENTRIES / 8);
                let limit = *limit;
                entries.retain(|_, held| held.until > limit);
            }
        }
        entries.insert(key, held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        (DomainName::parse(&format!("n{n}.example")).unwrap(), RecordType::A)
    }

    fn held(ttl: u64, records: usize, now: Instant) -> CachedOutcome {
        let record = hickory_proto::rr::Record::update0(hickory_proto::rr::Name::root(), 1, RecordType::A);
        let found =
            Found { exists: true, records: vec![record; records], zone: None, ttl: Duration::from_secs(ttl) };
        CachedOutcome::new(Outcome::Found(Box::new(found)), now)
    }

    #[test]
    fn cached_answer_expires_with_its_ttl() {
        let (cache, now) = (Cache::default(), Instant::now());
        cache.put(key(1), held(10, 1, now), now);
        cache.put(key(2), held(0, 1, now), now);
        cache.put(key(3), held(10, MAX_KEPT_RECORDS + 1, now), now);
        let later = now + Duration::from_secs(9);
        assert_eq!(cache.get(&key(1), later).unwrap().remaining(later), Duration::from_secs(1));
        assert!(cache.get(&key(1), now + Duration::from_secs(10)).is_none());
        assert!(cache.get(&key(2), now).is_none() && cache.get(&key(3), now).is_none());
    }

    #[test]
    fn full_cache_evicts_earliest_expiry() {
        let (cache, now) = (Cache::default(), Instant::now());
        for n in 0..=MAX_ENTRIES {
            cache.put(key(n), held(1 + n as u64, 1, now), now);
        }
        assert!(cache.0.lock().unwrap().len() <= MAX_ENTRIES);
        assert!(cache.get(&key(MAX_ENTRIES), now).is_some());
        assert!(cache.get(&key(0), now).is_none());
    }
}
