//! Chains of hand-made files, compared with a model that is a plain array of bytes.

use std::collections::BTreeSet;
use std::path::Path;

use agentiso_diff::qcow2::{Chain, Layer, LayerError, MAX_DEPTH, Qcow2Error};
use agentiso_diff::{Difference, Ended, Watch, changed_bytes};
use proptest::prelude::*;

use crate::qcow2_file::{Cluster, Qcow2File, put};

/// The disk's bytes, computed the simple way: each layer over what is below it, cut and filled to its size.
fn model(files: &[Qcow2File]) -> Vec<u8> {
    let mut disk = Vec::new();
    for file in files.iter().rev() {
        disk.resize(file.size as usize, 0);
        for (&index, content) in &file.clusters {
            let start = (index << file.cluster_bits) as usize;
            let end = (start + (1 << file.cluster_bits)).min(disk.len());
            let byte = if let Cluster::Data(byte) = content { *byte } else { 0 };
            disk[start..end].fill(byte);
        }
    }
    disk
}

/// Writes a chain, from the top down, and opens it.
fn open(dir: &Path, name: &str, files: &[Qcow2File]) -> Chain {
    for (depth, file) in files.iter().enumerate() {
        let mut file = file.clone();
        file.backing = (depth + 1 < files.len()).then(|| format!("{name}{}.qcow2", depth + 1));
        file.write(&dir.join(format!("{name}{depth}.qcow2")));
    }
    Chain::open(&dir.join(format!("{name}0.qcow2"))).unwrap()
}

fn cluster() -> impl Strategy<Value = Cluster> {
    prop_oneof![
        4 => (1u8..).prop_map(Cluster::Data),
        1 => Just(Cluster::Zero),
        1 => Just(Cluster::ZeroWithPlace),
    ]
}

