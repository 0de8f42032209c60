//! The tools that a session offers. They are chosen when the session begins and do not change, so that `tools/list`
//! stays true for the client.

use agentiso_core::suggest::nearest;
use thiserror::Error;

use crate::registry::{self, Tool};
use crate::tools::MAX_FILE;

/// The tools for small models.
const CORE: &[&str] = &[
    "workspace_create",
    "exec",
    "file_write",
    "file_read",
    "file_list",
    "snapshot_create",
    "snapshot_restore",
    "workspace_destroy",
];

/// Tools of a session from inside a workspace: things that root in the guest could do anyway, and what the daemon knows
/// about this one VM. Nothing in it reaches the host, its disk, other VMs or the VM's own isolation.
const INSIDE: &[&str] = &[
    "workspace_info",
    "workspace_logs",
    "exec",
    "exec_background",
    "set_env",
    "file_read",
    "file_write",
    "file_edit",
    "file_list",
    "git_clone",
    "git_status",
    "git_commit",
    "git_push",
    "git_diff",
];

/// In an answer, a file takes several times its size of the daemon's memory. Programs in a guest must not be able to
/// use much of it.
const MAX_READ_INSIDE: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    #[error("tools must be \"full\", \"core\" or a list of tool names, not empty")]
    Empty,
    #[error("unknown tool {wanted:?}{}; the tools are {known}", .nearest.map(|n| format!(" (did you mean {n}?)")).unwrap_or_default())]
    UnknownTool { wanted: String, nearest: Option<&'static str>, known: String },
}

/// The choice made by `--tools` and `--read-only`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    tools: Vec<&'static str>,
    /// All tools that were asked for, including those that `--read-only` removed.
    chosen: Vec<&'static str>,
    core: bool,
    read_only: bool,
    inside: bool,
}

impl Profile {
    /// Parses `full`, `core`, or names separated by commas; `core` and `full` may be among the names.
    pub fn parse(tools: &str, read_only: bool) -> Result<Self, ProfileError> {
        let words: Vec<&str> = tools.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        if words.is_empty() {
            return Err(ProfileError::Empty);
        }
        let mut wanted: Vec<&str> = Vec::new();
        for word in &words {
            match *word {
                "full" => wanted.extend(registry::names()),
                "core" => wanted.extend(CORE),
                name => match registry::find(name).next() {
                    Some((_, listed_as)) => wanted.push(listed_as),
                    None => {
                        return Err(ProfileError::UnknownTool {
                            wanted: name.chars().take(80).collect(),
                            nearest: nearest(name, registry::names()),
                            known: registry::names().collect::<Vec<_>>().join(", "),
                        });
                    }
                },
            }
        }
        // In the registry's order, not in that of the words: the same choice gives the same list.
        let chosen = || registry::listable().filter(|tool| wanted.contains(&tool.name));
        let tools =
            chosen().filter(|tool| !read_only || tool.hints.read_only).map(|tool| tool.name).collect();
        let chosen = chosen().map(|tool| tool.name).collect();
        Ok(Self { tools, chosen, core: words.contains(&"core"), read_only, inside: false })
    }

    /// For a session that is bound to the workspace it comes from. Such a session cannot choose another profile.
    pub(crate) fn inside() -> Self {
        let tools: Vec<_> =
            registry::listable().map(|tool| tool.name).filter(|name| INSIDE.contains(name)).collect();
        Self { chosen: tools.clone(), tools, core: true, read_only: false, inside: true }
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &'static Tool> + '_ {
        registry::listable().filter(|tool| self.tools.contains(&tool.name))
    }

    pub(crate) fn offers(&self, name: &str) -> bool {
        self.tools.contains(&name)
    }

    /// Whether a tool was asked for, even if `--read-only` removed it.
    pub(crate) fn was_chosen(&self, name: &str) -> bool {
        self.chosen.contains(&name)
    }

    /// The tool that a call by this name runs; the name may be one of earlier versions.
    pub(crate) fn find(&self, name: &str) -> Option<&'static Tool> {
        registry::find(name).find(|(_, listed_as)| self.tools.contains(listed_as)).map(|(tool, _)| tool)
    }

