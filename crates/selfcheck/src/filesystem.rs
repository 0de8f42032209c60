//! Checks that the root file system is intact, of the promised size, as it was left, and not shared.

use super::guest::Guest;
use super::verdict::Finding;

/// The directory of this suite's files: on the root disk, not in memory.
const DIR: &str = "/var/tmp";

/// Large enough to span many clusters of a disk image, small enough for a checksum in an emulated VM.
const FILE_MIB: u32 = 2;

/// The largest part of a disk that the file system may use for itself: inode tables, the journal.
const OVERHEAD: f64 = 0.1;

/// Drops the page cache, which would hide that a disk has lost its content.
const FORGET: &str = "sync; echo 1 > /proc/sys/vm/drop_caches";

/// A file from before the snapshot, and its checksum.
#[derive(Clone, Debug)]
pub(super) struct MarkerFile {
    path: String,
    checksum: String,
}

impl MarkerFile {
    pub(super) async fn write(guest: Guest<'_>, nonce: &str) -> Result<Self, Finding> {
        let path = format!("{DIR}/proof-{nonce}");
        let make = format!("head -c {FILE_MIB}M /dev/urandom > {path}; cksum < {path}");
        Ok(Self { checksum: guest.sh(&make).await?, path })
    }

    /// Makes changes that the snapshot must not contain: new content of the file, and a second file.
    pub(super) async fn change(&self, guest: Guest<'_>) -> Result<(), Finding> {
        let path = &self.path;
        guest.sh(&format!("head -c {FILE_MIB}M /dev/urandom > {path}; cp {path} {path}.later; sync")).await?;
        Ok(())
    }

    async fn check(&self, guest: Guest<'_>) -> Result<(), Finding> {
        let path = &self.path;
        let later = format!("if [ -e {path}.later ]; then echo there; fi");
        let [_, checksum, later] = guest.ask([FORGET, &format!("cksum < {path}"), &later]).await?;
        if checksum != self.checksum {
            return Err(Finding::wrong(format!(
                "a file written before the snapshot has the checksum {checksum} instead of {}",
                self.checksum
            )));
        }
        match later.as_str() {
            "" => Ok(()),
            _ => Err(Finding::wrong("a file that was written after the snapshot exists")),
        }
    }
}

pub(super) async fn check(
    guest: Guest<'_>,
    marker: Option<&MarkerFile>,
    others: &[Guest<'_>],
) -> Result<(), Finding> {
    let [mounts, size, sectors, errors] = guest
        .ask([
            "cat /proc/mounts",
            "stat -f -c '%b %S' /",
            "cat /sys/class/block/vda/size",
            "cat /sys/fs/ext4/vda/errors_count",
        ])
        .await?;
    judge_root(&mounts, &size, &sectors, &errors, guest.spec.disk_bytes())?;
    if let Some(marker) = marker {
        marker.check(guest).await?;
    }
    for other in others {
        check_isolation(guest, *other).await?;
    }
    Ok(())
}

/// Checks that neither VM sees the other's writes.
async fn check_isolation(one: Guest<'_>, other: Guest<'_>) -> Result<(), Finding> {
    // The name is new each time, because all forks rightly see the files that existed at their snapshot.
    let nonce = uuid::Uuid::new_v4().simple();
    let file = |guest: Guest<'_>| format!("{DIR}/of-{}-{nonce}", guest.spec.identity.machine_id);
    for guest in [one, other] {
        guest.sh(&format!("echo mine > {}; {FORGET}", file(guest))).await?;
    }
    for (looking, writer) in [(one, other), (other, one)] {
        if looking.sh(&format!("ls {DIR}")).await?.lines().any(|name| file(writer).ends_with(name)) {
            return Err(Finding::wrong(format!(
                "{} sees a file that {} has written",
                looking.name(),
                writer.name()
            )));
        }
    }
    Ok(())
}

fn judge_root(mounts: &str, size: &str, sectors: &str, errors: &str, promised: u64) -> Result<(), Finding> {
    // A later mount hides an earlier one, so the last line for `/` counts.
    let root = mounts.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    let root = root.filter(|fields| fields.get(1) == Some(&"/")).find_map(|fields| fields.get(3).copied());
    if !root.is_some_and(|options| options.split(',').any(|option| option == "rw")) {
        return Err(Finding::wrong(format!("the root file system is not writable: {root:?}")));
    }
    if errors != "0" {
        return Err(Finding::wrong(format!("the root file system has recorded {errors} errors")));
    }
    let disk = sectors.parse::<u64>().ok().and_then(|sectors| sectors.checked_mul(512));
    if disk != Some(promised) {
        return Err(Finding::wrong(format!("its disk has {sectors} sectors instead of {promised} bytes")));
    }
    let product =
        |(blocks, bytes): (&str, &str)| blocks.parse::<u64>().ok()?.checked_mul(bytes.parse().ok()?);
    let usable = size.split_once(' ').and_then(product).unwrap_or(0) as f64;
    let promised = promised as f64;
    if usable < promised * (1.0 - OVERHEAD) || usable > promised {
        return Err(Finding::wrong(format!(
            "the root file system has {usable} bytes on a disk of {promised}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "rootfs / rootfs rw 0 0\n/dev/vda / ext4 rw,noatime 0 0\nproc /proc proc rw 0 0\n";
    const SIZE: &str = "500000 4096";
    const SECTORS: &str = "4194304";

    #[test]
    fn sound_root_filesystem_passes() {
        judge_root(MOUNTS, SIZE, SECTORS, "0", 2 << 30).unwrap();
    }

    #[test]
    fn faulty_root_filesystem_is_found() {
        let read_only = MOUNTS.replace("ext4 rw", "ext4 ro");
        let cases = [
            (read_only.as_str(), SIZE, SECTORS, "0", 2 << 30, "read-only"),
            ("", SIZE, SECTORS, "0", 2 << 30, "no root at all"),
            (MOUNTS, SIZE, SECTORS, "3", 2 << 30, "errors"),
            (MOUNTS, "250000 4096", SECTORS, "0", 2 << 30, "not grown"),
            (MOUNTS, "x", SECTORS, "0", 2 << 30, "no size"),
            (MOUNTS, SIZE, "2097152", "0", 2 << 30, "the template's disk"),
            (MOUNTS, SIZE, SECTORS, "0", 3 << 30, "another promise"),
        ];
        for (mounts, size, sectors, errors, promised, what) in cases {
            assert!(judge_root(mounts, size, sectors, errors, promised).is_err(), "{what}");
        }
    }
}
