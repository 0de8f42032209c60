//! Standalone disks: made from a snapshot's layers for an export, and checked before an import uses them.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_disk::qcow2_header::{Header, HeaderError, read_ours};
use agentiso_sys::cgroup::{Cgroups, Group};
use agentiso_sys::command::which;
use agentiso_sys::files::FileError;
use agentiso_sys::jail::{Cell, Jail, View, give_to, make_readable, take_back, uid_of};
use agentiso_sys::process::{Jailed, JailedError};

use super::error::{CarryError, Flaw};

const TOOL: &str = "qemu-img";

/// Enough to copy a disk of a hundred GB on a slow host.
const CONVERT_DEADLINE: Duration = Duration::from_secs(3600);

/// Enough to check the tables of such a disk.
const CHECK_DEADLINE: Duration = Duration::from_secs(600);

/// A full disk's file needs less than one part in this many for tables: eight bytes for each cluster, and two for its
/// reference count.
const TABLES: u64 = 1024;
const TABLES_AT_LEAST: u64 = 16 << 20;

/// The same format that [`agentiso_disk`] writes, independent of QEMU's defaults.
const OPTIONS: &str = "compat=1.1,cluster_size=65536,refcount_bits=16,lazy_refcounts=off";

/// Writes everything that is visible through a layer into a file without a backing file. `qemu-img` sees only these
/// files, because the backing names in the layers were written by a QEMU that its guest may have taken over.
pub(super) async fn flatten(
    layer: &Path,
    into: &Path,
    jail: Jail,
    cgroups: Option<&Cgroups>,
) -> Result<(), CarryError> {
    let Tool { program, uid, mut cell, group } = Tool::find(jail, cgroups).map_err(CarryError::Convert)?;
    for layer in chain(layer) {
        make_readable(jail, &layer).map_err(|error| CarryError::Convert(error.into()))?;
        cell = cell.show(&layer, View::ReadOnly);
    }
    let made = File::options().write(true).create(true).truncate(true).mode(0o600).open(into);
    made.map_err(FileError::at("create", into))?;
    give_to(jail, uid, into)?;
    // A layer that cannot be read is reported by `qemu-img` below.
    let size = Header::read(layer).map_or(0, |header| header.virtual_size);
    let convert = Jailed::new(&program, CONVERT_DEADLINE, cell.show(into, View::Writable))
        .in_group(group)
        .writes_up_to(size.saturating_add(size / TABLES).saturating_add(TABLES_AT_LEAST))
        .args(["convert", "-f", "qcow2", "-O", "qcow2", "-o", OPTIONS, "--"])
        .args([layer, into]);
    convert.run().await.map_err(CarryError::Convert)?;
    Ok(take_back(into)?)
}

/// Checks whether a foreign disk can be used: it refers to no other file, has no features that we or QEMU would have
/// to trust, has the expected size, and its tables are consistent.
pub(super) async fn check(
    disk: &Path,
    virtual_bytes: u64,
    jail: Jail,
    cgroups: Option<&Cgroups>,
) -> Result<(), Flaw> {
    // The header is checked first, so that QEMU never opens a file that refers to another one.
    check_header(disk, virtual_bytes)?;
    let Tool { program, cell, group, .. } = Tool::find(jail, cgroups).map_err(Flaw::Damaged)?;
    make_readable(jail, disk).map_err(|error| Flaw::Damaged(error.into()))?;
    let check = Jailed::new(&program, CHECK_DEADLINE, cell.show(disk, View::ReadOnly))
        .in_group(group)
        .args(["check", "-q", "-f", "qcow2", "--"])
        .args([disk]);
    check.run().await.map(drop).map_err(Flaw::Damaged)
}

/// `qemu-img` with a user, a jail and, if the host has cgroups, a cgroup for one run.
struct Tool {
    program: PathBuf,
    uid: u32,
    cell: Cell,
    group: Option<Group>,
}

impl Tool {
    fn find(jail: Jail, cgroups: Option<&Cgroups>) -> Result<Self, JailedError> {
        let program = which(Path::new(TOOL), std::env::var_os("PATH").as_deref())
            .ok_or_else(|| JailedError::NotFound { program: TOOL.to_owned() })?;
        let uid = uid_of(WorkspaceId::random());
        let cell = Cell::new(jail, uid, &program);
        let group = cgroups.map(Cgroups::helper).transpose()?;
        Ok(Self { program, uid, cell, group })
    }
}

/// A layer and the layers below it, as far as they are in the same directory. The list ends at a layer that cannot be
/// read; `qemu-img` reports that one.
fn chain(top: &Path) -> Vec<PathBuf> {
    let dir = top.parent().unwrap_or(Path::new("/"));
    let mut layers = vec![top.to_owned()];
    while let Some(below) = layers.last().and_then(|layer| Header::read(layer).ok()?.backing_file) {
        let below = dir.join(below);
        if below.parent() != Some(dir) || layers.contains(&below) || !below.is_file() {
            break;
        }
        layers.push(below);
    }
    layers
}

fn check_header(disk: &Path, virtual_bytes: u64) -> Result<(), Flaw> {
    let header = Header::read(disk)?;
    if let Some(other) = header.backing_file {
        return Err(Flaw::Backing(other));
    }
    if header.virtual_size != virtual_bytes {
        return Err(Flaw::DiskSize { found: header.virtual_size, expected: virtual_bytes });
    }
    // [`flatten`] writes no other features either.
    read_ours(&File::open(disk).map_err(HeaderError::Read)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use agentiso_diff::qcow2::{FieldsError, HEADER_LENGTH};

    use super::*;

    const GIB: u64 = 1 << 30;

    /// A header without optional features. The backing file's offset is at byte 8.
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
    fn header_check_accepts_only_standalone_disks() {
        checked(&plain()).unwrap();
        let mut backed = plain();
        backed[15] = HEADER_LENGTH as u8;
        backed[19] = 11;
        backed.extend(b"/etc/passwd");
        assert!(matches!(checked(&backed), Err(Flaw::Backing(name)) if name == "/etc/passwd"));
        assert!(matches!(checked(&plain()[..50]), Err(Flaw::Header(HeaderError::Read(_)))));
        assert!(matches!(checked(b"#!/bin/sh"), Err(Flaw::Header(HeaderError::Fields(FieldsError::Magic)))));
        let changes = [
            (7, 2, "version 2"),
            (23, 9, "unusual cluster"),
            (35, 2, "encryption"),
            (63, 1, "internal snapshots"),
            (79, 4, "features"),
            (79, 16, "features"),
            (72, 1, "features"),
            (95, 1, "features"),
            (99, 6, "unusual cluster"),
            (31, 1, "bytes instead of"),
        ];
        for (at, value, words) in changes {
            let mut changed = plain();
            changed[at] = value;
            let refusal = checked(&changed).unwrap_err().to_string();
            assert!(refusal.contains(words), "{at}: {refusal}");
        }
    }
}
