//! Disks that stand alone: made from a snapshot's layers, and checked when somebody else made them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::error::{CarryError, Flaw};
use crate::command::Invocation;
use crate::disk::qcow2_header::{Header, HeaderError};

/// Copying a disk of a hundred GB on a slow host.
const CONVERT_DEADLINE: Duration = Duration::from_secs(3600);

/// Looking through the tables of such a disk.
const CHECK_DEADLINE: Duration = Duration::from_secs(600);

/// The format as [`crate::disk`] writes it, whatever QEMU's own preferences become.
const OPTIONS: &str = "compat=1.1,cluster_size=65536,refcount_bits=16,lazy_refcounts=off";

/// The part of the header that every version 3 file has.
const HEADER_LENGTH: usize = 104;

/// Writes all that is seen through a layer into a file that needs no other.
pub(super) async fn flatten(layer: &Path, into: &Path) -> Result<(), CarryError> {
    let convert = Invocation::new("qemu-img", CONVERT_DEADLINE)
        .args(["convert", "-f", "qcow2", "-O", "qcow2", "-o", OPTIONS, "--"])
        .arg(layer)
        .arg(into);
    convert.run().await.map(drop).map_err(CarryError::Convert)
}

/// Whether a disk from elsewhere can be used: it refers to no other file, has no features that we or QEMU would have
/// to trust it for, the expected size, and tables that hold together.
pub(super) async fn check(disk: &Path, virtual_bytes: u64) -> Result<(), Flaw> {
    // The header first: QEMU is not to open a file that might lead it elsewhere.
    check_header(disk, virtual_bytes)?;
    let check =
        Invocation::new("qemu-img", CHECK_DEADLINE).args(["check", "-q", "-f", "qcow2", "--"]).arg(disk);
    check.run().await.map(drop).map_err(Flaw::Damaged)
}

fn check_header(disk: &Path, virtual_bytes: u64) -> Result<(), Flaw> {
    let header = Header::read(disk)?;
    if let Some(other) = header.backing_file {
        return Err(Flaw::Backing(other));
    }
    if header.virtual_size != virtual_bytes {
        return Err(Flaw::DiskSize { found: header.virtual_size, expected: virtual_bytes });
    }
    let mut start = [0; HEADER_LENGTH];
    let file = File::open(disk).map_err(HeaderError::Read)?;
    file.read_exact_at(&mut start, 0).map_err(HeaderError::Read)?;
    refuse_features(&start)
}

/// Only what [`flatten`] makes is taken; see the field table of the format's specification.
fn refuse_features(start: &[u8; HEADER_LENGTH]) -> Result<(), Flaw> {
    let zero = |from: usize, to: usize| start[from..to].iter().all(|byte| *byte == 0);
    let refused = |what| Err(Flaw::Header(HeaderError::Unsupported(what)));
    if start[4..8] != 3u32.to_be_bytes() {
        return refused("version 2 of the format");
    }
    if start[20..24] != 16u32.to_be_bytes() || start[96..100] != 4u32.to_be_bytes() {
        return refused("unusual sizes of clusters or refcounts");
    }
    if !zero(32, 36) {
        return refused("encryption");
    }
    if !zero(60, 64) {
        return refused("internal snapshots");
    }
    // Incompatible features: an external data file is one of them. Autoclear features: bitmaps.
    if !zero(72, 80) || !zero(88, 96) {
        return refused("features of its own");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// A header without anything; offset 8 on is the backing file's.
    fn plain() -> Vec<u8> {
        let mut start = vec![0; HEADER_LENGTH];
        start[..4].copy_from_slice(b"QFI\xfb");
        start[7] = 3;
        start[23] = 16;
        start[24..32].copy_from_slice(&GIB.to_be_bytes());
        start[99] = 4;
        start
    }

    fn checked(start: &[u8]) -> Result<(), Flaw> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, start).unwrap();
        check_header(&path, GIB)
    }

    #[test]
    fn only_a_disk_that_stands_alone_is_taken() {
        checked(&plain()).unwrap();
        let mut backed = plain();
        backed[15] = HEADER_LENGTH as u8;
        backed[19] = 11;
        backed.extend(b"/etc/passwd");
        assert!(matches!(checked(&backed), Err(Flaw::Backing(name)) if name == "/etc/passwd"));
        assert!(matches!(checked(&plain()[..50]), Err(Flaw::Header(HeaderError::Read(_)))));
        assert!(matches!(checked(b"#!/bin/sh"), Err(Flaw::Header(HeaderError::Magic))));
        let changes = [
            (7, 2, "version 2"),
            (23, 9, "unusual sizes"),
            (35, 2, "encryption"),
            (63, 1, "internal snapshots"),
            (79, 4, "features"),
            (79, 16, "features"),
            (72, 1, "features"),
            (95, 1, "features"),
            (99, 6, "unusual sizes"),
            (31, 1, "bytes and should have"),
        ];
        for (at, value, words) in changes {
            let mut changed = plain();
            changed[at] = value;
            let refusal = checked(&changed).unwrap_err().to_string();
            assert!(refusal.contains(words), "{at}: {refusal}");
        }
    }
}