/// A layer of up to 256 KiB in clusters of 512 bytes to 4 KiB.
fn layer() -> impl Strategy<Value = Qcow2File> {
    (9u32..13, 1u64..512).prop_flat_map(|(cluster_bits, sectors)| {
        let size = sectors * 512;
        let clusters = size.div_ceil(1 << cluster_bits);
        proptest::collection::btree_map(0..clusters, cluster(), 0..40)
            .prop_map(move |clusters| Qcow2File { clusters, ..Qcow2File::new(cluster_bits, size) })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn chain_reads_match_the_model(
        files in proptest::collection::vec(layer(), 1..5),
        reads in proptest::collection::vec((0u64..300_000, 0usize..70_000), 0..8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let chain = open(dir.path(), "disk", &files);
        let expected = model(&files);
        prop_assert_eq!(chain.virtual_size(), expected.len() as u64);
        let mut whole = vec![0xAA; expected.len()];
        chain.read_at(0, &mut whole).unwrap();
        prop_assert!(whole == expected);
        for (offset, length) in reads {
            let mut part = vec![0xAA; length];
            let read = chain.read_at(offset, &mut part);
            match expected.get(offset as usize..offset as usize + length) {
                Some(expected) => prop_assert!(read.is_ok() && part == expected),
                None => prop_assert!(matches!(read, Err(Qcow2Error::Beyond { .. })), "{:?}", read),
            }
        }
    }

    #[test]
    fn layer_reports_its_allocated_clusters(file in layer()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.qcow2");
        file.write(&path);
        let allocated = Layer::open(&path).unwrap().allocated(Watch::default()).unwrap();
        let sectors = |clusters: &mut dyn Iterator<Item = u64>| -> BTreeSet<u64> {
            let per_cluster = 1 << (file.cluster_bits - 9);
            clusters.flat_map(|index| index * per_cluster..(index + 1) * per_cluster)
                .filter(|sector| sector * 512 < file.size)
                .collect()
        };
        let expected = sectors(&mut file.clusters.keys().copied());
        let found: BTreeSet<u64> =
            allocated.ranges.as_slice().iter().flat_map(|range| range.start / 512..range.end / 512).collect();
        prop_assert_eq!(found, expected);
        let is_data = |(&index, content): (&u64, &Cluster)| matches!(content, Cluster::Data(_)).then_some(index);
        let data = sectors(&mut file.clusters.iter().filter_map(is_data));
        prop_assert_eq!(allocated.data_bytes, data.len() as u64 * 512);
    }

    #[test]
    fn shared_bytes_are_equal_on_both_disks(
        base in proptest::collection::vec(layer(), 1..3),
        old in proptest::collection::vec(layer(), 0..3),
        new in proptest::collection::vec(layer(), 0..3),
    ) {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), "base", &base);
        let stack = |name: &str, own: &[Qcow2File]| {
            for (depth, file) in own.iter().enumerate() {
                let last = depth + 1 == own.len();
                let below = if last { "base0.qcow2".into() } else { format!("{name}{}.qcow2", depth + 1) };
                file.clone().on(&below).write(&dir.path().join(format!("{name}{depth}.qcow2")));
            }
            let top = if own.is_empty() { "base0.qcow2".into() } else { format!("{name}0.qcow2") };
            Chain::open(&dir.path().join(top)).unwrap()
        };
        let (old_chain, new_chain) = (stack("old", &old), stack("new", &new));
        let difference = Difference::between(&old_chain, &new_chain, Watch::default()).unwrap();
        let (old_bytes, new_bytes) = (model(&[old, base.clone()].concat()), model(&[new, base].concat()));
        for (sector, (old, new)) in old_bytes.chunks(512).zip(new_bytes.chunks(512)).enumerate() {
            let start = sector as u64 * 512;
            prop_assert!(!difference.is_shared(start..start + 512) || old == new, "sector {}", sector);
        }
        prop_assert!(difference.bytes() <= new_chain.virtual_size());
        let unread = difference.clone().narrowed(&old_chain, &new_chain, 0, Watch::default()).unwrap();
        prop_assert_eq!(unread.ranges(), difference.ranges());
        let narrow = difference.clone().narrowed(&old_chain, &new_chain, u64::MAX, Watch::default()).unwrap();
        prop_assert!(narrow.bytes() <= difference.bytes());
        for (step, (old, new)) in (0..).zip(old_bytes.chunks(1 << 16).zip(new_bytes.chunks(1 << 16))) {
            let range = step << 16..(step << 16) + old.len().min(new.len()) as u64;
            let length = old.len().min(new.len());
            let same = old[..length] == new[..length];
            prop_assert!(same || !narrow.is_shared(range.clone()), "step {}", step);
            // Nothing is left out where one disk has no bytes to compare with.
            prop_assert!(!same || old.len() != new.len() || narrow.is_shared(range), "step {}", step);
        }
    }
}

#[test]
fn changes_above_shared_layers_count_by_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let disk = || Qcow2File::new(16, 1 << 20);
    disk().with(0, Cluster::Data(1)).with(5, Cluster::Data(1)).write(&at("base"));
    disk().on("base").with(1, Cluster::Data(2)).write(&at("middle"));
    disk().on("middle").with(1, Cluster::Data(3)).with(2, Cluster::Zero).write(&at("old"));
    disk().on("middle").with(7, Cluster::Data(3)).with(2, Cluster::Data(9)).write(&at("new"));
    let open = |name: &str| Chain::open(&at(name)).unwrap();
    assert_eq!(changed_bytes(&open("old"), &open("old")).unwrap(), 0);
    assert_eq!(changed_bytes(&open("middle"), &open("old")).unwrap(), 2 << 16);
    assert_eq!(changed_bytes(&open("old"), &open("middle")).unwrap(), 2 << 16);
    assert_eq!(changed_bytes(&open("old"), &open("new")).unwrap(), 3 << 16);
    assert_eq!(changed_bytes(&open("base"), &open("new")).unwrap(), 3 << 16);
}

