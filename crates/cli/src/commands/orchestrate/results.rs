//! What a run leaves on disk: a directory that is there as a whole or not at all.

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

/// Runs that end in the same second.
const MAX_SAME_SECOND: u32 = 100;

/// The directory in which every run gets one of its own.
#[derive(Debug)]
pub(super) struct Results {
    parent: PathBuf,
}

impl Results {
    /// Makes the directory below `place`, and finds out whether something can be written there.
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

    /// Writes everything aside and gives it its name then. What was written whole is never deleted: it was paid for.
    fn write_as(&self, begun: &str, tasks: &TaskFile, ended: &[SwarmTaskResult]) -> Result<PathBuf, Failure> {
        let aside = self.parent.join(format!(".{begun}-{}", std::process::id()));
        fill(&aside, tasks, ended).map_err(|error| {
            // What is half written is of no use; the failure is told, and this one would only hide it.
            let _ = fs::remove_dir_all(&aside);
            unwritable(&self.parent, &error)
        })?;
        self.publish(&aside, begun).map_err(|error| {
            let (aside, parent) = (aside.display(), self.parent.display());
            Failure::new(format!("the results are whole in {aside}, but got no name in {parent}: {error}"))
                .hint(format!("move {aside} to where you want it"))
        })
    }

    /// A directory that exists is never replaced.
    fn publish(&self, aside: &Path, begun: &str) -> io::Result<PathBuf> {
        let names = std::iter::once(begun.to_owned()).chain((2..).map(|number| format!("{begun}-{number}")));
        for name in names.take(MAX_SAME_SECOND as usize) {
            let path = self.parent.join(name);
            match rename_new(aside, &path) {
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
        // Some filesystems, such as NFS, know no such rename.
        Err(_) => rename_onto_empty(from, to),
    }
}

/// The directory that is made first keeps others off the name, and an empty one may be replaced.
fn rename_onto_empty(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::rename(from, to).inspect_err(|_| {
        // It is empty, and nobody else's.
        let _ = fs::remove_dir(to);
    })
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("results cannot be written to {}: {error}", path.display()))
}

fn fill(directory: &Path, tasks: &TaskFile, ended: &[SwarmTaskResult]) -> io::Result<()> {
    fs::create_dir(directory)?;
    for task in ended {
        // The names come back from the daemon; only those that were asked for become directories.
        let Some(asked) = tasks.tasks.iter().find(|asked| asked.name.as_str() == task.name) else { continue };
        let own = directory.join(asked.name.as_str());
        fs::create_dir(&own)?;
        fs::write(own.join("stdout.txt"), text(&task.stdout))?;
        fs::write(own.join("stderr.txt"), complaint(task))?;
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
                "stderr": complaint(task),
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

/// What a task said on standard error, and what there is to say about it.
pub(super) fn complaint(task: &SwarmTaskResult) -> String {
    let mut text = text(&task.stderr);
    if task.timed_out {
        text.push_str(&format!("\n[the task timed out after {TIMEOUT_SECS} s and was killed]\n"));
    }
    text
}

/// What was kept of a stream, with a line where some of it was not.
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
    fn a_run_is_a_directory_with_a_summary_and_one_directory_for_each_task() {
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
        // Nothing beside them: no file that was written aside, and no name that nobody asked for.
        assert_eq!(fs::read_dir(dir.path().join(DIRECTORY)).unwrap().count(), 2);
        assert_eq!(fs::read_dir(&first).unwrap().count(), 3);
    }

    #[test]
    fn results_that_get_no_name_are_kept_and_it_is_told_where() {
        let dir = tempfile::tempdir().unwrap();
        let (file, ended) = tasks();
        let results = Results::prepare(dir.path()).unwrap();
        for number in 1..=MAX_SAME_SECOND {
            let name = if number == 1 { "now".to_owned() } else { format!("now-{number}") };
            fs::create_dir(results.parent.join(name)).unwrap();
        }
        let told = results.write_as("now", &file, &ended).unwrap_err().to_string();
        let aside = results.parent.join(format!(".now-{}", std::process::id()));
        assert!(told.contains(&aside.display().to_string()), "{told}");
        assert!(aside.join("summary.json").exists());
    }

    #[test]
    fn without_help_of_the_filesystem_a_directory_that_exists_is_not_replaced_either() {
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
    fn a_place_that_cannot_be_written_to_is_found_out_before_anything_is_run() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(DIRECTORY), "a file").unwrap();
        assert!(Results::prepare(dir.path()).unwrap_err().to_string().contains(DIRECTORY));
    }
}
