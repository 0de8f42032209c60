//! Tests of VMs that die, that are released and found again, and of cancelled boots.
#![expect(clippy::print_stderr, reason = "figures belong in the test's output")]

mod common;

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agentiso_agent::WriteOptions;
use agentiso_host::{AttachError, ExitCause};
use agentiso_sys::Progress;
use agentiso_sys::process::Process;
use agentiso_sys::process::VmRecord;
use agentiso_vm::OnSpawn;
use common::{SMALL, TestHost, sh};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn killed_vm_reports_its_signal() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    let waiting = tokio::spawn({
        let vm = vm.clone();
        async move { vm.exited().await }
    });
    let began = Instant::now();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(vm.record().pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let reason = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    eprintln!("noticed after {:?}: {reason}", began.elapsed());
    assert_eq!(reason.cause, ExitCause::Signal(9));
    assert!(vm.agent().await.is_err(), "there is no agent to be had any more");
    assert!(!spec.run_dir.exists(), "its sockets are gone");
    assert!(spec.console_log().exists() && spec.stderr_log().exists(), "its logs stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_vm_is_shut_down_by_force() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    // A stopped guest does not answer, so QEMU is told to quit; a stopped QEMU is killed.
    for (stopped, cause) in [("guest", ExitCause::Quit), ("qemu", ExitCause::Killed)] {
        let vm = host.create(&host.spec(SMALL)).await.vm;
        match stopped {
            "guest" => drop(vm.qmp().execute("stop", None).await.unwrap()),
            _ => {
                let qemu = rustix::process::Pid::from_raw(vm.record().pid).unwrap();
                rustix::process::kill_process(qemu, rustix::process::Signal::STOP).unwrap();
            }
        }
        let ending = vm.shutdown(Duration::from_secs(1));
        let reason = tokio::time::timeout(4 * SOON, ending).await.expect("a bounded time");
        assert_eq!(reason.cause, cause, "{stopped}: {reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn released_vm_is_reattached_with_running_processes() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let records = Arc::new(Mutex::new(Vec::new()));
    let spec = host.spec(SMALL);
    let on_spawn = OnSpawn::new({
        let records = records.clone();
        move |record| {
            records.lock().unwrap().push(record);
            Box::pin(async { Ok(()) })
        }
    });
    let booted = host.hypervisor.create(&spec, &on_spawn, &Progress::silent()).await.unwrap();
    let vm = host.watch(booted).vm;
    let record = vm.record().clone();
    assert_eq!(*records.lock().unwrap(), std::slice::from_ref(&record), "the process was announced");
    let pid = sh(&vm, "sleep 1000 >/dev/null 2>&1 & echo $!").await;
    let chatter = "while :; do echo chatter; sleep 0.02; done >/dev/console";
    sh(&vm, &format!("setsid sh -c '{chatter}' >/dev/null 2>&1 &")).await;
    let printed = || std::fs::metadata(spec.console_log()).map_or(0, |log| log.len());
    let grows = async |before: u64| {
        while printed() <= before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(4 * SOON, grows(printed() + 100)).await.expect("its console is written down");
    drop(vm);
    // Output that was already read is written.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let unwatched = printed();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(printed(), unwatched, "nobody listens, so nothing is kept");
    // QEMU's own output goes to a pipe, which holds a limited amount.
    let pipe = spec.run_dir.join("stderr.pipe");
    assert_eq!(std::fs::read_link(format!("/proc/{}/fd/2", record.pid)).unwrap(), pipe);
    std::fs::OpenOptions::new().append(true).open(&pipe).unwrap().write_all(b"QEMU complains\n").unwrap();
    assert!(!std::fs::read_to_string(spec.stderr_log()).unwrap().contains("complains"));

    let later = VmRecord { start_time: record.start_time + 1, ..record.clone() };
    assert!(matches!(host.hypervisor.attach(&spec, &later).await, Err(AttachError::Gone)));
    let mut other = spec.clone();
    other.id = agentiso_core::ids::WorkspaceId::random();
    let altered = host.hypervisor.attach(&other, &record).await;
    assert!(matches!(altered, Err(AttachError::Altered { .. })), "it runs, and is not what was started");
    let mut moved = spec.clone();
    moved.run_dir = spec.run_dir.parent().unwrap().join("elsewhere").join(spec.id.short());
    assert!(matches!(host.hypervisor.attach(&moved, &record).await, Err(AttachError::Elsewhere { .. })));

    let began = Instant::now();
    let vm = host.hypervisor.attach(&spec, &record).await.unwrap();
    assert_eq!(sh(&vm, &format!("cat /proc/{pid}/comm")).await, "sleep");
    eprintln!("attached and first command {:?}", began.elapsed());
    tokio::time::timeout(4 * SOON, grows(unwatched)).await.expect("its console is written down again");
    vm.kill().await;
    let complaints = std::fs::read_to_string(spec.stderr_log()).unwrap();
    assert!(complaints.ends_with("QEMU complains\n"), "{complaints}");
    assert!(matches!(host.hypervisor.attach(&spec, &record).await, Err(AttachError::Gone)));
}

#[tokio::test(flavor = "multi_thread")]
async fn written_files_survive_a_kill() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let spec = host.spec(SMALL);
    let vm = host.create(&spec).await.vm;
    let tree = tempfile::tempdir().unwrap();
    std::fs::create_dir(tree.path().join("sub")).unwrap();
    std::fs::write(tree.path().join("sub/leaf"), "leaf").unwrap();
    let mut archive = Vec::new();
    let directory = std::fs::File::open(tree.path()).unwrap();
    agentiso_tree::pack(directory.into(), &mut archive).unwrap();
    sh(&vm, "echo before > /root/edited; sync").await;
    let agent = vm.agent().await.unwrap();
    // Each file is on the disk when the call is answered, whatever is written after it.
    let began = Instant::now();
    for round in 0..20 {
        let path = format!("/root/made/here/{round}");
        agent.write_bytes(&path, WriteOptions::default(), format!("file {round}")).await.unwrap();
    }
    eprintln!("a file takes {:?}", began.elapsed() / 20);
    agent.write_tree("/root/tree", &archive[..]).await.unwrap();
    agent.edit_file("/root/edited", "before", "after", false).await.unwrap();
    vm.kill().await;
    let vm =
        host.watch(host.hypervisor.start(&spec, &OnSpawn::default(), &Progress::silent()).await.unwrap()).vm;
    let found =
        sh(&vm, "cat /root/made/here/19 /root/tree/sub/leaf /root/edited; ls -A /root/made/here | wc -l")
            .await;
    assert_eq!(found, "file 19leafafter\n20");
    vm.kill().await;
}

fn files_in(dir: &std::path::Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_boot_leaves_nothing() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    // Cancelled at different moments, from before QEMU answers to when the guest is almost ready.
    for after in [1, 20, 60, 150, 300] {
        let spawned = Arc::new(Mutex::new(Vec::new()));
        let spec = host.spec(SMALL);
        let on_spawn = OnSpawn::new({
            let spawned = spawned.clone();
            move |record| {
                spawned.lock().unwrap().push(record);
                Box::pin(async { Ok(()) })
            }
        });
        let silent = Progress::silent();
        let boot = host.hypervisor.create(&spec, &on_spawn, &silent);
        match tokio::time::timeout(Duration::from_millis(after), boot).await {
            // The VM was up before the timeout: this is not what the test is about.
            Ok(booted) => drop(booted.unwrap().vm.kill().await),
            Err(_) => {
                // A disk that was being made at that moment is removed as soon as it is made.
                let gone = async {
                    while files_in(&spec.data_dir) > 0 || spec.run_dir.exists() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                let left = tokio::time::timeout(SOON, gone).await;
                assert!(
                    left.is_ok(),
                    "{after} ms: {} files or its sockets are left",
                    files_in(&spec.data_dir)
                );
            }
        }
        let records = spawned.lock().unwrap().clone();
        for record in records {
            if let Some(process) = Process::find(&record).unwrap() {
                tokio::time::timeout(SOON, process.wait()).await.expect("the process was killed");
            }
        }
    }
    assert_eq!(host.run_entries(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn own_vms_are_no_strays() {
    let artefacts = artefacts_or_skip!();
    let host = TestHost::sharing(&artefacts).await;
    host.ensure_image(SMALL).await;
    let vm = host.create(&host.spec(SMALL)).await.vm;
    assert_eq!(host.hypervisor.find_strays(&HashSet::new()).unwrap(), []);
    vm.kill().await;
}
