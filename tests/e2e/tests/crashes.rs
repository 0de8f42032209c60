//! The daemon, or a machine, dies in the middle of everything that is done with workspaces and snapshots. Afterwards
//! it has either happened or not, and everything can still be used and removed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use agentiso_testkit::{Process, TestHost, eventually, host_or_skip, processes_mentioning};
use serde_json::Value;

/// The daemon ends itself at the step that this variable names.
const FAULT: &str = "AGENTISO_FAULT";

/// With this one it stands still instead, and says so at the socket it names.
const SOCKET: &str = "AGENTISO_FAULT_SOCKET";

/// What is said there when the deed is over without having passed the step.
const OVER: &str = "over";

/// The workspace that all of it is done with. It has two snapshots: `memory`, in which the file says `one` and a process
/// runs, and `disk`, in which it says `two`.
const WEB: &str = "web";

/// What is done, as the words of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
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

impl Deed {
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

    /// What must be done before, so that it can be done.
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

    /// What the file may say afterwards, besides what it said before.
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

/// Every named step of the daemon that these deeds pass. Those of export and import are not among them.
const STEPS: [(&str, Deed); 44] = [
    ("create.reserved", Deed::Create),
    ("create.ledgered", Deed::Create),
    ("create.spawned", Deed::Create),
    ("create.recorded", Deed::Create),
    ("create.booted", Deed::Create),
    ("create.saved", Deed::Create),
    ("snapshot.begun", Deed::Snapshot),
    ("snapshot.noted", Deed::SnapshotDisk),
    ("snapshot.pivoted", Deed::SnapshotDisk),
    ("snapshot.noted", Deed::Snapshot),
    ("snapshot.pivoted", Deed::Snapshot),
    ("snapshot.resumed", Deed::Snapshot),
    ("snapshot.converting", Deed::Snapshot),
    ("snapshot.converted", Deed::Snapshot),
    ("snapshot.taken", Deed::Snapshot),
    ("snapshot.ledgered", Deed::Snapshot),
    ("restore.ledgered", Deed::RestoreDisk),
    ("restore.halted", Deed::RestoreDisk),
    ("restore.switched", Deed::RestoreDisk),
    ("restore.spawned", Deed::RestoreDisk),
    ("restore.recorded", Deed::RestoreMemory),
    ("restore.booted", Deed::RestoreMemory),
    ("restore.saved", Deed::RestoreMemory),
    ("fork.reserved", Deed::Fork),
    ("fork.ledgered", Deed::Fork),
    ("fork.branched", Deed::Fork),
    ("fork.spawned", Deed::Fork),
    ("fork.recorded", Deed::Fork),
    ("fork.booted", Deed::Fork),
    ("fork.prepared", Deed::Fork),
    ("fork.saved", Deed::Fork),
    ("delete.ledgered", Deed::Delete),
    ("delete.merging", Deed::Delete),
    ("delete.merged", Deed::Delete),
    ("delete.removed", Deed::Delete),
    ("stop.ledgered", Deed::Stop),
    ("stop.halted", Deed::Stop),
    ("start.ledgered", Deed::Start),
    ("start.spawned", Deed::Start),
    ("start.recorded", Deed::Start),
    ("start.booted", Deed::Start),
    ("destroy.ledgered", Deed::Destroy),
    ("destroy.halted", Deed::Destroy),
    ("destroy.erased", Deed::Destroy),
];

/// The steps at which every machine there is is killed: of each deed, those that differ for a machine.
const KILLS: [(&str, Deed); 17] = [
    ("create.recorded", Deed::Create),
    ("create.booted", Deed::Create),
    ("snapshot.pivoted", Deed::SnapshotDisk),
    ("snapshot.noted", Deed::Snapshot),
    ("snapshot.pivoted", Deed::Snapshot),
    ("snapshot.converting", Deed::Snapshot),
    ("restore.ledgered", Deed::RestoreDisk),
    ("restore.recorded", Deed::RestoreMemory),
    ("restore.booted", Deed::RestoreMemory),
    ("fork.branched", Deed::Fork),
    ("fork.recorded", Deed::Fork),
    ("fork.booted", Deed::Fork),
    ("delete.ledgered", Deed::Delete),
    ("delete.merging", Deed::Delete),
    ("stop.ledgered", Deed::Stop),
    ("start.recorded", Deed::Start),
    ("destroy.ledgered", Deed::Destroy),
];

struct Story {
    host: TestHost,
    /// What the file in the workspace says.
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

    fn prepare(&self, deed: Deed) {
        if let Some(before) = deed.before() {
            self.host.cli_ok(before.words());
        }
        if deed == Deed::Delete {
            // Enough that what lies on the snapshot is worth merging with it.
            self.sh(WEB, "head -c 3000000 /dev/urandom > /root/filler; sync");
        }
    }

