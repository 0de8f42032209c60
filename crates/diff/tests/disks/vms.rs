//! Disks of VMs that were running when they were copied: the templates of the image cache.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use agentiso_diff::ext4::FileSystem;
use agentiso_diff::qcow2::Chain;
use agentiso_diff::{DiffOptions, Difference, Watch, diff_paths};

use crate::ext4_image::paths;
use crate::tools::{find, need};

const STEP: usize = 1 << 20;

/// A template's disk whose file system was mounted, opened so that it stays even if the template is replaced.
fn running_disk(cache: &Path) -> Option<Chain> {
    let templates = fs::read_dir(cache.join("templates")).ok()?;
    let disks = templates.filter_map(|entry| Some(entry.ok()?.path().join("disk.qcow2")));
    let mut disks: Vec<PathBuf> = disks.filter(|disk| disk.is_file()).collect();
    disks.sort();
    disks.iter().find_map(|disk| Chain::open(disk).ok())
}

/// Writes the content of a chain to a sparse file.
fn copy(chain: &Chain, path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(chain.virtual_size()).unwrap();
    let (mut step, zeroes) = (vec![0; STEP], vec![0; STEP]);
    for at in (0..chain.virtual_size()).step_by(STEP) {
        let length = STEP.min((chain.virtual_size() - at) as usize);
        chain.read_at(at, &mut step[..length]).unwrap();
        if step != zeroes {
            file.write_all_at(&step[..length], at).unwrap();
        }
    }
}

#[test]
fn running_vm_disk_reads_as_recovered() {
    need!("e2fsck");
    let Some(cache) = agentiso_testkit::test_cache() else {
        agentiso_testkit::record_skip("no image cache: run the tests with ./x test");
        return;
    };
    let Some(disk) = running_disk(&cache) else {
        agentiso_testkit::record_skip("no template with a disk in the image cache");
        return;
    };
    let image = Chain::open(disk.layers().last().unwrap().path()).unwrap();
    assert!(FileSystem::open(&disk).unwrap().replayed_blocks() > 0, "it was mounted");
    let difference = Difference::between(&image, &disk, Watch::default()).unwrap();
    let is_shared = |range| difference.is_shared(range);
    let fast = DiffOptions { is_shared: Some(&is_shared), ..DiffOptions::default() };
    let found = diff_paths(&image, &disk, &fast).unwrap();
    assert_eq!(found, diff_paths(&image, &disk, &DiffOptions::default()).unwrap());
    assert!(
        paths(&found).iter().all(|path| path[1..].starts_with("/etc/") || path[1..].starts_with("/var/")),
        "{found:?}"
    );

    let dir = tempfile::tempdir().unwrap();
    let recovered = dir.path().join("recovered");
    copy(&disk, &recovered);
    let judge =
        std::process::Command::new(find("e2fsck").unwrap()).arg("-fy").arg(&recovered).output().unwrap();
    assert!(judge.status.code().is_some_and(|code| code <= 1), "{judge:?}");
    let recovered = File::open(&recovered).unwrap();
    assert_eq!(diff_paths(&disk, &recovered, &DiffOptions::default()).unwrap(), Default::default());
}
