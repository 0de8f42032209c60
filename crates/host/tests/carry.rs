//! Tests of exports and imports, with and without the memory of a VM.
#![expect(clippy::print_stderr, reason = "figures belong in the test's output")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName};
use agentiso_core::resources::Resources;
use agentiso_disk::{Qcow2Storage, Storage};
use agentiso_host::carry::{CarryError, Flaw, Import, Source, export, import, look};
use agentiso_sys::Progress;
use agentiso_sys::command::Tool;
use agentiso_sys::jail::Jail;
use agentiso_vm::{About, Arrival, Exported, Facts, Imported, OnSpawn, Rung, Target, VmSpec};
use common::{SMALL, TestHost, sh, start_counter, wait_for_count};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const MINUTE: Duration = Duration::from_secs(60);

async fn qemu_img(args: &[&str]) -> String {
    Tool::new("qemu-img", "qemu-utils", MINUTE).args(args).run().await.unwrap().stdout
}

/// Returns from the test after recording a skip if `qemu-img` is not installed.
macro_rules! qemu_img_or_skip {
    () => {
        if Tool::new("qemu-img", "qemu-utils", MINUTE).args(["--version"]).run().await.is_err() {
            agentiso_testkit::record_skip("qemu-img is not installed");
            return;
        }
    };
}

fn about(snapshot: &str) -> About {
    About {
        workspace: WorkspaceName::parse("box").unwrap(),
        snapshot: SnapshotName::parse(snapshot).unwrap(),
        taken_at: jiff::Timestamp::now(),
    }
}

fn facts() -> Facts {
    Facts {
        workspace: WorkspaceName::parse("box").unwrap(),
        snapshot: SnapshotName::parse("ready").unwrap(),
        taken_at: jiff::Timestamp::UNIX_EPOCH,
        resources: Resources { vcpus: 1, memory_mb: 256, disk_gb: 1 },
        image: ImageName::parse("debian-minimal").unwrap(),
        image_id: "id".to_owned(),
        image_virtual_bytes: 1 << 30,
        init_mode: "fast".to_owned(),
    }
}

/// The jail that this user can have.
fn jail() -> Jail {
    if rustix::process::geteuid().is_root() { Jail::Users } else { Jail::UserNamespace }
}

