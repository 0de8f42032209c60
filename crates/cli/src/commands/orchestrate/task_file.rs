//! Reads the task file. It is TOML and is checked as a whole before any task runs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use agentiso_core::names::{SnapshotName, TaskName};
use agentiso_core::paths::GuestPath;
use agentiso_daemon::VaultQuery;
use serde::Deserialize;

use super::agent;
use crate::failure::Failure;

/// The largest task file, and the most tasks; from the contract.
const MAX_BYTES: u64 = 10 << 20;
const MAX_TASKS: usize = 20;

/// The longest prompt. It is one argument of the agent, which Linux limits to 128 KiB.
const MAX_PROMPT: usize = 96 << 10;

/// The longest command of a guest, for the same reason. It contains the prompt in quotes, which may make it longer.
const MAX_COMMAND: usize = 127 << 10;

const _: () = assert!(MAX_PROMPT < MAX_COMMAND);

/// The most bytes of a query to the notes, and the most queries of one task.
const MAX_QUERY: usize = 1024;
const MAX_QUERIES: usize = 20;

const WORKDIR: &str = "/workspace";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskFile {
    /// Name or id.
    pub(super) golden_workspace: String,
    #[serde(default = "default_snapshot_name")]
    pub(super) snapshot_name: String,
    #[serde(default)]
    pub(super) mcp_bridge: bool,
    #[serde(default)]
    pub(super) tasks: Vec<Task>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    /// Part of the name of its worker, and the name of its result directory.
    pub(super) name: TaskName,
    pub(super) prompt: String,
    #[serde(default)]
    pub(super) workdir: Option<String>,
    #[serde(default)]
    pub(super) vault_context: Vec<VaultQuery>,
}

impl Task {
    pub(super) fn shown_workdir(&self) -> &str {
        self.workdir.as_deref().unwrap_or(WORKDIR)
    }
}

/// The default snapshot: `workspace_prepare` gives it this name.
fn default_snapshot_name() -> String {
    "golden".to_owned()
}

