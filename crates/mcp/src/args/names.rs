//! Parameters that name something: a workspace, a snapshot, an image, a team, a path in a guest.

use agentiso_core::names::{
    ImageName, MAX_NAME_LEN, MAX_PREFIX_LEN, NamePrefix, SnapshotName, TaskName, WorkspaceName, WorkspaceRef,
};
use agentiso_core::paths::GuestPath;
use agentiso_core::team::{RoleName, TeamName};
use serde_json::{Value, json};

use super::word::Word;

/// The JSON Schema of names of workspaces and images. It is short, because the tool list repeats it often.
pub(super) fn name_schema(longest: usize) -> Value {
    json!({ "type": "string", "pattern": format!(r"^[\w.-]{{1,{longest}}}$") })
}

/// A workspace, by name or UUID.
pub(crate) type Workspace = Word<WorkspaceRef>;

impl Workspace {
    pub(crate) const fn new(name: &'static str, about: &'static str) -> Self {
        Self::of(name, about, |text| match WorkspaceRef::parse(text) {
            id @ WorkspaceRef::Id(_) => Ok(id),
            WorkspaceRef::Name(name) => match WorkspaceName::parse(&name) {
                Ok(name) => Ok(WorkspaceRef::Name(name.as_str().to_owned())),
                Err(problem) => Err(format!("must be a workspace's name or UUID ({problem})")),
            },
        })
    }
}

/// The name of a workspace that is to be created.
pub(crate) type NewName = Word<WorkspaceName>;

impl NewName {
    pub(crate) const fn new(name: &'static str, about: &'static str) -> Self {
        let parse = |text: &str| {
            WorkspaceName::parse(text).map_err(|problem| format!("is not a valid name: {problem}"))
        };
        Self { text: || name_schema(MAX_NAME_LEN), ..Self::of(name, about, parse) }
    }
}

/// The name of a workspace's snapshot, existing or to be created.
pub(crate) type Snapshot = Word<SnapshotName>;

impl Snapshot {
    pub(crate) const fn new(name: &'static str, about: &'static str) -> Self {
        let parse = |text: &str| {
            SnapshotName::parse(text).map_err(|problem| format!("is not a valid snapshot name: {problem}"))
        };
        Self { text: || name_schema(MAX_NAME_LEN), ..Self::of(name, about, parse) }
    }
}

/// The prefix of the names of several workspaces.
pub(crate) type Prefix = Word<NamePrefix>;

impl Prefix {
    pub(crate) const fn new(name: &'static str, about: &'static str, default: &'static str) -> Self {
        let parse = |text: &str| {
            NamePrefix::parse(text).map_err(|problem| format!("is not a valid prefix: {problem}"))
        };
        let text = || name_schema(MAX_PREFIX_LEN);
        Self { text, default: Some(default), ..Self::of(name, about, parse) }
    }

    pub(crate) fn default_value(&self) -> Option<NamePrefix> {
        NamePrefix::parse(self.default?).ok()
    }
}

/// The name of a base image.
pub(crate) type Image = Word<ImageName>;

impl Image {
    pub(crate) const fn new(name: &'static str, about: &'static str) -> Self {
        let parse = |text: &str| {
            ImageName::parse(text).map_err(|problem| format!("is not a valid image name: {problem}"))
        };
        Self { text: || name_schema(MAX_NAME_LEN), ..Self::of(name, about, parse) }
    }
}

/// An absolute path in the guest.
pub(crate) type GuestFile = Word<GuestPath>;

impl GuestFile {
    pub(crate) const fn new(name: &'static str, about: &'static str) -> Self {
        let parse =
            |text: &str| GuestPath::parse(text).map_err(|problem| format!("cannot be used: {problem}"));
        Self { text: || json!({ "type": "string", "pattern": "^/" }), ..Self::of(name, about, parse) }
    }
}

/// The name of a team. Its schema does not describe the form, because every client pays for schemas.
pub(crate) type Team = Word<TeamName>;

impl Team {
    pub(crate) const fn new(name: &'static str, about: &'static str) -> Self {
        Self::of(name, about, |text| {
            TeamName::parse(text).map_err(|problem| format!("is not a valid name: {problem}"))
        })
    }
}

/// The name of a task of a swarm.
pub(super) const TASK_NAME: Word<TaskName> = Word::of("name", "", |text| {
    TaskName::parse(text).map_err(|problem| format!("is not a valid name: {problem}"))
});

/// The name of a member of a team.
pub(super) const ROLE_NAME: Word<RoleName> = Word::of("name", "", |text| {
    RoleName::parse(text).map_err(|problem| format!("is not a valid name: {problem}"))
});
