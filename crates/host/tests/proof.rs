//! Runs the suite on real VMs, and checks that it detects a manipulated one.

mod common;

use agentiso_core::ids::SnapshotId;
use agentiso_host::Booted;
use agentiso_selfcheck::{
    Before, Check, CheckResult, Guest, Origin, Parent, Seen, Subject, Verdict, examine,
};
use agentiso_sys::Progress;
use agentiso_vm::{OnSpawn, Rung, VmSpec};
use common::{SMALL, TestHost, sh};

fn guest<'a>(spec: &'a VmSpec, booted: &'a Booted) -> Guest<'a> {
    Guest { spec, vm: &booted.vm }
}

/// Asserts that every check passed; only one that needs a missing program may be skipped.
fn assert_sound(results: &[CheckResult], count: usize) {
    assert_eq!(results.len(), count, "{results:#?}");
    for result in results {
        let may_be_skipped = result.check == Check::PythonEntropy;
        match &result.verdict {
            Verdict::Passed => {}
            Verdict::Skipped { reason } if may_be_skipped => assert!(reason.contains("python3"), "{reason}"),
            Verdict::Skipped { .. } | Verdict::Failed { .. } => panic!("{result:#?}"),
        }
    }
}

fn failed(results: &[CheckResult]) -> Vec<Check> {
    let failed = results.iter().filter(|result| matches!(result.verdict, Verdict::Failed { .. }));
    failed.map(|result| result.check).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn vms_of_one_template_are_distinct() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let specs = [host.spec(SMALL), host.spec(SMALL)];
    let booted = tokio::join!(host.create(&specs[0]), host.create(&specs[1]));
    assert_eq!((booted.0.rung, booted.1.rung), (Rung::ImageTemplate, Rung::ImageTemplate));
    let (one, two) = (guest(&specs[0], &booted.0), guest(&specs[1], &booted.1));
    let seen = Seen::default();
    for (subject, sibling) in [(one, two), (two, one)] {
        let subject = Subject { siblings: vec![sibling], ..Subject::alone(Origin::ImageTemplate, subject) };
        assert_sound(&examine(&subject, &seen).await, 7);
    }
    let itself = Subject { siblings: vec![one], ..Subject::alone(Origin::ImageTemplate, one) };
    assert_eq!(
        failed(&examine(&itself, &seen).await),
        [Check::Identity, Check::Network, Check::Filesystem],
        "a VM is not apart from itself"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_and_forked_vms_pass_all_checks() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let first = host.create(&spec).await;
    let before = Before::leave(guest(&spec, &first), true).await.unwrap();
    let snapshot: SnapshotId = host.snapshot(&spec, &first.vm, true).await;
    before.is_undisturbed(guest(&spec, &first)).await.unwrap();
    before.change(guest(&spec, &first)).await.unwrap();

    let seen = Seen::default();
    let (fork_spec, fork) = host.fork(&spec, snapshot).await;
    let (other_spec, other) = host.fork(&spec, snapshot).await;
    assert_eq!((fork.rung, other.rung), (Rung::Memory, Rung::Memory));
    let forks = [guest(&fork_spec, &fork), guest(&other_spec, &other)];
    for (at, fork) in forks.into_iter().enumerate() {
        let subject = Subject {
            siblings: vec![forks[1 - at]],
            before: Some(&before),
            parent: Some(Parent { guest: guest(&spec, &first), before: &before }),
            ..Subject::alone(Origin::MemoryFork, fork)
        };
        assert_sound(&examine(&subject, &seen).await, 10);
    }
    other.vm.kill().await;

    first.vm.kill().await;
    let restored =
        host.hypervisor.restore(&spec, snapshot, &OnSpawn::default(), &Progress::silent()).await.unwrap();
    let restored = host.watch(restored);
    assert_eq!(restored.rung, Rung::Memory);
    let alone = Subject::alone(Origin::MemoryRestore, guest(&spec, &restored));
    let subject = Subject { siblings: vec![forks[0]], before: Some(&before), ..alone };
    assert_sound(&examine(&subject, &seen).await, 9);
    restored.vm.kill().await;
    fork.vm.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manipulated_vm_fails_its_checks() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let booted = host.create(&spec).await;
    let before = Before::leave(guest(&spec, &booted), true).await.unwrap();
    let subject = Subject {
        before: Some(&before),
        parent: Some(Parent { guest: guest(&spec, &booted), before: &before }),
        ..Subject::alone(Origin::MemoryFork, guest(&spec, &booted))
    };
    sh(&booted.vm, "date -s '2001-01-01' && echo template > /proc/sys/kernel/hostname").await;
    sh(&booted.vm, "echo nameserver 169.254.0.1 >> /etc/resolv.conf").await;
    // Everything that was left in the VM ends or changes.
    sh(&booted.vm, "for p in $(cat /run/proof-*/pid*); do kill $p; done").await;
    before.change(guest(&spec, &booted)).await.unwrap();
    assert_eq!(
        failed(&examine(&subject, &Seen::default()).await),
        [
            Check::Clock,
            Check::Identity,
            Check::Network,
            Check::Filesystem,
            Check::OpenFiles,
            Check::Timers,
            Check::Processes,
            Check::Parent
        ]
    );
    booted.vm.kill().await;
}
