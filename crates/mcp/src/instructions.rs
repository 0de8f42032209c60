//! What a client's model is told about this server when it connects.

use crate::profile::Profile;

pub(crate) fn render(profile: &Profile) -> String {
    let has = |name: &str| profile.tools().any(|tool| tool.name == name);
    let mut text = String::from(match profile.is_inside() {
        false => {
            "agentiso gives you workspaces: Linux virtual machines of your own, isolated from the host, from each other \
             and from the network. You are root in them.\n"
        }
        true => {
            "You are in a workspace of agentiso: a Linux virtual machine. These tools act on it, as root.\n"
        }
    });
    let mut line = |when: bool, words: &str| {
        if when {
            text.push_str("- ");
            text.push_str(words);
            text.push('\n');
        }
    };
    line(profile.is_read_only(), "This session may look but not change anything.");
    line(
        has("workspace_create"),
        "workspace_create makes one in seconds. Create one per task, use it for the whole task.",
    );
    line(profile.is_inside(), "workspace_id may be left out: it is always this machine.");
    line(
        profile.is_core() && !profile.is_inside(),
        "workspace_id may be left out while you own exactly one workspace.",
    );
    line(!profile.is_core(), "workspace_id takes the name or the UUID of a workspace.");
    line(
        has("exec"),
        "exec runs a shell command and waits for it. A non-zero exit_code is an answer, not an error. Each call is a \
         new shell: directory and variables do not carry over, files do.",
    );
    line(
        has("exec_background"),
        "exec_background is for servers and long work: start, poll, kill. Jobs go on without you.",
    );
    line(has("set_env"), "set_env gives variables to all later commands of a workspace.");
    line(
        has("file_write") || has("file_read"),
        "Paths are absolute; /workspace is the place for your work. The file tools need no shell quoting.",
    );
    line(
        has("snapshot"),
        "Before anything risky: snapshot create (it takes a moment, the workspace goes on). If it goes wrong: snapshot \
         restore. With include_memory running processes come back too.",
    );
    line(
        has("snapshot_create") && has("snapshot_restore"),
        "Before anything risky: snapshot_create (it takes a moment). If it goes wrong: snapshot_restore.",
    );
    line(
        has("workspace_fork"),
        "To try several ideas at once: workspace_fork makes new machines out of snapshots, in a moment. Keep the best, \
         destroy the rest.",
    );
    line(
        has("workspace_prepare") && has("swarm_run"),
        "For parallel work on a repository: workspace_prepare once, then swarm_run: a fork for each task, and what they \
         committed merged.",
    );
    line(
        has("team"),
        "team makes machines that stay together: members with roles, who reach each other, get messages and tasks, and \
         share a board.",
    );
    line(has("workspace_stop"), "workspace_stop keeps the disk, workspace_start brings it back.");
    line(
        has("workspace_adopt"),
        "Workspaces outlive a session: workspace_list shows all, workspace_adopt takes over old ones.",
    );
    line(has("workspace_destroy"), "workspace_destroy what you no longer need; nothing of it remains.");
    line(true, "A failed call says what to do next; several calls may run at once.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions are part of every conversation, so they stay small.
    const MAX_BYTES: usize = 2048;

    #[test]
    fn instructions_are_short_and_name_only_tools_that_are_offered() {
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
