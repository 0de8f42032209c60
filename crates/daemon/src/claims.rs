//! Exclusive claims on keys: only one call at a time may work on each.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Debug)]
pub(crate) struct Claims<K>(Arc<Mutex<BTreeSet<K>>>);

impl<K> Default for Claims<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// A claim that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim<K: Ord> {
    claims: Claims<K>,
    key: K,
}

impl<K: Ord + Clone> Claims<K> {
    /// Returns `None` if the key is already claimed.
    pub(crate) fn claim(&self, key: K) -> Option<Claim<K>> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        taken.then(|| Claim { claims: self.clone(), key })
    }
}

impl<K: Ord> Drop for Claim<K> {
    fn drop(&mut self) {
        self.claims.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_is_exclusive_until_dropped() {
        let claims = Claims::default();
        let first = claims.claim(1);
        assert!(first.is_some() && claims.claim(1).is_none() && claims.claim(2).is_some());
        drop(first);
        assert!(claims.claim(1).is_some());
    }
}
