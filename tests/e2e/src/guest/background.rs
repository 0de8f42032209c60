//! Programs that run in the background of a guest while a test does something else.

use std::time::Duration;

use agentiso_testkit::{LONG, TestWorkspace, eventually};
use serde_json::Value;

/// A program in the guest. It prints `begun` when it has started, and a line of JSON when it ends or gets SIGTERM.
#[derive(Debug)]
pub struct Background<'a> {
    ws: &'a TestWorkspace<'a>,
    name: &'static str,
}

impl<'a> Background<'a> {
    /// Starts a program and waits until it has printed `begun`.
    pub fn start(ws: &'a TestWorkspace<'a>, name: &'static str, text: &str, arguments: &[&str]) -> Self {
        ws.write(&format!("/root/{name}.py"), text);
        let arguments = arguments.join(" ");
        ws.sh(&format!(
            "rm -f /root/{name}.out; nohup python3 /root/{name}.py {arguments} > /root/{name}.out 2>&1 & \
             echo $! > /root/{name}.pid"
        ));
        let started = Self { ws, name };
        eventually("the program in the guest has begun", LONG, || {
            let runs = !started.has_ended();
            let output = started.output();
            assert!(runs || output.contains("begun"), "{name} ended: {output}");
            output.contains("begun")
        });
        started
    }

    /// Whether the program has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.ws.exec(&format!("kill -0 $(cat /root/{}.pid)", self.name)).exit_code != 0
    }

    /// Waits until the program ends by itself, and returns its last line.
    pub fn wait(self, limit: Duration) -> Value {
        eventually("the program in the guest ends by itself", limit, || self.has_ended());
        self.last_line()
    }

    /// Sends SIGTERM and returns the last line of the program.
    pub fn end(self) -> Value {
        self.ws.exec(&format!("kill -TERM $(cat /root/{}.pid)", self.name));
        eventually("the program in the guest ends", LONG, || self.has_ended());
        self.last_line()
    }

    fn last_line(&self) -> Value {
        let output = self.output();
        let last = output.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{}: {error}: {output}", self.name))
    }

    fn output(&self) -> String {
        self.ws.sh(&format!("cat /root/{}.out", self.name))
    }
}
