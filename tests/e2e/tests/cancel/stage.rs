//! The setup of the cancellation tests: two workspaces, a repository outside, notes, and the invariants that must hold
//! after every call.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agentiso_e2e::internet::Internet;
use agentiso_testkit::{Client, HostOptions, TestHost, TestWorkspace, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::deeds;

/// The workspace of most operations. It has a clone of the repository outside in `/workspace` and two snapshots: `m`
/// with memory, in which `/root/file` contains `one`, and `d`, in which it contains `two`.
pub(crate) const BASE: &str = "base";

/// A fork of [`BASE`], with a commit of its own and a snapshot `d`.
pub(crate) const OTHER: &str = "other";

/// The name of the workspace that calls create.
pub(crate) const MADE: &str = "made";

/// A command that no cancelled call may leave running.
pub(crate) const LONG_SLEEP: &str = "sleep 987";

/// The time in which a cancelled operation is finished or undone on a busy host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A workspace of a cancelled call is either being removed, or was complete before the cancellation. If it has been
/// running for this long without a break and executes commands, it stays, however busy the host is.
const SETTLED: Duration = Duration::from_secs(10);

/// The most calls that may be done but not yet answered when they are cancelled. Such calls are rare.
const MOST_LATE_CANCELS: u32 = 3;

/// The directory of the notes.
pub(crate) fn notes() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

pub(crate) struct Stage {
    // Dropped in this order: the client before its host, and the host before its network.
    pub(crate) client: Client,
    pub(crate) host: TestHost,
    pub(crate) internet: Internet,
    pub(crate) notes: TempDir,
    late_cancels: Cell<u32>,
}

impl Stage {
    pub(crate) fn options(internet: &Internet, notes: &TempDir) -> HostOptions {
        let more = format!("[vault]\nenabled = true\npath = \"{}\"\n", notes.path().display());
        internet.host_options(&more)
    }

    pub(crate) fn set(host: TestHost, internet: Internet, notes: TempDir) -> Self {
        let client = host.client();
        {
            let base = client.workspace_with(json!({"name": BASE}));
            base.tool("network_policy", json!({"allow_domains": ["git.test"]}));
            base.tool("git_clone", json!({"url": "http://git.test/project.git"}));
            base.sh("git config --global user.name Ann; git config --global user.email ann@example.com; \
                 git -C /workspace tag start; mkdir /root/files; echo one > /root/file; sync");
            base.snapshot_with_memory("m");
            base.sh("echo two > /root/file; sync");
            base.snapshot("d");
            let other = base.fork_with("m", json!({"new_name": OTHER}));
            other.sh("cd /workspace && echo more > more && git add more && git commit -q -m more");
            other.snapshot("d");
        }
        let stage = Self { client, host, internet, notes, late_cancels: Cell::new(0) };
        std::fs::create_dir_all(stage.transfers()).expect("a directory");
        stage.all_is_well();
        stage
    }

    pub(crate) fn transfers(&self) -> PathBuf {
        self.host.data().join("transfers")
    }

    pub(crate) fn ws(&self, name: &str) -> TestWorkspace<'_> {
        self.client.existing(name)
    }

    pub(crate) fn sh(&self, name: &str, command: &str) -> String {
        let ran = self.client.tool("exec", json!({"workspace_id": name, "command": command})).json();
        assert_eq!(ran["exit_code"], 0, "{command}: {ran}");
        ran["stdout"].as_str().expect("text").trim_end().to_owned()
    }

    /// The names of all workspaces and their states.
    pub(crate) fn listed(&self) -> Vec<(String, String)> {
        let list = self.client.tool("workspace_list", json!({})).json();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let mut all: Vec<_> = list
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| (text(&one["name"]), text(&one["state"])))
            .collect();
        all.sort();
        all
    }

    pub(crate) fn is_listed(&self, name: &str) -> bool {
        self.listed().iter().any(|(listed, _)| listed == name)
    }

    /// The workspace's phase in the ledger, if the workspace is there.
    fn phase(&self, name: &str) -> Option<String> {
        let state = self.host.state();
        let all = state["workspaces"].as_object()?.values();
        let found = all.into_iter().find(|one| one["name"] == name)?;
        Some(found["phase"].as_str()?.to_owned())
    }

    /// Checks that a workspace made by a call works or is gone, and destroys it.
    pub(crate) fn made(&self, name: &str, answered: bool) {
        if !answered && self.goes(name) {
            return;
        }
        if !answered {
            self.count_late_cancel();
        }
        assert_eq!(self.sh(name, "echo works"), "works", "{name}");
        self.client.tool("workspace_destroy", json!({"workspace_id": name}));
    }

    pub(crate) fn count_late_cancel(&self) {
        self.late_cancels.set(self.late_cancels.get() + 1);
        assert!(self.late_cancels.get() <= MOST_LATE_CANCELS, "cancelled calls are done all the same");
    }

    /// Waits until the workspace of a cancelled call is gone (true) or is there to stay (false).
    fn goes(&self, name: &str) -> bool {
        let begun = Instant::now();
        let mut runs_since = None;
        loop {
            if !self.is_listed(name) {
                return true;
            }
            runs_since = match self.phase(name).as_deref() {
                Some("running") => runs_since.or(Some(Instant::now())),
                Some(_) | None => None,
            };
            if runs_since.is_some_and(|since| since.elapsed() > SETTLED) && self.works(name) {
                return false;
            }
            assert!(begun.elapsed() < PATIENCE, "{name} is neither gone nor of use: {:?}", self.phase(name));
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn works(&self, name: &str) -> bool {
        let ran = self.client.try_tool("exec", json!({"workspace_id": name, "command": "echo works"}));
        !ran.is_error
    }

    /// Returns when the workspace has finished all earlier requests: they are processed one after the other.
    pub(crate) fn in_turn(&self, name: &str) {
        eventually("its turn comes", PATIENCE, || {
            let diff = json!({"workspace_id": name, "action": "diff", "name": "d"});
            !self.client.try_tool("snapshot", diff).is_error
        });
    }

    /// A workspace's policy and its forwards.
    pub(crate) fn network(&self, name: &str) -> Value {
        let info = self.client.tool("workspace_info", json!({"workspace_id": name})).json();
        info["network"].clone()
    }

    /// Connects another client, which adopts both workspaces.
    pub(crate) fn next_client(&mut self) {
        self.client = self.host.client();
        eventually("nobody else has them", PATIENCE, || {
            self.client.tool("workspace_adopt", json!({}));
            let list = self.client.tool("workspace_list", json!({})).json();
            let own =
                |one: &&Value| [BASE, OTHER].iter().any(|name| one["name"] == *name) && one["owned"] == true;
            list.as_array().expect("a list").iter().filter(own).count() == 2
        });
    }

    /// Waits until only the initial workspaces are left and everything is as it was in the beginning.
    pub(crate) fn all_is_well(&self) {
        let begun = Instant::now();
        while let Some(wrong) = self.wrong() {
            assert!(begun.elapsed() < PATIENCE, "{wrong}");
            // A cancelled call may have started a job after the check for jobs. No other command is a job.
            deeds::kill_jobs(self);
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The first deviation from the expected state.
    fn wrong(&self) -> Option<String> {
        let expect = |what: &str, found: Value, expected: Value| {
            (found != expected).then(|| format!("{what}: {found}, not {expected}"))
        };
        let listed = json!(self.listed());
        let state = self.host.state();
        let stored: Vec<_> = state["workspaces"].as_object().expect("a ledger").values().collect();
        let phases: Vec<_> = stored.iter().map(|one| &one["phase"]).collect();
        let base = stored.iter().find(|one| one["name"] == BASE).expect("it is never destroyed");
        let teams = self.client.tool("team", json!({"action": "list"})).json()["teams"].clone();
        let snapshots = |name: &str| {
            let list = self.client.tool("snapshot", json!({"action": "list", "workspace_id": name})).json();
            list.as_array().expect("a list").iter().map(|one| one["name"].clone()).collect::<Value>()
        };
        let network = self.network(BASE);
        let forwards = &network["port_forwards"];
        expect("workspaces", listed, json!([[BASE, "running"], [OTHER, "running"]]))
            .or_else(|| expect("phases in the ledger", json!(phases), json!(["running", "running"])))
            .or_else(|| expect("vms", json!(self.host.vms().len()), json!(2)))
            .or_else(|| expect("directories", json!(self.host.workspace_dirs()), json!(2)))
            .or_else(|| expect("teams", teams, json!([])))
            .or_else(|| expect("snapshots", snapshots(BASE), json!(["m", "d"])))
            .or_else(|| expect("snapshots of the other", snapshots(OTHER), json!(["d"])))
            .or_else(|| {
                let ledger = base["network"]["port_forwards"].clone();
                expect("forwards in the ledger", ledger, forwards.clone())
            })
            .or_else(|| {
                let allowed = |network: &Value| json!(network["allow_inter_vm"] == true);
                expect("policy in the ledger", allowed(&base["network"]), allowed(&network))
            })
            .or_else(|| expect("ports that are listened at", json!(self.listening()), host_ports(forwards)))
            .or_else(|| expect("files of the host that nobody needs", json!(self.leftovers()), json!([])))
            .or_else(|| {
                [BASE, OTHER].iter().find_map(|name| expect(name, json!(self.traces(name)), json!("")))
            })
    }

    /// Ports of the host on which a process other than the test's servers listens.
    fn listening(&self) -> Vec<u64> {
        let all = self.internet.sh_at_host("ss -Hltn | grep -v ':8000 ' || true");
        let port = |line: &str| line.split_whitespace().nth(3)?.rsplit(':').next()?.parse().ok();
        all.lines().filter_map(port).collect()
    }

    /// Temporary files, and sockets of VMs that do not exist.
    fn leftovers(&self) -> Vec<String> {
        let data = self.host.data();
        let workspaces = names_in(&data.join("workspaces"));
        let mut left: Vec<_> = workspaces
            .iter()
            .flat_map(|id| names_in(&data.join("workspaces").join(id)))
            .chain(names_in(&self.transfers()))
            .chain(names_in(self.notes.path()))
            .chain(names_in(&data))
            .filter(|name| name.starts_with('.') || name.ends_with(".tmp") || name.ends_with(".new"))
            .collect();
        let known = |name: &String| workspaces.iter().any(|id| name.contains(&id[..8]));
        let daemons = |name: &String| name == "daemon.sock" || name == "owner";
        let ours = |name: &String| daemons(name) || name.starts_with("t-") || known(name);
        left.extend(names_in(&data.join("run")).into_iter().filter(|name| !ours(name)));
        left
    }

    /// Files and processes that a cancelled call may have left in a guest.
    fn traces(&self, name: &str) -> String {
        // The brackets keep the pattern from matching its own command line.
        let look = "find /tmp /root /workspace -name '*agentiso*' -o -name '*.lock'; \
                    grep -lazx '98[7]' /proc/[0-9]*/cmdline 2>/dev/null; true";
        self.sh(name, look)
    }

    /// The session's quota counts only what it owns; after destroying that, nothing is left.
    pub(crate) fn end(self) {
        let more = json!({"workspace_id": BASE, "snapshot_name": "m", "count": 9});
        self.client.tool_error("workspace_fork", more).mentions(&["quota", "2 in use"]);
        for name in [OTHER, BASE] {
            self.client.tool("workspace_destroy", json!({"workspace_id": name}));
        }
        self.host.assert_no_workspaces_left();
    }
}

fn names_in(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn host_ports(forwards: &Value) -> Value {
    forwards.as_array().expect("a list").iter().map(|forward| forward["host_port"].clone()).collect()
}
