//! The daemon dies while a machine is written into a file, or comes out of one. Afterwards nothing of it is left that
//! nobody knows of, a file that has its name is whole, and both can be done again.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agentiso_testkit::{TestHost, eventually, host_or_skip};
use serde_json::Value;

/// The daemon ends itself at the step that this variable names.
const FAULT: &str = "AGENTISO_FAULT";

/// How often the daemon is killed in the middle of each, besides at the named steps.
const MOMENTS: u32 = 6;

/// The workspace that is exported, and the one that is imported.
const WEB: &str = "web";
const COPY: &str = "copy";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Export,
    Import,
}

/// Every named step of the two.
const STEPS: [(&str, Deed); 10] = [
    ("export.branched", Deed::Export),
    ("export.written", Deed::Export),
    ("export.erased", Deed::Export),
    ("import.reserved", Deed::Import),
    ("import.ledgered", Deed::Import),
    ("import.unpacked", Deed::Import),
    ("import.spawned", Deed::Import),
    ("import.recorded", Deed::Import),
    ("import.booted", Deed::Import),
    ("import.saved", Deed::Import),
];

struct Story {
    host: TestHost,
    /// Where files of machines are, and nothing else.
    files: PathBuf,
}

impl Story {
    /// A workspace with a process, and a snapshot of both; and a file to import from.
    fn begin(host: TestHost) -> Self {
        let files = host.dir().join("files");
        std::fs::create_dir(&files).unwrap();
        let story = Self { host, files };
        story.host.cli_ok(&["create", WEB]);
        story.sh(WEB, "echo one > /root/file; sleep 100000 >/dev/null 2>&1 & echo $! > /root/pid; sync");
        story.host.cli_ok(&["snapshot", "create", WEB, "ready", "--memory"]);
        story.sh(WEB, "echo two > /root/file; sync");
        story.done(Deed::Export, "the beginning");
        story.done(Deed::Import, "the beginning");
        std::fs::copy(story.file(Deed::Export), story.file(Deed::Import)).unwrap();
        story
    }

    /// What is written to, or read from.
    fn file(&self, deed: Deed) -> PathBuf {
        self.files.join(match deed {
            Deed::Export => "written",
            Deed::Import => "kept",
        })
    }

    fn words(&self, deed: Deed) -> Vec<String> {
        let file = self.file(deed).display().to_string();
        match deed {
            Deed::Export => ["snapshot", "export", WEB, "ready", &file].map(str::to_owned).to_vec(),
            Deed::Import => {
                // The first one reads what was just written.
                let file = if self.file(deed).exists() { file } else { self.written() };
                ["snapshot", "import", &file, COPY].map(str::to_owned).to_vec()
            }
        }
    }

    fn written(&self) -> String {
        self.file(Deed::Export).display().to_string()
    }

    fn run(&self, environment: &[(&str, &str)], deed: Deed) -> std::process::Output {
        let words = self.words(deed);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.host.cli_in(environment, &words)
    }

    fn sh(&self, workspace: &str, script: &str) -> String {
        self.host.cli_ok(&["exec", workspace, "--", "sh", "-c", script]).trim_end().to_owned()
    }

    fn workspaces(&self) -> Vec<Value> {
        serde_json::from_str(&self.host.cli_ok(&["ps", "--json"])).unwrap()
    }

    fn has_copy(&self) -> bool {
        self.workspaces().iter().any(|found| found["name"] == COPY)
    }

    /// The deed, to its end, and with the result that it must have. How long it took.
    fn done(&self, deed: Deed, when: &str) -> Duration {
        if deed == Deed::Export {
            let _ = std::fs::remove_file(self.file(deed));
        }
        let begun = Instant::now();
        let output = self.run(&[], deed);
        let took = begun.elapsed();
        assert!(output.status.success(), "{deed:?} after {when}: {output:?}");
        match deed {
            Deed::Export => assert!(self.file(deed).exists()),
            Deed::Import => self.use_up_copy(when),
        }
        took
    }