#[test]
fn bytes_hidden_by_a_smaller_disk_are_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    Qcow2File::new(16, 1 << 20).write(&at("old"));
    Qcow2File::new(16, 1 << 20).with(0, Cluster::Data(1)).with(5, Cluster::Data(1)).write(&at("wide"));
    Qcow2File::new(16, 2 << 16).on("wide").write(&at("narrow"));
    Qcow2File::new(16, 1 << 20).on("narrow").write(&at("new"));
    let open = |name: &str| Chain::open(&at(name)).unwrap();
    assert_eq!(changed_bytes(&open("old"), &open("new")).unwrap(), 1 << 16);
}

#[test]
fn equal_content_is_excluded_after_reading() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let disk = || Qcow2File::new(16, 1 << 20);
    disk().with(0, Cluster::Data(1)).with(1, Cluster::Data(2)).with(2, Cluster::Zero).write(&at("old"));
    disk().with(0, Cluster::Data(1)).with(1, Cluster::Data(3)).write(&at("new"));
    let (old, new) = (Chain::open(&at("old")).unwrap(), Chain::open(&at("new")).unwrap());
    let difference = Difference::between(&old, &new, Watch::default()).unwrap();
    assert_eq!(difference.bytes(), 3 << 16);
    assert_eq!(difference.clone().narrowed(&old, &new, 1 << 30, Watch::default()).unwrap().bytes(), 1 << 16);
    // Enough for the first cluster only.
    assert_eq!(difference.narrowed(&old, &new, 2 << 16, Watch::default()).unwrap().bytes(), 2 << 16);
}

#[test]
fn spent_budget_counts_the_rest_as_changed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let size = 64 << 40;
    Qcow2File::new(21, size).write(&at("base"));
    Qcow2File::new(21, 1 << 21).on("base").write(&at("old"));
    Qcow2File::new(21, size).on("base").write(&at("new"));
    let (old, new) = (Chain::open(&at("old")).unwrap(), Chain::open(&at("new")).unwrap());
    let difference = Difference::between(&old, &new, Watch::default()).unwrap();
    let began = std::time::Instant::now();
    let narrowed = difference.narrowed(&old, &new, 1 << 20, Watch::default()).unwrap();
    assert_eq!(narrowed.bytes(), size - (1 << 21));
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn cancelled_comparison_of_tables_ends() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let disk = || Qcow2File::new(16, 1 << 20);
    disk().with(0, Cluster::Data(1)).write(&at("old"));
    disk().with(0, Cluster::Data(1)).write(&at("new"));
    let (old, new) = (Chain::open(&at("old")).unwrap(), Chain::open(&at("new")).unwrap());
    let cancelled = std::sync::atomic::AtomicBool::new(true);
    let over = Watch { cancelled: Some(&cancelled), ..Watch::default() };
    let ended = Difference::between(&old, &new, over).unwrap_err();
    let problem = LayerError::Ended(Ended::Cancelled);
    assert!(
        matches!(&ended, Qcow2Error::Layer { problem: found, .. } if found.to_string() == problem.to_string())
    );
    // The upper bound is known already, and nothing is read to narrow it.
    let difference = Difference::between(&old, &new, Watch::default()).unwrap();
    assert_eq!(difference.narrowed(&old, &new, 1 << 30, over).unwrap().bytes(), 1 << 16);
}

#[test]
fn hard_link_is_shared_and_copy_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    Qcow2File::new(16, 1 << 20).with(3, Cluster::Data(1)).write(&at("base"));
    std::fs::hard_link(at("base"), at("link")).unwrap();
    std::fs::copy(at("base"), at("copy")).unwrap();
    let open = |name: &str| Chain::open(&at(name)).unwrap();
    assert_eq!(changed_bytes(&open("base"), &open("link")).unwrap(), 0);
    assert_eq!(changed_bytes(&open("base"), &open("copy")).unwrap(), 1 << 16);
}

#[test]
fn small_backing_disk_hides_deeper_layers() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        Qcow2File::new(12, 64 << 10),
        Qcow2File::new(12, (4 << 10) + 512),
        Qcow2File::new(12, 64 << 10).with(1, Cluster::Data(1)).with(2, Cluster::Data(1)),
    ];
    let chain = open(dir.path(), "disk", &files);
    let mut bytes = vec![9; 12 << 10];
    chain.read_at(0, &mut bytes).unwrap();
    assert!(bytes[4096..4608].iter().all(|&byte| byte == 1));
    assert!(bytes[4608..].iter().all(|&byte| byte == 0));
}

