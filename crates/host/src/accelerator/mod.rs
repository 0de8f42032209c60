//! Which accelerator machines run under: KVM where it really works, software emulation (TCG) elsewhere.
//!
//! `/dev/kvm` may open on a host where no kernel runs under it; only a boot tells. That boot is made once per
//! boot of the host, QEMU and kernel, and its verdict is kept in a file.

mod cpu;
mod verdict;

use serde::{Deserialize, Serialize};

pub use cpu::HostCpu;
pub use verdict::{ProbeKey, Verdict, open_kvm, recall, remember};

/// What machines run under, once decided.
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
