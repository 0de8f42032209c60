//! Many disk snapshots in a row: the last should cost what the first did, reading should not notice them, and
//! deleting them should give everything back.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use agentiso_testkit::{TestHost, TestWorkspace};
use anyhow::{Context, Result};

use crate::figures::{Figures, Key, Measured};
use crate::samples::timed;
use crate::setup::Setup;

/// Written before the first snapshot, so it lies below all of them.
const LARGE: &str = "/root/large";

/// As many of the first and the last are compared.
const SOME: usize = 5;

const READS: usize = 5;

/// The unit in which the kernel counts what a file takes on disk.
const BLOCK: u64 = 512;

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let workspace = client.workspace();
    workspace.sh(&format!("dd if=/dev/urandom of={LARGE} bs=1M count=64 status=none"));
    change(&workspace);
    // The first of a machine finds nothing warm, and is not counted.
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

/// Writes a little, in place, so that what is live stays as large as it is.
fn change(workspace: &TestWorkspace<'_>) {
    workspace.sh("dd if=/dev/urandom of=/root/changing bs=256K count=1 conv=notrunc,fsync status=none");
}

/// The large file, from the disk and not from the guest's memory.
fn reads(workspace: &TestWorkspace<'_>) -> Measured {
    let read = || {
        workspace.sh("sync; echo 3 > /proc/sys/vm/drop_caches");
        timed(|| workspace.sh(&format!("cat {LARGE} > /dev/null"))).1
    };
    Measured::times((0..READS).map(|_| read()).collect::<Vec<_>>())
}

/// What the files of a workspace take on the host's disk.
fn on_disk(host: &TestHost, workspace: &TestWorkspace<'_>) -> Result<u64> {
    workspace.sh("sync");
    let mut files = BTreeMap::new();
    find(&host.data().join("workspaces").join(&workspace.id), &mut files)?;
    // One that has names elsewhere is the image's and not the workspace's.
    let own = files.values().filter(|file| file.names_here == file.names);
    Ok(own.map(|file| file.blocks * BLOCK).sum())
}

struct File {
    blocks: u64,
    names: u64,
    names_here: u64,
}

/// All files below, by inode: one with two names takes its place once.
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
    fn a_file_with_two_names_is_one_file() {
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
