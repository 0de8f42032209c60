//! Crashes of the daemon or of VMs at every named step of the operations on workspaces and snapshots. Afterwards the
//! operation is done or undone, and everything can still be used and removed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use agentiso_testkit::{Process, TestHost, eventually, host_or_skip, processes_mentioning};
use serde_json::Value;

/// The daemon kills itself at the step that this variable names.
const FAULT: &str = "AGENTISO_FAULT";

/// With this variable the daemon pauses at the step instead, and connects to the socket that it names.
const SOCKET: &str = "AGENTISO_FAULT_SOCKET";

/// Sent to the socket by the test when the operation ended without reaching the step.
const OVER: &str = "over";

/// The workspace of all operations. It has two snapshots: `memory`, in which the file contains `one` and a process
/// runs, and `disk`, in which it contains `two`.
const WEB: &str = "web";

/// The operations, each one command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create,
    Snapshot,
    SnapshotDisk,
    RestoreMemory,
    RestoreDisk,
    Fork,
    Delete,
    Stop,
    Start,
    Destroy,
}

impl Operation {
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Create => &["create", "other"],
            Self::Snapshot => &["snapshot", "create", WEB, "another", "--memory"],
            Self::SnapshotDisk => &["snapshot", "create", WEB, "another"],
            Self::RestoreMemory => &["restore", WEB, "memory"],
            Self::RestoreDisk => &["restore", WEB, "disk"],
            Self::Fork => &["fork", WEB, "memory", "other"],
            Self::Delete => &["snapshot", "rm", WEB, "another"],
            Self::Stop => &["stop", WEB],
            Self::Start => &["start", WEB],
            Self::Destroy => &["rm", "other"],
        }
    }

    /// The operation that must precede this one.
    fn before(self) -> Option<Self> {
        match self {
            Self::Delete => Some(Self::Snapshot),
            Self::Start => Some(Self::Stop),
            Self::Destroy => Some(Self::Fork),
            Self::Create
            | Self::Snapshot
            | Self::SnapshotDisk
            | Self::RestoreMemory
            | Self::RestoreDisk
            | Self::Fork
            | Self::Stop => None,
        }
    }

    /// The content that the file may have afterwards, besides its content before.
    fn leads_to(self) -> Option<&'static str> {
        match self {
            Self::RestoreMemory => Some("one"),
            Self::RestoreDisk => Some("two"),
            Self::Create
            | Self::Snapshot
            | Self::SnapshotDisk
            | Self::Fork
            | Self::Delete
            | Self::Stop
            | Self::Start
            | Self::Destroy => None,
        }
    }
}

/// Every named step of the daemon in these operations. The steps of export and import are tested elsewhere.
const STEPS: [(&str, Operation); 44] = [
    ("create.reserved", Operation::Create),
    ("create.ledgered", Operation::Create),
    ("create.spawned", Operation::Create),
    ("create.recorded", Operation::Create),
    ("create.booted", Operation::Create),
    ("create.saved", Operation::Create),
    ("snapshot.begun", Operation::Snapshot),
    ("snapshot.noted", Operation::SnapshotDisk),
    ("snapshot.pivoted", Operation::SnapshotDisk),
    ("snapshot.noted", Operation::Snapshot),
    ("snapshot.pivoted", Operation::Snapshot),
    ("snapshot.resumed", Operation::Snapshot),
    ("snapshot.converting", Operation::Snapshot),
    ("snapshot.converted", Operation::Snapshot),
    ("snapshot.taken", Operation::Snapshot),
    ("snapshot.ledgered", Operation::Snapshot),
    ("restore.ledgered", Operation::RestoreDisk),
    ("restore.halted", Operation::RestoreDisk),
    ("restore.switched", Operation::RestoreDisk),
    ("restore.spawned", Operation::RestoreDisk),
    ("restore.recorded", Operation::RestoreMemory),
    ("restore.booted", Operation::RestoreMemory),
    ("restore.saved", Operation::RestoreMemory),
    ("fork.reserved", Operation::Fork),
    ("fork.ledgered", Operation::Fork),
    ("fork.branched", Operation::Fork),
    ("fork.spawned", Operation::Fork),
    ("fork.recorded", Operation::Fork),
    ("fork.booted", Operation::Fork),
    ("fork.prepared", Operation::Fork),
    ("fork.saved", Operation::Fork),
    ("delete.ledgered", Operation::Delete),
    ("delete.merging", Operation::Delete),
    ("delete.merged", Operation::Delete),
    ("delete.removed", Operation::Delete),
    ("stop.ledgered", Operation::Stop),
    ("stop.halted", Operation::Stop),
    ("start.ledgered", Operation::Start),
    ("start.spawned", Operation::Start),
    ("start.recorded", Operation::Start),
    ("start.booted", Operation::Start),
    ("destroy.ledgered", Operation::Destroy),
    ("destroy.halted", Operation::Destroy),
    ("destroy.erased", Operation::Destroy),
];

