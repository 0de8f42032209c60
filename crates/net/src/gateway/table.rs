//! Finds the task that handles the packets of a flow.
//!
//! The VM's reader looks flows up. A flow's entry is removed when its [`Ticket`] is dropped, so that no entry is left
//! however its task ends.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::pool::Buffer;

/// The key of a flow among those of one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    pub(crate) guest_port: u16,
    pub(crate) remote: SocketAddrV4,
}

#[derive(Clone, Debug)]
pub(crate) struct Table<K> {
    entries: Arc<Mutex<Entries<K>>>,
    limit: usize,
    queue: usize,
}

#[derive(Debug)]
struct Entries<K> {
    flows: HashMap<K, FlowEntry>,
    /// Counts deliveries and openings, to find the flow that was used last and the ticket of an entry.
    clock: u64,
}

#[derive(Debug)]
struct FlowEntry {
    packets: mpsc::Sender<Buffer>,
    opened: u64,
    used: u64,
}

/// The reason that a flow gets no entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    Full,
    Taken,
}

/// The result of delivering a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Delivered,
    /// Its flow cannot keep up; the packet is dropped, as on any network.
    Lost,
    NoFlow,
}

impl<K: Copy + Debug + Eq + Hash> Table<K> {
    /// A table for at most `limit` flows, each with a queue of `queue` packets.
    pub(crate) fn new(limit: usize, queue: usize) -> Self {
        let entries = Entries { flows: HashMap::new(), clock: 0 };
        Self { entries: Arc::new(Mutex::new(entries)), limit, queue }
    }

    pub(crate) fn deliver(&self, key: &K, packet: impl FnOnce() -> Option<Buffer>) -> Delivery {
        let mut entries = lock(&self.entries);
        entries.clock += 1;
        let now = entries.clock;
        let Some(entry) = entries.flows.get_mut(key) else { return Delivery::NoFlow };
        entry.used = now;
        match entry.packets.try_reserve() {
            Ok(room) => match packet() {
                Some(packet) => {
                    room.send(packet);
                    Delivery::Delivered
                }
                None => Delivery::Lost,
            },
            Err(TrySendError::Full(())) => Delivery::Lost,
            Err(TrySendError::Closed(())) => Delivery::NoFlow,
        }
    }

    pub(crate) fn open(&self, key: K) -> Result<(Ticket<K>, mpsc::Receiver<Buffer>), OpenError> {
        let mut entries = lock(&self.entries);
        let full = entries.flows.len() >= self.limit;
        entries.clock += 1;
        let now = entries.clock;
        match entries.flows.entry(key) {
            Entry::Occupied(_) => Err(OpenError::Taken),
            Entry::Vacant(_) if full => Err(OpenError::Full),
            Entry::Vacant(entry) => {
                let (packets, receiver) = mpsc::channel(self.queue);
                entry.insert(FlowEntry { packets, opened: now, used: now });
                Ok((Ticket { entries: self.entries.clone(), key, opened: now }, receiver))
            }
        }
    }

    /// Removes the entry of the least recently used flow, whose task then sees that its packets end.
    pub(crate) fn make_room(&self) {
        let mut entries = lock(&self.entries);
        let oldest = entries.flows.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
        if let Some(key) = oldest {
            entries.flows.remove(&key);
        }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.entries).flows.len()
    }
}

/// A flow's entry in the table, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket<K: Copy + Eq + Hash> {
    entries: Arc<Mutex<Entries<K>>>,
    key: K,
    opened: u64,
}

impl<K: Copy + Eq + Hash> Drop for Ticket<K> {
    fn drop(&mut self) {
        let mut entries = lock(&self.entries);
        // The entry may belong to another flow by now.
        if entries.flows.get(&self.key).is_some_and(|entry| entry.opened == self.opened) {
            entries.flows.remove(&self.key);
        }
    }
}

fn lock<T>(entries: &Mutex<T>) -> MutexGuard<'_, T> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::pool::Pool;
    use super::*;

    #[test]
    fn flow_entry_lasts_until_its_ticket_drops() {
        let table = Table::new(2, 1);
        let packet = || Some(Pool::new(1000).take(1));
        let (first, mut packets) = table.open(1).unwrap();
        let _second = table.open(2).unwrap();
        assert_eq!(table.open(3).unwrap_err(), OpenError::Full);
        assert_eq!(table.open(2).unwrap_err(), OpenError::Taken);
        assert_eq!(table.deliver(&1, packet), Delivery::Delivered);
        assert_eq!(table.deliver(&1, packet), Delivery::Lost);
        assert!(packets.try_recv().is_ok());
        assert_eq!(table.deliver(&1, || None), Delivery::Lost);
        drop(first);
        assert_eq!(table.deliver(&1, packet), Delivery::NoFlow);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn least_recently_used_flow_makes_room() {
        let table = Table::new(2, 1);
        let packet = || Some(Pool::new(1000).take(1));
        let (old, mut old_packets) = table.open(1).unwrap();
        let _kept = table.open(2).unwrap();
        table.deliver(&1, packet);
        table.deliver(&2, packet);
        table.make_room();
        assert!(old_packets.try_recv().is_ok());
        assert!(matches!(old_packets.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)));
        let _again = table.open(1).unwrap();
        drop(old);
        assert_eq!(table.len(), 2);
    }
}
