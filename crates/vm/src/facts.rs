//! Facts about the host, its templates and its processes.

use std::ffi::OsStr;
use std::path::PathBuf;

use agentiso_core::ids::WorkspaceId;
use agentiso_sys::process::VmRecord;
use serde::{Deserialize, Serialize};

/// The means by which this host runs VMs, and why these were chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    pub accelerator: String,
    pub accelerator_reason: String,
    pub qemu_version: String,
    pub transport: String,
    pub storage: String,
    pub network: String,
    /// The jail that confines a QEMU process, even one that was broken into.
    #[serde(default)]
    pub jail: String,
    /// Details of the jail, or the reason why there is none.
    #[serde(default)]
    pub jail_reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateInfo {
    pub key: String,
    /// The kind of VM it restores: `bare` or an image's name.
    pub kind: String,
    pub vcpus: u32,
    pub memory_mb: u32,
    pub disk_gb: Option<u32>,
    pub bytes: u64,
}

/// The beginning of the name of a run directory in which a template is made.
pub const TEMPLATE_BUILD: &str = "t-";

/// A VM process that looks like one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    pub record: VmRecord,
    pub id: WorkspaceId,
    pub run_dir: PathBuf,
}

impl Stray {
    /// Whether it was started to make a template, so that it holds no data of a workspace.
    pub fn is_template_build(&self) -> bool {
        let name = self.run_dir.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.starts_with(TEMPLATE_BUILD))
    }
}
