//! The kinds of resources, and which of them a session offers.

use rmcp::model::{ErrorData, ResourceTemplate};

use super::uri::Uri;
use crate::profile::Profile;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceType {
    Workspace,
    File,
    Job,
    Note,
}

impl ResourceType {
    /// Whether changes can be subscribed to. Files and notes send no events when they change.
    pub(crate) fn can_be_followed(self) -> bool {
        match self {
            Self::Workspace | Self::Job => true,
            Self::File | Self::Note => false,
        }
    }
}

/// One kind of resource, as clients see it.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) resource_type: ResourceType,
    pub(crate) template: &'static str,
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    pub(crate) mime_type: Option<&'static str>,
    /// The kind is offered if one of these tools was chosen. Reading changes nothing, so a read-only session has it
    /// too.
    tools: &'static [&'static str],
}

const WORKSPACE: Kind = Kind {
    resource_type: ResourceType::Workspace,
    template: "agentiso://workspace/{name}",
    name: "workspace",
    title: "Workspace",
    about: "State, address, size, network policy, snapshots and disk use of a workspace, by its name or UUID.",
    mime_type: Some("application/json"),
    tools: &["workspace_info", "workspace_list", "workspace_create"],
};

const FILE: Kind = Kind {
    resource_type: ResourceType::File,
    template: "agentiso://workspace/{name}/file{+path}",
    name: "file",
    title: "File in a workspace",
    about: "A file of up to 32 MiB in a running workspace. The path begins with a slash.",
    mime_type: None,
    tools: &["file_read"],
};

const JOB: Kind = Kind {
    resource_type: ResourceType::Job,
    template: "agentiso://workspace/{name}/job/{id}",
    name: "job",
    title: "Job in a workspace",
    about: "Output so far of a job of exec_background, whether it is running, and its exit code.",
    mime_type: Some("application/json"),
    tools: &["exec_background"],
};

const NOTE: Kind = Kind {
    resource_type: ResourceType::Note,
    template: "agentiso://vault{+path}",
    name: "note",
    title: "Note",
    about: "A note in the vault. The path begins with a slash.",
    mime_type: Some("text/markdown"),
    tools: &["vault"],
};

pub(crate) const KINDS: [&Kind; 4] = [&WORKSPACE, &FILE, &JOB, &NOTE];

impl Kind {
    pub(super) fn of(uri: &Uri) -> &'static Self {
        match uri {
            Uri::Workspace(_) => &WORKSPACE,
            Uri::File(..) => &FILE,
            Uri::Job(..) => &JOB,
            Uri::Note(_) => &NOTE,
        }
    }

    fn is_offered(&self, profile: &Profile) -> bool {
        self.tools.iter().any(|tool| profile.was_chosen(tool))
    }

    pub(crate) fn listed(&self) -> ResourceTemplate {
        let template = ResourceTemplate::new(self.template, self.name)
            .with_title(self.title)
            .with_description(self.about);
        match self.mime_type {
            Some(mime_type) => template.with_mime_type(mime_type),
            None => template,
        }
    }
}

pub(crate) fn offered(profile: &Profile) -> impl Iterator<Item = &'static Kind> {
    KINDS.into_iter().filter(|kind| kind.is_offered(profile))
}

/// The kind that a template belongs to.
pub(crate) fn find(profile: &Profile, template: &str) -> Option<&'static Kind> {
    offered(profile).find(|kind| kind.template == template)
}

/// Parses an address of a kind that is offered.
pub(crate) fn parse(profile: &Profile, text: &str) -> Result<Uri, ErrorData> {
    let shown: String = text.chars().take(200).collect();
    let uri = Uri::parse(text)
        .map_err(|error| ErrorData::invalid_params(format!("invalid resource {shown:?}: {error}"), None))?;
    if !Kind::of(&uri).is_offered(profile) {
        return Err(ErrorData::invalid_params(format!("{shown:?} is not offered in this session"), None));
    }
    Ok(uri)
}