    /// What was imported is what was exported, and goes.
    fn use_up_copy(&self, when: &str) {
        let said = self.sh(COPY, "cat /root/file; kill -0 $(cat /root/pid) && echo lives");
        assert_eq!(said, "one\nlives", "{when}");
        self.host.cli_ok(&["rm", COPY]);
    }

    /// The daemon dies at this step.
    fn crash(&self, step: &str, deed: Deed) {
        if deed == Deed::Export {
            let _ = std::fs::remove_file(self.file(deed));
        }
        self.host.kill_daemon();
        let outcome = self.run(&[(FAULT, step)], deed);
        assert!(!outcome.status.success() || step.ends_with("saved"), "{step}: {outcome:?}");
        eventually("the daemon is dead", Duration::from_secs(30), || self.host.daemon().is_none());
        if deed == Deed::Export {
            let is_there = self.file(deed).exists();
            assert_eq!(is_there, step != "export.branched", "{step}: it has its name when it is whole");
        }
        self.all_is_well(step, deed);
    }

    /// The daemon is killed after this time.
    fn kill(&self, after: Duration, deed: Deed) {
        if deed == Deed::Export {
            let _ = std::fs::remove_file(self.file(deed));
        }
        let daemon = self.host.daemon().expect("a daemon runs");
        std::thread::scope(|scope| {
            scope.spawn(|| self.run(&[], deed));
            std::thread::park_timeout(after);
            daemon.kill();
        });
        self.all_is_well(&format!("{after:?}"), deed);
    }

    fn all_is_well(&self, when: &str, deed: Deed) {
        let what = format!("{deed:?} at {when}");
        eventually("what was begun is finished or undone", Duration::from_secs(60), || {
            let phases = self.workspaces().into_iter().map(|found| found["phase"].clone());
            phases.clone().count() > 0 && phases.into_iter().all(|phase| phase == "running")
        });
        assert_eq!(
            self.sh(WEB, "cat /root/file; kill -0 $(cat /root/pid) && echo lives"),
            "two\nlives",
            "{what}"
        );
        if deed == Deed::Import && self.has_copy() {
            self.use_up_copy(&what);
        }
        assert!(!self.has_copy(), "{what}");
        let (dirs, machines) = (|| self.host.workspace_dirs(), || self.host.machines().len());
        eventually(&format!("{what}: nothing of it is left"), Duration::from_secs(30), || {
            (dirs(), machines()) == (1, 1)
        });
        let entries = std::fs::read_dir(&self.files).unwrap().flatten().map(|entry| entry.file_name());
        let strange: Vec<_> = entries.filter(|name| name != "written" && name != "kept").collect();
        assert!(strange.is_empty(), "{what}: {strange:?} is left beside the files");
        if deed == Deed::Export && self.file(deed).exists() {
            let import = self.host.cli(&["snapshot", "import", &self.written(), COPY]);
            assert!(import.status.success(), "{what}: the file has its name and is not whole: {import:?}");
            self.use_up_copy(&what);
        }
        self.done(deed, &what);
    }

    fn end(self) {
        self.host.cli_ok(&["snapshot", "rm", WEB, "ready"]);
        self.host.cli_ok(&["rm", WEB]);
        self.host.assert_no_workspaces_left();
    }
}

/// Some part of a time, never the same.
fn part_of(time: Duration, number: u32) -> Duration {
    let random = RandomState::new().hash_one(number) as u32;
    let within = f64::from(random) / f64::from(u32::MAX);
    time.mul_f64((f64::from(number) + within) / f64::from(MOMENTS))
}

#[test]
fn a_daemon_that_dies_at_any_step_of_an_export_or_import_leaves_nothing() {
    let story = Story::begin(host_or_skip!());
    for (step, deed) in STEPS {
        story.crash(step, deed);
    }
    story.end();
}

#[test]
fn a_daemon_that_is_killed_in_the_middle_of_an_export_or_import_leaves_nothing() {
    let story = Story::begin(host_or_skip!());
    for deed in [Deed::Export, Deed::Import] {
        let takes = story.done(deed, "nothing");
        for number in 0..MOMENTS {
            story.kill(part_of(takes, number), deed);
        }
    }
    story.end();
}
