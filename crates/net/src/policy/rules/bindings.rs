//! Remembers which names an address was resolved from: the resolver's answers to this guest, for as long as the guest
//! may rely on them.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use agentiso_core::network::DomainName;
use tokio::time::Instant;

/// Addresses remembered for one guest. A guest that resolves more loses the ones that expire first.
const MAX_ADDRESSES: usize = 4096;

/// Names remembered for one address. Many names share one address at large providers.
const MAX_NAMES: usize = 32;

/// Programs use an address for longer than its time to live: they resolve once and connect later.
pub(crate) const GRACE: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Bindings(HashMap<Ipv4Addr, Vec<Binding>>);

#[derive(Debug)]
struct Binding {
    name: DomainName,
    until: Instant,
}

impl Bindings {
    pub(super) fn add(&mut self, name: &DomainName, address: Ipv4Addr, ttl: Duration, now: Instant) {
        if !self.0.contains_key(&address) && self.0.len() >= MAX_ADDRESSES {
            self.make_room(now);
        }
        let until = now + ttl + GRACE;
        let bound = self.0.entry(address).or_default();
        bound.retain(|binding| binding.until > now);
        if let Some(binding) = bound.iter_mut().find(|binding| binding.name == *name) {
            binding.until = binding.until.max(until);
            return;
        }
        if bound.len() >= MAX_NAMES
            && let Some(first) = (0..bound.len()).min_by_key(|index| bound[*index].until)
        {
            bound.swap_remove(first);
        }
        bound.push(Binding { name: name.clone(), until });
    }

    /// The names this address was resolved from.
    pub(super) fn names(&self, address: Ipv4Addr, now: Instant) -> Vec<DomainName> {
        let bound = self.0.get(&address).into_iter().flatten();
        bound.filter(|binding| binding.until > now).map(|binding| binding.name.clone()).collect()
    }

    /// Removes expired bindings and, if that is not enough, the eighth that expires first: one pass makes room for
    /// many.
    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, bound| {
            bound.retain(|binding| binding.until > now);
            !bound.is_empty()
        });
        if self.0.len() < MAX_ADDRESSES {
            return;
        }
        let mut ends: Vec<Instant> = self.0.values().filter_map(|bound| last_end(bound)).collect();
        let (_, limit, _) = ends.select_nth_unstable(MAX_ADDRESSES / 8);
        let limit = *limit;
        self.0.retain(|_, bound| last_end(bound).is_some_and(|end| end > limit));
    }
}

fn last_end(bound: &[Binding]) -> Option<Instant> {
    bound.iter().map(|binding| binding.until).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DomainName {
        DomainName::parse(text).unwrap()
    }

    #[test]
    fn binding_expires_after_ttl_and_grace() {
        let (mut bindings, now) = (Bindings::default(), Instant::now());
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let ttl = Duration::from_secs(60);
        bindings.add(&name("a.example"), address, ttl, now);
        bindings.add(&name("b.example"), address, ttl * 2, now);
        let end = now + ttl + GRACE;
        let just_before = end - Duration::from_millis(1);
        assert_eq!(bindings.names(address, just_before), [name("a.example"), name("b.example")]);
        assert_eq!(bindings.names(address, end), [name("b.example")]);
    }

    #[test]
    fn bindings_are_bounded_and_evict_earliest_expiry() {
        let (mut bindings, now) = (Bindings::default(), Instant::now());
        for n in 0..(MAX_ADDRESSES as u32 * 2) {
            let address = Ipv4Addr::from_bits(n);
            bindings.add(&name("a.example"), address, Duration::from_secs(u64::from(n)), now);
            assert!(bindings.0.len() <= MAX_ADDRESSES);
            assert_eq!(bindings.names(address, now).len(), 1);
        }
        assert!(bindings.names(Ipv4Addr::from_bits(0), now).is_empty());
        for n in 0..100 {
            let ttl = Duration::from_secs(1000 + n);
            bindings.add(&name(&format!("n{n}.example")), Ipv4Addr::BROADCAST, ttl, now);
        }
        let names = bindings.names(Ipv4Addr::BROADCAST, now);
        assert_eq!(names.len(), MAX_NAMES);
        assert!(names.contains(&name("n99.example")) && !names.contains(&name("n0.example")));
    }

    #[test]
    fn full_bindings_with_equal_expiry_make_room() {
        let (mut bindings, now) = (Bindings::default(), Instant::now());
        for n in 0..=MAX_ADDRESSES as u32 {
            bindings.add(&name("a.example"), Ipv4Addr::from_bits(n), Duration::from_secs(1), now);
        }
        assert!(bindings.0.len() <= MAX_ADDRESSES);
        assert_eq!(bindings.names(Ipv4Addr::from_bits(MAX_ADDRESSES as u32), now).len(), 1);
    }
}
