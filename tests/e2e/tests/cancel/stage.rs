//! Where everything happens: two machines, a repository outside, notes, and what must always be true of them.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agentiso_e2e::internet::Internet;
use agentiso_testkit::{Client, HostOptions, TestHost, TestWorkspace, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::deeds;

/// The workspace that most is done with. It has a clone of the repository outside in `/workspace` and two snapshots: `m`
/// with memory, in which `/root/file` says `one`, and `d`, in which it says `two`.
pub(crate) const BASE: &str = "base";

/// A fork of it, with a commit of its own and a snapshot `d`.
pub(crate) const OTHER: &str = "other";

/// What calls make that make something.
pub(crate) const MADE: &str = "made";

/// A command that no cancelled call may leave running.
pub(crate) const LONG_SLEEP: &str = "sleep 987";

/// For what is undone or finished by itself, on a busy host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a cancelled call made is on its way out, or it was there before the call was cancelled. What runs for so long
/// without a break, and does what it is told, is there to stay, on a host however busy.
const SETTLED: Duration = Duration::from_secs(10);

/// A call may have been done, and not answered yet, when it was cancelled. That is rare.
const MOST_TOO_LATE: u32 = 3;

/// The directory of the notes.
pub(crate) fn notes() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

pub(crate) struct Stage {
    // Dropped in this order: the client before its host, and that before the network it is in.
    pub(crate) client: Client,
    pub(crate) host: TestHost,
    pub(crate) internet: Internet,
    pub(crate) notes: TempDir,
    too_late: Cell<u32>,
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
        let stage = Self { client, host, internet, notes, too_late: Cell::new(0) };
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

    /// The workspace's phase, if it has one, as the ledger has it.
    fn phase(&self, name: &str) -> Option<String> {
        let state = self.host.state();
        let all = state["workspaces"].as_object()?.values();
        let found = all.into_iter().find(|one| one["name"] == name)?;
        Some(found["phase"].as_str()?.to_owned())
    }

    /// What a call made is there and can be used, or it is gone. It is gone afterwards.
    pub(crate) fn made(&self, name: &str, answered: bool) {
        if !answered && self.goes(name) {
            return;
        }
        if !answered {
            self.count_too_late();
        }
        assert_eq!(self.sh(name, "echo works"), "works", "{name}");
        self.client.tool("workspace_destroy", json!({"workspace_id": name}));
    }

    pub(crate) fn count_too_late(&self) {
        self.too_late.set(self.too_late.get() + 1);
        assert!(self.too_late.get() <= MOST_TOO_LATE, "cancelled calls are done all the same");
    }

    /// Waits until what a cancelled call made is gone, or is there to stay.
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

    /// Returns when the workspace has done what it was asked before: requests are taken one after the other.
    pub(crate) fn in_turn(&self, name: &str) {
        eventually("its turn comes", PATIENCE, || {
            let diff = json!({"workspace_id": name, "action": "diff", "name": "d"});
            !self.client.try_tool("snapshot", diff).is_error
        });
    }

    /// What a workspace may reach, and the ports of the host that lead into it.
    pub(crate) fn network(&self, name: &str) -> Value {
        let info = self.client.tool("workspace_info", json!({"workspace_id": name})).json();
        info["network"].clone()
    }

    /// Another client takes everything over.
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

    /// Nothing is there but what was there in the beginning, and it works.
    pub(crate) fn all_is_well(&self) {
        let begun = Instant::now();
        while let Some(wrong) = self.wrong() {
            assert!(begun.elapsed() < PATIENCE, "{wrong}");
            // A cancelled call may have started a job after it was looked for; no other command is one.
            deeds::kill_jobs(self);
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The first thing that is not as it should be, or not yet.
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
            .or_else(|| expect("machines", json!(self.host.machines().len()), json!(2)))
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

    /// Ports of the host that somebody besides the test listens at.
    fn listening(&self) -> Vec<u64> {
        let all = self.internet.sh_at_host("ss -Hltn | grep -v ':8000 ' || true");
        let port = |line: &str| line.split_whitespace().nth(3)?.rsplit(':').next()?.parse().ok();
        all.lines().filter_map(port).collect()
    }

    /// Files that have no name yet, and sockets of machines that are not there.
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

    /// What a cancelled call may have left in a machine.
    fn traces(&self, name: &str) -> String {
        // The brackets keep the pattern from finding itself.
        let look = "find /tmp /root /workspace -name '*agentiso*' -o -name '*.lock'; \
                    grep -lazx '98[7]' /proc/[0-9]*/cmdline 2>/dev/null; true";
        self.sh(name, look)
    }

    /// What counts against the session is what it owns; without it nothing is left.
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
