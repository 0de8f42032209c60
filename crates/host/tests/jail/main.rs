//! Tests of the jail with a taken-over QEMU, which this very program plays: started in the jail like QEMU, it tries
//! everything that would give it more access and must fail at each attempt; and it must be able to do what QEMU needs.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

mod prisoner;
mod world;

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use agentiso_core::config;
use agentiso_host::{Hypervisor, HypervisorError, HypervisorSettings};
use agentiso_sys::jail::Jail;
use prisoner::Attempt;
use world::World;

/// An ordinary user, for a test run as root.
const ORDINARY: u32 = 65_533;

/// Runs without a jail first: an attempt that fails there proves nothing in the jail.
async fn play_with_and_without(jail: Jail) {
    World::new(Jail::None).play().await;
    World::new(jail).play().await;
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn root_jail_confines_a_program() {
    if !is_root() {
        agentiso_testkit::record_skip("users of their own need root");
        return;
    }
    play_with_and_without(Jail::Users).await;
}

/// As root, the test runs again as an ordinary user, in a process that has given up all privileges.
#[tokio::test]
async fn user_jail_confines_a_program() {
    if !is_root() {
        play_with_and_without(Jail::UserNamespace).await;
        return;
    }
    play_as_an_ordinary_user("user_jail_confines_a_program");
}

#[tokio::test]
async fn landlock_jail_confines_a_program() {
    // The number of the call that asks for the version is the same on all architectures.
    // SAFETY: with this flag the kernel reads no pointer.
    let version = unsafe { libc::syscall(444, std::ptr::null::<u8>(), 0, 1) };
    if version < 4 {
        agentiso_testkit::record_skip("this kernel has no Landlock, or one from before Linux 6.7");
        return;
    }
    if !is_root() {
        play_with_and_without(Jail::Landlock).await;
        return;
    }
    play_as_an_ordinary_user("landlock_jail_confines_a_program");
}

/// Runs a test again as an ordinary user.
fn play_as_an_ordinary_user(test: &str) {
    let dir = tempfile::Builder::new().prefix("jail").tempdir_in("/tmp").unwrap();
    let program = dir.path().join("suite");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let open =
        |path, mode| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode));
    open(dir.path(), 0o755).unwrap();
    open(&program, 0o755).unwrap();
    let user = ORDINARY.to_string();
    let output = Command::new("setpriv")
        .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps=-all"])
        .arg(&program)
        .args(["--exact", "--nocapture", test])
        .current_dir("/tmp")
        .env("TMPDIR", "/tmp")
        .output()
        .unwrap();
    let told =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

/// The QEMU of this test needs a shell, which is not in the jail.
#[tokio::test]
async fn unavailable_required_jail_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let settings = |jail| HypervisorSettings {
        qemu_binary: file("qemu", "#!/bin/sh\necho QEMU emulator version 10.0.0\n"),
        accelerator: config::Accelerator::Tcg,
        kernel: file("kernel", ""),
        initrd: file("initrd", ""),
        kernel_append: String::new(),
        boot_timeout: Duration::from_secs(60),
        templates_dir: dir.path().join("templates"),
        templates: false,
        run_dir: dir.path().join("run"),
        probe_file: dir.path().join("probe"),
        cgroups: None,
        jail,
        nested: false,
    };
    let refused = Hypervisor::open(settings(config::Jail::Required)).await.unwrap_err();
    assert!(matches!(refused, HypervisorError::NoJail { .. }), "{refused}");
    assert!(refused.to_string().contains("vm.jail"), "{refused}");
    for jail in [config::Jail::Auto, config::Jail::Off] {
        let facts = Hypervisor::open(settings(jail)).await.unwrap().facts();
        assert_eq!(facts.jail, Jail::None);
        assert!(!facts.jail_reason.is_empty());
    }
}

/// With a plan, this test is the prisoner itself. Without one it starts a prisoner outside a jail.
#[test]
fn prisoner_reports_each_attempt() {
    if let Some(plan) = prisoner::given_plan() {
        return prisoner::try_everything(&plan);
    }
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join(prisoner::PLAN);
    let path = |path: std::path::PathBuf| path.display().to_string();
    let attempts = [
        ("of a file", Attempt::Read(path(plan.clone()))),
        ("of nothing", Attempt::Read(path(dir.path().join("none")))),
    ];
    std::fs::write(&plan, serde_json::to_vec(&attempts).unwrap()).unwrap();
    let prisoner = std::env::current_exe().unwrap();
    let output = Command::new(prisoner).args(prisoner::arguments(&plan)).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("[of a file] done\n") && told.contains("[of nothing] refused, No such"), "{told}");
}
