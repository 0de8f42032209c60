//! A pool of buffers for frames, which are used again and again.
//!
//! A frame of the large MTU has 64 KiB. Allocating and clearing that much for each one costs more than anything else
//! that is done with it, so a buffer goes back to its pool when it is dropped. The pool also limits how many bytes of
//! the guest's packets wait to be handled.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Below this the allocator is faster than the pool.
const SMALL: usize = 2048;

/// Free buffers that are kept, per VM. The rest goes back to the allocator.
pub(crate) const KEPT: usize = 32;

/// Cost of a waiting packet besides its bytes, so that empty ones are not free.
const OVERHEAD: usize = 128;

#[derive(Clone, Debug)]
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    free: Mutex<Vec<Vec<u8>>>,
    waiting: AtomicUsize,
    limit: usize,
}

impl Pool {
    /// A pool that copies packets of up to this many bytes in total before it refuses some.
    pub(crate) fn new(limit: usize) -> Self {
        Self { inner: Arc::new(Inner { free: Mutex::default(), waiting: AtomicUsize::new(0), limit }) }
    }

    /// A buffer of this length with arbitrary old content.
    pub(crate) fn take(&self, length: usize) -> Buffer {
        let mut bytes = if length <= SMALL { Vec::new() } else { self.free().pop().unwrap_or_default() };
        if bytes.len() < length {
            bytes.resize(length, 0);
        }
        Buffer { bytes, length, weight: 0, home: self.clone() }
    }

    /// Copies a packet of the guest to be handled later, unless too many wait already.
    pub(crate) fn copy(&self, bytes: &[u8]) -> Option<Buffer> {
        let weight = bytes.len() + OVERHEAD;
        if self.inner.waiting.fetch_add(weight, Ordering::Relaxed) + weight > self.inner.limit {
            self.inner.waiting.fetch_sub(weight, Ordering::Relaxed);
            return None;
        }
        let mut buffer = self.take(bytes.len());
        buffer.weight = weight;
        buffer.copy_from_slice(bytes);
        Some(buffer)
    }

    fn free(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.inner.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Buffer {
    /// At least `length` bytes; never shortened, so that nothing is cleared twice.
    bytes: Vec<u8>,
    length: usize,
    /// Its cost among the waiting packets.
    weight: usize,
    home: Pool,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.inner.waiting.fetch_sub(self.weight, Ordering::Relaxed);
        if self.bytes.len() > SMALL {
            let mut free = self.home.free();
            if free.len() < KEPT {
                free.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_reuses_only_large_buffers() {
        let pool = Pool::new(1 << 20);
        drop((pool.take(60_000), pool.take(100)));
        assert_eq!(pool.free().len(), 1);
        let again = pool.take(3000);
        assert_eq!((again.len(), again.bytes.len()), (3000, 60_000));
        assert!(pool.free().is_empty());
    }

    #[test]
    fn pool_keeps_a_bounded_number_of_buffers() {
        let pool = Pool::new(1 << 20);
        let many: Vec<_> = (0..KEPT * 2).map(|_| pool.take(5000)).collect();
        drop(many);
        assert_eq!(pool.free().len(), KEPT);
    }

    #[test]
    fn pool_copies_no_packets_beyond_its_limit() {
        let pool = Pool::new(10_000);
        let first = pool.copy(&[1; 6000]).unwrap();
        assert!(pool.copy(&[2; 6000]).is_none());
        drop(first);
        assert_eq!(pool.copy(&[3; 6000]).unwrap()[..3], [3, 3, 3]);
        let empty: Vec<_> = std::iter::from_fn(|| pool.copy(&[])).collect();
        assert_eq!(empty.len(), 10_000 / OVERHEAD);
    }
}
