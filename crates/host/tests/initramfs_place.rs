//! Tests of the position of a VM's initramfs: always in free memory, and never over the firmware's ACPI tables.
//!
//! Instead of Linux a few instructions behind a kernel's header are booted. They print the position at which the boot
//! ROM has put the initramfs, and the firmware's map of the memory. So a boot takes a tenth of a second, and many sizes
//! can be tried.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

use std::fs::File;
use std::path::Path;
use std::process::Command;

use agentiso_host::qemu::ram;

/// Lengths of an initramfs: one page and parts of others, ours (some 20 MiB) to the byte around a page, and a large
/// one.
const LENGTHS: [u64; 5] = [4096, 5000, (20 << 20) - 1, 20 << 20, (48 << 20) + 1];

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4 << 10;
const TWO_GIB: u64 = 2 << 30;

/// QEMU rounds the value of `-m` up to two pages.
const GRANULE: u64 = 2 * PAGE;

/// A flag in the header's `xloadflags`: the initramfs may be anywhere. QEMU then considers only the end of the RAM.
const ABOVE_4G: u8 = 0b10;

/// A kernel's header, with real-mode instructions in place of its set-up code.
fn probe(xloadflags: u8) -> Vec<u8> {
    const CODE: [u8; 65] = [
        0xbe, 0x18, 0x02, // mov si, 0x218: where the initramfs is, and its length
        0xb9, 0x08, 0x00, // mov cx, 8
        0xe8, 0x30, 0x00, // call say
        0x66, 0x31, 0xdb, // xor ebx, ebx
        // next:
        0x66, 0xb8, 0x20, 0xe8, 0, 0, // mov eax, 0xe820: the map of the memory, entry by entry
        0x66, 0xba, 0x50, 0x41, 0x4d, 0x53, // mov edx, "SMAP"
        0x66, 0xb9, 0x14, 0, 0, 0, // mov ecx, 20
        0xbf, 0xe0, 0x03, // mov di, 0x3e0
        0xcd, 0x15, // int 0x15
        0x72, 0x0e, // jc done
        0xbe, 0xe0, 0x03, // mov si, 0x3e0
        0xb9, 0x14, 0x00, // mov cx, 20
        0xe8, 0x0b, 0x00, // call say
        0x66, 0x85, 0xdb, // test ebx, ebx
        0x75, 0xd9, // jnz next
        // done: without interrupt vectors, an interrupt resets the VM
        0x0f, 0x01, 0x1e, 0xc0, 0x03, // lidt [0x3c0]
        0xcc, // int3
        // say:
        0xba, 0xf8, 0x03, // mov dx, 0x3f8: the serial port
        0xac, // lodsb
        0xee, // out dx, al
        0xe2, 0xfc, // loop -2
        0xc3, // ret
    ];
    let mut image = vec![0; 0x600];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[1]); // one sector of set-up code
    put(0x1fe, &[0x55, 0xaa]);
    put(0x200, &[0xeb, 0x6e]); // jmp 0x270
    put(0x202, b"HdrS\x0c\x02"); // version 2.12
    put(0x211, &[0x81]); // loaded high, with a heap
    put(0x22c, &0x7fff_ffff_u32.to_le_bytes()); // initrd_addr_max, as every kernel for x86-64 has it
    put(0x236, &[xloadflags]);
    put(0x238, &2047_u32.to_le_bytes()); // the longest command line
    put(0x270, &CODE);
    image
}

/// The output of a boot.
#[derive(Debug)]
struct Map {
    initramfs: std::ops::Range<u64>,
    free: Vec<std::ops::Range<u64>>,
}

impl Map {
    fn parse(printed: &[u8]) -> Option<Self> {
        const FREE: u32 = 1;
        let word = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 4)?.try_into().ok().map(|bytes| u64::from(u32::from_le_bytes(bytes)))
        };
        let (start, length) = (word(printed, 0)?, word(printed, 4)?);
        let long = |bytes: &[u8], at: usize| Some(word(bytes, at)? | word(bytes, at + 4)? << 32);
        let mut free = Vec::new();
        for entry in printed[8..].chunks_exact(20) {
            let (start, length) = (long(entry, 0)?, long(entry, 8)?);
            if word(entry, 16)? == u64::from(FREE) {
                free.push(start..start + length);
            }
        }
        Some(Self { initramfs: start..start + length, free })
    }

    fn initramfs_is_in_free_memory(&self) -> bool {
        let inside = |free: &std::ops::Range<u64>| {
            free.start <= self.initramfs.start && self.initramfs.end <= free.end
        };
        self.free.iter().any(inside)
    }
}

