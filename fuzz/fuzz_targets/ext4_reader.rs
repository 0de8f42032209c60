//! Untrusted disks for the comparison of file systems: it must end in time, with an answer or an error.
//!
//! An input is a list of patches to a disk of zeroes, each with its place (four bytes), its length (two) and its bytes,
//! so that a whole file system is an input of a few kilobytes. The older disk lacks the last patch.

#![no_main]

use agentiso_diff::ext4::FileSystem;
use agentiso_diff::{Counts, DiffOptions, diff_paths};
use libfuzzer_sys::fuzz_target;

/// The size of the disk: a file system with the smallest journal.
const DISK: usize = 2304 << 10;

/// Small limits, because the disk is small.
const OPTIONS: DiffOptions<'_> = DiffOptions {
    max_paths: 100,
    max_entries: 20_000,
    max_compared_bytes: 16 << 20,
    is_shared: None,
    deadline: None,
    cancelled: None,
};

/// Takes one patch off the input: its position and its bytes.
fn patch<'a>(input: &mut &'a [u8]) -> Option<(usize, &'a [u8])> {
    let (place, rest) = input.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (bytes, rest) = rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()));
    *input = rest;
    Some((u32::from_le_bytes(*place) as usize % DISK, bytes))
}

fn disk(patches: &[(usize, &[u8])]) -> Vec<u8> {
    let mut disk = vec![0; DISK];
    for &(place, bytes) in patches {
        let end = DISK.min(place + bytes.len());
        disk[place..end].copy_from_slice(&bytes[..end - place]);
    }
    disk
}

fuzz_target!(|data: &[u8]| {
    let mut input = data;
    let patches: Vec<_> = std::iter::from_fn(|| patch(&mut input)).collect();
    let new = disk(&patches);
    let old = disk(patches.split_last().map_or(&[], |(_, before)| before));
    if let Ok(same) = diff_paths(&new, &new, &OPTIONS) {
        assert_eq!(same.counts, Counts::default(), "a disk differs from itself");
    }
    if let Ok(found) = diff_paths(&old, &new, &OPTIONS) {
        let listed = found.added.len() + found.modified.len() + found.removed.len();
        let counted = found.counts.added + found.counts.modified + found.counts.removed;
        assert!(found.truncated || listed as u64 == counted);
    }
    if let Ok(files) = FileSystem::open(&new) {
        for number in 1..32 {
            let Ok(inode) = files.inode(number) else { continue };
            let _ = files.target(&inode);
            if let Ok(extents) = files.extents(&inode) {
                let _ = files.read_file(&extents, inode.size() / 2, &mut [0; 5000]);
            }
        }
    }
});
