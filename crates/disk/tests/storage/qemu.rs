//! Checks merged layers with QEMU's own tools, which write, check and read them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_disk::{Backing, KeyframeDue, Qcow2Storage, Storage};
use agentiso_sys::command::Tool;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

const SIZE: u64 = 600 << 20;

struct Disk {
    root: tempfile::TempDir,
    dir: PathBuf,
}

async fn qemu(program: &str, arguments: &[&str]) -> String {
    let done = Tool::new(program, "qemu-utils", Duration::from_secs(120)).args(arguments).run().await;
    done.unwrap_or_else(|error| panic!("{error}")).stdout
}

async fn is_missing() -> bool {
    let mut missing = false;
    for program in ["qemu-img", "qemu-io"] {
        missing |= Tool::new(program, "qemu-utils", Duration::from_secs(60))
            .args(["--version"])
            .run()
            .await
            .is_err();
    }
    if missing {
        agentiso_testkit::record_skip("qemu-img and qemu-io are not installed");
    }
    missing
}

impl Disk {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let image = root.path().join("image.qcow2");
        qemu("qemu-img", &["create", "-q", "-f", "qcow2", image.to_str().unwrap(), "600M"]).await;
        qemu("qemu-io", &["-f", "qcow2", "-c", "write -P 9 0 3M", image.to_str().unwrap()]).await;
        let dir = root.path().join("volume");
        std::fs::create_dir(&dir).unwrap();
        let backing = Backing { name: "image".to_owned(), layers: vec![image] };
        Qcow2Storage.create_from_image(&dir, &backing, SIZE).await.unwrap();
        Self { root, dir }
    }

    /// Writes to the head with `qemu-io`.
    async fn write(&self, commands: &[&str]) {
        let head = Qcow2Storage.head(&self.dir).await.unwrap();
        let mut arguments = vec!["-d", "unmap", "-f", "qcow2"];
        for command in commands {
            arguments.extend(["-c", command]);
        }
        arguments.push(head.to_str().unwrap());
        qemu("qemu-io", &arguments).await;
    }

    async fn snapshot(&self) -> SnapshotId {
        let id = SnapshotId::random();
        Qcow2Storage.begin_snapshot(&self.dir, id).await.unwrap();
        Qcow2Storage.finish_snapshot(&self.dir, id).await.unwrap();
        id
    }

    /// Keeps a copy of the content, as QEMU reads it.
    async fn keep(&self, of: Option<SnapshotId>) -> PathBuf {
        let top = Qcow2Storage.chain(&self.dir, of).await.unwrap().remove(0);
        let kept = self.root.path().join(format!("kept-{}", SnapshotId::random()));
        let (top, out) = (top.to_str().unwrap(), kept.to_str().unwrap());
        qemu("qemu-img", &["convert", "-f", "qcow2", "-O", "qcow2", top, out]).await;
        kept
    }

    async fn assert_is(&self, of: Option<SnapshotId>, kept: &Path) {
        let top = Qcow2Storage.chain(&self.dir, of).await.unwrap().remove(0);
        let (top, kept) = (top.to_str().unwrap(), kept.to_str().unwrap());
        qemu("qemu-img", &["compare", "-f", "qcow2", "-F", "qcow2", top, kept]).await;
    }

    async fn merge_all(&self) {
        while let Some(merge) = Qcow2Storage.redundant(&self.dir).await.unwrap().first() {
            Qcow2Storage.merge_offline(&self.dir, merge).await.unwrap();
            self.check(&merge.into).await;
        }
    }

    /// Checks that QEMU finds neither an error nor a leaked cluster.
    async fn check(&self, layer: &Path) {
        let report =
            qemu("qemu-img", &["check", "-f", "qcow2", "--output=json", layer.to_str().unwrap()]).await;
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["check-errors"], 0, "{report}");
        assert!(report.get("leaks").is_none() && report.get("corruptions").is_none(), "{report}");
    }
}

