//! The dashboard on a terminal that `script` makes.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentiso_testkit::{TestHost, eventually, host_or_skip, record_skip};

const PATIENCE: Duration = Duration::from_secs(30);

/// A dashboard on a terminal: its output so far, and its keyboard.
struct Screen {
    child: Child,
    drawn: Arc<Mutex<Vec<u8>>>,
}

impl Screen {
    fn open(host: &TestHost) -> Self {
        let line = format!(
            "stty rows 24 cols 120; exec '{}' dashboard --refresh 1 --config '{}'",
            host.command().get_program().display(),
            host.config_path().display()
        );
        let mut command = Command::new("script");
        command.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm").env("HOME", host.dir());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script is installed");
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let (mut output, sink) = (child.stdout.take().unwrap(), Arc::clone(&drawn));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                sink.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { child, drawn }
    }

    /// Waits until this text is drawn. Only changes are drawn, so the text must not have been on the screen before.
    fn shows(&self, words: &str) {
        eventually(words, PATIENCE, || String::from_utf8_lossy(&self.drawn.lock().unwrap()).contains(words));
    }

    fn press(&mut self, keys: &str) {
        self.drawn.lock().unwrap().clear();
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the dashboard ends", PATIENCE, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Screen {
    /// A failed test leaves no dashboard: it ends when its terminal is gone.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn dashboard_follows_vms_and_daemon_restarts() {
    if Command::new("script").arg("--version").output().is_err() {
        return record_skip("script, which makes terminals, is not installed");
    }
    let host = host_or_skip!();
    host.cli_ok(&["create", "box"]);
    let mut screen = Screen::open(&host);
    screen.shows("box");
    screen.press("\r");
    screen.shows("console");
    host.stop_daemon();
    screen.shows("no daemon");
    screen.press("\u{1b}");
    host.cli_ok(&["create", "another"]);
    screen.shows("another");
    screen.press("q");
    assert!(screen.ended().success());
    for workspace in ["box", "another"] {
        host.cli_ok(&["rm", workspace]);
    }
    host.assert_no_workspaces_left();
}

#[test]
fn dashboard_without_a_terminal_is_refused() {
    let host = host_or_skip!();
    let refused = host.cli(&["dashboard"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("needs a terminal"));
}
