//! Tests that programs that read untrusted disks run in cgroups of their own.

use std::fs;
use std::path::Path;
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName};
use agentiso_core::resources::Resources;
use agentiso_host::carry::{Import, Source, export, import};
use agentiso_sys::Progress;
use agentiso_sys::cgroup::{Cgroups, Place};
use agentiso_sys::command::Tool;
use agentiso_sys::jail::Jail;
use agentiso_testkit::record_skip;
use agentiso_vm::{Facts, Target};
use tokio_util::sync::CancellationToken;

/// The stand-in shows where `qemu-img` ran, because its directories with files are not removed like cgroups.
#[tokio::test]
async fn exports_and_imports_run_in_groups() {
    const MINUTE: Duration = Duration::from_secs(60);
    let (hierarchy, bench) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A group without processes whose children can have every controller.
    for (name, text) in [
        ("cgroup.controllers", "memory pids\n"),
        ("cgroup.subtree_control", "memory pids\n"),
        ("cgroup.procs", ""),
        ("cgroup.type", "domain\n"),
    ] {
        fs::write(hierarchy.path().join(name), text).unwrap();
    }
    let place = Place::look(hierarchy.path(), std::process::id()).unwrap();
    let groups = Cgroups::at(&place, Path::new("/run/a")).unwrap();
    let entered = || {
        let groups = fs::read_dir(hierarchy.path()).unwrap().flatten().filter(|entry| entry.path().is_dir());
        groups.map(|group| fs::read_to_string(group.path().join("cgroup.procs")).unwrap()).collect::<Vec<_>>()
    };
    let disk = bench.path().join("disk.qcow2");
    let make = Tool::new("qemu-img", "qemu-utils", MINUTE).args(["create", "-q", "-f", "qcow2"]);
    if let Err(error) = make.args([disk.as_os_str(), "1G".as_ref()]).run().await {
        return record_skip(&format!("qemu-img makes no disk: {error}"));
    }
    let jail = if rustix::process::geteuid().is_root() { Jail::Users } else { Jail::UserNamespace };
    let source = Source { disk: &disk, memory: None, scratch: bench.path(), jail, cgroups: Some(&groups) };
    let facts = Facts {
        workspace: WorkspaceName::parse("box").unwrap(),
        snapshot: SnapshotName::parse("ready").unwrap(),
        taken_at: jiff::Timestamp::UNIX_EPOCH,
        resources: Resources { vcpus: 1, memory_mb: 256, disk_gb: 1 },
        image: ImageName::parse("debian-minimal").unwrap(),
        image_id: "id".to_owned(),
        image_virtual_bytes: 1 << 30,
        init_mode: "fast".to_owned(),
    };
    let target = Target { path: bench.path().join("file"), replace: false };
    export(source, facts, &target, &Progress::silent()).await.unwrap();
    assert_eq!(entered(), ["0"], "the program that reads the disk");

    let wanted = Import {
        file: &target.path,
        directory: &bench.path().join("volume"),
        snapshot: SnapshotId::random(),
        host: None,
        jail,
        cgroups: Some(&groups),
    };
    import(wanted, &Progress::silent(), &CancellationToken::new()).await.unwrap();
    assert_eq!(entered(), ["0", "0"], "and the one that checks it");
}
