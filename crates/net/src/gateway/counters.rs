//! What passed and what was dropped, per VM.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64),+ }

        /// The counters at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counted { $($(#[$doc])* pub $name: u64),+ }

        impl Counters {
            pub(crate) fn read(&self) -> Counted {
                Counted { $($name: self.$name.load(Ordering::Relaxed)),+ }
            }
        }
    };
}

counters! {
    /// Frames and bytes from the guest.
    frames_up,
    bytes_up,
    /// Frames and bytes to the guest.
    frames_down,
    bytes_down,
    /// How often the guest was called upon for them.
    calls_down,
    /// Frames that claim to come from another address than the VM's own.
    spoofed,
    /// Frames, packets or checksums that are not as they should be.
    malformed,
    fragments,
    ipv6,
    /// Everything else that is neither ARP nor IPv4, and what is meant for many.
    other,
    /// Packets for which there was no room in a queue.
    overflowed,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Ordering::Relaxed);
}
