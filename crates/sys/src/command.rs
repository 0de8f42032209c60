//! Runs programs that answer and end. VMs are started elsewhere: see [`crate::process`].
//!
//! Every child gets a scrubbed environment, a process group of its own, a deadline, and no standard input. When the
//! future is dropped, the whole group is ended: first by a signal that it can handle, because mmdebstrap then removes
//! its own temporary files, and a little later by SIGKILL. The same happens when this process dies without cleaning up
//! (an interrupt at the terminal, kill -9): a watcher in the group waits for the end of a pipe that only this process
//! holds open.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

/// Listings of packages are a few MiB; longer output is a fault and not an answer.
const MAX_STDOUT: u64 = 64 << 20;
/// Enough lines to show the cause, few enough to read.
const TAIL_LINES: usize = 15;
const TAIL_LINE_CHARS: usize = 400;
/// The time that a group gets to clean up after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// mke2fs and debugfs live here, and unprivileged users seldom have these directories in their PATH.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Variables of our environment that children get: the user's home and the network settings.
const KEPT_VARIABLES: [&str; 9] = [
    "HOME",
    "USER",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// Starts the program given as arguments, with a watcher beside it. The pipe arrives as standard input. A line on it
/// means that the program has ended normally; the pipe's end means that nothing waits for the program any more. The
/// watcher is not the program's child, so the program does not reap it when it waits for its own children.
const WATCHED: &str = "exec 3<&0 0</dev/null
( (
    exec 1>/dev/null 2>&1
    read -r _ <&3 && exit
    trap '' TERM
    kill -TERM 0
    sleep 5
    kill -KILL 0
) & )
exec 3<&-
exec \"$@\"";

#[derive(Debug, Error)]
pub enum CommandError {
    #[error("`{program}` is not installed; install it with `apt-get install {package}`")]
    Missing { program: String, package: &'static str },
    #[error("cannot start `{program}`: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("lost contact with `{program}`: {source}")]
    Lost { program: String, source: std::io::Error },
    #[error("`{program}` failed ({status}){}", tail_text(.tail))]
    Failed { program: String, status: ExitStatus, tail: String },
    #[error("the host's disk is full: `{program}` could not write its output{}", tail_text(.tail))]
    DiskFull { program: String, tail: String },
    #[error("`{program}` did not finish within {} s and was stopped{}", .limit.as_secs(), tail_text(.tail))]
    TooSlow { program: String, limit: Duration, tail: String },
    #[error("`{program}` printed more than {MAX_STDOUT} bytes where a listing was expected")]
    TooMuchOutput { program: String },
}

fn tail_text(tail: &str) -> String {
    if tail.is_empty() { String::new() } else { format!(":\n{tail}") }
}

/// The output of a successful program.
#[derive(Debug)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
}

/// A program that is ready to run.
pub struct Tool {
    program: String,
    package: &'static str,
    limit: Duration,
    command: Command,
    installed: bool,
}

/// Omits the arguments and the environment, which may contain passwords.
impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("program", &self.program)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Tool {
    /// `package` is the package that contains `program`.
    pub fn new(program: impl AsRef<OsStr>, package: &'static str, limit: Duration) -> Self {
        Self::started_by(&[], program.as_ref(), package, limit)
    }

    /// For root: gives the program a mount namespace of its own, so that its mounts are invisible to others and vanish
    /// with it. Otherwise a process that uses a mounted directory could keep it from being unmounted.
    pub fn with_own_mounts(program: impl AsRef<OsStr>, package: &'static str, limit: Duration) -> Self {
        Self::started_by(&["unshare", "--mount", "--propagation=private"], program.as_ref(), package, limit)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the funnel")]
    fn started_by(starter: &[&str], program: &OsStr, package: &'static str, limit: Duration) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WATCHED, "sh"]).args(starter).arg(program).env_clear();
        for name in KEPT_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let path = search_path();
        let installed = which(Path::new(program), Some(&path)).is_some();
        command.env("PATH", path).env("LC_ALL", "C.UTF-8").env("TZ", "UTC0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let program = program.to_string_lossy().into_owned();
        Self { program, package, limit, command, installed }
    }

    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Passes on more variables of our environment, if they are set.
    pub fn keep(mut self, names: &[&str]) -> Self {
        let kept = names.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        self.command.envs(kept);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn current_dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub async fn run(self) -> Result<Output, CommandError> {
        self.run_with_lines(&|_| ()).await
    }

    /// Runs the program and passes every line of its standard error to `on_line` at once.
    pub async fn run_with_lines(
        self,
        on_line: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Output, CommandError> {
        let Self { program, package, limit, mut command, installed } = self;
        if !installed {
            return Err(CommandError::Missing { program, package });
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(source) => return Err(CommandError::Start { program, source }),
        };
        let watcher = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut group = Group { child: Some(child) };
        let mut tail = Tail::default();
        let finished = {
            let work = async {
                tokio::join!(group.wait(), read_all(stdout), read_lines(stderr, &mut tail, on_line))
            };
            tokio::time::timeout(limit, work).await
        };
        let Ok((status, stdout, stderr)) = finished else {
            return Err(CommandError::TooSlow { program, limit, tail: tail.text() });
        };
        let lost = |source| CommandError::Lost { program: program.clone(), source };
        let status = status.map_err(lost)?;
        if let Some(mut watcher) = watcher {
            // A pipe has room for one line, so this does not block. If the watcher is gone, the line is not needed.
            let _ = watcher.write_all(b"done\n").await;
        }
        let stdout = stdout.map_err(lost)?;
        stderr.map_err(lost)?;
        let tail = tail.text();
        if !status.success() {
            return Err(if says_disk_full(&tail) {
                CommandError::DiskFull { program, tail }
            } else {
                CommandError::Failed { program, status, tail }
            });
        }
        match stdout {
            Some(stdout) => Ok(Output { stdout, stderr: tail }),
            None => Err(CommandError::TooMuchOutput { program }),
        }
    }
}

fn search_path() -> OsString {
    match std::env::var_os("PATH") {
        Some(mut path) if !path.is_empty() => {
            path.push(":");
            path.push(SYSTEM_PATH);
            path
        }
        Some(_) | None => OsString::from(SYSTEM_PATH),
    }
}

/// Finds a program where [`Tool`] looks for it: in PATH, and in the system's directories.
pub fn find(program: &str) -> Option<PathBuf> {
    which(Path::new(program), Some(&search_path()))
}

/// A program's path: unchanged if it contains a directory, otherwise searched in `path`.
pub fn which(program: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    std::env::split_paths(path?).map(|dir| dir.join(program)).find(|candidate| candidate.is_file())
}

fn says_disk_full(tail: &str) -> bool {
    ["No space left on device", "Disk quota exceeded", "Could not allocate block"]
        .iter()
        .any(|phrase| tail.contains(phrase))
}

/// All output of the program, or `None` if it is longer than a listing can be.
async fn read_all(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<Option<String>> {
    let Some(pipe) = pipe else { return Ok(Some(String::new())) };
    let mut bytes = Vec::new();
    let mut limited = pipe.take(MAX_STDOUT + 1);
    limited.read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > MAX_STDOUT {
        // The rest is drained, so that the program ends instead of blocking on a full pipe.
        tokio::io::copy(&mut limited.into_inner(), &mut tokio::io::sink()).await?;
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

async fn read_lines(
    pipe: Option<impl AsyncRead + Unpin>,
    tail: &mut Tail,
    on_line: &(dyn Fn(&str) + Send + Sync),
) -> std::io::Result<()> {
    let Some(pipe) = pipe else { return Ok(()) };
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A long line is cut here, not collected without bound; its rest is read as the next line.
        let mut limited = (&mut reader).take(TAIL_LINE_CHARS as u64 * 4);
        if limited.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if !text.is_empty() {
            on_line(text);
            tail.push(text);
        }
    }
}

#[derive(Default)]
struct Tail(VecDeque<String>);

impl Tail {
    fn push(&mut self, line: &str) {
        if self.0.len() == TAIL_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line.chars().take(TAIL_LINE_CHARS).collect());
    }

    fn text(&self) -> String {
        self.0.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Owns a running process group and ends it when dropped early.
struct Group {
    child: Option<Child>,
}

impl Group {
    async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        match &mut self.child {
            Some(child) => {
                let status = child.wait().await?;
                self.child = None;
                Ok(status)
            }
            None => Err(std::io::Error::other("the process has ended already")),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // The child has not been waited for, so its id still refers to this group and no other.
        let Some(group) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) else {
            return;
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let _ = kill_process_group(group, Signal::TERM);
                // This task ends by itself after the grace time. If the runtime ends first, dropping the child kills
                // the group's leader.
                runtime.spawn(async move {
                    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
                        let _ = kill_process_group(group, Signal::KILL);
                        let _ = child.wait().await;
                    }
                });
            }
            Err(_) => {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const SHORT: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Tool {
        Tool::new("sh", "dash", SHORT).args(["-c", script])
    }

    #[test]
    fn path_search_applies_to_bare_names_only() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("qemu"), "").unwrap();
        assert_eq!(which(Path::new("qemu"), Some(dir.path().as_os_str())), Some(dir.path().join("qemu")));
        assert_eq!(which(&dir.path().join("qemu"), None), Some(dir.path().join("qemu")));
        assert_eq!(which(Path::new("other"), Some(dir.path().as_os_str())), None);
    }

    #[tokio::test]
    async fn tool_failure_quotes_the_end_of_stderr() {
        let error = shell("for i in $(seq 100); do echo line $i >&2; done; exit 3").run().await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("line 100") && !text.contains("line 20\n"), "{text}");
    }

    #[tokio::test]
    async fn missing_tool_names_its_package() {
        let tool = Tool::new("agentiso-no-such-program", "some-package", SHORT);
        assert!(tool.run().await.unwrap_err().to_string().contains("apt-get install some-package"));
    }

    #[tokio::test]
    async fn mounts_of_a_tool_vanish_with_it() {
        if !rustix::process::geteuid().is_root() {
            agentiso_testkit::record_skip("only root mounts anything outside a namespace of its own");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mounts = "mkdir m && mount -t tmpfs none m && echo > m/inside && test -e m/inside";
        let tool = Tool::with_own_mounts("sh", "dash", SHORT).args(["-c", mounts]).current_dir(dir.path());
        tool.run().await.unwrap();
        assert!(!dir.path().join("m/inside").exists());
        let seen = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!seen.contains(dir.path().to_str().unwrap()));
    }

    #[tokio::test]
    async fn stderr_lines_reach_the_callback() {
        let seen = Mutex::new(Vec::new());
        let output = shell("echo out; echo one >&2; echo two >&2")
            .run_with_lines(&|line| seen.lock().unwrap().push(line.to_owned()))
            .await
            .unwrap();
        assert_eq!(output.stdout, "out\n");
        assert_eq!(*seen.lock().unwrap(), ["one", "two"]);
    }

    #[tokio::test]
    async fn full_disk_is_recognised_in_tool_output() {
        let error = shell("echo 'write: No space left on device' >&2; exit 1").run().await.unwrap_err();
        assert!(matches!(error, CommandError::DiskFull { .. }), "{error}");
    }

    #[tokio::test]
    async fn callers_environment_does_not_leak() {
        let output = shell("env").run().await.unwrap();
        assert!(!output.stdout.contains("CARGO"), "{}", output.stdout);
    }

    #[tokio::test]
    async fn hanging_tool_ends_at_its_deadline() {
        let tool = Tool::new("sleep", "coreutils", Duration::from_millis(100)).args(["1000"]);
        let ended = tokio::time::timeout(SHORT, tool.run()).await.expect("it does not wait for the program");
        assert!(matches!(ended, Err(CommandError::TooSlow { .. })), "{ended:?}");
    }

    #[tokio::test]
    async fn overlong_output_is_drained_and_refused() {
        let length = (MAX_STDOUT + 1_000_000).to_string();
        let ended = Tool::new("head", "coreutils", SHORT).args(["-c", &length, "/dev/zero"]).run().await;
        assert!(matches!(ended, Err(CommandError::TooMuchOutput { .. })), "{:?}", ended.map(|_| ()));
    }

    #[tokio::test]
    async fn named_variables_reach_the_tool() {
        // Cargo sets it for every test.
        let output = shell("echo $CARGO_MANIFEST_DIR").keep(&["CARGO_MANIFEST_DIR", "NO_SUCH_VARIABLE"]);
        assert_eq!(output.run().await.unwrap().stdout.trim(), env!("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn tool_debug_text_hides_environment_and_arguments() {
        let tool = shell("echo hush").env("http_proxy", "user:hush@host");
        assert!(!format!("{tool:?}").contains("hush"));
    }

    #[tokio::test]
    async fn dropping_the_future_kills_the_process_group() {
        let dir = tempfile::tempdir().unwrap();
        let pidfile = dir.path().join("pid");
        let script = format!("sleep 300 & echo $! > {}; wait", pidfile.display());
        let mut running = Box::pin(shell(&script).run());
        let pid = loop {
            tokio::select! {
                biased;
                _ = &mut running => panic!("the shell ended by itself"),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
            if let Some(pid) =
                std::fs::read_to_string(&pidfile).ok().and_then(|text| text.trim().parse::<i32>().ok())
            {
                break Pid::from_raw(pid).unwrap();
            }
        };
        drop(running);
        let gone = async {
            while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SHORT, gone).await.expect("the grandchild is ended too");
    }

    #[tokio::test]
    async fn tool_ends_with_its_starting_process() {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", WATCHED, "sh", "sleep", "300"])
            .stdin(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        // The kernel closes the pipe when a process dies for any reason.
        drop(child.stdin.take());
        let status = tokio::time::timeout(SHORT, child.wait()).await.expect("the watcher ends it").unwrap();
        assert!(!status.success());
    }

    fn is_zombie(pid: Pid) -> bool {
        std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
            .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
    }
}
