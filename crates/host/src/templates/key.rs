//! The inputs that must be equal for a template to be usable, and the name that is derived from them.

use std::fmt;

use agentiso_sys::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::accelerator::{Chosen, HostCpu};
use crate::qemu::argv::Shape;
use crate::qemu::version::Qemu;

/// Raised when the command line, the order of devices, or the steps before a template is saved change in a way that
/// [`HostInputs`] does not show.
const VM_GENERATION: u32 = 7;

/// The counter's rate varies by a few kHz between boots of one host; only larger differences matter.
const TSC_STEP_KHZ: u64 = 10_000;

/// Hexadecimal digits of a key: 128 bits of the hash.
const KEY_DIGITS: usize = 32;

/// The inputs that are the same for all templates of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInputs {
    #[serde(rename = "machine_generation")]
    pub vm_generation: u32,
    pub qemu_version: String,
    pub qemu_size: u64,
    pub qemu_modified_ns: u64,
    pub accelerator: Chosen,
    pub cpu_model: String,
    pub cpu_flags_sha256: String,
    pub tsc_step: u64,
    /// This and the next two are empty for memory that does not depend on them.
    pub kernel_sha256: String,
    pub initrd_sha256: String,
    pub kernel_append: String,
    /// Whether the guest sees the processor's virtualization. Memory of older versions, which did not record this, can
    /// be used if the guest does not: the virtualization that the guest saw then no longer works, and nothing else has
    /// changed.
    #[serde(default)]
    pub nested: bool,
}

impl HostInputs {
    pub(crate) fn new(
        qemu: &Qemu,
        (accelerator, nested): (Chosen, bool),
        cpu: &HostCpu,
        (kernel_sha256, initrd_sha256): (String, String),
        kernel_append: &str,
    ) -> Self {
        Self {
            vm_generation: VM_GENERATION,
            qemu_version: qemu.version_line.clone(),
            qemu_size: qemu.size,
            qemu_modified_ns: qemu.modified_ns,
            accelerator,
            cpu_model: cpu.model.clone(),
            cpu_flags_sha256: cpu.flags_sha256.clone(),
            tsc_step: cpu.tsc_khz.unwrap_or(0).div_ceil(TSC_STEP_KHZ),
            kernel_sha256,
            initrd_sha256,
            kernel_append: kernel_append.to_owned(),
            nested,
        }
    }

    /// Removes the files that a VM boots from. After the boot they are in its memory: the QEMU that loads the memory
    /// gets neither kernel nor initramfs. So the memory outlives the agentiso version, and its agent, that it was saved
    /// with.
    pub(crate) fn without_boot_files(self) -> Self {
        let none = String::new;
        Self { kernel_sha256: none(), initrd_sha256: none(), kernel_append: none(), ..self }
    }
}

/// The kind of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum TemplateKind {
    /// Taken before any disk was attached: fits every disk.
    Bare,
    /// Taken with this image mounted on a disk of this size.
    Image { image_id: String, image_name: String, disk_gb: u32, init_mode: String },
    /// A VM's own memory, taken with a snapshot of its disk.
    Snapshot,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    pub host: HostInputs,
    pub vcpus: u32,
    pub memory_mb: u32,
    pub kind: TemplateKind,
}

impl Inputs {
    pub(crate) fn new(host: &HostInputs, shape: Shape, kind: TemplateKind) -> Self {
        let host = host.clone();
        Self { host, vcpus: shape.vcpus, memory_mb: shape.memory_mb, kind }.relevant()
    }

    /// Whether memory that was saved with `saved` can be used with these inputs.
    pub(crate) fn fit(&self, saved: &Self) -> bool {
        self.clone().relevant() == saved.clone().relevant()
    }

    /// Removes the inputs that do not decide whether the memory can be used. Earlier versions recorded those too.
    fn relevant(self) -> Self {
        let host = match self.kind {
            // A template replaces a boot from exactly these files.
            TemplateKind::Bare | TemplateKind::Image { .. } => self.host,
            TemplateKind::Snapshot => self.host.without_boot_files(),
        };
        Self { host, ..self }
    }

    pub fn key(&self) -> TemplateKey {
        // Field order is fixed by the structs, so equal inputs give equal text.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let mut digits = hex(&Sha256::digest(&text));
        digits.truncate(KEY_DIGITS);
        TemplateKey(digits)
    }
}

