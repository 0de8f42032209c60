//! Snapshots, restores and forks of a test workspace.

use serde_json::{Value, json};

use crate::client::ToolResult;
use crate::workspace::TestWorkspace;

impl<'a> TestWorkspace<'a> {
    /// Takes a snapshot of the disk.
    pub fn snapshot(&self, name: &str) -> ToolResult {
        self.tool("snapshot", json!({"action": "create", "name": name}))
    }

    /// Takes a snapshot of disk and memory, with the running processes.
    pub fn snapshot_with_memory(&self, name: &str) -> ToolResult {
        self.tool("snapshot", json!({"action": "create", "name": name, "include_memory": true}))
    }

    /// Restores a snapshot. All later changes are lost; the workspace runs afterwards.
    pub fn restore(&self, name: &str) -> ToolResult {
        self.tool("snapshot", json!({"action": "restore", "name": name}))
    }

    pub fn delete_snapshot(&self, name: &str) {
        self.tool("snapshot", json!({"action": "delete", "name": name}));
    }

    /// All snapshots, the oldest first.
    pub fn snapshots(&self) -> Vec<Value> {
        let list = self.tool("snapshot", json!({"action": "list"})).json();
        list.as_array().unwrap_or_else(|| panic!("not a list: {list}")).clone()
    }

    pub fn snapshot_names(&self) -> Vec<String> {
        let name =
            |one: &Value| one["name"].as_str().unwrap_or_else(|| panic!("no name in {one}")).to_owned();
        self.snapshots().iter().map(name).collect()
    }

    /// Forks one new workspace from the snapshot.
    pub fn fork(&self, snapshot: &str) -> TestWorkspace<'a> {
        self.fork_with(snapshot, json!({}))
    }

    /// Like [`Self::fork`], with more arguments, such as `new_name` or `setup_commands`.
    pub fn fork_with(&self, snapshot: &str, mut arguments: Value) -> TestWorkspace<'a> {
        arguments["snapshot_name"] = json!(snapshot);
        TestWorkspace::new(self.client, self.tool("workspace_fork", arguments).json())
    }

    /// Forks several workspaces at once, named `PREFIX-1` and so on. All must succeed.
    pub fn fork_many(&self, snapshot: &str, count: usize, prefix: &str) -> Vec<TestWorkspace<'a>> {
        let arguments = json!({"snapshot_name": snapshot, "count": count, "name_prefix": prefix});
        let answer = self.tool("workspace_fork", arguments).json();
        let workers = answer["workers"].as_array().unwrap_or_else(|| panic!("no workers in {answer}"));
        assert_eq!(workers.len(), count, "some forks failed: {}", answer["failures"]);
        workers.iter().map(|worker| TestWorkspace::new(self.client, worker.clone())).collect()
    }
}
