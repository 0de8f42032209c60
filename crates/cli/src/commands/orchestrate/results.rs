//! Writes the results of a run to a directory, which appears complete or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agentiso_daemon::control::swarm::SwarmTaskResult;
use agentiso_daemon::control::wire::Captured;
use serde_json::{Value, json};

use super::TIMEOUT_SECS;
use super::task_file::TaskFile;
use crate::failure::Failure;

const DIRECTORY: &str = "orchestrate-results";

/// The most runs that end in the same second.
const MAX_SAME_SECOND: u32 = 100;

/// The directory in which every run gets its own directory.
#[derive(Debug)]
pub(super) struct Results {
    parent: PathBuf,
}

impl Results {
    /// Makes the directory below `place`, and checks that it is writable.
    pub(super) fn prepare(place: &Path) -> Result<Self, Failure> {
        let parent = place.join(DIRECTORY);
        let probe = parent.join(format!(".probe-{}", std::process::id()));
        fs::create_dir_all(&parent)
            .and_then(|()| fs::create_dir(&probe))
            .and_then(|()| fs::remove_dir(&probe))
            .map_err(|error| unwritable(&parent, &error))?;
        Ok(Self { parent })
    }

    pub(super) fn write(&self, tasks: &TaskFile, ended: &[SwarmTaskResult]) -> Result<PathBuf, Failure> {
        let begun = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
        self.write_as(&begun, tasks, ended)
    }

    /// Writes everything to a temporary directory and then renames it. Complete results are never deleted, because they
    /// cost money.
    fn write_as(&self, begun: &str, tasks: &TaskFile, ended: &[SwarmTaskResult]) -> Result<PathBuf, Failure> {
        let temporary = self.parent.join(format!(".{begun}-{}", std::process::id()));
        fill(&temporary, tasks, ended).map_err(|error| {
            // Incomplete results are of no use. An error of the removal is ignored, because it would hide the first
            // one.
            let _ = fs::remove_dir_all(&temporary);
            unwritable(&self.parent, &error)
        })?;
        self.publish(&temporary, begun).map_err(|error| {
            let (temporary, parent) = (temporary.display(), self.parent.display());
            Failure::new(format!(
                "the results are complete in {temporary}, but could not be renamed in {parent}: {error}"
            ))
            .hint(format!("move {temporary} to where you want it"))
        })
    }

