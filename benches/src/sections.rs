//! The measurements in their order. If one fails, it is reported and the next one runs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Result, anyhow};
use clap::ValueEnum;

use crate::figures::Figures;
use crate::plain_vm::Plain;
use crate::samples::timed;
use crate::setup::Setup;
use crate::vm_line::VmLine;
use crate::{
    containers, create, exec, files, jail, memory, network, output, plain_boot, pool, raw_echo, restart,
    rootfs, run_dir, say, snapshots,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// crun and bubblewrap
    Containers,
    /// A boot without agentiso
    PlainBoot,
    /// An echo without agentiso
    RawEcho,
    /// `exec true` and what it is made of
    Exec,
    /// Creates, cold and from a template
    Create,
    /// Start after stop
    Restart,
    /// Creates from the pool
    Pool,
    /// Snapshots with memory of a VM that writes to it
    SnapshotMemory,
    /// Forks with memory, one by one and ten at once
    ForkMemory,
    /// Restores, with memory and of the disk alone
    Restore,
    /// A hundred disk snapshots in a row
    SnapshotChain,
    /// 1 GiB of output
    Output,
    /// 100 MiB files
    Files,
    /// The gateway beside QEMU's own network
    Network,
    /// Round trips beside a workspace that floods the network
    Neighbour,
    /// Creates, forks and calls with the jail and without
    Jail,
    /// Idle workspaces and the daemon
    Memory,
}

impl Section {
    /// All sections. The echo comes right before the measurement that it is compared with.
    pub(crate) const ALL: [Self; 17] = [
        Self::Containers,
        Self::PlainBoot,
        Self::RawEcho,
        Self::Exec,
        Self::Create,
        Self::Restart,
        Self::Pool,
        Self::SnapshotMemory,
        Self::ForkMemory,
        Self::Restore,
        Self::SnapshotChain,
        Self::Output,
        Self::Files,
        Self::Network,
        Self::Neighbour,
        Self::Jail,
        Self::Memory,
    ];

    fn measure(self, setup: &Setup, line: &VmLine, quick: bool) -> Result<Figures> {
        let plain = || Plain::like(line.clone(), &setup.dir);
        match self {
            Self::Containers => {
                let rootfs = rootfs::unpacked(&setup.image_disk(), &setup.cache)?;
                containers::measure(&rootfs, &setup.dir, quick)
            }
            Self::PlainBoot => plain_boot::measure(&plain()?, setup.runs.boots),
            Self::RawEcho => raw_echo::measure(&plain()?, setup.runs.round_trips),
            Self::Exec => exec::measure(setup),
            Self::Create => create::measure(setup),
            Self::Restart => restart::measure(setup),
            Self::Pool => pool::measure(setup),
            Self::SnapshotMemory => snapshots::memory::measure(setup),
            Self::ForkMemory => snapshots::forks::measure(setup),
            Self::Restore => snapshots::restores::measure(setup),
            Self::SnapshotChain => snapshots::chain::measure(setup),
            Self::Output => output::measure(setup),
            Self::Files => files::measure(setup),
            Self::Network => network::measure(setup),
            Self::Neighbour => network::neighbour::measure(setup),
            Self::Jail => jail::measure(setup),
            Self::Memory => memory::measure(setup),
        }
    }
}

/// Runs the sections. Returns the figures of those that succeeded, and the errors of the others.
pub(crate) fn run(setup: &Setup, line: VmLine, wanted: &[Section], quick: bool) -> (Figures, Vec<String>) {
    let mut figures = Figures::default();
    let mut failures = Vec::new();
    for section in Section::ALL.into_iter().filter(|section| wanted.contains(section)) {
        say(&format!("{section:?}"));
        let (outcome, time) = timed(|| {
            catch_unwind(AssertUnwindSafe(|| section.measure(setup, &line, quick)))
                .unwrap_or_else(|panic| Err(anyhow!("{}", message(panic.as_ref()))))
        });
        run_dir::wait_if_stopping();
        match outcome {
            Ok(found) => {
                say(&format!("{section:?} took {:.1} s", time.as_secs_f64()));
                figures.merge(found);
            }
            Err(error) => failures.push(format!("{section:?}: {error:#}")),
        }
    }
    (figures, failures)
}

/// The message of a panic. Nearly every panic here is a failed assertion of the test kit.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
