//! Counters of passed and dropped frames, per VM.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64),+ }

        /// The counters at one instant.
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
    /// Writes to QEMU's socket, each of which wakes the guest.
    calls_down,
    /// Frames that claim to come from another address than the VM's own.
    spoofed,
    /// Invalid frames, packets or checksums.
    malformed,
    fragments,
    ipv6,
    /// Frames that are neither ARP, IPv4 nor IPv6, and multicast and broadcast packets.
    other,
    /// Packets that were dropped because a queue was full.
    overflowed,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Ordering::Relaxed);
}