#[tokio::test]
async fn merged_layers_pass_qemu_checks() {
    if is_missing().await {
        return;
    }
    let disk = Disk::new().await;
    disk.write(&["write -P 1 0 1M", "write -P 2 5M 1M", "write -P 3 590M 2M"]).await;
    let first = disk.snapshot().await;
    // Writes partial clusters, zeroes over data and over nothing, discards, and a table that the layer below lacks.
    disk.write(&["write -P 4 4k 4k", "write -z 5M 128k", "write -z -u 5248k 64k", "write -z 100M 192k"])
        .await;
    disk.write(&["discard 0 64k", "discard 1M 1M", "write -P 5 300M 3M", "write -P 6 6143k 2k"]).await;
    let second = disk.snapshot().await;
    disk.write(&["write -P 7 300M 64k", "write -z -u 590M 1M", "write -P 8 512M 64k"]).await;
    let (middle, head) = (disk.keep(Some(second)).await, disk.keep(None).await);
    Qcow2Storage.forget_snapshot(&disk.dir, first).await.unwrap();
    disk.merge_all().await;
    disk.assert_is(Some(second), &middle).await;
    disk.assert_is(None, &head).await;
    let before = Qcow2Storage.sizes(&disk.dir).await.unwrap().used_bytes;
    Qcow2Storage.forget_snapshot(&disk.dir, second).await.unwrap();
    disk.merge_all().await;
    disk.assert_is(None, &head).await;
    let after = Qcow2Storage.sizes(&disk.dir).await.unwrap().used_bytes;
    // A megabyte was zeroed and a cluster overwritten; the upper layer's tables are removed too.
    assert!(before - after >= (1 << 20) + (64 << 10), "{before} {after}");
    // QEMU continues to write to the merged layer.
    disk.write(&["write -P 10 0 8M", "write -P 11 200M 4M", "discard 590M 2M"]).await;
    disk.check(&Qcow2Storage.head(&disk.dir).await.unwrap()).await;
    // `qemu-io` fails if it reads another byte than the given one.
    disk.write(&["read -P 10 0 8M", "read -P 11 200M 4M", "read -P 5 301M 1M"]).await;
}

#[tokio::test]
async fn changed_backing_name_is_read_by_qemu() {
    if is_missing().await {
        return;
    }
    let disk = Disk::new().await;
    let mut snapshots = Vec::new();
    for block in 0..5 {
        disk.write(&[&format!("write -P {} {}M 1M", block + 1, block)]).await;
        snapshots.push(disk.snapshot().await);
    }
    let content = disk.keep(None).await;
    let head = Qcow2Storage.head(&disk.dir).await.unwrap();
    let head = head.to_str().unwrap();
    // The head gets another backing each time.
    for id in snapshots.into_iter().rev() {
        Qcow2Storage.forget_snapshot(&disk.dir, id).await.unwrap();
        let merges = Qcow2Storage.redundant(&disk.dir).await.unwrap();
        for merge in merges.iter().filter(|merge| !merge.child_is_head) {
            Qcow2Storage.merge_offline(&disk.dir, merge).await.unwrap();
        }
        let info = qemu("qemu-img", &["info", "--output=json", head]).await;
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let below = Qcow2Storage.chain(&disk.dir, None).await.unwrap().remove(1);
        let below = below.file_name().unwrap().to_str().unwrap();
        assert_eq!(info["backing-filename"], below);
        assert_eq!(info["backing-filename-format"], "qcow2");
        // QEMU rewrites the header, with the name at another offset.
        qemu("qemu-img", &["rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", below, head]).await;
        disk.check(Path::new(head)).await;
        disk.assert_is(None, &content).await;
    }
}

#[tokio::test]
async fn keyframe_reads_as_the_layers_it_replaces() {
    if is_missing().await {
        return;
    }
    let disk = Disk::new().await;
    let mut snapshots = Vec::new();
    for number in 1..7 {
        let data = format!("write -P {number} {}M {}M", number * 3, 7 - number);
        let (zeroes, last) =
            (format!("write -z -u {}k 192k", number * 3100), format!("write -P {number} 560M 64k"));
        disk.write(&[&data, &zeroes, &last, "write -z 0 64k"]).await;
        let id = disk.snapshot().await;
        snapshots.push((id, disk.keep(Some(id)).await));
    }
    let files = || std::fs::read_dir(&disk.dir).unwrap().count();
    let (stopped, before) = (CancellationToken::new(), files());
    stopped.cancel();
    assert_eq!(Qcow2Storage.keyframe(&disk.dir, KeyframeDue::after(6), &stopped).await.unwrap(), None);
    assert_eq!(files(), before, "one that was stopped leaves nothing");
    let keyframe = Qcow2Storage
        .keyframe(&disk.dir, KeyframeDue::after(6), &CancellationToken::new())
        .await
        .unwrap()
        .unwrap();
    disk.check(&keyframe.file).await;
    Qcow2Storage.adopt_keyframe(&disk.dir, &keyframe).await.unwrap();
    assert_eq!(Qcow2Storage.chain(&disk.dir, None).await.unwrap().len(), 3);
    for (id, kept) in &snapshots {
        disk.assert_is(Some(*id), kept).await;
    }
    disk.assert_is(None, &snapshots[5].1).await;
}

