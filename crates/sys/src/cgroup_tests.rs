//! Tests of [`super`]: decisions on texts, effects in a directory that stands in for the hierarchy, and, if this host
//! allows it, a process in a real cgroup.

use std::time::Duration;

use agentiso_testkit::record_skip;

use super::*;
use crate::jail::Cell;
use crate::process::{Exit, Jailed, Launch, Priority};

const US: u32 = 40;

/// Files like those of a cgroup with these processes.
fn stand_in(dir: &Path, processes: &str) {
    for (name, text) in [
        ("cgroup.controllers", "cpuset cpu io memory pids\n"),
        (CONTROL, ""),
        (PROCESSES, processes),
        ("cgroup.type", "domain\n"),
    ] {
        fs::write(dir.join(name), text).unwrap();
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn cgroup_is_located_in_every_mount_layout() {
    let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
    let both = "31 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                41 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let below = "30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let v1 = "31 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    let cases = [
        (unified, "0::/user.slice/a.service\n", Some("/sys/fs/cgroup/user.slice/a.service")),
        (both, "9:memory:/x\n0::/\n", Some("/sys/fs/cgroup/unified/")),
        (below, "0::/box/inner\n", Some("/sys/fs/cgroup/inner")),
        (below, "0::/elsewhere\n", None),
        (unified, "0::/../outside\n", None),
        (unified, "9:memory:/x\n", None),
        (v1, "9:memory:/x\n0::/\n", None),
        ("", "0::/\n", None),
    ];
    for (mounts, cgroups, expected) in cases {
        assert_eq!(locate(mounts, cgroups), expected.map(PathBuf::from), "{mounts} {cgroups}");
    }
}

#[test]
fn cgroup_setup_depends_on_controllers_and_processes() {
    let dir = Path::new("/c");
    let step = |offered: &str, enabled: &str, processes: &str, is_root: bool| {
        let [offered, enabled, processes] = [offered, enabled, processes].map(str::to_owned);
        decide(dir, &Facts { offered, enabled, processes, is_root }, US)
    };
    let all = "cpu memory pids";
    assert_eq!(step(all, "", "40\n", false).unwrap(), Step::MoveAndEnable);
    assert_eq!(step(all, "cpu", "", false).unwrap(), Step::Enable, "the daemon is in its leaf");
    assert_eq!(step(all, "pids memory cpu", "", false).unwrap(), Step::Nothing);
    assert_eq!(step(all, "pids memory", "", false).unwrap(), Step::Enable, "there is more to be had");
    assert_eq!(step("memory pids", "pids memory", "7\n", false).unwrap(), Step::Nothing);
    assert_eq!(step(all, "", "1\n40\n", true).unwrap(), Step::Enable, "the kernel's root may have both");
    assert!(matches!(step(all, "", "7\n40\n", false), Err(CgroupError::Shared { .. })));
    assert!(
        matches!(step(all, "", "0\n", false), Err(CgroupError::Shared { .. })),
        "of another pid namespace"
    );
    let error = step("cpu memory_x pids", "", "40\n", false).unwrap_err();
    assert!(error.to_string().contains("/c has no controller for memory"), "{error}");
    assert!(step("", "", "40\n", true).unwrap_err().to_string().contains("memory and pids"));
}

#[test]
fn daemon_moves_to_leaf_and_enables_controllers() {
    let dir = tempfile::tempdir().unwrap();
    let us = std::process::id();
    stand_in(dir.path(), &format!("{us}\n"));
    let place = Place::look(dir.path(), us).unwrap();
    assert_eq!(read(&dir.path().join(CONTROL)), "", "looking changes nothing");
    Cgroups::at(&place, Path::new("/run/a")).unwrap();
    assert_eq!(read(&dir.path().join(DAEMON).join(PROCESSES)), us.to_string());
    assert_eq!(read(&dir.path().join(CONTROL)), "+memory +pids +cpu +io");

    // The files as the kernel shows them afterwards, seen from the leaf.
    stand_in(dir.path(), "");
    fs::write(dir.path().join(CONTROL), "cpu io memory pids\n").unwrap();
    let place = Place::look(&dir.path().join(DAEMON), us).unwrap();
    assert_eq!((place.dir(), place.step), (dir.path(), Step::Nothing));
    Cgroups::at(&place, Path::new("/run/a")).unwrap();
    assert_eq!(read(&dir.path().join(CONTROL)), "cpu io memory pids\n", "what is enabled stays as it is");
}

#[test]
fn foreign_processes_are_never_moved() {
    let dir = tempfile::tempdir().unwrap();
    stand_in(dir.path(), "1\n40\n");
    let error = Place::look(dir.path(), US).unwrap_err();
    assert!(matches!(error, CgroupError::Shared { .. }), "{error}");
    assert!(error.fix().contains("Delegate=yes"), "{}", error.fix());
    assert!(!dir.path().join(DAEMON).exists());
}

#[tokio::test]
async fn vm_starts_inside_its_limited_cgroup() {
    let dir = tempfile::tempdir().unwrap();
    stand_in(dir.path(), "");
    let groups = Cgroups::at(&Place::look(dir.path(), US).unwrap(), Path::new("/run/a")).unwrap();
    // The kernel makes these files only for enabled controllers, so a missing one is not created.
    let own = dir.path().join(format!("{}0f8fad5b", groups.prefix));
    fs::create_dir(&own).unwrap();
    fs::write(own.join("cpu.max"), "max 100000\n").unwrap();
    let group = groups.group(Path::new("/run/a/0f8fad5b"), 2, 1024).unwrap();
    assert_eq!(group.dir, own);
    assert_eq!(read(&own.join("cpu.max")), "300000 100000");
    assert!(!own.join("io.weight").exists());
    let name = own.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(VM) && name.ends_with("-0f8fad5b"), "{name}");
    assert_eq!(read(&own.join("memory.max")), ((2 * 1024 + OVERHEAD_MB) << 20).to_string());
    assert_eq!(read(&own.join("pids.max")), "130");

    let log = dir.path().join("log");
    let script = format!("cat {}", own.join(PROCESSES).display());
    let process = launch(&["-c", &script], &log, Some(group));
    assert_eq!(process.wait().await, Exit::Code(0));
    assert_eq!(read(&log), "0", "the program's own first look finds itself inside");
}