    /// The daemon dies at this step of the deed.
    fn crash(&mut self, step: &str, deed: Deed) {
        self.prepare(deed);
        self.host.kill_daemon();
        let outcome = self.host.cli_in(&[(FAULT, step)], deed.words());
        assert!(!outcome.status.success() || step.ends_with("saved"), "{step}: {outcome:?}");
        eventually("the daemon is dead", Duration::from_secs(30), || self.host.daemon().is_none());
        self.all_is_well(step, deed);
    }

    /// All machines are killed while the daemon stands still at this step of the deed.
    fn kill(&mut self, step: &str, deed: Deed) {
        self.prepare(deed);
        self.host.kill_daemon();
        let socket = self.host.dir().join("held");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let environment = [(FAULT, step), (SOCKET, socket.to_str().expect("a path"))];
        let (mut said, mut killed) = (String::new(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                self.host.cli_in(&environment, deed.words());
                if let Ok(mut stream) = UnixStream::connect(&socket) {
                    stream.write_all(OVER.as_bytes()).expect("it is said");
                }
            });
            let (mut held, _) = listener.accept().expect("somebody comes");
            held.read_to_string(&mut said).expect("a step");
            if said == step {
                killed = self.kill_machines();
            }
            // Whoever passes the step again, or has come to the end, finds nobody.
            std::fs::remove_file(&socket).expect("the socket goes");
        });
        assert_eq!(said, step, "{deed:?} does not pass it");
        assert!(!killed.is_empty(), "{step}: there was no machine that could be killed");
        let carries = |found: &Value| found["pid"].as_i64().is_some_and(|pid| killed.contains(&pid));
        eventually("their end is noticed", Duration::from_secs(30), || {
            !self.json(&["ps"]).iter().any(|found| found["state"] == "running" && carries(found))
        });
        self.all_is_well(step, deed);
    }

    /// Kills every QEMU, also one that only turns a copy of memory into another form, and returns their pids.
    fn kill_machines(&self) -> Vec<i64> {
        let comm = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let all = processes_mentioning(self.host.dir()).into_iter();
        let machines: Vec<Process> =
            all.filter(|pid| comm(*pid).starts_with("qemu")).filter_map(Process::open).collect();
        machines.iter().for_each(Process::kill);
        machines.iter().map(|machine| i64::from(machine.pid)).collect()
    }

    /// Everything is there and can be used, and what the deed made goes away again.
    fn all_is_well(&mut self, when: &str, deed: Deed) {
        let what = format!("{deed:?} at {when}");
        eventually("what was begun is finished or undone", Duration::from_secs(60), || {
            self.json(&["ps"]).iter().all(|found| found["phase"] == "running" || found["phase"] == "stopped")
        });
        let workspaces = self.names(&["ps"]);
        assert!(workspaces.iter().all(|name| [WEB, "other"].contains(&&**name)), "{what}: {workspaces:?}");
        for name in &workspaces {
            // One that was stopped, or that died, comes up again.
            if !self.is_running(name) {
                self.host.cli_ok(&["start", name]);
            }
        }
        let says = self.sh(WEB, "cat /root/file");
        assert!(says == self.says || Some(&*says) == deed.leads_to(), "{what}: {says:?}");
        self.says = says;
        if workspaces.iter().any(|name| name == "other") {
            let expected = if deed == Deed::Create { "" } else { "one" };
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
        eventually("one machine runs", Duration::from_secs(30), || self.host.machines().len() == 1);
    }

    /// What the snapshots hold is what they held in the beginning; without them nothing is left.
    fn end(self) {
        self.host.cli_ok(Deed::RestoreDisk.words());
        assert_eq!(self.sh(WEB, "cat /root/file"), "two");
        self.host.cli_ok(Deed::RestoreMemory.words());
        assert_eq!(self.sh(WEB, "cat /root/file; kill -0 $(cat /root/pid) && echo lives"), "one\nlives");
        self.host.cli_ok(&["snapshot", "rm", WEB, "memory", "disk"]);
        assert_eq!(self.sh(WEB, "cat /root/file"), "one");
        self.host.cli_ok(&["rm", WEB]);
        self.host.assert_no_workspaces_left();
    }
}

#[test]
fn a_daemon_that_dies_at_any_step_has_either_done_it_or_not() {
    let mut story = Story::begin(host_or_skip!());
    for (step, deed) in STEPS {
        story.crash(step, deed);
    }
    story.end();
}

#[test]
fn a_machine_that_dies_at_any_step_takes_nothing_along() {
    let mut story = Story::begin(host_or_skip!());
    for (step, deed) in KILLS {
        story.kill(step, deed);
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
