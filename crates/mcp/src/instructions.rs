//! The instructions that a client's model gets about this server when it connects.

use crate::profile::Profile;

pub(crate) fn render(profile: &Profile) -> String {
    let has = |name: &str| profile.tools().any(|tool| tool.name == name);
    let mut text = String::from(match profile.is_inside() {
        false => {
            "agentiso gives you workspaces: Linux virtual machines, isolated from the host, from each other and from the \
             network. You are root in them.\n"
        }
        true => "You are in an agentiso workspace, a Linux virtual machine. These tools act on it as root.\n",
    });
    let mut line = |when: bool, words: &str| {
        if when {
            text.push_str("- ");
            text.push_str(words);
            text.push('\n');
        }
    };
    line(profile.is_read_only(), "This session is read-only.");
    line(
        has("workspace_create"),
        "Create one workspace per task with workspace_create and use it for the whole task.",
    );
    line(profile.is_inside(), "Leave out workspace_id: it is always this workspace.");
    line(
        profile.is_core() && !profile.is_inside(),
        "workspace_id is optional while you own exactly one workspace.",
    );
    line(!profile.is_core(), "workspace_id takes the name or the UUID of a workspace.");
    line(
        has("exec"),
        "exec runs a shell command and waits for it. A non-zero exit_code is a result, not an error. Each call is a new \
         shell: files persist, directory and variables do not.",
    );
    line(
        has("exec_background"),
        "Use exec_background for servers and long commands: start, poll, kill. Jobs outlive your session.",
    );
    line(has("set_env"), "set_env sets variables for all later commands in a workspace.");
    line(
        has("file_write") || has("file_read"),
        "Use absolute paths; work in /workspace. The file tools need no shell quoting.",
    );
    line(
        has("snapshot"),
        "Before anything risky: snapshot create (fast; the workspace keeps running). If it goes wrong: snapshot restore. \
         With include_memory it brings back running processes too.",
    );
    line(
        has("snapshot_create") && has("snapshot_restore"),
        "Before anything risky: snapshot_create (fast). If it goes wrong: snapshot_restore.",
    );
    line(
        has("workspace_fork"),
        "To try several ideas at once, create workspaces from snapshots with workspace_fork (fast). Keep the best, destroy \
         the rest.",
    );
    line(
        has("workspace_prepare") && has("swarm_run"),
        "For parallel work on a repository: workspace_prepare once, then swarm_run, which runs each task in a fork and can \
         merge their commits.",
    );
    line(
        has("team"),
        "team creates one workspace per role. Members can reach each other, get messages and tasks, and share a task \
         board.",
    );
    line(has("workspace_stop"), "workspace_stop keeps the disk; workspace_start boots it again.");
    line(
        has("workspace_adopt"),
        "Workspaces outlive sessions: workspace_list shows all, workspace_adopt takes over old ones.",
    );
    line(
        has("workspace_destroy"),
        "Delete what you no longer need with workspace_destroy; this is permanent.",
    );
    line(true, "A failed call says what to do next; several calls may run at once.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions are part of every conversation, so they stay small.
    const MAX_BYTES: usize = 2048;

    #[test]
    fn instructions_name_only_offered_tools() {
        let mut profiles = vec![("inside", Profile::inside())];
        for (tools, read_only) in [
            ("full", false),
            ("core", false),
            ("full", true),
            ("exec", false),
            ("core,workspace_fork", false),
        ] {
            profiles.push((tools, Profile::parse(tools, read_only).unwrap()));
        }
        for (tools, profile) in profiles {
            let text = render(&profile);
            assert!(text.len() < MAX_BYTES, "{tools}: {} bytes", text.len());
            for tool in crate::registry::listable().map(|tool| tool.name) {
                let offered = profile.tools().any(|t| t.name == tool);
                let named =
                    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|word| word == tool);
                assert!(offered || !named, "{tools}: {tool} is named but not offered");
            }
        }
    }
}
