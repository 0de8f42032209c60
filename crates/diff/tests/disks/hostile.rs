//! Damaged disks: every comparison ends soon with an answer or an error, within bounded memory.

use std::time::{Duration, Instant};

use agentiso_diff::ext4::FileSystem;
use agentiso_diff::qcow2::{Chain, Layer};
use agentiso_diff::{DiffError, DiffOptions, Ended, Watch, diff_paths};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::ext4_image::{Images, bytes};
use crate::qcow2_file::{Cluster, Qcow2File};
use crate::tools::need;

/// Far more than any of these small disks takes on a busy host without optimisation.
const SOON: Duration = Duration::from_secs(20);

/// A file system with a journal to replay, and the offsets of its metadata.
struct Subject {
    image: Vec<u8>,
    structures: Vec<usize>,
}

fn subject() -> Subject {
    let images = Images::new();
    let path = images.make("image", &["-b", "1024", "-J", "size=1", "-N", "1024"]);
    let clean = bytes(&path);
    let block = images.at("block");
    std::fs::write(&block, &clean[2048..4096]).unwrap();
    images.change(&path, &["jo -c -v 3", &format!("jw -b 2,3 {}", block.display()), "jc"]);
    let image = bytes(&path);
    let files = FileSystem::open(&image).unwrap();
    assert_eq!(files.replayed_blocks(), 2);
    // The superblock and the descriptors, the first inodes, the journal's first blocks and all directories.
    let inodes = image
        .chunks(1024)
        .position(|block| block.windows(2).nth(256).is_some_and(|mode| mode == [0xED, 0x41]));
    let inodes = inodes.expect("the root directory's inode");
    let mut blocks = vec![1, 2, 3, inodes, inodes + 1, inodes + 2, inodes + 3, inodes + 100];
    for number in [2, 8] {
        for extent in files.extents(&files.inode(number).unwrap()).unwrap().iter().take(1) {
            blocks.extend((0..5.min(extent.blocks as usize)).map(|block| extent.physical as usize + block));
        }
    }
    drop(files);
    let structures = blocks.iter().flat_map(|block| block * 1024..(block + 1) * 1024).collect();
    Subject { image, structures }
}

/// Random bytes at random metadata offsets.
fn flips() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
}

#[test]
fn damaged_file_system_never_hangs_or_panics() {
    need!("mke2fs", "debugfs");
    let subject = subject();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(256));
    let checked = runner.run(&flips(), |flips| {
        let mut image = subject.image.clone();
        for (place, value) in flips {
            image[*place.get(&subject.structures)] = value;
        }
        let options = DiffOptions { max_entries: 100_000, ..DiffOptions::default() };
        let started = Instant::now();
        let _ = diff_paths(&subject.image, &image, &options);
        let _ = diff_paths(&image, &image, &options);
        prop_assert!(started.elapsed() < SOON);
        Ok(())
    });
    checked.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damaged_chain_never_hangs_or_panics(
        flips in proptest::collection::vec((0usize..4 * 512, any::<u8>()), 1..6),
        length in 0usize..4096,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let mut file = Qcow2File::new(9, 40 << 10).with(0, Cluster::Data(1)).with(3, Cluster::Zero);
        file = file.with(70, Cluster::Data(2));
        let mut bytes = file.bytes();
        flips.into_iter().for_each(|(at, value)| bytes[at] = value);
        // Sometimes the file is cut off, too.
        if length > 1024 {
            bytes.truncate(length);
        }
        std::fs::write(&path, bytes).unwrap();
        let started = Instant::now();
        if let Ok(chain) = Chain::open(&path) {
            let mut buffer = vec![0; 64 << 10];
            let size = buffer.len().min(chain.virtual_size() as usize);
            let _ = chain.read_at(0, &mut buffer[..size]);
            let end = chain.virtual_size().saturating_sub(512);
            let _ = chain.read_at(end, &mut buffer[..512]);
        }
        let _ = Layer::open(&path).and_then(|layer| layer.allocated(Watch::default()));
        prop_assert!(started.elapsed() < SOON);
    }
}

#[test]
fn directory_loop_is_detected() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let path = images.make("image", &[]);
    images.change(&path, &["ln etc etc/deep/again"]);
    let image = bytes(&path);
    let error = diff_paths(&image, &image, &DiffOptions::default()).unwrap_err().to_string();
    assert!(error.contains("is in the tree twice"), "{error}");
}

#[test]
fn truncated_disk_error_names_the_side() {
    need!("mke2fs");
    let images = Images::new();
    let whole = bytes(&images.make("image", &["-b", "1024", "-O", "^flex_bg"]));
    let cut = whole[..256 << 10].to_vec();
    let error = diff_paths(&whole, &cut, &DiffOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("the newer disk: ") && error.contains("could not be read"), "{error}");
}

/// A disk that cancels the comparison after a number of reads.
struct Stopping<'a> {
    image: &'a [u8],
    left: std::cell::Cell<u32>,
    /// The number of reads after the cancellation.
    too_late: std::cell::Cell<u32>,
    cancelled: &'a std::sync::atomic::AtomicBool,
}

impl agentiso_diff::ReadAt for Stopping<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        if self.cancelled.load(std::sync::atomic::Ordering::Relaxed) {
            self.too_late.set(self.too_late.get() + 1);
        }
        self.left.set(self.left.get().saturating_sub(1));
        if self.left.get() == 0 {
            self.cancelled.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        self.image.read_at(offset, buf)
    }
}

#[test]
fn comparison_ends_at_any_read_when_cancelled() {
    need!("mke2fs", "debugfs");
    let subject = subject();
    for reads in [1, 2, 5, 9, 14] {
        let cancelled = std::sync::atomic::AtomicBool::new(false);
        let left = std::cell::Cell::new(reads);
        let too_late = std::cell::Cell::new(0);
        let disk = Stopping { image: &subject.image, left, too_late, cancelled: &cancelled };
        let options = DiffOptions { cancelled: Some(&cancelled), ..DiffOptions::default() };
        let ended = diff_paths(&disk, &subject.image, &options);
        assert_eq!(disk.too_late.get(), 0, "after {reads} reads");
        assert!(matches!(ended, Err(DiffError::Ended(Ended::Cancelled))), "after {reads} reads: {ended:?}");
    }
}

#[test]
fn comparison_ends_when_its_time_is_up() {
    need!("mke2fs", "debugfs");
    let image = subject().image;
    let late = DiffOptions { deadline: Some(Instant::now()), ..DiffOptions::default() };
    let ended = diff_paths(&image, &image, &late).unwrap_err();
    assert!(matches!(ended, DiffError::Ended(Ended::Deadline)), "{ended}");
    let in_time = DiffOptions { deadline: Some(Instant::now() + SOON), ..DiffOptions::default() };
    assert!(diff_paths(&image, &image, &in_time).is_ok());
}
