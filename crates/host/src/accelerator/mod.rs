//! The accelerator that VMs run under: KVM if it really works, software emulation (TCG) otherwise.
//!
//! `/dev/kvm` may open on a host that cannot run a kernel under it; only a real boot shows that. This probe boot is
//! made once per boot of the host, QEMU and kernel, and its verdict is kept in a file.

mod cpu;
mod verdict;

use serde::{Deserialize, Serialize};

pub use cpu::HostCpu;
pub use verdict::{ProbeKey, Verdict, open_kvm, recall, remember};

/// The accelerator of all VMs, once decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chosen {
    Kvm,
    Tcg,
}

impl Chosen {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}
