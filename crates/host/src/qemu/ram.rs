//! The amount of RAM that a VM is started with.
//!
//! It is `memory_mb`, with one exception. The firmware keeps the ACPI tables in the last pages of the RAM below
//! 4 GiB. QEMU asks for the initramfs at the very end of that RAM, and relies on its boot ROM to move it below the
//! tables. The ROM does so unless the initramfs ends in the page that the kernel's header gives as the highest address
//! of an initramfs: it then believes that the header, and not the end of the RAM, decided. Every kernel for x86-64 gives
//! 2 GiB less one byte. So with exactly 2 GiB of RAM the initramfs is written over the tables, and the kernel finds no
//! device. The length of the initramfs only decides how much of the tables is lost.
//!
//! RAM that ends anywhere else avoids the problem with every initramfs. The guest gets the largest amount below 2 GiB
//! that QEMU supports. QEMU rounds up to two pages, so an amount that is one page short of 2 GiB becomes 2 GiB as well.

/// One above the highest address of an initramfs according to the header of x86-64 kernels (`initrd_addr_max`).
const INITRAMFS_END: u64 = 0x8000_0000;

/// QEMU rounds the size of RAM up to a multiple of this, and refuses a memory backend of another size.
const GRANULE: u64 = 8 << 10;

/// The RAM of a VM in bytes.
pub fn bytes(memory_mb: u32) -> u64 {
    rounded(u64::from(memory_mb) << 20)
}

/// The RAM of a VM that should have this many bytes: as QEMU rounds it, and never exactly 2 GiB.
pub fn rounded(bytes: u64) -> u64 {
    match bytes.next_multiple_of(GRANULE) {
        INITRAMFS_END => INITRAMFS_END - GRANULE,
        bytes => bytes,
    }
}

/// The value of QEMU's `-m`.
pub(super) fn option(memory_mb: u32) -> String {
    match bytes(memory_mb) {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        bytes => format!("{}K", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ram_avoids_exactly_two_gib() {
        assert_eq!(bytes(128), 128 << 20);
        assert_eq!(bytes(2047), 2047 << 20);
        assert_eq!(bytes(2048), (2048 << 20) - 8192);
        assert_eq!(bytes(2049), 2049 << 20);
        assert_eq!(bytes(1 << 20), 1 << 40);
        for short in [1, 4096, 8191] {
            assert_eq!(rounded((2 << 30) - short), (2 << 30) - 8192, "QEMU would round it up");
        }
        assert_eq!(rounded((2 << 30) - 8192), (2 << 30) - 8192);
        assert_eq!(rounded((2 << 30) + 4096), (2 << 30) + 8192);
    }

    #[test]
    fn memory_option_states_the_rounded_amount() {
        assert_eq!(option(2047), "2047M");
        assert_eq!(option(2048), "2097144K");
    }
}