/// A directory in which disks are made, exported and imported.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A disk of 1 GiB in two layers, with this content at its beginning.
    async fn disk(&self, content: &[u8]) -> PathBuf {
        fs::write(self.path("raw"), content).unwrap();
        qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &self.text("raw"), &self.text("base.qcow2")]).await;
        let base = ["-b", "base.qcow2", "-F", "qcow2"];
        qemu_img(&[&["create", "-q", "-f", "qcow2"], &base[..], &[&self.text("top.qcow2"), "1G"]].concat())
            .await;
        self.path("top.qcow2")
    }

    async fn export(&self, disk: &Path, replace: bool) -> Result<Exported, CarryError> {
        let target = Target { path: self.path("file"), replace };
        let source = Source { disk, memory: None, scratch: self.0.path(), jail: jail(), cgroups: None };
        export(source, facts(), &target, &Progress::silent()).await
    }

    async fn import(&self, snapshot: SnapshotId) -> Result<Imported, CarryError> {
        let (file, directory) = (self.path("file"), self.path("volume"));
        let wanted =
            Import { file: &file, directory: &directory, snapshot, host: None, jail: jail(), cgroups: None };
        import(wanted, &Progress::silent(), &CancellationToken::new()).await
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn imported_disk_is_equal_and_standalone() {
    qemu_img_or_skip!();
    let bench = Bench::new();
    let disk = bench.disk(&[7; 3 << 20]).await;
    let exported = bench.export(&disk, false).await.unwrap();
    assert!(!exported.has_memory);
    assert_eq!(exported.file_bytes, bench.path("file").metadata().unwrap().len());
    assert_eq!(bench.names(), ["base.qcow2", "file", "raw", "top.qcow2"], "no copy of the disk is left");
    let manifest = look(&bench.path("file")).await.unwrap();
    assert_eq!((manifest.vm, manifest.memory), (facts(), None));

    for layer in ["base.qcow2", "top.qcow2"] {
        fs::remove_file(bench.path(layer)).unwrap();
    }
    let id = SnapshotId::random();
    let imported = bench.import(id).await.unwrap();
    assert_eq!(imported, Imported { vm: facts(), has_memory: false, warning: None });
    let volume = bench.path("volume");
    let sizes = Qcow2Storage.sizes(&volume).await.unwrap();
    assert_eq!((sizes.virtual_bytes, sizes.snapshots.contains_key(&id)), (1 << 30, true));
    for of in [None, Some(id)] {
        let chain = Qcow2Storage.chain(&volume, of).await.unwrap();
        let out = bench.text("out");
        qemu_img(&["convert", "-f", "qcow2", "-O", "raw", chain[0].to_str().unwrap(), &out]).await;
        let content = fs::read(&out).unwrap();
        assert!(
            content[..3 << 20].iter().all(|byte| *byte == 7) && content[3 << 20..].iter().all(|b| *b == 0)
        );
    }
    // The imported volume is like any other: its snapshot can be restored, forked and deleted.
    Qcow2Storage.restore(&volume, id).await.unwrap();
    Qcow2Storage.fork(&volume, id, &bench.path("fork")).await.unwrap();
    Qcow2Storage.forget_snapshot(&volume, id).await.unwrap();
    assert!(bench.import(id).await.is_err(), "a directory that is there is nobody's to unpack into");
}

#[tokio::test]
async fn export_replaces_existing_file_only_on_request() {
    qemu_img_or_skip!();
    let bench = Bench::new();
    let disk = bench.disk(b"x").await;
    fs::write(bench.path("file"), "mine").unwrap();
    assert!(matches!(bench.export(&disk, false).await, Err(CarryError::Exists(_))));
    assert_eq!(fs::read(bench.path("file")).unwrap(), b"mine");
    bench.export(&disk, true).await.unwrap();
    look(&bench.path("file")).await.unwrap();
    let missing = bench.path("none.qcow2");
    assert!(matches!(bench.export(&missing, true).await, Err(CarryError::Convert(_))));
    look(&bench.path("file")).await.unwrap();
    assert_eq!(bench.names(), ["base.qcow2", "file", "raw", "top.qcow2"]);
}

#[tokio::test]
async fn harmful_disks_are_refused_without_leftovers() {
    qemu_img_or_skip!();
    let bench = Bench::new();
    let disk = bench.disk(&[7; 1 << 20]).await;
    bench.export(&disk, false).await.unwrap();
    let harmless = unpacked(&bench.path("file"));
    let secret = bench.text("secret");
    fs::write(&secret, vec![1; 1 << 20]).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["-b", &secret, "-F", "raw", "1G"], "refers to another file"),
        (&["-o", &format!("data_file={secret},data_file_raw=on"), "1G"], "features"),
        (&["-o", "extended_l2=on", "1G"], "features"),
        (&["-o", "compat=0.10", "1G"], "version 2"),
        (&["2G"], "2147483648 bytes instead of 1073741824"),
    ];
    for (options, words) in cases {
        let made = bench.text("made.qcow2");
        let (options, size) = options.split_at(options.len() - 1);
        qemu_img(&[&["create", "-q", "-f", "qcow2"], options, &[&made], size].concat()).await;
        repack(&bench.path("file"), &harmless, &fs::read(&made).unwrap());
        let error = bench.import(SnapshotId::random()).await.unwrap_err();
        assert!(matches!(error, CarryError::Flawed { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!bench.path("volume").exists());
    }
    // Two table entries point to the same cluster, so that a write to one would change both.
    let mut damaged = harmless[0].1.clone();
    let l1 = u64::from_be_bytes(damaged[40..48].try_into().unwrap()) as usize;
    let l2 = (u64::from_be_bytes(damaged[l1..l1 + 8].try_into().unwrap()) & 0x00ff_ffff_ffff_fe00) as usize;
    damaged.copy_within(l2..l2 + 8, l2 + 8);
    repack(&bench.path("file"), &harmless, &damaged);
    let error = bench.import(SnapshotId::random()).await.unwrap_err();
    assert!(matches!(error, CarryError::Flawed { flaw: Flaw::Damaged(_), .. }), "{error}");
    assert!(!bench.path("volume").exists());
    repack(&bench.path("file"), &harmless, &harmless[0].1);
    bench.import(SnapshotId::random()).await.unwrap();
}

/// The disk and the manifest in a file.
fn unpacked(file: &Path) -> [(String, Vec<u8>); 2] {
    let stream = zstd::Decoder::new(fs::File::open(file).unwrap()).unwrap();
    let mut found = std::collections::BTreeMap::new();
    for entry in tar::Archive::new(stream).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        found.insert(entry.path().unwrap().to_str().unwrap().to_owned(), content);
    }
    ["disk.qcow2", "manifest.json"].map(|name| found.remove_entry(name).unwrap())
}