/// A process that has a disk open like a VM.
struct Vm {
    process: tokio::process::Child,
    input: tokio::process::ChildStdin,
}

impl Vm {
    async fn on(head: &Path) -> Self {
        let mut process = tokio::process::Command::new("qemu-io")
            .args(["-f", "qcow2"])
            .arg(head)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut input = process.stdin.take().unwrap();
        let mut output = process.stdout.take().unwrap();
        // It answers when the disk is open, and keeps it open until its input ends.
        input.write_all(b"read 0 64k\n").await.unwrap();
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains("ops/sec") {
            let more = tokio::time::timeout(Duration::from_secs(60), output.read_buf(&mut said));
            assert_ne!(more.await.unwrap().unwrap(), 0, "{}", String::from_utf8_lossy(&said));
        }
        Self { process, input }
    }

    async fn end(mut self) {
        drop(self.input);
        self.process.wait().await.unwrap();
    }
}

#[tokio::test]
async fn open_layers_are_not_merged_offline() {
    if is_missing().await {
        return;
    }
    let disk = Disk::new().await;
    disk.write(&["write -P 1 0 1M"]).await;
    let first = disk.snapshot().await;
    disk.write(&["write -P 2 0 1M"]).await;
    disk.snapshot().await;
    Qcow2Storage.forget_snapshot(&disk.dir, first).await.unwrap();
    let merge = Qcow2Storage.redundant(&disk.dir).await.unwrap().remove(0);
    let head = Qcow2Storage.head(&disk.dir).await.unwrap();
    let vm = Vm::on(&head).await;
    assert!(Qcow2Storage.redundant(&disk.dir).await.unwrap()[0].under_head);
    let before = std::fs::read(&merge.into).unwrap();
    let error = Qcow2Storage.merge_offline(&disk.dir, &merge).await.unwrap_err();
    assert!(error.to_string().contains("a VM has it open"), "{error}");
    assert!(std::fs::read(&merge.into).unwrap() == before);
    vm.end().await;
    Qcow2Storage.merge_offline(&disk.dir, &merge).await.unwrap();
    disk.write(&["read -P 2 0 1M"]).await;
}

#[tokio::test]
async fn replaced_layers_are_not_merged_while_open() {
    if is_missing().await {
        return;
    }
    let disk = Disk::new().await;
    let mut snapshots = Vec::new();
    for number in 1..4 {
        disk.write(&[&format!("write -P {number} {number}M 1M")]).await;
        snapshots.push(disk.snapshot().await);
    }
    Qcow2Storage
        .keyframe(&disk.dir, KeyframeDue::after(3), &CancellationToken::new())
        .await
        .unwrap()
        .unwrap();
    snapshots.push(disk.snapshot().await);
    let content = disk.keep(None).await;
    let vm = Vm::on(&Qcow2Storage.head(&disk.dir).await.unwrap()).await;
    let keyframe = Qcow2Storage
        .keyframe(&disk.dir, KeyframeDue::after(3), &CancellationToken::new())
        .await
        .unwrap()
        .unwrap();
    assert!(!keyframe.head_is_above, "{keyframe:?}");
    Qcow2Storage.adopt_keyframe(&disk.dir, &keyframe).await.unwrap();
    for id in [snapshots[0], snapshots[2]] {
        Qcow2Storage.forget_snapshot(&disk.dir, id).await.unwrap();
        assert_eq!(Qcow2Storage.redundant(&disk.dir).await.unwrap(), []);
    }
    vm.end().await;
    assert_eq!(Qcow2Storage.redundant(&disk.dir).await.unwrap().len(), 2);
    disk.merge_all().await;
    disk.assert_is(None, &content).await;
}
