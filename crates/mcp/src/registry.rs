//! The table of tools: name, description, parameters and function of each.

use std::sync::Arc;

use agentiso_daemon::Session;
use futures::future::BoxFuture;
use rmcp::model::{Tool as ListedTool, ToolAnnotations};
use serde_json::{Map, Value};

use crate::answer::{Answer, Failure};
use crate::args::{Implied, Invalid, Reader, Slot, input_schema};
use crate::progress::Reporter;
use crate::tools;

/// All tools of this version, in the order in which they are listed.
pub(crate) const TOOLS: &[&Tool] = &[
    &tools::workspace_create::TOOL,
    &tools::workspace_destroy::TOOL,
    &tools::workspace_start::TOOL,
    &tools::workspace_stop::TOOL,
    &tools::workspace_list::TOOL,
    &tools::workspace_info::TOOL,
    &tools::workspace_logs::TOOL,
    &tools::workspace_adopt::TOOL,
    &tools::exec::TOOL,
    &tools::exec_background::TOOL,
    &tools::exec_parallel::TOOL,
    &tools::set_env::TOOL,
    &tools::file_read::TOOL,
    &tools::file_write::TOOL,
    &tools::file_edit::TOOL,
    &tools::file_list::TOOL,
    &tools::file_transfer::TOOL,
    &tools::snapshot::TOOL,
    &tools::workspace_fork::TOOL,
    &tools::network_policy::TOOL,
    &tools::port_forward::TOOL,
    &tools::git_clone::TOOL,
    &tools::git_status::TOOL,
    &tools::git_commit::TOOL,
    &tools::git_push::TOOL,
    &tools::git_diff::TOOL,
    &tools::workspace_merge::TOOL,
    &tools::workspace_prepare::TOOL,
    &tools::swarm_run::TOOL,
    &tools::vault::TOOL,
    &tools::team::TOOL,
];

/// Tools that do one action of a listed tool each, which is easier for small models. They are listed only if a profile
/// names them, and callable wherever the tool with the actions is offered.
pub(crate) const SINGLE_ACTIONS: &[&Tool] = &[
    &tools::snapshot_create::TOOL,
    &tools::snapshot_restore::TOOL,
    &tools::snapshot_list::TOOL,
    &tools::snapshot_delete::TOOL,
    &tools::snapshot_diff::TOOL,
];

/// Names of earlier versions: callable, and not listed by the profile `full`. Each with the tool that runs, and the listed tool that a profile
/// must offer for it.
pub(crate) const EARLIER: &[(&str, &Tool, &str)] = &[
    ("workspace_exec", &tools::exec::TOOL, "exec"),
    ("workspace_git_status", &tools::git_status::TOOL, "git_status"),
    ("exec_poll", &tools::exec_poll::TOOL, "exec_background"),
    ("exec_kill", &tools::exec_kill::TOOL, "exec_background"),
    ("file_upload", &tools::file_upload::TOOL, "file_transfer"),
    ("file_download", &tools::file_download::TOOL, "file_transfer"),
    ("port_forward_remove", &tools::port_forward_remove::TOOL, "port_forward"),
    ("workspace_ip", &tools::workspace_ip::TOOL, "workspace_info"),
    ("snapshot_create", &tools::snapshot_create::TOOL, "snapshot"),
    ("snapshot_restore", &tools::snapshot_restore::TOOL, "snapshot"),
    ("snapshot_list", &tools::snapshot_list::TOOL, "snapshot"),
    ("snapshot_delete", &tools::snapshot_delete::TOOL, "snapshot"),
    ("snapshot_diff", &tools::snapshot_diff::TOOL, "snapshot"),
];

/// Tools that contact hosts beyond the VM they work on.
const OPEN_WORLD: &[&str] = &["git_clone", "git_push", "workspace_prepare"];

/// Tools that run given commands inside a VM. Their effects stay in it unless workspaces are created with a network.
const RUN_COMMANDS: &[&str] = &["exec", "exec_background", "exec_parallel", "swarm_run", "workspace_fork"];

