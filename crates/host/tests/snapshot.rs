//! Tests of snapshots of real VMs: taken while they run, restored and forked.
#![expect(clippy::print_stderr, reason = "figures belong in the test's output")]

mod common;

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_disk::{Qcow2Storage, Storage};
use agentiso_host::qmp::LONGEST_PAUSE;
use agentiso_sys::Progress;
use agentiso_vm::{OnSpawn, Rung};
use common::{SMALL, TestHost, sh, start_counter, wait_for_count};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn disk_restore_keeps_every_snapshot() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    sh(&vm, "echo one > /root/file").await;
    let first = host.snapshot(&spec, &vm, false).await;
    sh(&vm, "echo two > /root/file; touch /root/later").await;
    let second = host.snapshot(&spec, &vm, false).await;
    sh(&vm, "echo three > /root/file").await;
    vm.kill().await;
    for (snapshot, content, files) in
        [(first, "one", "file"), (second, "two", "file\nlater"), (first, "one", "file")]
    {
        let booted =
            host.hypervisor.restore(&spec, snapshot, &OnSpawn::default(), &Progress::silent()).await.unwrap();
        let booted = host.watch(booted);
        assert_eq!(booted.rung, Rung::BareTemplate);
        assert_eq!(booted.warning, None);
        assert_eq!(sh(&booted.vm, "cat /root/file").await, content);
        assert_eq!(sh(&booted.vm, "ls /root").await, files);
        booted.vm.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_continue_after_memory_restore_and_fork() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    start_counter(&vm).await;
    wait_for_count(&vm, 10).await;
    let id = SnapshotId::random();
    let began = Instant::now();
    let pause = host.hypervisor.snapshot(&spec, &vm, id, true, &Progress::silent()).await.unwrap();
    eprintln!("memory snapshot: {:?}, source stopped for {pause:?}", began.elapsed());
    assert!(pause > Duration::ZERO && pause < Duration::from_secs(5), "{pause:?}");
    let at_snapshot = wait_for_count(&vm, 1).await;
    let later = wait_for_count(&vm, at_snapshot + 20).await;

    let began = Instant::now();
    let (fork, forked) = host.fork(&spec, id).await;
    sh(&forked.vm, "true").await;
    eprintln!("fork with memory to first exec: {:?}", began.elapsed());
    assert_eq!((forked.rung, &forked.warning), (Rung::Memory, &None));
    let in_fork = wait_for_count(&forked.vm, 1).await;
    assert!(in_fork < later, "the fork began where the snapshot was: {in_fork}, the source is at {later}");
    wait_for_count(&forked.vm, in_fork + 10).await;
    assert_eq!(sh(&forked.vm, "hostname").await, fork.identity.hostname);
    assert_eq!(sh(&vm, "hostname").await, spec.identity.hostname);
    let random = "od -An -N16 -tx1 /dev/urandom; cat /proc/sys/kernel/random/uuid";
    let (second_fork, second) = host.fork(&spec, id).await;
    assert_ne!(sh(&forked.vm, random).await, sh(&second.vm, random).await);
    sh(&forked.vm, "echo mine > /root/mine; sync").await;
    assert_eq!(sh(&second.vm, "ls /root").await, "count", "their disks are apart");

    // A fork of a fork.
    let of_fork = host.snapshot(&fork, &forked.vm, true).await;
    let (_, grandchild) = host.fork(&fork, of_fork).await;
    assert_eq!(grandchild.rung, Rung::Memory);
    assert_eq!(sh(&grandchild.vm, "cat /root/mine").await, "mine");
    let count = wait_for_count(&grandchild.vm, 1).await;
    wait_for_count(&grandchild.vm, count + 5).await;
    grandchild.vm.kill().await;

    vm.kill().await;
    let began = Instant::now();
    let restored = host
        .watch(host.hypervisor.restore(&spec, id, &OnSpawn::default(), &Progress::silent()).await.unwrap());
    sh(&restored.vm, "true").await;
    eprintln!("restore with memory to first exec: {:?}", began.elapsed());
    assert_eq!((restored.rung, &restored.warning), (Rung::Memory, &None));
    let count = wait_for_count(&restored.vm, 1).await;
    assert!(count < later, "{count} < {later}");
    wait_for_count(&restored.vm, count + 10).await;
    assert_eq!(sh(&restored.vm, "hostname").await, spec.identity.hostname);
    for vm in [&restored.vm, &forked.vm, &second.vm] {
        vm.kill().await;
    }
    assert!(!second_fork.data_dir.join("memory-of-fork").exists());
    assert_eq!(host.run_entries(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn online_snapshot_deletion_frees_its_space() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    let mut snapshots = Vec::new();
    for round in 0..4 {
        sh(&vm, &format!("head -c 8000000 /dev/urandom > /root/data; echo {round} > /root/round; sync"))
            .await;
        snapshots.push(host.snapshot(&spec, &vm, false).await);
    }
    let sum = sh(&vm, "sha256sum < /root/data").await;
    let before = host.hypervisor.volume_sizes(&spec).await.unwrap().used_bytes;
    for snapshot in [snapshots[1], snapshots[2], snapshots[0]] {
        host.hypervisor.delete_snapshot(&spec, Some(&vm), snapshot).await.unwrap();
        assert_eq!(sh(&vm, "echo 1 > /proc/sys/vm/drop_caches; sha256sum < /root/data").await, sum);
    }
    let after = host.hypervisor.volume_sizes(&spec).await.unwrap();
    eprintln!("four snapshots {} MB, one left {} MB", before >> 20, after.used_bytes >> 20);
    assert!(after.used_bytes + (16 << 20) < before, "{} of {before}", after.used_bytes);
    assert_eq!(after.snapshots.keys().collect::<Vec<_>>(), [&snapshots[3]]);
    sh(&vm, "echo more > /root/more; sync").await;
    vm.kill().await;
    let restored = host.watch(
        host.hypervisor.restore(&spec, snapshots[3], &OnSpawn::default(), &Progress::silent()).await.unwrap(),
    );
    assert_eq!(sh(&restored.vm, "sha256sum < /root/data; cat /root/round").await, format!("{sum}\n3"));
    restored.vm.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn online_chain_shortening_keeps_every_snapshot() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    let mut snapshots = Vec::new();
    for round in 0..20 {
        sh(&vm, &format!("echo {round} > /root/round; head -c 100000 /dev/urandom > /root/r{round}")).await;
        snapshots.push(host.snapshot(&spec, &vm, false).await);
    }
    let sums = "cd /root; sha256sum r* round";
    let before = sh(&vm, sums).await;
    let depth = || async { Qcow2Storage.chain(&spec.data_dir, None).await.unwrap().len() };
    let long = depth().await;
    host.hypervisor.tidy(&spec, &vm, &CancellationToken::new()).await.unwrap();
    let short = depth().await;
    eprintln!("{long} layers became {short}");
    assert!(long > 20 && short < 10, "{long} layers became {short}");
    assert_eq!(sh(&vm, &format!("echo 1 > /proc/sys/vm/drop_caches; {sums}")).await, before);
    sh(&vm, "echo after > /root/after; sync").await;
    snapshots.push(host.snapshot(&spec, &vm, false).await);
    vm.kill().await;
    for (at, round) in [(3, "3"), (15, "15"), (19, "19"), (20, "19")] {
        let restored = host
            .hypervisor
            .restore(&spec, snapshots[at], &OnSpawn::default(), &Progress::silent())
            .await
            .unwrap();
        let restored = host.watch(restored);
        assert_eq!(sh(&restored.vm, "cat /root/round; ls /root | wc -l").await.lines().next(), Some(round));
        restored.vm.kill().await;
    }
    for snapshot in snapshots {
        host.hypervisor.delete_snapshot(&spec, None, snapshot).await.unwrap();
    }
    assert!(depth().await <= 4, "{} layers are left", depth().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn online_deletion_collapses_a_shortened_chain() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    // This layer is too large to be copied between snapshots, so it stays below.
    sh(&vm, "head -c 70000000 /dev/urandom > /root/rest; sync").await;
    let mut snapshots = vec![host.snapshot(&spec, &vm, false).await];
    for round in 0..36 {
        sh(&vm, &format!("echo {round} > /root/round; head -c 50000 /dev/urandom > /root/r{}", round % 9))
            .await;
        snapshots.push(host.snapshot(&spec, &vm, false).await);
        host.hypervisor.shorten(&spec, &vm).await.unwrap();
    }
    let depth = || async { Qcow2Storage.chain(&spec.data_dir, None).await.unwrap().len() };
    let shortened = depth().await;
    assert!(shortened < 20, "{shortened} layers");
    let sums = "echo 1 > /proc/sys/vm/drop_caches; cd /root; sha256sum r* round";
    let before = sh(&vm, sums).await;
    for snapshot in snapshots {
        host.hypervisor.delete_snapshot(&spec, Some(&vm), snapshot).await.unwrap();
    }
    let left = depth().await;
    assert!(left <= 4, "{left} layers are left");
    assert_eq!(sh(&vm, sums).await, before);
    vm.kill().await;
    let started =
        host.watch(host.hypervisor.start(&spec, &OnSpawn::default(), &Progress::silent()).await.unwrap());
    assert_eq!(sh(&started.vm, sums).await, before);
    started.vm.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_stalls_at_disk_limit_and_continues() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    // The same workspace, with a limit that it has already reached.
    let mut limited = spec.clone();
    limited.resources.disk_gb = 0;
    host.hypervisor.tidy(&limited, &vm, &CancellationToken::new()).await.unwrap();
    let writing = tokio::spawn({
        let vm = vm.clone();
        async move {
            sh(&vm, "head -c 30000000 /dev/zero | tr '\\0' x > /root/big; sync; sha256sum < /root/big").await
        }
    });
    let reason = tokio::time::timeout(Duration::from_secs(60), vm.stalled()).await.unwrap();
    assert!(reason.contains("reached their size limit"), "{reason}");
    let missing = host.hypervisor.go_on(&limited, &vm).await.unwrap();
    assert!(missing.unwrap().contains("delete snapshots"));
    assert!(!writing.is_finished());
    assert_eq!(host.hypervisor.go_on(&spec, &vm).await.unwrap(), None);
    let sum = tokio::time::timeout(Duration::from_secs(120), writing).await.unwrap().unwrap();
    assert_eq!(sum, sh(&vm, "head -c 30000000 /dev/zero | tr '\\0' x | sha256sum").await);
    vm.kill().await;
}

/// The space of memory copies in this process.
fn copy_bytes() -> u64 {
    let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let copies = descriptors.filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|name| name.to_string_lossy().contains("agentiso-memory"))
    });
    copies.filter_map(|entry| std::fs::metadata(entry.path()).ok()).map(|meta| meta.blocks() * 512).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_guest_snapshot_stays_within_its_ram() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    // Changes a byte of every page again and again, so that there is always something left to copy.
    let write = "$x = q(x) x 120_000_000; \
                 for (;;) { for ($i = 0; $i < 120_000_000; $i += 4096) { vec($x, $i, 8) ^= 1 } }";
    sh(&vm, &format!("setsid perl -e '{write}' >/dev/null 2>&1 &")).await;
    sh(&vm, "until [ $(sed -n 's/^MemAvailable: *//p' /proc/meminfo | tr -dc 0-9) -lt 120000 ]; do sleep 0.2; done")
        .await;
    start_counter(&vm).await;
    let peak = Arc::new(AtomicU64::new(0));
    let watching = tokio::spawn({
        let peak = Arc::clone(&peak);
        async move {
            let mut tick = tokio::time::interval(Duration::from_millis(10));
            loop {
                tick.tick().await;
                peak.fetch_max(copy_bytes(), Ordering::Relaxed);
            }
        }
    });
    let id = SnapshotId::random();
    let began = Instant::now();
    let taken = host.hypervisor.snapshot(&spec, &vm, id, true, &Progress::silent()).await;
    watching.abort();
    let (pause, peak) = (taken.unwrap(), peak.load(Ordering::Relaxed));
    eprintln!("busy guest: {:?}, stopped for {pause:?}, copy of {} MB at most", began.elapsed(), peak >> 20);
    assert!(pause > Duration::ZERO && pause < LONGEST_PAUSE, "{pause:?}");
    let ram = u64::from(SMALL.memory_mb) << 20;
    assert!(peak > 0 && peak < ram + ram / 16, "{} MB for {} MB of RAM", peak >> 20, SMALL.memory_mb);
    // The source keeps running, and the copy is a consistent state of it.
    let count = wait_for_count(&vm, 1).await;
    wait_for_count(&vm, count + 5).await;
    let (_, fork) = host.fork(&spec, id).await;
    assert_eq!((fork.rung, &fork.warning), (Rung::Memory, &None));
    let count = wait_for_count(&fork.vm, 1).await;
    wait_for_count(&fork.vm, count + 5).await;
    vm.kill().await;
    fork.vm.kill().await;
}
