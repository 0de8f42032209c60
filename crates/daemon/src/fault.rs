//! Named steps at which a test can make the process die, as a crash or a power cut would, or stand still.
//!
//! Without the feature `fault-injection` the calls are empty. Steps inside the work on one VM are in
//! [`agentiso_sys::fault`].

pub use agentiso_sys::fault::{SOCKET, VARIABLE};

/// Every step at which a crash must lose nothing, in the order in which the life of a workspace passes them.
pub const POINTS: [&str; 44] = [
    "create.reserved",
    "create.ledgered",
    "create.spawned",
    "create.recorded",
    "create.booted",
    "create.saved",
    "snapshot.begun",
    "snapshot.taken",
    "snapshot.ledgered",
    "restore.ledgered",
    "restore.halted",
    "restore.spawned",
    "restore.recorded",
    "restore.booted",
    "restore.saved",
    "fork.reserved",
    "fork.ledgered",
    "fork.branched",
    "fork.spawned",
    "fork.recorded",
    "fork.booted",
    "fork.prepared",
    "fork.saved",
    "export.branched",
    "export.written",
    "export.erased",
    "import.reserved",
    "import.ledgered",
    "import.unpacked",
    "import.spawned",
    "import.recorded",
    "import.booted",
    "import.saved",
    "delete.ledgered",
    "delete.removed",
    "start.ledgered",
    "start.spawned",
    "start.recorded",
    "start.booted",
    "stop.ledgered",
    "stop.halted",
    "destroy.ledgered",
    "destroy.halted",
    "destroy.erased",
];

/// The steps of handing over a VM of the warm pool, which only a daemon with a pool passes.
pub(crate) const CLAIM_POINTS: [&str; 3] = ["claim.taken", "claim.identified", "claim.saved"];

pub(crate) fn point(name: &str) {
    let known = POINTS.contains(&name) || CLAIM_POINTS.contains(&name);
    debug_assert!(known, "{name} is not in the list of fault points");
    agentiso_sys::fault::reached(name);
}