/// Writes the file again with another disk and matching sizes and hashes.
fn repack(file: &Path, [_, (_, manifest)]: &[(String, Vec<u8>); 2], disk: &[u8]) {
    use sha2::Digest;
    let mut manifest: serde_json::Value = serde_json::from_slice(manifest).unwrap();
    manifest["members"][0]["bytes"] = disk.len().into();
    let manifest = serde_json::to_vec(&manifest).unwrap();
    let hash = |content: &[u8]| -> String {
        sha2::Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let hashes = serde_json::json!({"manifest.json": hash(&manifest), "disk.qcow2": hash(disk)}).to_string();
    let encoder = zstd::Encoder::new(fs::File::create(file).unwrap(), 1).unwrap().auto_finish();
    let mut archive = tar::Builder::new(encoder);
    for (name, content) in
        [("manifest.json", &*manifest), ("disk.qcow2", disk), ("hashes.json", hashes.as_bytes())]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content).unwrap();
    }
    archive.finish().unwrap();
}

#[tokio::test]
async fn cancelled_export_and_import_leave_nothing() {
    qemu_img_or_skip!();
    let bench = Bench::new();
    let disk = bench.disk(&[7; 1 << 20]).await;
    let before = bench.names();
    // This export is dropped before it made progress.
    let _ = tokio::time::timeout(Duration::from_millis(1), bench.export(&disk, false)).await;
    settled(&bench, &before).await;
    bench.export(&disk, false).await.unwrap();
    let before = bench.names();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let (file, directory) = (bench.path("file"), bench.path("volume"));
    let snapshot = SnapshotId::random();
    let wanted =
        Import { file: &file, directory: &directory, snapshot, host: None, jail: jail(), cgroups: None };
    let error = import(wanted, &Progress::silent(), &cancel).await.unwrap_err();
    assert!(matches!(error, CarryError::Cancelled), "{error}");
    assert_eq!(bench.names(), before);
    for milliseconds in [1, 3, 10, 20] {
        let importing = bench.import(SnapshotId::random());
        if tokio::time::timeout(Duration::from_millis(milliseconds), importing).await.is_err() {
            settled(&bench, &before).await;
        } else {
            fs::remove_dir_all(&directory).unwrap();
        }
    }
}

