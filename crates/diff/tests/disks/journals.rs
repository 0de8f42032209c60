//! File systems whose last changes are only in their journal, as on the disk of a running VM.

use std::fs;
use std::path::{Path, PathBuf};

use agentiso_diff::ext4::{Ext4Error, FileSystem};
use agentiso_diff::qcow2::Chain;
use agentiso_diff::{DiffOptions, Difference, Watch, diff_paths};

use crate::ext4_image::{Images, bytes, diff, paths};
use crate::qcow2_file::Qcow2File;
use crate::tools::{find, need};

const BLOCK: usize = 1024;
const JOURNAL_INODE: u32 = 8;
const CHANGES: [&str; 4] = ["+/fresh", "+/fresh/file", "~/empty", "-/etc/deep/er/note"];

/// A file system, and the same after some changes.
fn before_and_after(images: &Images, options: &[&str]) -> (PathBuf, PathBuf) {
    let options = [&["-b", "1024", "-J", "size=1"], options].concat();
    let before = images.make("before", &options);
    let after = images.copy(&before, "after");
    let content = images.at("content");
    // Data that looks like a journal block is escaped in the journal.
    fs::write(&content, [b"\xC0\x3B\x39\x98".as_slice(), &[7; 5000]].concat()).unwrap();
    images.change(
        &after,
        &[
            "mkdir fresh",
            &format!("write {} fresh/file", content.display()),
            "rm etc/deep/er/note",
            "sif empty mode 040700",
        ],
    );
    (before, after)
}

/// The blocks in which two images differ, apart from the superblock, which debugfs itself writes.
fn changed_blocks(before: &Path, after: &Path) -> Vec<usize> {
    let (before, after) = (bytes(before), bytes(after));
    let pairs = before.chunks(BLOCK).zip(after.chunks(BLOCK)).enumerate();
    pairs.filter(|(block, (before, after))| *block > 1 && before != after).map(|(block, _)| block).collect()
}

fn list(blocks: &[usize]) -> String {
    blocks.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Writes the contents that blocks have in `after` to a file for `journal_write`.
fn contents(images: &Images, after: &Path, blocks: &[usize]) -> String {
    let after = bytes(after);
    let file = images.at("blocks");
    let content: Vec<&[u8]> = blocks.iter().map(|block| &after[block * BLOCK..(block + 1) * BLOCK]).collect();
    fs::write(&file, content.concat()).unwrap();
    file.display().to_string()
}

/// The state before the changes, with the changes in two transactions of the journal.
fn journaled(images: &Images, open: &str, before: &Path, after: &Path) -> PathBuf {
    let dirty = images.copy(before, "dirty");
    let blocks = changed_blocks(before, after);
    let (first, second) = blocks.split_at(blocks.len() / 2);
    for part in [first, second] {
        let file = contents(images, after, part);
        images.change(&dirty, &[open, &format!("jw -b {} {file}", list(part)), "jc"]);
    }
    dirty
}

#[test]
fn every_kind_of_journal_is_replayed() {
    need!("mke2fs", "debugfs", "e2fsck");
    let images = Images::new();
    for (open, options) in [
        ("jo -c -v 3", [].as_slice()),
        ("jo -c -v 2", &[]),
        ("jo", &["-O", "^metadata_csum"]),
        ("jo", &["-O", "^64bit,^metadata_csum"]),
        ("jo -c -v 2", &["-O", "^64bit"]),
        ("jo -c -v 3", &["-O", "^64bit"]),
    ] {
        let (before, after) = before_and_after(&images, options);
        assert_eq!(paths(&diff(&before, &after)), CHANGES);
        let dirty = journaled(&images, open, &before, &after);
        let image = bytes(&dirty);
        let files = FileSystem::open(&image).unwrap_or_else(|error| panic!("{open} {options:?}: {error}"));
        assert_eq!(files.replayed_blocks(), changed_blocks(&before, &after).len(), "{open} {options:?}");
        assert_eq!(paths(&diff(&before, &dirty)), CHANGES, "{open} {options:?}");
        assert_eq!(diff(&dirty, &after), Default::default(), "{open} {options:?}");
        let unread = DiffOptions { max_compared_bytes: 0, ..DiffOptions::default() };
        assert_eq!(paths(&diff_paths(&image, &bytes(&before), &unread).unwrap()).len(), 4);
        // The reference: the replay of e2fsprogs.
        let replayed = images.copy(&dirty, "replayed");
        let judge =
            std::process::Command::new(find("e2fsck").unwrap()).arg("-fy").arg(&replayed).output().unwrap();
        assert!(judge.status.code().is_some_and(|code| code <= 1), "{judge:?}");
        assert!(String::from_utf8_lossy(&judge.stdout).contains("recovering journal"), "{judge:?}");
        assert_eq!(diff(&dirty, &replayed), Default::default(), "{open} {options:?}");
    }
}

#[test]
fn journaled_blocks_are_not_shared() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let (before, after) = before_and_after(&images, &[]);
    let (old, new) = (bytes(&before), bytes(&journaled(&images, "jo -c -v 3", &before, &after)));
    Qcow2File::between(&vec![0; old.len()], &old).write(&images.at("old.qcow2"));
    Qcow2File::between(&old, &new).on("old.qcow2").write(&images.at("new.qcow2"));
    let (old, new) = ["old.qcow2", "new.qcow2"].map(|name| Chain::open(&images.at(name)).unwrap()).into();
    let difference = Difference::between(&old, &new, Watch::default()).unwrap();
    let is_shared = |range| difference.is_shared(range);
    let options = DiffOptions { is_shared: Some(&is_shared), ..DiffOptions::default() };
    assert_eq!(paths(&diff_paths(&old, &new, &options).unwrap()), CHANGES);
}

