//! Many disk snapshots in a row: the last should cost as much as the first, reading should not become slower, and
//! deleting them should free all their space.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use agentiso_testkit::{TestHost, TestWorkspace};
use anyhow::{Context, Result};

use crate::figures::{Figures, Key, Measured};
use crate::samples::timed;
use crate::setup::Setup;

/// A file written before the first snapshot, so it is in a layer below all of them.
const LARGE: &str = "/root/large";

/// The number of first and last snapshots that are compared.
const SOME: usize = 5;

const READS: usize = 5;

/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let workspace = client.workspace();
    workspace.sh(&format!("dd if=/dev/urandom of={LARGE} bs=1M count=64 status=none"));
    change(&workspace);
    // Warm-up: the first snapshot of a VM is not counted.
    workspace.snapshot("warm-up");
    workspace.delete_snapshot("warm-up");

    let mut figures = Figures::default();
    figures.set(Key::ReadBefore, reads(&workspace));
    let before = on_disk(&host, &workspace)?;
    let names: Vec<String> = (1..=setup.runs.chain).map(|number| format!("s{number}")).collect();
    let taken: Vec<Duration> = names
        .iter()
        .map(|name| {
            change(&workspace);
            timed(|| workspace.snapshot(name)).1
        })
        .collect();
    figures.set(Key::FirstSnapshots, Measured::times(taken.iter().take(SOME).copied()));
    figures.set(Key::LastSnapshots, Measured::times(taken.iter().rev().take(SOME).copied()));
    figures.set(Key::ReadThrough, reads(&workspace));
    let with_all = on_disk(&host, &workspace)?;
    let deleted = names.iter().map(|name| timed(|| workspace.delete_snapshot(name)).1);
    figures.set(Key::DeleteSnapshot, Measured::times(deleted.collect::<Vec<_>>()));
    figures.set(Key::DiskBefore, Measured::Bytes(before));
    figures.set(Key::DiskWithSnapshots, Measured::Bytes(with_all));
    figures.set(Key::DiskAfter, Measured::Bytes(on_disk(&host, &workspace)?));
    workspace.destroy();
    Ok(figures)
}

/// Overwrites a small file in place, so that the amount of live data stays the same.
fn change(workspace: &TestWorkspace<'_>) {
    workspace.sh("dd if=/dev/urandom of=/root/changing bs=256K count=1 conv=notrunc,fsync status=none");
}

/// Times reads of the large file from the disk, not from the guest's cache.
fn reads(workspace: &TestWorkspace<'_>) -> Measured {
    let read = || {
        workspace.sh("sync; echo 3 > /proc/sys/vm/drop_caches");
        timed(|| workspace.sh(&format!("cat {LARGE} > /dev/null"))).1
    };
    Measured::times((0..READS).map(|_| read()).collect::<Vec<_>>())
}

/// The space that a workspace's own files use on the host's disk.
fn on_disk(host: &TestHost, workspace: &TestWorkspace<'_>) -> Result<u64> {
    workspace.sh("sync");
    let mut files = BTreeMap::new();
    find(&host.data().join("workspaces").join(&workspace.id), &mut files)?;
    // A file with links elsewhere belongs to the image and not to the workspace.
    let own = files.values().filter(|file| file.names_here == file.names);
    Ok(own.map(|file| file.blocks * BLOCK).sum())
}

struct File {
    blocks: u64,
    names: u64,
    names_here: u64,
}

/// Finds all files below a directory, by inode: a file with two names counts once.
fn find(dir: &Path, files: &mut BTreeMap<(u64, u64), File>) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry.context("reading a directory")?;
        let metadata = entry.metadata().with_context(|| format!("reading {}", entry.path().display()))?;
        if metadata.is_dir() {
            find(&entry.path(), files)?;
            continue;
        }
        let file = File { blocks: metadata.blocks(), names: metadata.nlink(), names_here: 0 };
        files.entry((metadata.dev(), metadata.ino())).or_insert(file).names_here += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_linked_file_is_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("below")).unwrap();
        std::fs::write(dir.path().join("below/one"), vec![1; 100_000]).unwrap();
        std::fs::hard_link(dir.path().join("below/one"), dir.path().join("two")).unwrap();
        let mut files = BTreeMap::new();
        find(dir.path(), &mut files).unwrap();
        let [file] = &files.into_values().collect::<Vec<_>>()[..] else { panic!("not one file") };
        assert_eq!((file.names, file.names_here), (2, 2));
        assert!(file.blocks * BLOCK >= 100_000);
    }
}