/// Waits until the directory holds only these names.
async fn settled(bench: &Bench, names: &[String]) {
    let deadline = Instant::now() + MINUTE;
    while bench.names() != names {
        assert!(Instant::now() < deadline, "{:?} is left", bench.names());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Exports a snapshot as the daemon does: from a branch, which is removed afterwards.
async fn export_snapshot(host: &TestHost, spec: &VmSpec, snapshot: SnapshotId, file: &Path) -> Exported {
    let branch = host.spec(spec.resources);
    host.hypervisor.branch(spec, snapshot, &branch).await.unwrap();
    let target = Target { path: file.to_owned(), replace: false };
    let began = Instant::now();
    let exported =
        host.hypervisor.export(&branch, about("ready"), &target, &Progress::silent()).await.unwrap();
    eprintln!(
        "export: {:?}, {} MB of {} MB, memory {}",
        began.elapsed(),
        exported.file_bytes >> 20,
        exported.content_bytes >> 20,
        exported.has_memory
    );
    fs::remove_dir_all(&branch.data_dir).unwrap();
    exported
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_vm_resumes_from_its_memory() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    start_counter(&vm).await;
    let id = host.snapshot(&spec, &vm, true).await;
    let at_snapshot = wait_for_count(&vm, 1).await;
    let later = wait_for_count(&vm, at_snapshot + 20).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("machine.agentiso");
    // The source VM keeps running during the export.
    let exported = export_snapshot(&host, &spec, id, &file).await;
    assert!(exported.has_memory);
    wait_for_count(&vm, later + 1).await;
    vm.kill().await;
    fs::remove_dir_all(&spec.data_dir).unwrap();

    let other = host.spec(SMALL);
    let snapshot = SnapshotId::random();
    let began = Instant::now();
    let never = CancellationToken::new();
    let arrival = Arrival { file: &file, snapshot, with_memory: true };
    let imported = host.hypervisor.import(&other, arrival, &Progress::silent(), &never).await.unwrap();
    eprintln!("import: {:?}", began.elapsed());
    assert_eq!((imported.has_memory, &imported.warning), (true, &None));
    assert_eq!(imported.vm.resources, SMALL);
    let booted =
        host.hypervisor.restore(&other, snapshot, &OnSpawn::default(), &Progress::silent()).await.unwrap();
    let booted = host.watch(booted);
    assert_eq!((booted.rung, &booted.warning), (Rung::Memory, &None));
    let there = wait_for_count(&booted.vm, 1).await;
    assert!(there < later, "it went on from where the snapshot was: {there} < {later}");
    wait_for_count(&booted.vm, there + 10).await;
    assert_eq!(sh(&booted.vm, "hostname").await, other.identity.hostname);
    // The imported snapshot can be forked, and the new VM can take another.
    let (_, fork) = host.fork(&other, snapshot).await;
    assert_eq!(fork.rung, Rung::Memory);
    fork.vm.kill().await;
    host.snapshot(&other, &booted.vm, false).await;
    booted.vm.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_incompatible_host_is_left_out() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    sh(&vm, "echo carried > /root/file").await;
    let id = host.snapshot(&spec, &vm, true).await;
    vm.kill().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("machine.agentiso");
    export_snapshot(&host, &spec, id, &file).await;

    let mut settings = host.settings.clone();
    settings.nested = true;
    let elsewhere = agentiso_host::Hypervisor::open(settings).await.unwrap();
    let other = host.spec(SMALL);
    let snapshot = SnapshotId::random();
    let never = CancellationToken::new();
    let arrival = Arrival { file: &file, snapshot, with_memory: true };
    let imported = elsewhere.import(&other, arrival, &Progress::silent(), &never).await.unwrap();
    assert!(!imported.has_memory);
    let warning = imported.warning.unwrap();
    assert!(warning.contains("vm.nested (there false, here true)"), "{warning}");
    let names = fs::read_dir(&other.data_dir).unwrap().flatten().map(|entry| entry.file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("memory")));
    let booted = host.watch(
        host.hypervisor.restore(&other, snapshot, &OnSpawn::default(), &Progress::silent()).await.unwrap(),
    );
    assert_eq!(booted.rung, Rung::BareTemplate);
    assert_eq!(sh(&booted.vm, "cat /root/file").await, "carried");
    booted.vm.kill().await;
}
