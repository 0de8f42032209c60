//! Starting processes: every chore goes through here, so that every command is echoed in the same way, runs in
//! the repository and gives the same kind of error.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The repository: the directory above this crate.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The cargo that runs this program, or the one in PATH.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The command line as text.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs a command that shares our terminal; failing is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let text = shown(command);
    eprintln!("$ {text}");
    let status = command.status().with_context(|| format!("`{text}` could not be started"))?;
    if !status.success() {
        bail!("`{text}` failed ({status})");
    }
    Ok(())
}

/// Runs a command for its standard output. Its standard error stays visible.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let text = shown(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("`{text}` could not be started"))?;
    if !output.status.success() {
        bail!("`{text}` failed ({})", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{text}` printed invalid UTF-8"))
}

/// Whether a command starts and succeeds, quietly.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command to its end or kills it at `limit`; `None` means that it was killed. Its output is collected.
pub(crate) fn collect_within(command: &mut Command, limit: Duration) -> Result<Option<Output>> {
    let text = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{text}` could not be started"))?;
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let pid = child.id();
    let (send, ended) = mpsc::channel();
    std::thread::spawn(move || send.send(child.wait()));
    match ended.recv_timeout(limit) {
        Ok(status) => {
            let status = status.with_context(|| format!("waiting for `{text}`"))?;
            let stdout = stdout.join().unwrap_or_default();
            let stderr = stderr.join().unwrap_or_default();
            Ok(Some(Output { status, stdout, stderr }))
        }
        Err(_) => {
            // The waiting thread has not reaped the child yet, so the pid still belongs to this process.
            let _ = self::command("kill").args(["-KILL", &pid.to_string()]).status();
            let _ = ended.recv();
            Ok(None)
        }
    }
}

fn drain(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // After a read error, the bytes before it are shown.
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hanging_command_is_killed() {
        let outcome = collect_within(command("sleep").arg("100"), Duration::from_millis(50)).unwrap();
        assert!(outcome.is_none());
    }

    #[test]
    fn command_output_is_collected() {
        let output = collect_within(command("echo").arg("hi"), Duration::from_secs(30)).unwrap().unwrap();
        assert_eq!(output.stdout, b"hi\n");
    }

    #[test]
    fn error_names_the_failing_command() {
        let error = run(command("sh").args(["-c", "exit 3"])).unwrap_err().to_string();
        assert!(error.contains("sh -c exit 3") && error.contains('3'), "{error}");
    }
}