/// The steps at which every VM is killed: for each operation, those that differ in the state of a VM.
const KILLS: [(&str, Operation); 17] = [
    ("create.recorded", Operation::Create),
    ("create.booted", Operation::Create),
    ("snapshot.pivoted", Operation::SnapshotDisk),
    ("snapshot.noted", Operation::Snapshot),
    ("snapshot.pivoted", Operation::Snapshot),
    ("snapshot.converting", Operation::Snapshot),
    ("restore.ledgered", Operation::RestoreDisk),
    ("restore.recorded", Operation::RestoreMemory),
    ("restore.booted", Operation::RestoreMemory),
    ("fork.branched", Operation::Fork),
    ("fork.recorded", Operation::Fork),
    ("fork.booted", Operation::Fork),
    ("delete.ledgered", Operation::Delete),
    ("delete.merging", Operation::Delete),
    ("stop.ledgered", Operation::Stop),
    ("start.recorded", Operation::Start),
    ("destroy.ledgered", Operation::Destroy),
];

struct Story {
    host: TestHost,
    /// The content of the file in the workspace.
    says: String,
}

impl Story {
    fn begin(host: TestHost) -> Self {
        host.cli_ok(&["create", WEB]);
        let says = "one".to_owned();
        let story = Self { host, says };
        story.write("one");
        story.sh(WEB, "sleep 100000 >/dev/null 2>&1 & echo $! > /root/pid; sync");
        story.host.cli_ok(&["snapshot", "create", WEB, "memory", "--memory"]);
        story.write("two");
        story.host.cli_ok(&["snapshot", "create", WEB, "disk"]);
        story.write("three");
        Self { says: "three".to_owned(), ..story }
    }

    fn write(&self, text: &str) {
        self.sh(WEB, &format!("echo {text} > /root/file; sync"));
    }

    fn sh(&self, workspace: &str, script: &str) -> String {
        self.host.cli_ok(&["exec", workspace, "--", "sh", "-c", script]).trim_end().to_owned()
    }

    fn json(&self, words: &[&str]) -> Vec<Value> {
        let text = self.host.cli_ok(&[words, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"))
    }

    fn names(&self, words: &[&str]) -> Vec<String> {
        let text = |value: &Value| value["name"].as_str().expect("a name").to_owned();
        self.json(words).iter().map(text).collect()
    }

    fn is_running(&self, workspace: &str) -> bool {
        self.json(&["ps"]).iter().any(|found| found["name"] == workspace && found["state"] == "running")
    }

    fn prepare(&self, operation: Operation) {
        if let Some(before) = operation.before() {
            self.host.cli_ok(before.words());
        }
        if operation == Operation::Delete {
            // Enough data that the layer above the snapshot is merged with it.
            self.sh(WEB, "head -c 3000000 /dev/urandom > /root/filler; sync");
        }
    }

    /// Runs the operation with a daemon that dies at this step.
    fn crash(&mut self, step: &str, operation: Operation) {
        self.prepare(operation);
        self.host.kill_daemon();
        let outcome = self.host.cli_in(&[(FAULT, step)], operation.words());
        assert!(!outcome.status.success() || step.ends_with("saved"), "{step}: {outcome:?}");
        eventually("the daemon is dead", Duration::from_secs(30), || self.host.daemon().is_none());
        self.all_is_well(step, operation);
    }

    /// Kills all VMs while the daemon pauses at this step of the operation.
    fn kill(&mut self, step: &str, operation: Operation) {
        self.prepare(operation);
        self.host.kill_daemon();
        let socket = self.host.dir().join("held");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let environment = [(FAULT, step), (SOCKET, socket.to_str().expect("a path"))];
        let (mut said, mut killed) = (String::new(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                self.host.cli_in(&environment, operation.words());
                if let Ok(mut stream) = UnixStream::connect(&socket) {
                    stream.write_all(OVER.as_bytes()).expect("it is said");
                }
            });
            let (mut held, _) = listener.accept().expect("somebody comes");
            held.read_to_string(&mut said).expect("a step");
            if said == step {
                killed = self.kill_vms();
            }
            // A daemon that reaches the step again, or the thread above at its end, finds no listener.
            std::fs::remove_file(&socket).expect("the socket goes");
        });
        assert_eq!(said, step, "{operation:?} does not pass it");
        assert!(!killed.is_empty(), "{step}: there was no VM that could be killed");
        let carries = |found: &Value| found["pid"].as_i64().is_some_and(|pid| killed.contains(&pid));
        eventually("their end is noticed", Duration::from_secs(30), || {
            !self.json(&["ps"]).iter().any(|found| found["state"] == "running" && carries(found))
        });
        self.all_is_well(step, operation);
    }

