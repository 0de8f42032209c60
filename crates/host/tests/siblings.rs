//! Tests that two VMs from one template are independent of each other.
#![expect(clippy::print_stderr, reason = "figures belong in the test's output")]

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use agentiso_core::address::format_mac;
use agentiso_core::resources::Resources;
use agentiso_vm::Rung;
use common::{SMALL, TestHost, sh};

/// The tolerated difference of the guest's clock: the time that the question takes on a busy host.
const CLOCK_TOLERANCE_S: f64 = 5.0;

/// The limit for an idle VM's share of the host's memory, for a guest of 256 MB.
const MAX_PSS: u64 = 150 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn siblings_have_distinct_identities_and_correct_clocks() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let specs = [host.spec(SMALL), host.spec(SMALL)];
    let (a, b) = tokio::join!(host.create(&specs[0]), host.create(&specs[1]));
    assert_eq!((a.rung, b.rung), (Rung::ImageTemplate, Rung::ImageTemplate));

    let mut seen = Vec::new();
    for (spec, booted) in specs.iter().zip([&a, &b]) {
        let network = spec.identity.network.clone().unwrap();
        let vm = &booted.vm;
        assert_eq!(
            sh(vm, "hostname; cat /etc/hostname").await.lines().collect::<Vec<_>>(),
            [spec.identity.hostname.as_str(), spec.identity.hostname.as_str()]
        );
        assert_eq!(sh(vm, "cat /etc/machine-id").await, spec.identity.machine_id);
        assert_eq!(sh(vm, "cat /sys/class/net/eth0/address").await, format_mac(network.mac));
        // The kernel's table of local addresses needs no tool in the image.
        let local = sh(vm, "cat /proc/net/fib_trie").await;
        assert!(local.contains(&network.address.to_string()), "{local}");
        let resolver = sh(vm, "cat /etc/resolv.conf").await;
        assert!(resolver.contains("10.42.0.1"), "{resolver}");
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let guest: f64 = sh(vm, "date +%s.%N").await.parse().unwrap();
        assert!((guest - before).abs() < CLOCK_TOLERANCE_S, "the clock is off by {} s", guest - before);
        seen.push(sh(vm, "od -An -N16 -tx1 /dev/urandom; cat /proc/sys/kernel/random/uuid").await);
    }
    assert_ne!(seen[0], seen[1]);

    sh(&a.vm, "echo a > /root/mine; sync").await;
    assert_eq!(sh(&b.vm, "ls /root").await, "", "their disks are apart");
    a.vm.kill().await;
    b.vm.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_sees_its_promised_resources() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    let resources = Resources { vcpus: 2, memory_mb: 384, disk_gb: 5 };
    host.ensure_image(resources).await;
    for rung in [Rung::ImageTemplate, Rung::BareTemplate] {
        let mut spec = host.spec(resources);
        if rung == Rung::BareTemplate {
            // No image template fits another disk size, but the bare one does.
            spec.resources.disk_gb = 7;
        }
        let booted = host.create(&spec).await;
        assert_eq!(booted.rung, rung);
        let vm = &booted.vm;
        assert_eq!(sh(vm, "nproc").await, "2");
        let kib: u64 = sh(vm, "awk '/MemTotal/{print $2}' /proc/meminfo").await.parse().unwrap();
        assert!((300_000..=384 * 1024).contains(&kib), "{kib} KiB");
        let sectors: u64 = sh(vm, "cat /sys/class/block/vda/size").await.parse().unwrap();
        assert_eq!(sectors * 512, u64::from(spec.resources.disk_gb) << 30);
        let blocks: u64 = sh(vm, "df -k / | tail -1 | awk '{print $2}'").await.parse().unwrap();
        let gib = blocks as f64 / f64::from(1 << 20);
        assert!(gib > f64::from(spec.resources.disk_gb) * 0.9, "the file system has {gib:.2} GiB");
        let usage = host.hypervisor.volume_sizes(&spec).await.unwrap();
        assert_eq!(usage.virtual_bytes, u64::from(spec.resources.disk_gb) << 30);
        vm.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_siblings_share_most_of_their_memory() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    let number = |name: &str, default: u32| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let resources = Resources { memory_mb: number("AGENTISO_TEST_MEMORY_MB", 256), vcpus: 2, disk_gb: 2 };
    host.ensure_image(resources).await;
    let mut vms = Vec::new();
    let wanted = number("AGENTISO_TEST_SIBLINGS", 3) as usize;
    for _ in 0..wanted {
        let booted = host.create(&host.spec(resources)).await;
        assert_eq!(booted.rung, Rung::ImageTemplate);
        sh(&booted.vm, "true").await;
        vms.push(booted.vm);
    }
    let shares: Vec<u64> = vms.iter().map(|vm| vm.memory_pss().unwrap()).collect();
    let total: u64 = shares.iter().sum();
    eprintln!("{} VMs of {} MB: PSS {} MB in all", shares.len(), resources.memory_mb, total >> 20);
    for vm in &vms {
        vm.kill().await;
    }
    assert!(total / (shares.len() as u64) < MAX_PSS, "{shares:?}");
}