/// The name of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TemplateKey(String);

impl TemplateKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses a directory's name, if it is that of a template.
    pub(crate) fn from_dir_name(name: &str) -> Option<Self> {
        let digits = name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        (name.len() == KEY_DIGITS && digits).then(|| Self(name.to_owned()))
    }
}

impl fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn host_inputs() -> HostInputs {
        HostInputs {
            vm_generation: VM_GENERATION,
            qemu_version: "QEMU 10.0.2".to_owned(),
            qemu_size: 1,
            qemu_modified_ns: 2,
            accelerator: Chosen::Tcg,
            cpu_model: "cpu".to_owned(),
            cpu_flags_sha256: "f".to_owned(),
            tsc_step: 250,
            kernel_sha256: "k".to_owned(),
            initrd_sha256: "i".to_owned(),
            kernel_append: String::new(),
            nested: false,
        }
    }

    fn inputs() -> Inputs {
        let kind = TemplateKind::Image {
            image_id: "id".to_owned(),
            image_name: "debian".to_owned(),
            disk_gb: 10,
            init_mode: "fast".to_owned(),
        };
        Inputs::new(&host_inputs(), Shape { vcpus: 2, memory_mb: 512 }, kind)
    }

    #[test]
    fn equal_inputs_give_equal_keys() {
        let key = inputs().key();
        assert_eq!(key, inputs().key());
        assert_eq!(TemplateKey::from_dir_name(key.as_str()), Some(key));
        assert_eq!(TemplateKey::from_dir_name(".building-x"), None);
        assert_eq!(TemplateKey::from_dir_name("../../etc"), None);
    }

    #[test]
    fn every_input_changes_the_template_key() {
        let changes: [fn(&mut Inputs); 15] = [
            |i| i.host.vm_generation += 1,
            |i| i.host.qemu_version.push('x'),
            |i| i.host.qemu_size += 1,
            |i| i.host.qemu_modified_ns += 1,
            |i| i.host.accelerator = Chosen::Kvm,
            |i| i.host.cpu_model.push('x'),
            |i| i.host.cpu_flags_sha256.push('x'),
            |i| i.host.tsc_step += 1,
            |i| i.host.kernel_sha256.push('x'),
            |i| i.host.initrd_sha256.push('x'),
            |i| i.host.kernel_append.push('x'),
            |i| i.host.nested = true,
            |i| i.vcpus += 1,
            |i| i.memory_mb += 1,
            |i| i.kind = TemplateKind::Bare,
        ];
        let mut keys: Vec<TemplateKey> = changes
            .iter()
            .map(|change| {
                let mut changed = inputs();
                change(&mut changed);
                changed.key()
            })
            .collect();
        keys.push(inputs().key());
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), changes.len() + 1);
    }

    #[test]
    fn snapshot_inputs_ignore_boot_files() {
        let shape = Shape { vcpus: 2, memory_mb: 512 };
        let mut other = host_inputs();
        other.kernel_sha256.push('x');
        other.initrd_sha256.push('x');
        other.kernel_append.push('x');
        let wanted = Inputs::new(&host_inputs(), shape, TemplateKind::Snapshot);
        assert_eq!(Inputs::new(&other, shape, TemplateKind::Snapshot), wanted);
        // As an older version recorded it, with all inputs.
        assert!(wanted.fit(&Inputs { host: other.clone(), ..wanted.clone() }));
        other.qemu_size += 1;
        assert_ne!(Inputs::new(&other, shape, TemplateKind::Snapshot), wanted);
    }

    /// Its manifest is from a version with another agent and without `nested`.
    #[test]
    fn memory_of_an_older_version_fits() {
        let text = include_str!("../../tests/fixtures/memory-v1-older.json");
        let older: crate::templates::manifest::Manifest = serde_json::from_str(text).unwrap();
        let mut here = HostInputs { initrd_sha256: "this version's".to_owned(), ..older.inputs.host.clone() };
        let shape = Shape { vcpus: 1, memory_mb: 256 };
        let wanted = |here: &HostInputs| Inputs::new(here, shape, TemplateKind::Snapshot);
        assert!(wanted(&here).fit(&older.inputs));
        here.nested = true;
        assert!(!wanted(&here).fit(&older.inputs), "the guest would see another processor");
    }
}