impl TaskFile {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let unreadable = |error| Failure::usage(format!("cannot read the task file {shown}: {error}"));
        let mut text = String::new();
        let file = File::open(path).map_err(unreadable)?;
        let read = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if read as u64 > MAX_BYTES {
            return Err(Failure::usage(format!("the task file {shown} is larger than {MAX_BYTES} bytes")));
        }
        Self::parse(&text).map_err(|problem| {
            Failure::usage(format!("invalid task file {shown}: {problem}"))
                .hint("docs/orchestrate.md has a complete example")
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        if file.golden_workspace.is_empty() {
            return Err("golden_workspace must not be empty".to_owned());
        }
        SnapshotName::parse(&file.snapshot_name).map_err(|error| format!("snapshot_name: {error}"))?;
        if !(1..=MAX_TASKS).contains(&file.tasks.len()) {
            return Err(format!("there must be 1 to {MAX_TASKS} tasks, not {}", file.tasks.len()));
        }
        let mut names = BTreeSet::new();
        for task in &file.tasks {
            task.check().map_err(|problem| format!("task {}: {problem}", task.name))?;
            // Some file systems ignore case in names of directories.
            if !names.insert(task.name.as_str().to_ascii_lowercase()) {
                return Err(format!("two tasks are named {}", task.name));
            }
        }
        Ok(file)
    }
}

impl Task {
    fn check(&self) -> Result<(), String> {
        if self.prompt.trim().is_empty() {
            return Err("the prompt must not be empty".to_owned());
        }
        if self.prompt.len() > MAX_PROMPT {
            return Err(format!(
                "the prompt has {} bytes; at most {MAX_PROMPT} are allowed",
                self.prompt.len()
            ));
        }
        if self.prompt.contains('\0') {
            return Err("the prompt contains a NUL byte".to_owned());
        }
        let command = agent::command(&self.prompt).len();
        if command > MAX_COMMAND {
            return Err(format!(
                "the quoted prompt makes a command of {command} bytes; at most {MAX_COMMAND} are allowed, and each ' in \
                 it takes four"
            ));
        }
        // The summary is a file in the directory of every run.
        if self.name.as_str().eq_ignore_ascii_case("summary.json") {
            return Err("this name is reserved for the summary".to_owned());
        }
        if let Some(workdir) = &self.workdir {
            GuestPath::parse(workdir).map_err(|error| format!("workdir: {error}"))?;
        }
        if self.vault_context.len() > MAX_QUERIES {
            return Err(format!("at most {MAX_QUERIES} vault_context queries are allowed"));
        }
        let is_good = |query: &VaultQuery| (1..=MAX_QUERY).contains(&query.query.len());
        match self.vault_context.iter().all(is_good) {
            true => Ok(()),
            false => Err(format!("every query of vault_context must have 1 to {MAX_QUERY} bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_daemon::VaultQueryKind;

    fn file(tasks: &str) -> Result<TaskFile, String> {
        TaskFile::parse(&format!("golden_workspace = \"gold\"\n{tasks}"))
    }

    #[test]
    fn task_file_fields_have_defaults() {
        let text = "[[tasks]]\nname = \"a\"\nprompt = \"do\"\n\
                    [[tasks]]\nname = \"b\"\nprompt = \"more\"\nworkdir = \"/src\"\n\
                    [[tasks.vault_context]]\nquery = \"api\"\n\
                    [[tasks.vault_context]]\nkind = \"read\"\nquery = \"a.md\"\n";
        let file = file(text).unwrap();
        assert_eq!((file.snapshot_name.as_str(), file.mcp_bridge), ("golden", false));
        assert_eq!((file.tasks[0].shown_workdir(), file.tasks[1].shown_workdir()), ("/workspace", "/src"));
        let kinds: Vec<_> = file.tasks[1].vault_context.iter().map(|query| query.kind).collect();
        assert_eq!(kinds, [VaultQueryKind::Search, VaultQueryKind::Read]);
    }

    #[test]
    fn task_file_size_is_limited_to_10_mib() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tasks.toml");
        let text = "golden_workspace = \"gold\"\n[[tasks]]\nname = \"a\"\nprompt = \"do\"\n#";
        let sized = |bytes: usize| {
            std::fs::write(&path, format!("{text}{}", "x".repeat(bytes - text.len()))).unwrap();
            TaskFile::read(&path)
        };
        assert!(sized(10 * 1024 * 1024).is_ok());
        assert!(sized(10 * 1024 * 1024 + 1).unwrap_err().to_string().contains("larger than"));
    }

    #[test]
    fn task_file_mistakes_are_named() {
        let task = |name: &str, rest: &str| format!("[[tasks]]\nname = \"{name}\"\n{rest}\n");
        let good = task("a", "prompt = \"x\"");
        let long = "x".repeat(MAX_PROMPT + 1);
        let quoted = "'".repeat(MAX_PROMPT / 2);
        for (tasks, words) in [
            (String::new(), "1 to 20 tasks"),
            (good.repeat(2), "two tasks are named a"),
            (good.clone() + &task("A", "prompt = \"x\""), "two tasks are named A"),
            ((0..21).map(|n| task(&format!("t{n}"), "prompt = \"x\"")).collect(), "not 21"),
            (task("../x", "prompt = \"x\""), "task name"),
            (task("..", "prompt = \"x\""), "task name"),
            (task("", "prompt = \"x\""), "task name"),
            (task("summary.json", "prompt = \"x\""), "summary"),
            (task("a", "prompt = \"  \""), "prompt must not be empty"),
            (task("a", &format!("prompt = \"{long}\"")), "at most"),
            (task("a", &format!("prompt = \"{quoted}\"")), "each ' in it takes four"),
            (task("a", "prompt = \"x\"\nworkdir = \"src\""), "workdir"),
            (task("a", "prompt = \"x\"\nworkdri = \"/src\""), "workdri"),
            (task("a", "prompt = \"x\"\nvault_context = [{query = \"\"}]"), "vault_context"),
            (task("a", "prompt = \"x\"\nvault_context = [{query = \"x\", kind = \"y\"}]"), "kind"),
            (task("a", ""), "prompt"),
        ] {
            let problem = file(&tasks).unwrap_err();
            assert!(problem.contains(words), "{words}: {problem}");
        }
        assert!(TaskFile::parse(&good).unwrap_err().contains("golden_workspace"));
    }
}