#[test]
fn journaled_data_is_read_from_the_journal() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let (before, after) = before_and_after(&images, &[]);
    let dirty = bytes(&journaled(&images, "jo -c -v 3", &before, &after));
    let files = FileSystem::open(&dirty).unwrap();
    let lookup = |directory: u32, name: &str| {
        let entries = files.entries(&files.inode(directory).unwrap()).unwrap();
        entries.iter().find(|entry| entry.name == name.as_bytes()).unwrap().inode
    };
    let file = files.inode(lookup(lookup(2, "fresh"), "file")).unwrap();
    let mut content = vec![0; 5004];
    files.read_file(&files.extents(&file).unwrap(), 0, &mut content).unwrap();
    assert!(content == fs::read(images.at("content")).unwrap());
}

#[test]
fn incomplete_transaction_is_not_replayed() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let (before, after) = before_and_after(&images, &[]);
    let dirty = images.copy(&before, "dirty");
    let blocks = changed_blocks(&before, &after);
    let file = contents(&images, &after, &blocks);
    images.change(&dirty, &["jo -c -v 3", &format!("jw -c -b {} {file}", list(&blocks)), "jc"]);
    assert_eq!(diff(&before, &dirty), Default::default());
}

#[test]
fn revoked_blocks_are_not_replayed() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    for open in ["jo -c -v 3", "jo -c -v 2", "jo"] {
        let (before, after) = before_and_after(&images, &[]);
        let dirty = journaled(&images, open, &before, &after);
        images.change(&dirty, &[open, &format!("jw -r {}", list(&changed_blocks(&before, &after))), "jc"]);
        assert_eq!(diff(&before, &dirty), Default::default(), "{open}");
        assert_eq!(FileSystem::open(&bytes(&dirty)).unwrap().replayed_blocks(), 0);
        // A block that is written again after its revocation counts.
        let blocks = changed_blocks(&before, &after);
        let file = contents(&images, &after, &blocks);
        images.change(&dirty, &[open, &format!("jw -b {} {file}", list(&blocks)), "jc"]);
        assert_eq!(paths(&diff(&before, &dirty)), CHANGES, "{open}");
    }
}

/// The position of each block of the journal.
fn journal_blocks(image: &[u8]) -> Vec<usize> {
    let image = image.to_vec();
    let files = FileSystem::open(&image).unwrap();
    let extents = files.extents(&files.inode(JOURNAL_INODE).unwrap()).unwrap();
    extents
        .iter()
        .flat_map(|extent| (0..extent.blocks as usize).map(|block| extent.physical as usize + block))
        .collect()
}

#[test]
fn wrapped_journal_is_replayed() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let (before, after) = before_and_after(&images, &["-O", "^metadata_csum"]);
    let mut image = bytes(&journaled(&images, "jo", &before, &after));
    let places = journal_blocks(&image);
    let log: Vec<Vec<u8>> =
        places[1..100].iter().map(|place| image[place * BLOCK..(place + 1) * BLOCK].to_vec()).collect();
    // The log is shifted several times, so that each part of it crosses the end of the journal once.
    for shift in [3, 5, 9, 20] {
        let start = places.len() - shift;
        for (index, block) in log.iter().enumerate() {
            let place = places[1 + (start - 1 + index) % (places.len() - 1)];
            image[place * BLOCK..(place + 1) * BLOCK].copy_from_slice(block);
        }
        let superblock = places[0] * BLOCK;
        image[superblock + 0x1C..superblock + 0x20].copy_from_slice(&(start as u32).to_be_bytes());
        let found = diff_paths(&bytes(&before), &image, &DiffOptions::default()).unwrap();
        assert_eq!(paths(&found), CHANGES, "{shift}");
    }
}

#[test]
fn journal_checksums_reveal_damage() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let (before, after) = before_and_after(&images, &[]);
    let good = bytes(&journaled(&images, "jo -c -v 3", &before, &after));
    let places = journal_blocks(&good);
    let before = bytes(&before);
    let damaged = |block: usize, at: usize| {
        let mut image = good.clone();
        image[places[block] * BLOCK + at] ^= 1;
        diff_paths(&before, &image, &DiffOptions::default())
    };
    let text = |block, at| damaged(block, at).unwrap_err().to_string();
    assert!(text(0, 0x30).contains("superblock is damaged"), "{}", text(0, 0x30));
    assert!(text(2, 100).contains("content is damaged"), "{}", text(2, 100));
    // A descriptor or commit that is not intact is where the journal ends.
    assert_eq!(damaged(1, 500).unwrap(), Default::default());
    let error = FileSystem::open(&{
        let mut image = good.clone();
        image[places[0] * BLOCK + 0x2B] |= 0x20;
        image
    })
    .map(drop);
    assert!(matches!(error, Err(Ext4Error::Unsupported("fast commits"))), "{error:?}");
}