#[test]
fn short_last_cluster_is_filled_with_zeroes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let mut bytes = Qcow2File::new(12, 4096).with(0, Cluster::Data(7)).bytes();
    bytes.truncate(bytes.len() - 4000);
    std::fs::write(&path, &bytes).unwrap();
    let mut disk = [1; 4096];
    Chain::open(&path).unwrap().read_at(0, &mut disk).unwrap();
    assert!(disk[..96].iter().all(|&byte| byte == 7) && disk[96..].iter().all(|&byte| byte == 0));
    bytes.truncate(bytes.len() - 96);
    std::fs::write(&path, &bytes).unwrap();
    let read = Chain::open(&path).unwrap().read_at(0, &mut disk);
    assert!(matches!(read, Err(Qcow2Error::Layer { problem: LayerError::Entry { table: "L2", .. }, .. })));
}

#[test]
fn circles_and_endless_chains_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    Qcow2File::new(9, 512).on("b").write(&at("a"));
    Qcow2File::new(9, 512).on("a").write(&at("b"));
    assert!(matches!(Chain::open(&at("a")), Err(Qcow2Error::Cycle { .. })));
    Qcow2File::new(9, 512).on("missing").write(&at("c"));
    let error = Chain::open(&at("c")).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    for depth in 0..MAX_DEPTH {
        Qcow2File::new(9, 512).on(&format!("{}", depth + 1)).write(&at(&depth.to_string()));
    }
    let endless = Chain::open(&at("0"));
    // A low limit of open files is reached first.
    let too_many_files = matches!(&endless, Err(Qcow2Error::Layer { problem: LayerError::Read(error), .. })
        if error.raw_os_error() == Some(24));
    assert!(too_many_files || matches!(endless, Err(Qcow2Error::Depth { .. })), "{endless:?}");
}

#[test]
fn invalid_table_entries_are_refused_when_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let good = Qcow2File::new(12, 4 << 20).with(0, Cluster::Data(1)).with(600, Cluster::Data(1)).bytes();
    let problem = |at: usize, value: u64| {
        let mut bytes = good.clone();
        put(&mut bytes, at, value);
        std::fs::write(&path, bytes).unwrap();
        let read = Chain::open(&path).and_then(|chain| chain.read_at(0, &mut [0; 4096]));
        let allocated = Layer::open(&path).and_then(|layer| layer.allocated(Watch::default()));
        match (read, allocated) {
            (Err(Qcow2Error::Layer { problem, .. }), Err(_)) => problem,
            other => panic!("{other:?}"),
        }
    };
    let (l1, l2) = (4096, 2 * 4096);
    assert!(matches!(problem(l1, 1 << 40), LayerError::Entry { table: "L1", .. }));
    assert!(matches!(problem(l1, 512), LayerError::Entry { table: "L1", .. }));
    assert!(matches!(problem(l1 + 8, 1 << 63 | l2 as u64), LayerError::SharedTable(_)));
    assert!(matches!(problem(l2, 1 << 40), LayerError::Entry { table: "L2", .. }));
    assert!(matches!(problem(l2, 1 << 62 | 4096), LayerError::Unsupported("compression")));
    assert!(matches!(problem(40, 1 << 41), LayerError::Entry { table: "L1", .. }));
}

#[test]
fn backing_names_that_lead_elsewhere_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    Qcow2File::new(16, 1 << 20).write(&dir.path().join("secret.qcow2"));
    let outside = dir.path().join("secret.qcow2").display().to_string();
    for name in [outside.as_str(), "../secret.qcow2", "./../secret.qcow2"] {
        Qcow2File::new(16, 1 << 20).on(name).write(&inner.join("top.qcow2"));
        assert!(Chain::open(&inner.join("top.qcow2")).is_err(), "{name}");
    }
}