    /// Kills every QEMU, also one that only converts a memory snapshot, and returns their pids.
    fn kill_vms(&self) -> Vec<i64> {
        let comm = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let all = processes_mentioning(self.host.dir()).into_iter();
        let vms: Vec<Process> =
            all.filter(|pid| comm(*pid).starts_with("qemu")).filter_map(Process::open).collect();
        vms.iter().for_each(Process::kill);
        vms.iter().map(|vm| i64::from(vm.pid)).collect()
    }

    /// Checks that everything is there and usable, and removes what the operation made.
    fn all_is_well(&mut self, when: &str, operation: Operation) {
        let what = format!("{operation:?} at {when}");
        eventually("what was begun is finished or undone", Duration::from_secs(60), || {
            self.json(&["ps"]).iter().all(|found| found["phase"] == "running" || found["phase"] == "stopped")
        });
        let workspaces = self.names(&["ps"]);
        assert!(workspaces.iter().all(|name| [WEB, "other"].contains(&&**name)), "{what}: {workspaces:?}");
        for name in &workspaces {
            // A workspace that was stopped, or whose VM died, can be started again.
            if !self.is_running(name) {
                self.host.cli_ok(&["start", name]);
            }
        }
        let says = self.sh(WEB, "cat /root/file");
        assert!(says == self.says || Some(&*says) == operation.leads_to(), "{what}: {says:?}");
        self.says = says;
        if workspaces.iter().any(|name| name == "other") {
            let expected = if operation == Operation::Create { "" } else { "one" };
            assert_eq!(self.sh("other", "cat /root/file 2>/dev/null || true"), expected, "{what}");
            self.host.cli_ok(&["rm", "other"]);
        }
        let snapshots = self.names(&["snapshot", "ls", WEB]);
        let (kept, another): (Vec<_>, Vec<_>) = snapshots.into_iter().partition(|name| name != "another");
        assert_eq!(kept, ["memory", "disk"], "{what}");
        if !another.is_empty() {
            self.host.cli_ok(&["snapshot", "rm", WEB, "another"]);
        }
        let left = || self.host.workspace_dirs();
        eventually("nothing of it is left", Duration::from_secs(30), || left() == 1);
        eventually("one VM runs", Duration::from_secs(30), || self.host.vms().len() == 1);
    }

    /// Checks that the snapshots have their original content, and that nothing is left after deleting them.
    fn end(self) {
        self.host.cli_ok(Operation::RestoreDisk.words());
        assert_eq!(self.sh(WEB, "cat /root/file"), "two");
        self.host.cli_ok(Operation::RestoreMemory.words());
        assert_eq!(self.sh(WEB, "cat /root/file; kill -0 $(cat /root/pid) && echo lives"), "one\nlives");
        self.host.cli_ok(&["snapshot", "rm", WEB, "memory", "disk"]);
        assert_eq!(self.sh(WEB, "cat /root/file"), "one");
        self.host.cli_ok(&["rm", WEB]);
        self.host.assert_no_workspaces_left();
    }
}

#[test]
fn daemon_crash_leaves_operations_done_or_undone() {
    let mut story = Story::begin(host_or_skip!());
    for (step, operation) in STEPS {
        story.crash(step, operation);
    }
    story.end();
}

#[test]
fn vm_death_at_any_step_loses_nothing() {
    let mut story = Story::begin(host_or_skip!());
    for (step, operation) in KILLS {
        story.kill(step, operation);
    }
    story.end();
}

#[test]
fn snapshot_after_a_crashed_one_can_be_forked() {
    let host = host_or_skip!();
    host.cli_ok(&["create", WEB]);
    for (round, step) in ["snapshot.pivoted", "snapshot.resumed"].into_iter().enumerate() {
        host.kill_daemon();
        let crashed = host.cli_in(&[(FAULT, step)], &["snapshot", "create", WEB, "crashed", "--memory"]);
        assert!(!crashed.status.success(), "{step}: {crashed:?}");
        eventually("the daemon is dead", Duration::from_secs(30), || host.daemon().is_none());
        let (snapshot, fork) = (format!("s{round}"), format!("fork{round}"));
        host.cli_ok(&["snapshot", "create", WEB, &snapshot]);
        host.cli_ok(&["fork", WEB, &snapshot, &fork]);
        host.cli_ok(&["rm", &fork]);
    }
    host.cli_ok(&["rm", WEB]);
    host.assert_no_workspaces_left();
}
