//! Untrusted qcow2 files for the reader of chains: it must end in time, with an answer or an error.
//!
//! The backing file, named `base`, is the same file without a backing file.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use agentiso_diff::qcow2::{Chain, Layer};
use agentiso_diff::{Difference, Watch};
use libfuzzer_sys::fuzz_target;

/// The number of bytes that are read at the start and the end of the disk.
const PART: usize = 64 << 10;

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("agentiso-fuzz-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory for the disks");
    dir
});

fuzz_target!(|data: &[u8]| {
    let (disk, base) = (DIR.join("disk"), DIR.join("base"));
    fs::write(&disk, data).expect("the disk is written");
    let mut below = data.to_vec();
    below.iter_mut().skip(8).take(8).for_each(|byte| *byte = 0);
    fs::write(&base, below).expect("the base is written");

    let _ = Layer::open(&disk).and_then(|layer| layer.allocated(Watch::default()));
    let Ok(top) = Chain::open(&disk) else { return };
    let size = top.virtual_size();
    let mut buffer = vec![0; PART.min(size as usize)];
    let _ = top.read_at(size - buffer.len() as u64, &mut buffer);
    let (Ok(()), Ok(bottom)) = (top.read_at(0, &mut buffer), Chain::open(&base)) else { return };
    let mut same = vec![0; buffer.len()];
    let (Ok(()), Ok(difference)) =
        (bottom.read_at(0, &mut same), Difference::between(&bottom, &top, Watch::default()))
    else {
        return;
    };
    assert!(difference.bytes() <= size);
    for (sector, (old, new)) in (0..).zip(same.chunks(512).zip(buffer.chunks(512))) {
        let range = sector * 512..sector * 512 + old.len() as u64;
        assert!(!difference.is_shared(range) || old == new, "shared bytes differ");
    }
});
