//! A workspace that one client owns, with the calls that tests make most.

use serde_json::{Value, json};

use crate::client::{Client, ToolResult};

#[derive(Debug)]
pub struct TestWorkspace<'a> {
    pub(crate) client: &'a Client,
    pub id: String,
    pub name: String,
    pub created: Value,
}

#[derive(Clone, Debug)]
pub struct Output {
    pub exit_code: i64,
    pub stdout: String,
    pub stderr: String,
}

impl<'a> TestWorkspace<'a> {
    pub(crate) fn new(client: &'a Client, created: Value) -> Self {
        let text =
            |key: &str| created[key].as_str().unwrap_or_else(|| panic!("no {key} in {created}")).to_owned();
        Self { client, id: text("workspace_id"), name: text("name"), created: created.clone() }
    }

    /// Calls a tool on this workspace with more arguments.
    pub fn tool(&self, name: &str, more: Value) -> ToolResult {
        self.client.tool(name, self.with_id(more))
    }

    pub fn tool_error(&self, name: &str, more: Value) -> ToolResult {
        self.client.tool_error(name, self.with_id(more))
    }

    pub fn with_id(&self, mut arguments: Value) -> Value {
        arguments["workspace_id"] = json!(self.id);
        arguments
    }

    /// Runs a command and returns its output, up to 256 KiB per stream.
    pub fn exec(&self, command: &str) -> Output {
        self.exec_with(json!({ "command": command, "max_output_bytes": 262_144 }))
    }

    pub fn exec_with(&self, arguments: Value) -> Output {
        let answer = self.tool("exec", arguments).json();
        let text =
            |key: &str| answer[key].as_str().unwrap_or_else(|| panic!("no {key} in {answer}")).to_owned();
        Output {
            exit_code: answer["exit_code"].as_i64().unwrap_or_else(|| panic!("no exit_code in {answer}")),
            stdout: text("stdout"),
            stderr: text("stderr"),
        }
    }

    /// Runs a command that must exit with 0 and returns its output without the last newline.
    pub fn sh(&self, command: &str) -> String {
        let output = self.exec(command);
        assert_eq!(output.exit_code, 0, "{command}: {output:?}");
        output.stdout.trim_end_matches('\n').to_owned()
    }

    pub fn write(&self, path: &str, content: &str) {
        self.tool("file_write", json!({"path": path, "content": content}));
    }

    pub fn read(&self, path: &str) -> String {
        self.tool("file_read", json!({ "path": path })).text
    }

    pub fn info(&self) -> Value {
        self.tool("workspace_info", json!({})).json()
    }

    pub fn state(&self) -> String {
        self.info()["state"].as_str().expect("info has a state").to_owned()
    }

    pub fn stop(&self) {
        self.tool("workspace_stop", json!({})).mentions(&["stopped"]);
    }

    pub fn start(&self) {
        self.tool("workspace_start", json!({})).mentions(&["started"]);
    }

    pub fn destroy(self) {
        self.tool("workspace_destroy", json!({})).mentions(&["destroyed"]);
    }
}
