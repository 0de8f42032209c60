//! A workspace simulated by a directory: a home, a working tree, a directory for a bench.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use agentiso_core::paths::GuestPath;
use agentiso_git::merge::{GitGuest, Merge, MergeError, Outcome, Source, Strategy, merge};
use agentiso_git::{Ran, Script};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) struct Lab {
    dir: TempDir,
    bench: GuestPath,
}

impl Lab {
    /// A lab without a repository.
    pub(crate) fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let bench = GuestPath::parse(dir.path().join("bench").to_str().unwrap()).unwrap();
        Self { dir, bench }
    }

    /// A lab with a repository whose first commit contains `README`.
    pub(crate) fn fresh() -> Self {
        let lab = Self::empty();
        lab.git(&["init", "-q", "-b", "main"]);
        lab.write("README", "hello\n");
        lab.commit("first");
        lab
    }

    /// A copy of this lab, as a fork is.
    pub(crate) fn fork(&self) -> Self {
        let fork = Self::empty();
        let status =
            Command::new("cp").arg("-a").arg(self.tree().join(".")).arg(fork.tree()).status().unwrap();
        assert!(status.success());
        fork
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn home(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self) -> GuestPath {
        GuestPath::parse(self.tree().to_str().unwrap()).unwrap()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.home());
        command.current_dir(self.tree());
        command
    }

    fn try_git(&self, words: &[&str]) -> Output {
        let who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"];
        self.command("git").args(who).args(words).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn git(&self, words: &[&str]) -> String {
        let output = self.try_git(words);
        assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Runs a git command that must fail, such as a merge with a conflict.
    #[track_caller]
    pub(crate) fn git_fails(&self, words: &[&str]) {
        assert!(!self.try_git(words).status.success(), "git {words:?} succeeded");
    }

    /// Starts a git that runs until its input is closed.
    pub(crate) fn start_git(&self, words: &[&str]) -> Child {
        self.command("git").args(words).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.tree().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.tree().join(name)).unwrap_or_else(|error| format!("<{name}: {error}>"))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.tree().join(name).symlink_metadata().is_ok()
    }

    pub(crate) fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
    }

    /// Writes one file and commits it under its name.
    pub(crate) fn change(&self, name: &str, content: impl AsRef<[u8]>) {
        self.write(name, content);
        self.commit(&format!("change {name}"));
    }

    pub(crate) fn subjects(&self) -> Vec<String> {
        self.git(&["log", "--format=%s", "--reverse"]).lines().map(str::to_owned).collect()
    }

    /// The state of the repository that a failed merge must not change: branches, HEAD, index, files, stashes, and
    /// files that a merge may leave behind.
    pub(crate) fn fingerprint(&self) -> String {
        let mut files: Vec<String> = Vec::new();
        let mut directories = vec![self.tree()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap().flatten() {
                let path = entry.path();
                match entry.file_type().unwrap().is_dir() {
                    true if path.file_name().unwrap() != ".git" => directories.push(path),
                    true => {}
                    false => files.push(format!("{} {:?}", path.display(), std::fs::read(&path).unwrap())),
                }
            }
        }
        files.sort();
        let git = |words: &[&str]| self.git(words);
        [
            git(&["symbolic-ref", "-q", "HEAD"]),
            git(&["for-each-ref"]),
            git(&["ls-files", "--stage"]),
            git(&["status", "--porcelain"]),
            git(&["stash", "list"]),
            git(&["worktree", "list"]),
            git(&["reflog", "--format=%H %gs"]),
            files.join("\n"),
        ]
        .join("\n--\n")
    }

    /// Whether there is no bench, and no process or lock in the repository.
    pub(crate) fn is_tidy(&self) -> bool {
        !Path::new(self.bench.as_str()).exists()
            && !self.tree().join(".git/index.lock").exists()
            && !self.tree().join(".git/rebase-apply").exists()
    }

    pub(crate) fn sh(&self, script: &Script) -> Ran {
        let output = self.command("sh").arg("-c").arg(script.line()).output().unwrap();
        ran(output, script.max_output)
    }
}

