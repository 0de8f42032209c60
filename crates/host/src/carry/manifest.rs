//! The manifest of an exported file, and the limits that an untrusted one must obey. Nothing here touches a file.

use std::collections::BTreeMap;
use std::fmt;

use agentiso_core::resources::Resources;
use agentiso_vm::{Carried, Facts};
use serde::{Deserialize, Serialize};

use super::error::Flaw;
use crate::qemu::ram;
use crate::templates::key::{Inputs, TemplateKind};

/// Raised when an older agentiso would misread a file.
pub const FORMAT: u32 = 1;

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const HASHES: &str = "hashes.json";

/// A manifest has about two KB.
pub(super) const MAX_MANIFEST: u64 = 256 << 10;

/// Enough for five hashes.
pub(super) const MAX_HASHES: u64 = 16 << 10;

/// Device state has about 100 KB.
const MAX_DEVICE_STATE: u64 = 64 << 20;

const MAX_MEMORY_MANIFEST: u64 = 256 << 10;

/// The longest text that is kept as the exporter wrote it.
const MAX_TEXT: usize = 256;

/// The largest qcow2 file of a disk: its data, tables of 8 bytes and refcounts of 2 for every cluster of 64 KiB, the
/// tables of these, and a header.
fn largest_disk(virtual_bytes: u64) -> u64 {
    virtual_bytes + virtual_bytes / 4096 + (4 << 20)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub agentiso_version: String,
    pub exported_at: jiff::Timestamp,
    #[serde(rename = "machine")]
    pub vm: Facts,
    /// The inputs a host must have to use the memory; `None` for a snapshot without memory.
    #[serde(default)]
    pub memory: Option<Inputs>,
    /// The members after the manifest, in this order.
    pub members: Vec<MemberSize>,
}

