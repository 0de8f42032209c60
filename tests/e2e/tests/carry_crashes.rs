//! Daemon crashes during an export or import. Afterwards nothing unknown is left, a file with its final name is
//! complete, and both operations can be repeated.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agentiso_testkit::{TestHost, eventually, host_or_skip};
use serde_json::Value;

/// The daemon kills itself at the step that this variable names.
const FAULT: &str = "AGENTISO_FAULT";

/// The number of times that the daemon is killed at a random moment of each operation.
const MOMENTS: u32 = 6;

/// The workspace that is exported, and the one that is imported.
const WEB: &str = "web";
const COPY: &str = "copy";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Export,
    Import,
}

/// Every named step of both operations.
const STEPS: [(&str, Operation); 10] = [
    ("export.branched", Operation::Export),
    ("export.written", Operation::Export),
    ("export.erased", Operation::Export),
    ("import.reserved", Operation::Import),
    ("import.ledgered", Operation::Import),
    ("import.unpacked", Operation::Import),
    ("import.spawned", Operation::Import),
    ("import.recorded", Operation::Import),
    ("import.booted", Operation::Import),
    ("import.saved", Operation::Import),
];

struct Story {
    host: TestHost,
    /// The directory of the exported files. It holds nothing else.
    files: PathBuf,
}

impl Story {
    /// Makes a workspace with a running process, a memory snapshot of it, and a file to import.
    fn begin(host: TestHost) -> Self {
        let files = host.dir().join("files");
        std::fs::create_dir(&files).unwrap();
        let story = Self { host, files };
        story.host.cli_ok(&["create", WEB]);
        story.sh(WEB, "echo one > /root/file; sleep 100000 >/dev/null 2>&1 & echo $! > /root/pid; sync");
        story.host.cli_ok(&["snapshot", "create", WEB, "ready", "--memory"]);
        story.sh(WEB, "echo two > /root/file; sync");
        story.done(Operation::Export, "the beginning");
        story.done(Operation::Import, "the beginning");
        std::fs::copy(story.file(Operation::Export), story.file(Operation::Import)).unwrap();
        story
    }

    /// The file that an export writes or an import reads.
    fn file(&self, operation: Operation) -> PathBuf {
        self.files.join(match operation {
            Operation::Export => "written",
            Operation::Import => "kept",
        })
    }

    fn words(&self, operation: Operation) -> Vec<String> {
        let file = self.file(operation).display().to_string();
        match operation {
            Operation::Export => ["snapshot", "export", WEB, "ready", &file].map(str::to_owned).to_vec(),
            Operation::Import => {
                // The first import reads the file that was just exported.
                let file = if self.file(operation).exists() { file } else { self.written() };
                ["snapshot", "import", &file, COPY].map(str::to_owned).to_vec()
            }
        }
    }

    fn written(&self) -> String {
        self.file(Operation::Export).display().to_string()
    }

