//! The command that runs an AI agent in a worker.
//!
//! The script chooses the AI agent in the guest, because only the image knows which one is installed. Both AI agents
//! read the notes from standard input, so notes may be larger than an argument can be.

use crate::shellwords;

const SCRIPT: &str = include_str!("agent.sh");

/// The command for `/bin/sh -c`. The prompt is a parameter and never part of the script.
pub(super) fn command(prompt: &str) -> String {
    format!("set -- {}\n{SCRIPT}", shellwords::quote(prompt))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Command, Output};

    /// Installs an agent that prints its arguments and its standard input.
    fn install(bin: &Path, name: &str) {
        let path = bin.join(name);
        std::fs::write(&path, "#!/bin/sh\nprintf '%s|' \"$0\" \"$@\"\ncat\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(bin: &Path, prompt: &str, context: Option<&Path>) -> Output {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command(prompt)).env_clear();
        shell.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env("HOME", bin);
        shell.envs(context.map(|path| ("VAULT_CONTEXT", path))).output().unwrap()
    }

    #[test]
    fn claude_is_preferred_over_opencode() {
        let dir = tempfile::tempdir().unwrap();
        let notes = dir.path().join("notes");
        std::fs::write(&notes, "known").unwrap();
        let prompt = "it's $HOME; `id`\n-p";
        install(dir.path(), "opencode");
        let said = |output: Output| String::from_utf8(output.stdout).unwrap();
        let bin = dir.path().display();
        assert_eq!(said(run(dir.path(), prompt, None)), format!("{bin}/opencode|run|{prompt}|"));
        install(dir.path(), "claude");
        assert_eq!(said(run(dir.path(), prompt, Some(&notes))), format!("{bin}/claude|-p|{prompt}|known"));
    }

    #[test]
    fn prompt_with_leading_dash_is_no_option() {
        let dir = tempfile::tempdir().unwrap();
        let said = |prompt| String::from_utf8(run(dir.path(), prompt, None).stdout).unwrap();
        let bin = dir.path().display();
        install(dir.path(), "opencode");
        assert_eq!(said("--help"), format!("{bin}/opencode|run| --help|"));
        install(dir.path(), "claude");
        assert_eq!(said("- a list\n- of two"), format!("{bin}/claude|-p| - a list\n- of two|"));
    }

    #[test]
    fn image_without_agent_exits_with_127() {
        let dir = tempfile::tempdir().unwrap();
        let output = run(dir.path(), "x", None);
        assert_eq!(output.status.code(), Some(127));
        let words = String::from_utf8(output.stderr).unwrap();
        assert!(words.contains("neither claude nor opencode"), "{words}");
    }
}
