//! Chains made by QEMU's own tools.

use std::path::Path;

use agentiso_diff::qcow2::{Chain, Layer, LayerError, Qcow2Error};
use agentiso_diff::{Watch, changed_bytes};

use crate::tools::{need, qemu_io, run};

fn create(dir: &Path, name: &str, backing: Option<&str>, size: &str) {
    let path = dir.join(name).display().to_string();
    let mut arguments = vec!["create", "-q", "-f", "qcow2"];
    if let Some(backing) = backing {
        arguments.extend(["-F", "qcow2", "-b", backing]);
    }
    arguments.extend([path.as_str(), size]);
    run("qemu-img", arguments);
}

fn converted(dir: &Path, name: &str) -> Vec<u8> {
    let (disk, raw) = (dir.join(name), dir.join("raw"));
    run(
        "qemu-img",
        ["convert", "-f", "qcow2", "-O", "raw", &disk.display().to_string(), &raw.display().to_string()],
    );
    std::fs::read(raw).unwrap()
}

#[test]
fn chain_reads_match_qemu() {
    need!("qemu-img", "qemu-io");
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    create(dir.path(), "base", None, "8M");
    qemu_io(&at("base"), &["write -P 1 0 3M", "write -P 2 5000k 700k", "discard 1M 256k"]);
    create(dir.path(), "middle", Some("base"), "16M");
    qemu_io(&at("middle"), &["write -P 3 1000 5000", "write -z 2M 128k", "write -P 4 12M 1M"]);
    create(dir.path(), "top", Some("middle"), "24M");
    qemu_io(&at("top"), &["write -P 5 13000000 100", "write -P 6 23M 70000", "write -z -u 64k 64k"]);
    let chain = Chain::open(&at("top")).unwrap();
    let expected = converted(dir.path(), "top");
    let mut disk = vec![0xAA; expected.len()];
    chain.read_at(0, &mut disk).unwrap();
    assert!(disk == expected);
    // One cluster for 100 bytes, two for 70000, one of zeroes.
    assert_eq!(changed_bytes(&Chain::open(&at("middle")).unwrap(), &chain).unwrap(), 4 << 16);
    let allocated = Layer::open(&at("top")).unwrap().allocated(Watch::default()).unwrap();
    assert_eq!(allocated.data_bytes, 3 << 16);
    assert_eq!(allocated.ranges.bytes(), 4 << 16);
}

#[test]
fn compressed_and_raw_disks_are_refused() {
    need!("qemu-img", "qemu-io");
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let name = |name: &str| at(name).display().to_string();
    create(dir.path(), "plain", None, "1M");
    qemu_io(&at("plain"), &["write -P 1 0 1M"]);
    run("qemu-img", ["convert", "-c", "-O", "qcow2", &name("plain"), &name("small")]);
    let read = Chain::open(&at("small")).unwrap().read_at(0, &mut [0; 512]);
    let problem = |result: Result<(), Qcow2Error>| match result {
        Err(Qcow2Error::Layer { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    assert!(matches!(problem(read), LayerError::Unsupported("compression")));
    run("qemu-img", ["convert", "-O", "raw", &name("plain"), &name("raw")]);
    assert!(matches!(problem(Chain::open(&at("raw")).map(drop)), LayerError::Magic));
    run("qemu-img", ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &name("raw"), &name("on-raw")]);
    assert!(matches!(problem(Chain::open(&at("on-raw")).map(drop)), LayerError::Unsupported(_)));
    run("qemu-img", ["create", "-q", "-f", "qcow2", "-o", "extended_l2=on", &name("sub"), "1M"]);
    assert!(matches!(problem(Chain::open(&at("sub")).map(drop)), LayerError::Unsupported("subclusters")));
    run("qemu-img", ["create", "-q", "-f", "qcow2", "-o", "compat=0.10", &name("v2"), "1M"]);
    assert!(matches!(problem(Chain::open(&at("v2")).map(drop)), LayerError::Version(2)));
}
