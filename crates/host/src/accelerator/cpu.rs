//! The host's processor, as far as the state of a VM depends on it.

use std::path::Path;

use agentiso_sys::files::FileError;
use agentiso_sys::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::qemu::kernel_args::host_tsc_khz;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCpu {
    pub model: String,
    /// A hash of the flags: a template saved under KVM must not be restored on a processor that lacks one of them.
    pub flags_sha256: String,
    pub has_virtualization: bool,
    pub tsc_khz: Option<u64>,
}

impl HostCpu {
    pub fn read() -> Result<Self, FileError> {
        let path = Path::new("/proc/cpuinfo");
        let text = std::fs::read_to_string(path).map_err(FileError::at("read", path))?;
        Ok(Self::parse(&text))
    }

    fn parse(cpuinfo: &str) -> Self {
        let field = |name: &str| {
            let line =
                cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim()).unwrap_or_default()
        };
        let flags = field("flags");
        Self {
            model: field("model name").to_owned(),
            flags_sha256: hex(&Sha256::digest(flags.as_bytes())),
            has_virtualization: flags.split_ascii_whitespace().any(|flag| flag == "vmx" || flag == "svm"),
            tsc_khz: host_tsc_khz(cpuinfo),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_flags_and_clock_are_read() {
        let cpu = HostCpu::parse(
            "model name\t: A B\nflags\t\t: fpu vmx sse\nvmx flags\t: x\nbogomips\t: 4000.00\n",
        );
        assert_eq!(cpu.model, "A B");
        assert!(cpu.has_virtualization);
        assert_eq!(cpu.tsc_khz, Some(2_000_000));
    }

    #[test]
    fn virtualization_flags_match_whole_words_only() {
        assert!(!HostCpu::parse("flags : fpu vmxoff svm_lock\n").has_virtualization);
        assert!(!HostCpu::parse("").has_virtualization);
    }
}