#[test]
fn helper_group_has_limits_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    stand_in(dir.path(), "");
    let groups = Cgroups::at(&Place::look(dir.path(), US).unwrap(), Path::new("/run/a")).unwrap();
    let group = groups.helper().unwrap();
    let name = group.dir.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(&format!("{}helper-", groups.prefix)), "{name}");
    assert_eq!(read(&group.dir.join("memory.max")), (2560_u64 << 20).to_string());
    assert_eq!(read(&group.dir.join("pids.max")), "128");
    // The files of a group that also has these controllers.
    for name in ["cpu.max", "io.weight"] {
        fs::write(group.dir.join(name), "").unwrap();
    }
    group.limit(&Limits::of_helper()).unwrap();
    assert_eq!(read(&group.dir.join("cpu.max")), "200000 100000");
    assert_eq!(read(&group.dir.join("io.weight")), "default 50");
    assert_ne!(groups.helper().unwrap().dir, group.dir, "two runs share no limit");
}

#[test]
fn only_own_empty_cgroups_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    stand_in(dir.path(), "");
    let place = Place::look(dir.path(), US).unwrap();
    let [ours, others] = ["/run/a", "/run/b"].map(|run| Cgroups::at(&place, Path::new(run)).unwrap());
    let path = |groups: &Cgroups, name: &str| dir.path().join(format!("{}{name}", groups.prefix));
    let (dead, alive, foreign) = (path(&ours, "dead"), path(&ours, "alive"), path(&others, "dead"));
    for group in [&dead, &alive, &foreign, &dir.path().join("agentiso-machine"), &alive.join("inside")] {
        fs::create_dir(group).unwrap();
    }
    ours.remove_leftovers();
    assert!(!dead.exists());
    for stays in [alive, foreign, dir.path().join("agentiso-machine")] {
        assert!(stays.exists(), "{}", stays.display());
    }
}