    fn run(&self, environment: &[(&str, &str)], operation: Operation) -> std::process::Output {
        let words = self.words(operation);
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

    /// Runs the operation to its end, checks its result and returns its duration.
    fn done(&self, operation: Operation, when: &str) -> Duration {
        if operation == Operation::Export {
            let _ = std::fs::remove_file(self.file(operation));
        }
        let begun = Instant::now();
        let output = self.run(&[], operation);
        let took = begun.elapsed();
        assert!(output.status.success(), "{operation:?} after {when}: {output:?}");
        match operation {
            Operation::Export => assert!(self.file(operation).exists()),
            Operation::Import => self.use_up_copy(when),
        }
        took
    }

    /// Checks that the import equals what was exported, and removes it.
    fn use_up_copy(&self, when: &str) {
        let said = self.sh(COPY, "cat /root/file; kill -0 $(cat /root/pid) && echo lives");
        assert_eq!(said, "one\nlives", "{when}");
        self.host.cli_ok(&["rm", COPY]);
    }

    /// Runs the operation with a daemon that dies at this step.
    fn crash(&self, step: &str, operation: Operation) {
        if operation == Operation::Export {
            let _ = std::fs::remove_file(self.file(operation));
        }
        self.host.kill_daemon();
        let outcome = self.run(&[(FAULT, step)], operation);
        assert!(!outcome.status.success() || step.ends_with("saved"), "{step}: {outcome:?}");
        eventually("the daemon is dead", Duration::from_secs(30), || self.host.daemon().is_none());
        if operation == Operation::Export {
            let is_there = self.file(operation).exists();
            assert_eq!(is_there, step != "export.branched", "{step}: it has its name when it is whole");
        }
        self.all_is_well(step, operation);
    }

    /// Runs the operation and kills the daemon after this time.
    fn kill(&self, after: Duration, operation: Operation) {
        if operation == Operation::Export {
            let _ = std::fs::remove_file(self.file(operation));
        }
        let daemon = self.host.daemon().expect("a daemon runs");
        std::thread::scope(|scope| {
            scope.spawn(|| self.run(&[], operation));
            std::thread::park_timeout(after);
            daemon.kill();
        });
        self.all_is_well(&format!("{after:?}"), operation);
    }

    fn all_is_well(&self, when: &str, operation: Operation) {
        let what = format!("{operation:?} at {when}");
        eventually("what was begun is finished or undone", Duration::from_secs(60), || {
            let phases = self.workspaces().into_iter().map(|found| found["phase"].clone());
            phases.clone().count() > 0 && phases.into_iter().all(|phase| phase == "running")
        });
        assert_eq!(
            self.sh(WEB, "cat /root/file; kill -0 $(cat /root/pid) && echo lives"),
            "two\nlives",
            "{what}"
        );
        if operation == Operation::Import && self.has_copy() {
            self.use_up_copy(&what);
        }
        assert!(!self.has_copy(), "{what}");
        let (dirs, vms) = (|| self.host.workspace_dirs(), || self.host.vms().len());
        eventually(&format!("{what}: nothing of it is left"), Duration::from_secs(30), || {
            (dirs(), vms()) == (1, 1)
        });
        let entries = std::fs::read_dir(&self.files).unwrap().flatten().map(|entry| entry.file_name());
        let strange: Vec<_> = entries.filter(|name| name != "written" && name != "kept").collect();
        assert!(strange.is_empty(), "{what}: {strange:?} is left beside the files");
        if operation == Operation::Export && self.file(operation).exists() {
            let import = self.host.cli(&["snapshot", "import", &self.written(), COPY]);
            assert!(import.status.success(), "{what}: the file has its name and is not whole: {import:?}");
            self.use_up_copy(&what);
        }
        self.done(operation, &what);
    }

    fn end(self) {
        self.host.cli_ok(&["snapshot", "rm", WEB, "ready"]);
        self.host.cli_ok(&["rm", WEB]);
        self.host.assert_no_workspaces_left();
    }
}

/// A random moment within part `number` of [`MOMENTS`] equal parts of a duration.
fn part_of(time: Duration, number: u32) -> Duration {
    let random = RandomState::new().hash_one(number) as u32;
    let within = f64::from(random) / f64::from(u32::MAX);
    time.mul_f64((f64::from(number) + within) / f64::from(MOMENTS))
}

#[test]
fn crash_at_export_or_import_step_leaves_nothing() {
    let story = Story::begin(host_or_skip!());
    for (step, operation) in STEPS {
        story.crash(step, operation);
    }
    story.end();
}

#[test]
fn kill_during_export_or_import_leaves_nothing() {
    let story = Story::begin(host_or_skip!());
    for operation in [Operation::Export, Operation::Import] {
        let takes = story.done(operation, "nothing");
        for number in 0..MOMENTS {
            story.kill(part_of(takes, number), operation);
        }
    }
    story.end();
}
