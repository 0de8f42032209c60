//! Named steps at which a test can have the process die, as a crash or a power cut would.
//!
//! Without the feature `fault-injection` the calls are empty.

/// Every step between which a crash must lose nothing, in the order in which a life passes them.
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

/// The variable that names the step.
pub const VARIABLE: &str = "AGENTISO_FAULT";

#[cfg(feature = "fault-injection")]
pub(crate) fn point(name: &str) {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list of fault points");
    if std::env::var_os(VARIABLE).is_some_and(|wanted| wanted == name) {
        std::process::abort();
    }
}

#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub(crate) fn point(_name: &str) {}