/// Uses the kernel itself, as far as possible without controllers: membership, and the removal of a group.
#[tokio::test]
async fn real_cgroup_is_removed_with_its_process() {
    let name = random(&format!("{VM}test-"));
    let group = match real_group(&name) {
        Ok(group) => group,
        Err(reason) => return record_skip(&format!("no cgroup can be made here: {reason}")),
    };
    let (dir, log) = (group.dir.clone(), tempfile::NamedTempFile::new().unwrap());
    let process = launch(&["-c", "exec sleep 1000"], log.path(), Some(group));
    assert_eq!(read(&dir.join(PROCESSES)), format!("{}\n", process.pid()));
    let found = Home::of(process.pid() as u32).unwrap();
    assert_eq!(found.0, dir);
    found.remove();
    assert!(dir.exists(), "one that is in use stays");

    let again = crate::process::Process::find(process.record()).unwrap().unwrap();
    process.kill();
    tokio::time::timeout(Duration::from_secs(10), again.wait()).await.unwrap();
    assert!(!dir.exists(), "it goes with its process, no matter who watched");
    assert!(Home::of(std::process::id()).is_none());

    let unused = Group::make(&dir).unwrap();
    drop(unused);
    assert!(!dir.exists(), "one that nobody entered goes as well");
}

/// A real cgroup, or the reason why none can be made.
fn real_group(name: &str) -> Result<Group, String> {
    let own = dir_of(std::process::id()).map_err(|error| error.to_string())?;
    Group::make(&own.join(name)).map_err(|error| error.to_string())
}

fn random(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::new_v4().simple())
}

fn shell(script: &str) -> Jailed {
    Jailed::new(Path::new("/bin/sh"), Duration::from_secs(60), Cell::open()).args(["-c", script])
}

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn helper_group_goes_with_the_helper() {
    let name = random(&format!("{VM}test-{HELPER}"));
    let group = match real_group(&name) {
        Ok(group) => group,
        Err(reason) => return record_skip(&format!("no cgroup can be made here: {reason}")),
    };
    let dir = group.dir.clone();
    let said = shell("cat /proc/self/cgroup").in_group(Some(group)).run().await.unwrap();
    assert!(said.lines().any(|line| line.starts_with("0::") && line.ends_with(&name)), "{said}");
    assert!(!dir.exists(), "it has ended");

    let group = Group::make(&dir).unwrap();
    let running = tokio::spawn(shell("exec sleep 1000").in_group(Some(group)).run());
    wait_until("the helper begins", || !read(&dir.join(PROCESSES)).is_empty()).await;
    running.abort();
    wait_until("nobody waits for it any more", || !dir.exists()).await;
}

/// A killed daemon leaves a helper that nothing waits for.
#[tokio::test]
async fn leftover_helpers_are_ended_with_their_groups() {
    let Ok(own) = dir_of(std::process::id()) else {
        return record_skip("this host has no cgroup v2 hierarchy");
    };
    let groups = Cgroups { dir: own, prefix: random(&format!("{VM}test-")) };
    let mut left = Vec::new();
    for name in [HELPER, ""] {
        let made = real_group(&random(&format!("{}{name}", groups.prefix)));
        let group = match made {
            Ok(group) => group,
            Err(reason) => return record_skip(&format!("no cgroup can be made here: {reason}")),
        };
        let (dir, log) = (group.dir.clone(), tempfile::NamedTempFile::new().unwrap());
        left.push((dir, launch(&["-c", "exec sleep 1000"], log.path(), Some(group))));
    }
    groups.remove_leftovers();
    let [(helper, ended), (vm, running)] = &left[..] else { unreachable!() };
    assert!(!helper.exists() && ended.has_exited());
    assert!(vm.exists() && !running.has_exited(), "VMs are looked for by others");
    running.kill();
    for (_, process) in &left {
        process.wait().await;
    }
}

fn launch(arguments: &[&str], log: &Path, group: Option<Group>) -> crate::process::Process {
    let launch = Launch {
        program: "/bin/sh".into(),
        arguments: arguments.iter().map(Into::into).collect(),
        log: log.to_owned(),
        inherited: Vec::new(),
        priority: Priority::Ordinary,
        group,
        cell: Cell::open(),
    };
    launch.spawn().unwrap()
}
