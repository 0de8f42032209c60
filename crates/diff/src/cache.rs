//! A bounded cache that keeps recently used values, with constant time per look-up.
//!
//! Values live in two generations. A used value moves to the young one; when that is full, the old one is dropped and
//! the young one becomes old. So a value survives if it is used at least once while half of the bound fills.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    young_weight: usize,
    half: usize,
}

impl<K: Copy + Eq + Hash, V: Clone> Cache<K, V> {
    /// A cache for values of at most this total weight, in the unit that `insert` uses.
    pub(crate) fn new(bound: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_weight: 0, half: (bound / 2).max(1) }
    }

    pub(crate) fn get(&mut self, key: K, weight: impl Fn(&V) -> usize) -> Option<V> {
        if let Some(value) = self.young.get(&key) {
            return Some(value.clone());
        }
        let value = self.old.remove(&key)?;
        let weight = weight(&value);
        self.insert(key, value.clone(), weight);
        Some(value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) {
        if self.young_weight.saturating_add(weight) > self.half {
            self.old = std::mem::take(&mut self.young);
            self.young_weight = 0;
        }
        self.young_weight = self.young_weight.saturating_add(weight);
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_used_entries_stay_cached() {
        let mut cache = Cache::new(8);
        for key in 0..100 {
            cache.insert(key, key, 1);
            assert_eq!(cache.get(0, |_| 1), Some(0));
        }
        assert_eq!(cache.get(50, |_| 1), None);
        assert!(cache.young.len() + cache.old.len() <= 8);
    }
}
