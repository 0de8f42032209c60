//! Memory for the buffers of one VM's connections.
//!
//! Every connection has one buffer for each direction. The first connections of a VM get large buffers; the more memory
//! they hold, the smaller are the buffers of the next one. So all connections that a VM may have open stay within a
//! bound ([`Budget::most`]) and none has to be refused. A connection gives its share back when it ends.
//!
//! The memory is mapped directly: the kernel provides each page at the first write and gets it back on release. Memory
//! of the allocator would stay with the process, in pieces that are of no use for anything else.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Buffers of the largest size are given out up to here, for both directions together.
const LARGE_UP_TO: usize = 16 << 20;

/// Buffers of [`MEDIUM`] size are given out up to here.
const MEDIUM_UP_TO: usize = 24 << 20;

const MEDIUM: usize = 64 << 10;

/// Enough for a connection to make progress in small steps.
const SMALL: usize = 8 << 10;

/// Bytes of a buffer that keep their pages when it is used again; see [`Buffers::release`].
const KEPT: usize = 32 << 10;

/// Bytes that the connections of one VM hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// Two buffers, of the largest size if the VM has few connections.
    pub(crate) fn buffers(&self, largest: usize) -> io::Result<Buffers> {
        let spend = |used: usize| Some(used + 2 * each(used, largest));
        let used =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).unwrap_or_else(|used| used);
        let each = each(used, largest);
        let share = Share { budget: self.clone(), bytes: 2 * each };
        Ok(Buffers { region: Region::new(2 * each)?, each, _share: share })
    }

    /// Bytes that are given out.
    pub(crate) fn used(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// The most bytes that this many connections can hold together.
    pub(crate) const fn most(connections: usize) -> usize {
        MEDIUM_UP_TO + connections * 2 * SMALL
    }
}

/// The size of each of the next two buffers.
fn each(used: usize, largest: usize) -> usize {
    let size = if used + 2 * largest <= LARGE_UP_TO {
        largest
    } else if used + 2 * MEDIUM <= MEDIUM_UP_TO {
        MEDIUM
    } else {
        SMALL
    };
    size.min(largest)
}

/// A connection's part of the budget, given back when it is dropped.
#[derive(Debug)]
struct Share {
    budget: Budget,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One buffer for each direction of a connection, zeroed at first.
#[derive(Debug)]
pub(crate) struct Buffers {
    region: Region,
    each: usize,
    _share: Share,
}

impl Buffers {
    /// The size of each of them.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    pub(crate) fn split(&mut self) -> (&mut [u8], &mut [u8]) {
        self.region.bytes().split_at_mut(self.each)
    }

    /// As [`split`](Self::split), for a caller that cannot borrow the buffers.
    ///
    /// # Safety
    ///
    /// The slices must not be used after this is dropped, nor while slices of an earlier split are in use.
    pub(crate) unsafe fn split_unbounded(&mut self) -> (&'static mut [u8], &'static mut [u8]) {
        let (first, second) = self.split();
        let (first, second) = (first.as_mut_ptr(), second.as_mut_ptr());
        // SAFETY: both are of this length and do not overlap; the caller promises not to use them after the buffers are
        // dropped.
        unsafe { (slice::from_raw_parts_mut(first, self.each), slice::from_raw_parts_mut(second, self.each)) }
    }

    /// Gives all pages but the first of each buffer back to the kernel. Their content is lost.
    pub(crate) fn release(&mut self) {
        for start in [0, self.each] {
            self.region.release(start + self.each.min(KEPT), self.each.saturating_sub(KEPT));
        }
    }
}

/// Memory of its own, straight from the kernel.
#[derive(Debug)]
struct Region {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the region owns its memory exclusively, like a `Box`.
unsafe impl Send for Region {}
// SAFETY: the same; it is written only through a mutable reference.
unsafe impl Sync for Region {}

impl Region {
    fn new(length: usize) -> io::Result<Self> {
        let (protection, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses an unused address.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, kind) }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        // One byte in a buffer must not cost a huge page of two megabytes. Kernels without huge pages return an error,
        // which does not matter.
        // SAFETY: it changes how the region is backed, not its content.
        let _ = unsafe { madvise(start.as_ptr(), length, Advice::LinuxNoHugepage) };
        Ok(Self { start, length })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the region is mapped, initialised with zeros and this long; nothing else refers to it.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.length) }
    }

    fn release(&mut self, from: usize, length: usize) {
        if length == 0 || from + length > self.length {
            return;
        }
        // A failure only costs memory.
        // SAFETY: the part lies in the region; its bytes read as zeros from then on.
        let _ = unsafe { madvise(self.start.as_ptr().byte_add(from), length, Advice::LinuxDontNeed) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: no reference into the region outlives it.
        if let Err(error) = unsafe { munmap(self.start.as_ptr(), self.length) } {
            tracing::error!(%error, "cannot free the memory of a connection");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 256 << 10;

    /// Resident memory of this process.
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
    }

    #[test]
    fn buffers_shrink_with_use_and_stay_within_budget() {
        let budget = Budget::default();
        let all: Vec<_> = (0..1024).map(|_| budget.buffers(LARGE).unwrap()).collect();
        let sizes: Vec<usize> = all.iter().map(Buffers::each).collect();
        assert!(sizes.is_sorted_by(|a, b| a >= b));
        assert_eq!((sizes[0], sizes[100], sizes[1023]), (LARGE, SMALL, SMALL));
        assert!(sizes.contains(&MEDIUM));
        assert!(budget.used() <= Budget::most(1024));
        drop(all);
        assert_eq!(budget.used(), 0);
        assert_eq!(budget.buffers(LARGE).unwrap().each(), LARGE);
        assert_eq!(budget.buffers(1000).unwrap().each(), 1000);
    }

    #[test]
    fn ended_connections_return_their_pages() {
        let budget = Budget::default();
        let before = resident();
        let mut all: Vec<_> = (0..32).map(|_| budget.buffers(LARGE).unwrap()).collect();
        assert!(resident() - before < 2 << 20, "nothing is there that was not written to");
        for buffers in &mut all {
            let (first, second) = buffers.split();
            first.fill(1);
            second.fill(2);
            assert_eq!((first[LARGE - 1], second[0]), (1, 2));
        }
        assert!(resident() - before >= 15 << 20);
        all.truncate(16);
        for buffers in &mut all {
            buffers.release();
            let (first, second) = buffers.split();
            assert_eq!((first[KEPT - 1], first[KEPT], second[0], second[LARGE - 1]), (1, 0, 2, 0));
        }
        assert!(resident() - before < 4 << 20);
        drop(all);
        assert!(resident().saturating_sub(before) < 2 << 20);
    }
}
