//! The promised limits. Times are promised as ratios, which are valid on every host; only the pause of a VM during a
//! snapshot is promised in milliseconds.

use crate::figures::{Figures, Key};
use crate::goals::Unit;

/// The longest pause of a VM while its memory is saved.
const PAUSE_P50: f64 = 0.020;
const PAUSE_P95: f64 = 0.060;

/// The largest permitted slowdown by the jail.
const JAIL: f64 = 1.05;

/// A limit on a figure.
pub(crate) struct Promise {
    pub(crate) title: &'static str,
    /// The figure of the promise.
    pub(crate) of: Key,
    pub(crate) value: fn(&Figures) -> Option<f64>,
    pub(crate) limit: f64,
    pub(crate) unit: Unit,
}

pub(crate) const PROMISES: [Promise; 25] = [
    Promise {
        title: "create from a template to first exec / cold boot to first exec, p50",
        of: Key::TemplateCreate,
        value: |figures| figures.ratio(Key::TemplateCreate, Key::ColdCreate),
        limit: 1.0 / 6.0,
        unit: Unit::Ratio,
    },
    // Compared with the lower bound: the round trip and the process.
    Promise {
        title: "exec true over MCP / (raw echo + spawn inside the guest), p50",
        of: Key::Exec,
        value: |figures| {
            let least = figures.number(Key::RawEcho)? + figures.number(Key::GuestSpawn)?;
            Some(figures.number(Key::Exec)? / least)
        },
        limit: 2.0,
        unit: Unit::Ratio,
    },
    Promise {
        title: "20 idle 512 MB workspaces with the daemon, PSS",
        of: Key::IdleMemory,
        value: |figures| figures.number(Key::IdleMemory),
        limit: 2.5e9,
        unit: Unit::Bytes,
    },
    Promise {
        title: "the daemon with 20 workspaces, PSS",
        of: Key::IdleDaemon,
        value: |figures| figures.number(Key::IdleDaemon),
        limit: 40e6,
        unit: Unit::Bytes,
    },
    Promise {
        title: "source's pause for a snapshot with memory, by QEMU, p50",
        of: Key::PauseByQemu,
        value: |figures| figures.number(Key::PauseByQemu),
        limit: PAUSE_P50,
        unit: Unit::Seconds,
    },
    Promise {
        title: "source's pause for a snapshot with memory, by QEMU, p95",
        of: Key::PauseByQemu,
        value: |figures| figures.p95(Key::PauseByQemu),
        limit: PAUSE_P95,
        unit: Unit::Seconds,
    },
    Promise {
        title: "source's pause for a snapshot with memory, by a ticker inside, p50",
        of: Key::PauseByTicker,
        value: |figures| figures.number(Key::PauseByTicker),
        limit: PAUSE_P50,
        unit: Unit::Seconds,
    },
    Promise {
        title: "source's pause for a snapshot with memory, by a ticker inside, p95",
        of: Key::PauseByTicker,
        value: |figures| figures.p95(Key::PauseByTicker),
        limit: PAUSE_P95,
        unit: Unit::Seconds,
    },
    Promise {
        title: "fork with memory to first exec / cold boot to first exec, p50",
        of: Key::MemoryFork,
        value: |figures| figures.ratio(Key::MemoryFork, Key::ColdCreate),
        limit: 1.0 / 8.0,
        unit: Unit::Ratio,
    },
    Promise {
        title: "10 forks with memory, all answering / one, p50",
        of: Key::ManyForks,
        value: |figures| figures.ratio(Key::ManyForks, Key::ShellFork),
        limit: 6.0,
        unit: Unit::Ratio,
    },
    Promise {
        title: "what each fork with memory adds, PSS",
        of: Key::ForkMemory,
        value: |figures| figures.number(Key::ForkMemory),
        limit: 60e6,
        unit: Unit::Bytes,
    },
    Promise {
        title: "restore with memory to first exec / cold boot to first exec, p50",
        of: Key::MemoryRestore,
        value: |figures| figures.ratio(Key::MemoryRestore, Key::ColdCreate),
        limit: 1.0 / 8.0,
        unit: Unit::Ratio,
    },
    Promise {
        title: "restore of the disk alone to first exec / cold boot to first exec, p50",
        of: Key::DiskRestore,
        value: |figures| figures.ratio(Key::DiskRestore, Key::ColdCreate),
        limit: 1.0 / 5.0,
        unit: Unit::Ratio,
    },
    Promise {
        title: "workspace_create from the pool / cold boot to its answer, p50",
        of: Key::PooledCreate,
        value: |figures| figures.ratio(Key::PooledCreate, Key::ColdCreateCall),
        limit: 0.01,
        unit: Unit::Ratio,
    },
    Promise {
        title: "first exec in a VM from the pool / a warm exec, p50",
        of: Key::PooledFirstExec,
        value: |figures| figures.ratio(Key::PooledFirstExec, Key::PooledExec),
        limit: 2.0,
        unit: Unit::Ratio,
    },
    Promise {
        title: "the last disk snapshots in a row / the first, p50 of 5",
        of: Key::LastSnapshots,
        value: |figures| figures.ratio(Key::LastSnapshots, Key::FirstSnapshots),
        limit: 1.5,
        unit: Unit::Ratio,
    },
    Promise {
        title: "workspace on disk after deleting all snapshots / before them",
        of: Key::DiskAfter,
        value: |figures| figures.ratio(Key::DiskAfter, Key::DiskBefore),
        limit: 1.05,
        unit: Unit::Ratio,
    },
    Promise {
        title: "receiving over the network / by QEMU's user network",
        of: Key::NetDown,
        value: |figures| figures.ratio(Key::NetDown, Key::SlirpDown),
        limit: 1.0 / 1.5,
        unit: Unit::Ratio,
    },
    Promise {
        title: "sending over the network / by QEMU's user network",
        of: Key::NetUp,
        value: |figures| figures.ratio(Key::NetUp, Key::SlirpUp),
        limit: 1.0 / 1.5,
        unit: Unit::Ratio,
    },
    Promise {
        title: "connecting / by QEMU's user network, p50",
        of: Key::NetConnect,
        value: |figures| figures.ratio(Key::NetConnect, Key::SlirpConnect),
        limit: 1.0,
        unit: Unit::Ratio,
    },
    Promise {
        title: "64 bytes and back beside a workspace that floods, less beside one that rests, p50",
        of: Key::NeighbourFloods,
        value: |figures| {
            let rests = figures.number(Key::NeighbourRests)?;
            Some((figures.number(Key::NeighbourFloods)? - rests).max(0.0))
        },
        limit: 0.005,
        unit: Unit::Seconds,
    },
    // A flood also takes CPU time, and only the rest of its delay is caused by the network.
    Promise {
        title: "the same, less beside one that computes, p95",
        of: Key::NeighbourFloods,
        value: |figures| {
            let computes = figures.p95(Key::NeighbourComputes)?;
            Some((figures.p95(Key::NeighbourFloods)? - computes).max(0.0))
        },
        limit: 0.005,
        unit: Unit::Seconds,
    },
    Promise {
        title: "create to first exec, in the jail / without, p50",
        of: Key::JailCreate,
        value: |figures| figures.ratio(Key::JailCreate, Key::OpenCreate),
        limit: JAIL,
        unit: Unit::Ratio,
    },
    Promise {
        title: "fork with memory to first exec, in the jail / without, p50",
        of: Key::JailFork,
        value: |figures| figures.ratio(Key::JailFork, Key::OpenFork),
        limit: JAIL,
        unit: Unit::Ratio,
    },
    Promise {
        title: "exec true over MCP, in the jail / without, p50",
        of: Key::JailExec,
        value: |figures| figures.ratio(Key::JailExec, Key::OpenExec),
        limit: JAIL,
        unit: Unit::Ratio,
    },
];