    /// Whether the profile is for small models: tools are listed in their short form, and the workspace may be left out
    /// while the session owns exactly one.
    pub(crate) fn is_core(&self) -> bool {
        self.core
    }

    /// Bytes of a file that one call may read.
    pub(crate) fn max_read(&self) -> u64 {
        if self.inside { MAX_READ_INSIDE } else { MAX_FILE }
    }

    pub(crate) fn is_inside(&self) -> bool {
        self.inside
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tools: &str, read_only: bool) -> Vec<&'static str> {
        Profile::parse(tools, read_only).unwrap().tools().map(|tool| tool.name).collect()
    }

    #[test]
    fn core_profile_can_be_extended_by_name() {
        let mut core = CORE.to_vec();
        let mut listed = names("core", false);
        core.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, core);
        assert!(names("core, workspace_fork", false).contains(&"workspace_fork"));
        assert!(Profile::parse("core,exec", false).unwrap().is_core());
        assert!(!Profile::parse("full", false).unwrap().is_core());
    }

    #[test]
    fn read_only_profile_offers_only_reading_tools() {
        assert_eq!(
            names("full", true),
            [
                "workspace_list",
                "workspace_info",
                "workspace_logs",
                "file_read",
                "file_list",
                "git_status",
                "git_diff"
            ]
        );
    }

    #[test]
    fn inside_profile_offers_no_host_tools() {
        let inside = Profile::inside();
        assert_eq!(inside.tools().count(), INSIDE.len());
        let refused = [
            "workspace_create",
            "workspace_destroy",
            "workspace_fork",
            "workspace_adopt",
            "workspace_list",
            "workspace_start",
            "workspace_stop",
            "team",
            "swarm_run",
            "workspace_merge",
            "exec_parallel",
            "file_transfer",
            "file_upload",
            "file_download",
            "workspace_prepare",
            "network_policy",
            "port_forward",
            "vault",
            "snapshot",
            "snapshot_create",
            "snapshot_restore",
            "snapshot_delete",
        ];
        assert!(refused.iter().all(|name| inside.find(name).is_none()));
        assert!(inside.find("workspace_exec").is_some() && inside.find("exec_poll").is_some());
    }

    #[test]
    fn earlier_names_follow_their_current_tool() {
        let reading = Profile::parse("full", true).unwrap();
        assert!(reading.find("workspace_exec").is_none());
        assert_eq!(reading.find("workspace_ip").map(|tool| tool.name), Some("workspace_ip"));
        assert_eq!(
            Profile::parse("core", false).unwrap().find("workspace_exec").map(|t| t.name),
            Some("exec")
        );
        assert!(Profile::parse("exec", false).unwrap().find("workspace_ip").is_none());
    }

    #[test]
    fn single_actions_are_listed_only_when_named() {
        let callable = |tools: &str, name: &str| Profile::parse(tools, false).unwrap().find(name).is_some();
        assert!(!names("full", false).contains(&"snapshot_create"));
        assert!(callable("full", "snapshot_create") && callable("snapshot", "snapshot_delete"));
        assert!(!callable("core", "snapshot") && !callable("core", "snapshot_delete"));
        assert_eq!(names("snapshot_list,exec", false), ["exec", "snapshot_list"]);
        assert!(!callable("snapshot_list,exec", "snapshot") && !callable("exec", "snapshot_list"));
        assert_eq!(names("full,snapshot_diff", true).last(), Some(&"snapshot_diff"));
        assert!(Profile::parse("full", true).unwrap().find("snapshot_restore").is_none());
    }

    #[test]
    fn unknown_profile_name_suggests_the_nearest() {
        let error = Profile::parse("core,exce", false).unwrap_err();
        assert!(error.to_string().contains("did you mean exec?"), "{error}");
        assert_eq!(Profile::parse(" , ", false), Err(ProfileError::Empty));
    }
}