fn ran(output: Output, max: u64) -> Ran {
    let total = output.stdout.len() as u64;
    let mut stdout = output.stdout;
    stdout.truncate(usize::try_from(max).unwrap());
    Ran { code: output.status.code(), timed_out: false, stdout, stdout_total: total, stderr: output.stderr }
}

/// Kills a process group on drop, as a guest does when nothing waits for it any more.
struct Group(Option<u32>);

impl Group {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _ = Command::new("kill").args(["-9", "--", &format!("-{leader}")]).status();
        }
    }
}

/// Adapts the path of the working tree: in these tests it differs between workspaces.
pub(crate) struct LabGuest<'a> {
    lab: &'a Lab,
    own: String,
    common: String,
}

impl<'a> LabGuest<'a> {
    pub(crate) fn new(lab: &'a Lab, common: &GuestPath) -> Self {
        Self { lab, own: lab.path().as_str().to_owned(), common: common.as_str().to_owned() }
    }
}

impl GitGuest for LabGuest<'_> {
    type Error = io::Error;

    fn run<'a>(&'a self, script: &'a Script) -> BoxFuture<'a, io::Result<Ran>> {
        async move {
            let line = script.line().replacen(&format!("'{}'", self.common), &format!("'{}'", self.own), 1);
            let mut command = tokio::process::Command::from(self.lab.command("sh"));
            command.arg("-c").arg(line).process_group(0);
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            let group = Group(child.id());
            let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await??;
            group.ended();
            Ok(ran(output, script.max_output))
        }
        .boxed()
    }

    fn read<'a>(&'a self, path: &'a GuestPath, offset: u64, limit: u64) -> BoxFuture<'a, io::Result<Bytes>> {
        async move {
            let all = std::fs::read(path.as_str())?;
            let begin = usize::try_from(offset).unwrap().min(all.len());
            let end = usize::try_from(offset + limit).unwrap().min(all.len());
            Ok(Bytes::copy_from_slice(&all[begin..end]))
        }
        .boxed()
    }

    fn write<'a>(&'a self, path: &'a GuestPath, data: Bytes) -> BoxFuture<'a, io::Result<()>> {
        async move {
            std::fs::create_dir_all(Path::new(path.as_str()).parent().unwrap())?;
            std::fs::write(path.as_str(), data)
        }
        .boxed()
    }

    fn bench(&self) -> &GuestPath {
        &self.lab.bench
    }
}

pub(crate) async fn try_merge(
    strategy: Strategy,
    target: &Lab,
    sources: &[&Lab],
) -> Result<Vec<Outcome>, MergeError<io::Error>> {
    merge_until(strategy, target, sources, &CancellationToken::new()).await
}

pub(crate) async fn merge_until(
    strategy: Strategy,
    target: &Lab,
    sources: &[&Lab],
    stop: &CancellationToken,
) -> Result<Vec<Outcome>, MergeError<io::Error>> {
    let path = target.path();
    let wanted = Merge { path: path.clone(), strategy, message: None };
    let sources: Vec<_> = sources
        .iter()
        .enumerate()
        .map(|(index, lab)| Source {
            guest: LabGuest::new(lab, &path),
            name: format!("source-{}", index + 1),
        })
        .collect();
    let outcomes = merge(&wanted, &LabGuest::new(target, &path), &sources, stop).await;
    assert!(target.is_tidy(), "something is left in the target");
    assert!(sources.iter().all(|source| source.guest.lab.is_tidy()), "something is left in a source");
    outcomes
}

/// The number of commits from each source. All sources must be merged.
#[track_caller]
pub(crate) fn merged(outcomes: &[Outcome]) -> Vec<u64> {
    let count = |outcome: &Outcome| match outcome {
        Outcome::Merged { commits, .. } => *commits,
        Outcome::Failed { error } => panic!("a source did not fit: {error}"),
    };
    outcomes.iter().map(count).collect()
}

#[track_caller]
pub(crate) fn failure(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Merged { commits, .. } => panic!("it fitted, with {commits} commits"),
        Outcome::Failed { error } => error,
    }
}
