//! The scripts of a merge and their limits.

use std::time::Duration;

use agentiso_core::paths::GuestPath;

use super::strategy::Strategy;
use crate::script::Script;

/// The timeout of one step. Clients wait a minute for a merge; a large one may take longer.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);

/// The number of commits that are searched for one that both sides have.
const MAX_KNOWN: u64 = 20_000;

/// The most commits of one source.
const MAX_COMMITS: u64 = 2_000;

/// The largest bundle that one source may send through the host.
pub(super) const MAX_BUNDLE: u64 = 256 * 1024 * 1024;

/// One line of up to 64 digits for each commit.
pub(super) const MAX_KNOWN_BYTES: u64 = MAX_KNOWN * 65;

const IDENTITY: &str = include_str!("../scripts/identity.sh");

pub(super) fn open(path: &GuestPath, bench: &GuestPath, strategy: Strategy) -> Script {
    Script::new(&[include_str!("../scripts/merge_open.sh")], STEP_TIMEOUT)
        .arg(path.as_str())
        .arg(bench.as_str())
        .flag(strategy.needs_branch())
        .arg(MAX_KNOWN.to_string())
}

pub(super) fn pack(path: &GuestPath, bench: &GuestPath) -> Script {
    Script::new(&[include_str!("../scripts/merge_pack.sh")], STEP_TIMEOUT)
        .arg(path.as_str())
        .arg(bench.as_str())
        .arg(MAX_BUNDLE.to_string())
}

pub(super) fn apply(
    path: &GuestPath,
    bench: &GuestPath,
    begin: &str,
    strategy: Strategy,
    message: &str,
) -> Script {
    Script::new(&[IDENTITY, include_str!("../scripts/merge_apply.sh")], STEP_TIMEOUT)
        .arg(path.as_str())
        .arg(bench.as_str())
        .arg(begin)
        .arg(strategy.as_str())
        .arg(message)
        .arg(MAX_COMMITS.to_string())
}

pub(super) fn land(path: &GuestPath, bench: &GuestPath, begin: &str, tip: &str) -> Script {
    Script::new(&[include_str!("../scripts/merge_land.sh")], STEP_TIMEOUT)
        .arg(path.as_str())
        .arg(bench.as_str())
        .arg(begin)
        .arg(tip)
}

pub(super) fn close(bench: &GuestPath) -> Script {
    Script::new(&[include_str!("../scripts/merge_close.sh")], STEP_TIMEOUT).arg(bench.as_str())
}
