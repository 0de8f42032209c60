//! Parameters that name something: a workspace, a snapshot, an image, a path in a guest.

use agentiso_core::names::{
    ImageName, MAX_NAME_LEN, MAX_PREFIX_LEN, NamePrefix, SnapshotName, WorkspaceName, WorkspaceRef,
};
use agentiso_core::paths::GuestPath;
use serde_json::{Map, Value, json};

use super::param::{Param, Parameter, parameter};
use super::words::string;

/// The JSON Schema of names of workspaces and images. It is short, because the tool list repeats it often.
pub(super) fn name_schema(longest: usize) -> Value {
    json!({ "type": "string", "pattern": format!(r"^[\w.-]{{1,{longest}}}$") })
}

/// A workspace, by name or UUID.
pub(crate) struct Workspace {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

impl Workspace {
    fn schema_of(&self) -> Value {
        json!({ "type": "string" })
    }
}

parameter!(Workspace);

impl Param for Workspace {
    type Output = WorkspaceRef;

    fn parse(&self, value: Value) -> Result<WorkspaceRef, Vec<String>> {
        let text = string(value)?;
        match WorkspaceRef::parse(&text) {
            id @ WorkspaceRef::Id(_) => Ok(id),
            WorkspaceRef::Name(name) => match WorkspaceName::parse(&name) {
                Ok(name) => Ok(WorkspaceRef::Name(name.as_str().to_owned())),
                Err(problem) => Err(vec![format!("must be a workspace's name or UUID ({problem})")]),
            },
        }
    }
}

/// The name of a workspace that is to be created.
pub(crate) struct NewName {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

impl NewName {
    fn schema_of(&self) -> Value {
        name_schema(MAX_NAME_LEN)
    }
}

parameter!(NewName);

impl Param for NewName {
    type Output = WorkspaceName;

    fn parse(&self, value: Value) -> Result<WorkspaceName, Vec<String>> {
        WorkspaceName::parse(&string(value)?)
            .map_err(|problem| vec![format!("is not a valid name: {problem}")])
    }
}

/// The name of a workspace's snapshot, existing or to be created.
pub(crate) struct Snapshot {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

impl Snapshot {
    fn schema_of(&self) -> Value {
        name_schema(MAX_NAME_LEN)
    }
}

parameter!(Snapshot);

impl Param for Snapshot {
    type Output = SnapshotName;

    fn parse(&self, value: Value) -> Result<SnapshotName, Vec<String>> {
        SnapshotName::parse(&string(value)?)
            .map_err(|problem| vec![format!("is not a valid snapshot name: {problem}")])
    }
}

/// The prefix of the names of several workspaces.
pub(crate) struct Prefix {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) default: &'static str,
}

impl Prefix {
    pub(crate) fn default_value(&self) -> Option<NamePrefix> {
        NamePrefix::parse(self.default).ok()
    }

    fn schema_of(&self) -> Value {
        let mut schema = name_schema(MAX_PREFIX_LEN);
        schema["default"] = self.default.into();
        schema
    }
}

parameter!(Prefix);

impl Param for Prefix {
    type Output = NamePrefix;

    fn parse(&self, value: Value) -> Result<NamePrefix, Vec<String>> {
        NamePrefix::parse(&string(value)?)
            .map_err(|problem| vec![format!("is not a valid prefix: {problem}")])
    }
}

/// The name of a base image.
pub(crate) struct Image {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

impl Image {
    fn schema_of(&self) -> Value {
        name_schema(MAX_NAME_LEN)
    }
}

parameter!(Image);

impl Param for Image {
    type Output = ImageName;

    fn parse(&self, value: Value) -> Result<ImageName, Vec<String>> {
        ImageName::parse(&string(value)?)
            .map_err(|problem| vec![format!("is not a valid image name: {problem}")])
    }
}

/// An absolute path in the guest.
pub(crate) struct GuestFile {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

impl GuestFile {
    fn schema_of(&self) -> Value {
        json!({ "type": "string", "pattern": "^/" })
    }
}

parameter!(GuestFile);

impl Param for GuestFile {
    type Output = GuestPath;

    fn parse(&self, value: Value) -> Result<GuestPath, Vec<String>> {
        GuestPath::parse(&string(value)?).map_err(|problem| vec![format!("cannot be used: {problem}")])
    }
}