/// The context of a call, besides its arguments.
pub(crate) struct Call {
    pub(crate) session: Session,
    pub(crate) progress: Reporter,
    /// The workspace that is meant if none is named, in profiles that allow it.
    pub(crate) implied: Implied,
    /// Bytes of a file that one call may read.
    pub(crate) max_read: u64,
}

pub(crate) type Running = BoxFuture<'static, Result<Answer, Failure>>;

pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) slots: &'static [Slot],
    /// The JSON Schema of the structured form of success.
    pub(crate) output: fn() -> Value,
    pub(crate) hints: Hints,
    /// Parses all arguments and returns the work, which does not begin if any argument was wrong.
    pub(crate) prepare: fn(Reader, Call) -> Result<Running, Invalid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) read_only: bool,
    /// Whether something is lost for good. Changes inside a VM do not count: VMs and their snapshots exist for them.
    pub(crate) destructive: bool,
    pub(crate) idempotent: bool,
}

impl Hints {
    pub(crate) const READS: Self = Self { read_only: true, destructive: false, idempotent: true };
}

impl Tool {
    /// The tool as clients see it. The short form is for small models: the workspace may be left out, and there is no
    /// schema of the answer, which they do not read but pay for. `internet` says whether new workspaces may use the
    /// internet, and so what commands in them may reach.
    pub(crate) fn listed(&self, short: bool, internet: bool) -> ListedTool {
        let open_world = OPEN_WORLD.contains(&self.name) || (internet && RUN_COMMANDS.contains(&self.name));
        let annotations = ToolAnnotations::new()
            .read_only(self.hints.read_only)
            .destructive(self.hints.destructive)
            .idempotent(self.hints.idempotent)
            .open_world(open_world);
        let input = Arc::new(input_schema(self.slots, short));
        let listed = ListedTool::new(self.name, self.description, input)
            .with_title(self.title)
            .with_annotations(annotations);
        if short { listed } else { listed.with_raw_output_schema(Arc::new(output_schema((self.output)()))) }
    }
}

/// Members of answers that a model uses further, with their descriptions. Every client pays for the tool list, so all
/// other members are in docs/tools.md only.
const DESCRIBED_MEMBERS: &[(&str, &str)] = &[
    ("workspace_id", "UUID. Arguments also take the name."),
    ("state", "running, stopped or suspended."),
    ("ip", "IPv4 address."),
    ("exit_code", "128 + n after signal n."),
    ("stdout", "Cut if it has a line [TRUNCATED."),
    ("stderr", "Like stdout."),
    ("results", "One per workspace."),
    ("summary", "Counts."),
    ("snapshots", "Oldest first."),
    ("content", "The text."),
    ("size", "Bytes of the whole file."),
    ("diff", "Unified diff."),
    ("truncated", "The diff was cut."),
    ("conflicts", "Sources that failed, and why."),
];

/// The schema of a success. Nothing is required, because some clients check the structured content of failures against
/// the schema as well.
fn output_schema(mut properties: Value) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    if let Value::Object(properties) = &mut properties {
        properties.retain(|name, member| {
            let described = DESCRIBED_MEMBERS.iter().find(|(described, _)| described == name);
            let (Some((_, about)), None) = (described, member.get("optional")) else { return false };
            member["description"] = (*about).into();
            true
        });
        if !properties.is_empty() {
            schema.insert("properties".to_owned(), std::mem::take(properties).into());
        }
    }
    schema
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
    TOOLS.iter().map(|tool| tool.name)
}

/// Every tool that a profile can list, in listing order.
pub(crate) fn listable() -> impl Iterator<Item = &'static Tool> {
    TOOLS.iter().chain(SINGLE_ACTIONS).copied()
}

/// The tools that a call by this name may run, each with the listed tool that a profile must offer for it.
pub(crate) fn find(name: &str) -> impl Iterator<Item = (&'static Tool, &'static str)> {
    let listed = listable().filter(move |tool| tool.name == name).map(|tool| (tool, tool.name));
    let earlier = EARLIER
        .iter()
        .filter(move |(earlier, _, _)| *earlier == name)
        .map(|(_, tool, listed_as)| (*tool, *listed_as));
    listed.chain(earlier)
}
