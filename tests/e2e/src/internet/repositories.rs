//! Repositories of the servers outside. The host's own git makes and reads them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Debug)]
pub(super) struct Repositories(PathBuf);

impl Repositories {
    pub(super) fn below(dir: &Path) -> Self {
        Self(dir.join("repositories"))
    }

    /// Makes a bare repository whose branch `main` has these commits.
    pub(super) fn make(&self, name: &str, commits: &[&[(&str, &str)]]) -> Result<(), String> {
        std::fs::create_dir_all(self.0.join(name)).map_err(|error| error.to_string())?;
        self.git(name, &["init", "-q", "--bare", "-b", "main", "."], "")?;
        self.git(name, &["config", "http.receivepack", "true"], "")?;
        let (mut tree, mut parent) = (BTreeMap::new(), None::<String>);
        for (number, files) in (1..).zip(commits) {
            for (path, content) in *files {
                tree.insert(*path, self.git(name, &["hash-object", "-w", "--stdin"], content)?);
            }
            let entries = tree.iter().map(|(path, blob)| format!("100644 blob {blob}\t{path}\n"));
            let entries = self.git(name, &["mktree"], &entries.collect::<String>())?;
            let message = format!("commit {number}");
            let mut words = vec!["commit-tree", &entries, "-m", &message];
            words.extend(parent.iter().flat_map(|parent| ["-p", parent.as_str()]));
            parent = Some(self.git(name, &words, "")?);
        }
        let Some(last) = parent else { return Ok(()) };
        self.git(name, &["update-ref", "refs/heads/main", &last], "").map(drop)
    }

    /// Runs git without the host's own settings.
    pub(super) fn git(&self, name: &str, words: &[&str], input: &str) -> Result<String, String> {
        let mut child = Command::new("git")
            .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "safe.directory=*"])
            .args(words)
            .current_dir(self.0.join(name))
            .env("HOME", &self.0)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("git: {error}"))?;
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(input.as_bytes()).map_err(|error| error.to_string())?;
        }
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(format!("git {words:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}