    /// Renames the directory to an unused name. An existing directory is never replaced.
    fn publish(&self, temporary: &Path, begun: &str) -> io::Result<PathBuf> {
        let names = std::iter::once(begun.to_owned()).chain((2..).map(|number| format!("{begun}-{number}")));
        for name in names.take(MAX_SAME_SECOND as usize) {
            let path = self.parent.join(name);
            match rename_new(temporary, &path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (here, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::NOREPLACE);
    match rustix::fs::renameat_with(here, from, here, to, flags) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) => Err(io::ErrorKind::AlreadyExists.into()),
        // Some file systems, such as NFS, do not support this rename.
        Err(_) => rename_onto_empty(from, to),
    }
}

/// Reserves the name with an empty directory, which the rename may replace.
fn rename_onto_empty(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::rename(from, to).inspect_err(|_| {
        // The directory is empty and was made here.
        let _ = fs::remove_dir(to);
    })
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write results to {}: {error}", path.display()))
}

fn fill(directory: &Path, tasks: &TaskFile, ended: &[SwarmTaskResult]) -> io::Result<()> {
    fs::create_dir(directory)?;
    for task in ended {
        // The names come from the daemon; only names of the task file become directories.
        let Some(asked) = tasks.tasks.iter().find(|asked| asked.name.as_str() == task.name) else { continue };
        let own = directory.join(asked.name.as_str());
        fs::create_dir(&own)?;
        fs::write(own.join("stdout.txt"), text(&task.stdout))?;
        fs::write(own.join("stderr.txt"), stderr_text(task))?;
        let meta = json!({
            "name": task.name,
            "success": task.success,
            "exit_code": task.exit_code,
            "workspace_id": task.workspace_id,
            "elapsed_ms": task.elapsed_ms,
            "timed_out": task.timed_out,
            "workdir": asked.shown_workdir(),
        });
        fs::write(own.join("meta.json"), pretty(&meta))?;
    }
    fs::write(directory.join("summary.json"), pretty(&summary(ended)))
}

fn summary(ended: &[SwarmTaskResult]) -> Value {
    let tasks: Vec<Value> = ended
        .iter()
        .map(|task| {
            json!({
                "name": task.name,
                "success": task.success,
                "exit_code": task.exit_code,
                "stdout": text(&task.stdout),
                "stderr": stderr_text(task),
                "workspace_id": task.workspace_id,
            })
        })
        .collect();
    let succeeded = ended.iter().filter(|task| task.success).count();
    json!({ "tasks": tasks, "success_count": succeeded, "failure_count": ended.len() - succeeded })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// The standard error of a task, with a note if the task timed out.
pub(super) fn stderr_text(task: &SwarmTaskResult) -> String {
    let mut text = text(&task.stderr);
    if task.timed_out {
        text.push_str(&format!("\n[the task timed out after {TIMEOUT_SECS} s and was killed]\n"));
    }
    text
}

/// The kept output of a stream, with a line in place of dropped bytes.
fn text(output: &Captured) -> String {
    let (head, tail) = (&output.head.0, &output.tail.0);
    let lost = output.total_bytes.saturating_sub((head.len() + tail.len()) as u64);
    let mut bytes = head.clone();
    if lost > 0 {
        bytes.extend(format!("\n[… {lost} bytes were not kept …]\n").into_bytes());
    }
    bytes.extend(tail);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_daemon::control::wire::Blob;

    fn captured(head: &[u8], tail: &[u8], total_bytes: u64) -> Captured {
        Captured { head: Blob(head.to_vec()), tail: Blob(tail.to_vec()), total_bytes }
    }

    fn tasks() -> (TaskFile, Vec<SwarmTaskResult>) {
        let text = "golden_workspace = \"g\"\n[[tasks]]\nname = \"a\"\nprompt = \"x\"\n\
                    [[tasks]]\nname = \"b\"\nprompt = \"x\"\n";
        let task = |name: &str, success| SwarmTaskResult {
            name: name.to_owned(),
            success,
            exit_code: if success { 0 } else { 3 },
            stdout: captured(b"said\n", b"", 5),
            stderr: captured(b"begin", b"end", 20),
            ..SwarmTaskResult::default()
        };
        (toml::from_str(text).unwrap(), vec![task("a", true), task("b", false), task("../c", true)])
    }

    #[test]
    fn each_run_writes_its_own_result_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (file, ended) = tasks();
        let results = Results::prepare(dir.path()).unwrap();
        let first = results.write(&file, &ended).unwrap();
        let second = results.write(&file, &ended).unwrap();
        assert_ne!(first, second);
        let name = first.strip_prefix(dir.path().join("orchestrate-results")).unwrap().display().to_string();
        let shape: String = name.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!(shape, "99999999-999999", "{name}");
        let summary: Value = serde_json::from_slice(&fs::read(first.join("summary.json")).unwrap()).unwrap();
        assert_eq!((&summary["success_count"], &summary["failure_count"]), (&json!(2), &json!(1)));
        let keys: Vec<&String> = summary["tasks"][1].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["name", "success", "exit_code", "stdout", "stderr", "workspace_id"]);
        assert_eq!(fs::read_to_string(first.join("a/stdout.txt")).unwrap(), "said\n");
        let stderr = fs::read_to_string(second.join("b/stderr.txt")).unwrap();
        assert_eq!(stderr, "begin\n[… 12 bytes were not kept …]\nend");
        let meta: Value = serde_json::from_slice(&fs::read(first.join("b/meta.json")).unwrap()).unwrap();
        assert_eq!((&meta["exit_code"], &meta["success"]), (&json!(3), &json!(false)));
        // There is nothing else: no temporary directory, and no directory for a name that is not in the task file.
        assert_eq!(fs::read_dir(dir.path().join(DIRECTORY)).unwrap().count(), 2);
        assert_eq!(fs::read_dir(&first).unwrap().count(), 3);
    }

    #[test]
    fn unnamed_results_are_kept_and_located() {
        let dir = tempfile::tempdir().unwrap();
        let (file, ended) = tasks();
        let results = Results::prepare(dir.path()).unwrap();
        for number in 1..=MAX_SAME_SECOND {
            let name = if number == 1 { "now".to_owned() } else { format!("now-{number}") };
            fs::create_dir(results.parent.join(name)).unwrap();
        }
        let told = results.write_as("now", &file, &ended).unwrap_err().to_string();
        let temporary = results.parent.join(format!(".now-{}", std::process::id()));
        assert!(told.contains(&temporary.display().to_string()), "{told}");
        assert!(temporary.join("summary.json").exists());
    }

    #[test]
    fn rename_onto_empty_never_replaces_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("file"), "new").unwrap();
        fs::create_dir(&to).unwrap();
        let refused = rename_onto_empty(&from, &to).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(to.exists() && from.join("file").exists());
        fs::remove_dir(&to).unwrap();
        rename_onto_empty(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "new");
        assert!(rename_onto_empty(&from, &dir.path().join("other")).is_err());
        assert!(!dir.path().join("other").exists(), "nothing is left of a name that could not be used");
    }

    #[test]
    fn unwritable_results_place_is_refused_first() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(DIRECTORY), "a file").unwrap();
        assert!(Results::prepare(dir.path()).unwrap_err().to_string().contains(DIRECTORY));
    }
}