impl From<Manifest> for Carried {
    fn from(manifest: Manifest) -> Self {
        Self { has_memory: manifest.has_memory(), content_bytes: manifest.content_bytes(), vm: manifest.vm }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSize {
    pub name: Member,
    pub bytes: u64,
}

/// A member of the archive, besides the manifest and the hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Member {
    #[serde(rename = "disk.qcow2")]
    Disk,
    #[serde(rename = "memory/ram")]
    Ram,
    #[serde(rename = "memory/device-state")]
    DeviceState,
    #[serde(rename = "memory/manifest.json")]
    MemoryManifest,
}

impl Member {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "disk.qcow2",
            Self::Ram => "memory/ram",
            Self::DeviceState => "memory/device-state",
            Self::MemoryManifest => "memory/manifest.json",
        }
    }

    /// All members, in their order.
    pub(super) fn of(has_memory: bool) -> &'static [Self] {
        match has_memory {
            true => &[Self::Disk, Self::Ram, Self::DeviceState, Self::MemoryManifest],
            false => &[Self::Disk],
        }
    }

    fn may_have(self, bytes: u64, resources: &Resources) -> bool {
        match self {
            Self::Disk => (1..=largest_disk(u64::from(resources.disk_gb) << 30)).contains(&bytes),
            Self::Ram => bytes == ram::bytes(resources.memory_mb),
            Self::DeviceState => (1..=MAX_DEVICE_STATE).contains(&bytes),
            Self::MemoryManifest => (1..=MAX_MEMORY_MANIFEST).contains(&bytes),
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Manifest {
    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// The size of all members together.
    pub fn content_bytes(&self) -> u64 {
        // The sum cannot overflow, because every size was checked against what a VM can have.
        self.members.iter().map(|member| member.bytes).sum()
    }

    pub(super) fn bytes_of(&self, member: Member) -> u64 {
        self.members.iter().find(|size| size.name == member).map_or(0, |size| size.bytes)
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self, Flaw> {
        // The format is checked first, because a newer manifest may differ in every other field.
        #[derive(Deserialize)]
        struct Versioned {
            format: u64,
        }
        let versioned: Versioned =
            serde_json::from_slice(text).map_err(|error| Flaw::Foreign(error.to_string()))?;
        if versioned.format > u64::from(FORMAT) {
            return Err(Flaw::Newer { found: versioned.format });
        }
        if versioned.format != u64::from(FORMAT) {
            return Err(Flaw::Foreign(format!("unknown format {}", versioned.format)));
        }
        let manifest: Self =
            serde_json::from_slice(text).map_err(|error| Flaw::Manifest(error.to_string()))?;
        manifest.checked().map_err(Flaw::Manifest)
    }

    fn checked(self) -> Result<Self, String> {
        let resources = &self.vm.resources;
        if resources.vcpus == 0 || resources.memory_mb == 0 || resources.disk_gb == 0 {
            return Err("the VM has no processor, memory or disk".to_owned());
        }
        for text in [&self.agentiso_version, &self.vm.image_id, &self.vm.init_mode] {
            if text.len() > MAX_TEXT || text.chars().any(char::is_control) {
                return Err(format!("invalid name {:?}", text.chars().take(MAX_TEXT).collect::<String>()));
            }
        }
        let names: Vec<Member> = self.members.iter().map(|member| member.name).collect();
        if names != Member::of(self.has_memory()) {
            return Err("the members are not those of an exported snapshot".to_owned());
        }
        for MemberSize { name, bytes } in &self.members {
            if !name.may_have(*bytes, resources) {
                return Err(format!("{name} of this VM cannot have {bytes} bytes"));
            }
        }
        if let Some(memory) = &self.memory {
            let of_vm = memory.vcpus == resources.vcpus && memory.memory_mb == resources.memory_mb;
            if !of_vm || memory.kind != TemplateKind::Snapshot {
                return Err("the memory does not belong to this VM".to_owned());
            }
        }
        Ok(self)
    }
}

/// SHA-256 of the manifest and of every member, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Hashes(BTreeMap<String, String>);

impl Hashes {
    pub(super) fn parse(text: &[u8]) -> Result<Self, Flaw> {
        serde_json::from_slice(text).map_err(|error| Flaw::Hashes(error.to_string()))
    }

    pub(super) fn add(&mut self, name: &str, sha256: String) {
        self.0.insert(name.to_owned(), sha256);
    }

    /// Compares the computed hashes with those in the file, which must be of the same members.
    pub(super) fn compare(&self, said: &Self) -> Result<(), Flaw> {
        for (name, sha256) in &self.0 {
            match said.0.get(name) {
                Some(said) if said == sha256 => {}
                Some(_) => return Err(Flaw::Altered(name.clone())),
                None => return Err(Flaw::Hashes(format!("no hash of {name}"))),
            }
        }
        match self.0.len() == said.0.len() {
            true => Ok(()),
            false => Err(Flaw::Hashes("there are hashes of files that it does not contain".to_owned())),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName};

    use super::*;
    use crate::qemu::argv::Shape;
    use crate::templates::key::tests::host_inputs;

    pub(in crate::carry) const RESOURCES: Resources = Resources { vcpus: 1, memory_mb: 1, disk_gb: 1 };

    pub(in crate::carry) fn inputs() -> Inputs {
        let shape = Shape { vcpus: RESOURCES.vcpus, memory_mb: RESOURCES.memory_mb };
        Inputs::new(&host_inputs(), shape, TemplateKind::Snapshot)
    }

    pub(in crate::carry) fn facts() -> Facts {
        Facts {
            workspace: WorkspaceName::parse("box").unwrap(),
            snapshot: SnapshotName::parse("ready").unwrap(),
            taken_at: jiff::Timestamp::UNIX_EPOCH,
            resources: RESOURCES,
            image: ImageName::parse("debian-dev").unwrap(),
            image_id: "abc".to_owned(),
            image_virtual_bytes: 1 << 30,
            init_mode: "fast".to_owned(),
        }
    }

    /// The manifest of a VM with this size of disk, and of memory if it has any.
    pub(in crate::carry) fn manifest(disk_bytes: u64, memory: Option<(u64, u64)>) -> Manifest {
        let mut members = vec![MemberSize { name: Member::Disk, bytes: disk_bytes }];
        if let Some((device_state, manifest)) = memory {
            members.push(MemberSize { name: Member::Ram, bytes: 1 << 20 });
            members.push(MemberSize { name: Member::DeviceState, bytes: device_state });
            members.push(MemberSize { name: Member::MemoryManifest, bytes: manifest });
        }
        Manifest {
            format: FORMAT,
            agentiso_version: "0.1.0".to_owned(),
            exported_at: jiff::Timestamp::UNIX_EPOCH,
            vm: facts(),
            memory: memory.map(|_| inputs()),
            members,
        }
    }

    fn text(manifest: &Manifest) -> String {
        serde_json::to_string_pretty(manifest).unwrap()
    }

    #[test]
    fn export_manifest_round_trips() {
        for manifest in [manifest(5, None), manifest(5, Some((6, 7)))] {
            assert_eq!(Manifest::parse(text(&manifest).as_bytes()).unwrap(), manifest);
        }
    }

    #[test]
    fn member_names_serialize_as_archive_names() {
        for member in Member::of(true) {
            assert_eq!(serde_json::to_value(member).unwrap(), member.as_str());
        }
    }

    #[test]
    fn newer_manifest_format_is_reported() {
        let refusal = Manifest::parse(br#"{"format": 2, "machine": "something else"}"#).unwrap_err();
        let words = "it has format 2, but this agentiso reads formats up to 1; use a newer agentiso";
        assert_eq!(refusal.to_string(), words);
        assert!(matches!(Manifest::parse(br#"{"format": 0}"#), Err(Flaw::Foreign(_))));
        assert!(matches!(Manifest::parse(b"[]"), Err(Flaw::Foreign(_))));
        assert!(matches!(Manifest::parse(br#"{"format": 1}"#), Err(Flaw::Manifest(_))));
    }

    #[test]
    fn impossible_manifest_values_are_refused() {
        let changes: [fn(&mut Manifest); 15] = [
            |m| m.vm.resources.vcpus = 0,
            |m| m.vm.resources.disk_gb = 0,
            |m| m.members[0].bytes = 0,
            |m| m.members[0].bytes = 2 << 30,
            |m| m.members[0].bytes = u64::MAX,
            |m| m.members[1].bytes += 1,
            |m| m.members[2].bytes = u64::MAX,
            |m| m.members[3].bytes = u64::MAX,
            |m| m.members.swap(0, 1),
            |m| m.members.truncate(3),
            |m| m.members.push(m.members[0]),
            |m| m.memory = None,
            |m| m.memory.as_mut().unwrap().memory_mb += 1,
            |m| m.memory.as_mut().unwrap().kind = TemplateKind::Bare,
            |m| m.vm.image_id = "\x1b[2J".to_owned(),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut changed = manifest(5, Some((6, 7)));
            change(&mut changed);
            let refused = Manifest::parse(text(&changed).as_bytes());
            assert!(matches!(refused, Err(Flaw::Manifest(_))), "{index}: {refused:?}");
        }
    }

    #[test]
    fn manifest_refuses_names_with_paths() {
        let plain = text(&manifest(5, None));
        for (from, to) in [
            ("disk.qcow2", "../disk.qcow2"),
            ("disk.qcow2", "/etc/passwd"),
            ("\"box\"", "\"../box\""),
            ("\"ready\"", "\"a/b\""),
            ("\"debian-dev\"", "\"..\""),
        ] {
            assert!(plain.contains(from), "{from}");
            let refused = Manifest::parse(plain.replace(from, to).as_bytes());
            assert!(matches!(refused, Err(Flaw::Manifest(_))), "{to}: {refused:?}");
        }
    }

    #[test]
    fn hash_comparison_finds_missing_and_changed_members() {
        let mut read = Hashes::default();
        read.add("a", "1".to_owned());
        assert!(read.compare(&read.clone()).is_ok());
        let mut other = Hashes::default();
        assert!(matches!(read.compare(&other), Err(Flaw::Hashes(_))));
        other.add("a", "2".to_owned());
        assert!(matches!(read.compare(&other), Err(Flaw::Altered(name)) if name == "a"));
        let mut more = read.clone();
        more.add("b", "2".to_owned());
        assert!(matches!(read.compare(&more), Err(Flaw::Hashes(_))));
    }
}