/// Boots a probe kernel. QEMU refuses a memory backend whose size differs from its rounded `-m`, so a successful start
/// confirms how it rounds.
fn boot(dir: &Path, kernel: &str, ram_bytes: u64, initramfs_bytes: u64, processors: u32) -> Map {
    let initramfs = dir.join("initramfs");
    File::create(&initramfs).unwrap().set_len(initramfs_bytes).unwrap();
    let printed = dir.join("printed");
    let qemu = std::env::var_os("AGENTISO_TEST_QEMU").unwrap_or("qemu-system-x86_64".into());
    let output = Command::new("timeout")
        .arg("60")
        .arg(qemu)
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-accel",
            "tcg,thread=single",
        ])
        .args(["-machine", "microvm,acpi=on,rtc=on,memory-backend=mem"])
        .args(["-m", &format!("{}K", ram_bytes >> 10), "-smp", &processors.to_string()])
        .args(["-object", &format!("memory-backend-ram,id=mem,size={}", ram_bytes.next_multiple_of(GRANULE))])
        .args(["-append", "x", "-kernel"])
        .arg(dir.join(kernel))
        .arg("-initrd")
        .arg(&initramfs)
        .arg("-serial")
        .arg(format!("file:{}", printed.display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{ram_bytes} bytes of RAM: {text}");
    let printed = std::fs::read(&printed).unwrap();
    Map::parse(&printed).unwrap_or_else(|| panic!("{ram_bytes} bytes of RAM: {printed:?}"))
}

/// A directory with both kinds of kernels: old ones need the initramfs below `initrd_addr_max`.
fn kernels() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("new"), probe(ABOVE_4G)).unwrap();
    std::fs::write(dir.path().join("old"), probe(0)).unwrap();
    dir
}

#[test]
fn initramfs_lies_in_free_memory_at_every_size() {
    let dir = kernels();
    let check = |wanted, length, kernel, processors| {
        let map = boot(dir.path(), kernel, ram::rounded(wanted), length, processors);
        assert_eq!(map.initramfs.end - map.initramfs.start, length);
        assert!(
            map.initramfs_is_in_free_memory(),
            "{wanted} bytes of RAM, {length} bytes, {kernel}: {map:x?}"
        );
    };
    let powers = (7..=14).map(|power| MIB << power);
    // 3 GiB is where the RAM above 4 GiB begins.
    for edge in powers.chain([3072 * MIB]) {
        // One page less than an edge is rounded up to the edge. Both kinds of kernels are tried on both sides.
        let sizes = [
            (edge - MIB, "old"),
            (edge - GRANULE, "new"),
            (edge, "new"),
            (edge + PAGE, "old"),
            (edge + MIB, "new"),
        ];
        for (wanted, kernel) in sizes.into_iter().filter(|(wanted, _)| *wanted >= 128 * MIB) {
            check(wanted, LENGTHS[1], kernel, 1);
        }
    }
    // Only at 2 GiB do the length and the number of processors, which the tables grow with, matter.
    for wanted in [TWO_GIB - PAGE, TWO_GIB, TWO_GIB + PAGE] {
        for length in LENGTHS {
            for kernel in ["new", "old"] {
                check(wanted, length, kernel, 64);
            }
        }
    }
}

#[test]
fn exactly_two_gib_overlaps_the_tables() {
    let dir = kernels();
    let covered = |ram_bytes, length, processors| {
        !boot(dir.path(), "new", ram_bytes, length, processors).initramfs_is_in_free_memory()
    };
    assert!(covered(TWO_GIB, 5000, 1), "QEMU has learned to avoid this: `qemu::ram` may go");
    // A length of whole pages leaves the last page free, which is enough only for the tables of few processors.
    assert!(!covered(TWO_GIB, 8192, 1));
    assert!(covered(TWO_GIB, 8192, 64));
    assert!(covered(TWO_GIB - PAGE, 5000, 1), "one page less is rounded up to the same");
    assert!(!covered(TWO_GIB - GRANULE, 5000, 1));
}
