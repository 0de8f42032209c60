//! Tests of the boot ladder: cold boot, image template, bare template, and bad templates.
#![expect(clippy::print_stderr, reason = "figures belong in the test's output")]

mod common;

use std::time::{Duration, Instant};

use agentiso_host::{BootError, ExitCause, Hypervisor};
use agentiso_sys::Progress;
use agentiso_vm::{OnSpawn, Rung};
use common::{SMALL, TestHost, sh};

#[tokio::test(flavor = "multi_thread")]
async fn first_vm_boots_and_later_are_restored() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::fresh(&artefacts).await;

    let spec = host.spec(SMALL);
    let began = Instant::now();
    let cold = host.create(&spec).await;
    assert_eq!(cold.rung, Rung::ColdBoot);
    assert_eq!(sh(&cold.vm, "echo hello").await, "hello");
    eprintln!("cold boot {:?}, with first command {:?}", cold.boot_time, began.elapsed());
    cold.vm.kill().await;

    // The cold boot requested templates; the next VM finds them, ready or still being made.
    host.ensure_image(SMALL).await;
    for info in host.hypervisor.templates().list() {
        eprintln!("template {:?} made in {} ms", info.manifest.inputs.kind, info.manifest.build_ms);
    }
    let spec = host.spec(SMALL);
    let began = Instant::now();
    let restored = host.create(&spec).await;
    assert_eq!(restored.rung, Rung::ImageTemplate);
    assert_eq!(sh(&restored.vm, "echo hello").await, "hello");
    eprintln!("image template {:?}, with first command {:?}", restored.boot_time, began.elapsed());

    sh(&restored.vm, "echo kept > /root/file").await;
    let reason = restored.vm.shutdown(Duration::from_secs(30)).await;
    assert!(
        matches!(reason.cause, ExitCause::GuestReset | ExitCause::GuestShutdown),
        "an orderly shutdown ends by itself: {reason}"
    );
    let began = Instant::now();
    let again = host.hypervisor.start(&spec, &OnSpawn::default(), &Progress::silent()).await.unwrap();
    assert_eq!(again.rung, Rung::BareTemplate);
    assert_eq!(sh(&again.vm, "cat /root/file; hostname").await, format!("kept\n{}", spec.identity.hostname));
    eprintln!("bare template {:?}, with first command {:?}", again.boot_time, began.elapsed());
    again.vm.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn short_boot_timeout_does_not_bound_templates() {
    let artefacts = artefacts_or_skip!();
    let mut host = TestHost::fresh(&artefacts).await;
    host.settings.boot_timeout = Duration::from_millis(1);
    host.hypervisor = Hypervisor::open(host.settings.clone()).await.unwrap();
    let failed = host
        .hypervisor
        .create(&host.spec(SMALL), &OnSpawn::default(), &Progress::silent())
        .await
        .unwrap_err();
    assert!(failed.to_string().contains("vm.boot_timeout_secs"), "{failed}");
    // The failed boot has already requested both templates.
    host.ensure_image(SMALL).await;
    assert_eq!(host.hypervisor.templates().list().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_template_falls_back_and_is_retired() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::fresh(&artefacts).await;
    host.ensure_image(SMALL).await;
    let templates = host.hypervisor.templates();
    let (image, bare) = {
        let mut all = templates.list();
        all.sort_by_key(|info| info.manifest.inputs.kind == agentiso_host::templates::TemplateKind::Bare);
        (all[0].clone(), all[1].clone())
    };

    // The image template's device state is replaced, and its manifest with it: only QEMU can notice.
    spoil(&host, &image, |_| b"not a migration stream".to_vec());
    let spec = host.spec(SMALL);
    let booted = host.create(&spec).await;
    assert_eq!(booted.rung, Rung::BareTemplate);
    assert_eq!(sh(&booted.vm, "echo up").await, "up");
    booted.vm.kill().await;
    assert!(!templates.list().iter().any(|info| info.key == image.key && info.manifest == image.manifest));

    // The bare template is cut off in the middle.
    spoil(&host, &bare, |state| state[..state.len() / 2].to_vec());
    let booted = host.hypervisor.start(&spec, &OnSpawn::default(), &Progress::silent()).await.unwrap();
    assert_eq!(booted.rung, Rung::ColdBoot);
    booted.vm.kill().await;
}

fn spoil(host: &TestHost, info: &agentiso_host::templates::TemplateInfo, change: impl Fn(&[u8]) -> Vec<u8>) {
    use sha2::Digest;
    let dir = host.settings.templates_dir.join(info.key.as_str());
    let path = dir.join("device-state");
    let changed = change(&std::fs::read(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &changed).unwrap();
    let mut manifest = info.manifest.clone();
    manifest.device_state_bytes = changed.len() as u64;
    let digest = sha2::Sha256::digest(&changed);
    manifest.device_state_sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(dir.join("manifest.json"), serde_json::to_vec(&manifest).unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_smaller_than_image_is_refused() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    let mut spec = host.spec(SMALL);
    spec.base_image.virtual_size = 3 << 30;
    let error = host.hypervisor.create(&spec, &OnSpawn::default(), &Progress::silent()).await.unwrap_err();
    assert!(matches!(error, BootError::Disk(_)), "{error}");
    assert_eq!(error.to_string(), "a disk of 2 GiB is too small: the image debian-minimal needs 3 GiB");
    assert!(!spec.data_dir.exists());
}
