//! The JSON of teams, their messages and their results in answers.

use agentiso_core::team::{Message, TaskResult};
use agentiso_daemon::{MemberInfo, Received, TeamInfo};
use serde_json::{Value, json};

use crate::tools::view::state;

pub(super) fn created(team: &TeamInfo) -> Value {
    let ids: Vec<Value> =
        team.members.iter().filter_map(|member| Some(json!(member.workspace.as_ref()?.id))).collect();
    json!({
        "action": "create",
        "name": team.name,
        "state": team.state.as_str(),
        "member_count": team.members.len(),
        "member_workspace_ids": ids,
        "max_vms": team.max_vms,
    })
}

pub(super) fn status(team: &TeamInfo) -> Value {
    json!({
        "action": "status",
        "name": team.name,
        "state": team.state.as_str(),
        "created_at": team.created_at.to_string(),
        "max_vms": team.max_vms,
        "parent_team": team.parent,
        "nesting_depth": team.nesting_depth,
        "members": team.members.iter().map(member).collect::<Vec<_>>(),
    })
}

fn member(member: &MemberInfo) -> Value {
    let vm = member.workspace.as_ref();
    json!({
        "name": member.name,
        "role": member.role,
        "workspace_id": vm.map(|vm| vm.id),
        "workspace_name": member.workspace_name,
        "ip": vm.map(|vm| vm.ip),
        "workspace_state": vm.map_or("destroyed", |vm| state(vm.state)),
        "agent_status": member.status.as_str(),
    })
}

pub(super) fn list(teams: &[TeamInfo]) -> Value {
    let one = |team: &TeamInfo| {
        json!({
            "name": team.name,
            "state": team.state.as_str(),
            "member_count": team.members.len(),
            "created_at": team.created_at.to_string(),
            "max_vms": team.max_vms,
        })
    };
    let teams: Vec<Value> = teams.iter().map(one).collect();
    json!({ "action": "list", "count": teams.len(), "teams": teams })
}

/// Results and pending tasks are members only if there are any.
pub(super) fn received(agent: &str, received: &Received) -> Value {
    let messages: Vec<Value> = received.messages.iter().map(message).collect();
    let mut view =
        json!({ "action": "receive", "agent": agent, "count": messages.len(), "messages": messages });
    if !received.results.is_empty() {
        view["daemon_results"] = received.results.iter().map(result).collect();
    }
    if received.pending > 0 {
        view["daemon_pending_tasks"] = received.pending.into();
    }
    view
}

fn message(message: &Message) -> Value {
    json!({
        "message_id": message.message_id.to_string(),
        "from": message.from,
        "to": message.to,
        "content": message.content,
        "message_type": message.message_type,
        "timestamp": message.timestamp.to_string(),
    })
}

fn result(result: &TaskResult) -> Value {
    json!({
        "task_id": result.task_id,
        "success": result.success,
        "exit_code": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "elapsed_secs": result.elapsed_secs,
        "source_message_id": result.source_message_id.to_string(),
    })
}
