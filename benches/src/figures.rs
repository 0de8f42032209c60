//! The figures of the benchmark: their names, and the values of one run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::samples::Samples;

/// Every figure, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Key {
    PlainBoot,
    ColdCreate,
    ColdCreateCall,
    TemplateCreate,
    TemplateCreateCall,
    TemplateFirstExec,
    StartAfterStop,
    PooledCreate,
    PooledFirstExec,
    PooledExec,
    MemorySnapshot,
    PauseByQemu,
    PauseByTicker,
    ClockLoss,
    TickerAlone,
    MemoryFork,
    ShellFork,
    ManyForks,
    ForkMemory,
    MemoryRestore,
    DiskRestore,
    FirstSnapshots,
    LastSnapshots,
    DeleteSnapshot,
    ReadBefore,
    ReadThrough,
    DiskBefore,
    DiskWithSnapshots,
    DiskAfter,
    CrunRun,
    BwrapRun,
    Exec,
    AgentExec,
    RawEcho,
    AgentPing,
    GuestSpawn,
    CrunExec,
    Output,
    GuestOutput,
    CrunOutput,
    FileWrite,
    FileRead,
    NetDown,
    SlirpDown,
    PasstDown,
    NetUp,
    SlirpUp,
    PasstUp,
    NetEcho,
    SlirpEcho,
    PasstEcho,
    NetConnect,
    SlirpConnect,
    PasstConnect,
    NeighbourRests,
    NeighbourComputes,
    NeighbourFloods,
    JailCreate,
    OpenCreate,
    JailFork,
    OpenFork,
    JailExec,
    OpenExec,
    IdleMemory,
    IdleVms,
    IdleDaemon,
    IdleDaemonResident,
    FreshDaemon,
}

impl Key {
    pub(crate) const ALL: [Self; 68] = [
        Self::PlainBoot,
        Self::ColdCreate,
        Self::ColdCreateCall,
        Self::TemplateCreate,
        Self::TemplateCreateCall,
        Self::TemplateFirstExec,
        Self::StartAfterStop,
        Self::PooledCreate,
        Self::PooledFirstExec,
        Self::PooledExec,
        Self::MemorySnapshot,
        Self::PauseByQemu,
        Self::PauseByTicker,
        Self::ClockLoss,
        Self::TickerAlone,
        Self::MemoryFork,
        Self::ShellFork,
        Self::ManyForks,
        Self::ForkMemory,
        Self::MemoryRestore,
        Self::DiskRestore,
        Self::FirstSnapshots,
        Self::LastSnapshots,
        Self::DeleteSnapshot,
        Self::ReadBefore,
        Self::ReadThrough,
        Self::DiskBefore,
        Self::DiskWithSnapshots,
        Self::DiskAfter,
        Self::CrunRun,
        Self::BwrapRun,
        Self::Exec,
        Self::AgentExec,
        Self::RawEcho,
        Self::AgentPing,
        Self::GuestSpawn,
        Self::CrunExec,
        Self::Output,
        Self::GuestOutput,
        Self::CrunOutput,
        Self::FileWrite,
        Self::FileRead,
        Self::NetDown,
        Self::SlirpDown,
        Self::PasstDown,
        Self::NetUp,
        Self::SlirpUp,
        Self::PasstUp,
        Self::NetEcho,
        Self::SlirpEcho,
        Self::PasstEcho,
        Self::NetConnect,
        Self::SlirpConnect,
        Self::PasstConnect,
        Self::NeighbourRests,
        Self::NeighbourComputes,
        Self::NeighbourFloods,
        Self::JailCreate,
        Self::OpenCreate,
        Self::JailFork,
        Self::OpenFork,
        Self::JailExec,
        Self::OpenExec,
        Self::IdleMemory,
        Self::IdleVms,
        Self::IdleDaemon,
        Self::IdleDaemonResident,
        Self::FreshDaemon,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::PlainBoot => "plain QEMU boot of the same kernel",
            Self::ColdCreate => "cold boot to first exec",
            Self::ColdCreateCall => "  of which workspace_create, cold",
            Self::TemplateCreate => "create from a template to first exec",
            Self::TemplateCreateCall => "  of which workspace_create",
            Self::TemplateFirstExec => "  of which the first exec",
            Self::StartAfterStop => "start after stop to first exec",
            Self::PooledCreate => "workspace_create from the pool",
            Self::PooledFirstExec => "  first exec after it",
            Self::PooledExec => "  exec in the same VMs, warm",
            Self::MemorySnapshot => "snapshot with memory, the whole call",
            Self::PauseByQemu => "  source's pause, by QEMU",
            Self::PauseByTicker => "  source's pause, by a ticker inside",
            Self::ClockLoss => "  its clock stood still",
            Self::TickerAlone => "  the ticker's largest gap without a snapshot",
            Self::MemoryFork => "fork with memory to first exec",
            Self::ShellFork => "1 fork with memory at the shell, answering",
            Self::ManyForks => "10 forks with memory at the shell, all answering",
            Self::ForkMemory => "  each of them adds, PSS",
            Self::MemoryRestore => "restore with memory to first exec",
            Self::DiskRestore => "restore of the disk alone to first exec",
            Self::FirstSnapshots => "disk snapshot, the first 5 in a row",
            Self::LastSnapshots => "disk snapshot, the last 5 in a row",
            Self::DeleteSnapshot => "deleting a disk snapshot",
            Self::ReadBefore => "reading 64 MiB before any snapshot",
            Self::ReadThrough => "reading the same through all snapshots",
            Self::DiskBefore => "workspace on disk before any snapshot",
            Self::DiskWithSnapshots => "  with all snapshots",
            Self::DiskAfter => "  after deleting them",
            Self::CrunRun => "crun run true",
            Self::BwrapRun => "bwrap true",
            Self::Exec => "exec true over MCP",
            Self::AgentExec => "exec true at the agent, without daemon and MCP",
            Self::RawEcho => "raw echo over virtio-serial",
            Self::AgentPing => "the agent's ping",
            Self::GuestSpawn => "sh -c true timed inside the guest",
            Self::CrunExec => "crun exec true",
            Self::Output => "1 GiB of output through exec",
            Self::GuestOutput => "1 GiB through a pipe inside the guest",
            Self::CrunOutput => "1 GiB of output through crun exec",
            Self::FileWrite => "file write, 100 MiB",
            Self::FileRead => "file read, 100 MiB",
            Self::NetDown => "received over the network, 64 MiB at a time",
            Self::SlirpDown => "  by QEMU's user network",
            Self::PasstDown => "  by passt",
            Self::NetUp => "sent over the network, 64 MiB at a time",
            Self::SlirpUp => "  sent by QEMU's user network",
            Self::PasstUp => "  sent by passt",
            Self::NetEcho => "64 bytes over the network and back",
            Self::SlirpEcho => "  and back by QEMU's user network",
            Self::PasstEcho => "  and back by passt",
            Self::NetConnect => "connecting and closing",
            Self::SlirpConnect => "  connecting by QEMU's user network",
            Self::PasstConnect => "  connecting by passt",
            Self::NeighbourRests => "64 bytes and back beside a workspace that rests",
            Self::NeighbourComputes => "  beside one that computes",
            Self::NeighbourFloods => "  beside one that floods the network",
            Self::JailCreate => "create to first exec, in the jail",
            Self::OpenCreate => "  create without it",
            Self::JailFork => "fork with memory to first exec, in the jail",
            Self::OpenFork => "  fork without it",
            Self::JailExec => "exec true over MCP, in the jail",
            Self::OpenExec => "  exec without it",
            Self::IdleMemory => "idle workspaces and daemon, PSS",
            Self::IdleVms => "  of which per workspace, PSS",
            Self::IdleDaemon => "  of which the daemon, PSS",
            Self::IdleDaemonResident => "  the daemon, RSS",
            Self::FreshDaemon => "daemon without workspaces, PSS",
        }
    }
}

/// The value of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measured {
    Times(Samples),
    Transfer {
        bytes: u64,
        micros: u64,
    },
    Bytes(u64),
    /// Not measured, with the reason, such as a tool that is not installed.
    Absent(String),
    /// The measurement failed or did not measure what its name says, with the reason. A goal about it counts as missed.
    Failed(String),
}

impl Measured {
    pub(crate) fn transfer(bytes: u64, time: Duration) -> Self {
        Self::Transfer { bytes, micros: time.as_micros() as u64 }
    }

    pub(crate) fn times(times: impl IntoIterator<Item = Duration>) -> Self {
        Samples::new(times).map_or_else(|| Self::Absent("not run".to_owned()), Self::Times)
    }
}

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures(BTreeMap<Key, Measured>);

impl Figures {
    pub(crate) fn set(&mut self, key: Key, value: Measured) {
        self.0.insert(key, value);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Measured> {
        self.0.get(&key)
    }

    /// The one number that ratios and goals use: seconds (p50 of repeated operations) or bytes.
    pub(crate) fn number(&self, key: Key) -> Option<f64> {
        match self.0.get(&key)? {
            Measured::Times(samples) => Some(samples.p50().as_secs_f64()),
            Measured::Transfer { micros, .. } => Some(*micros as f64 / 1e6),
            Measured::Bytes(bytes) => Some(*bytes as f64),
            Measured::Absent(_) | Measured::Failed(_) => None,
        }
    }

    /// The time that 95 of 100 operations did not exceed, in seconds.
    pub(crate) fn p95(&self, key: Key) -> Option<f64> {
        match self.0.get(&key)? {
            Measured::Times(samples) => Some(samples.p95().as_secs_f64()),
            Measured::Transfer { .. } | Measured::Bytes(_) | Measured::Absent(_) | Measured::Failed(_) => {
                None
            }
        }
    }

    /// The first figure divided by the second.
    pub(crate) fn ratio(&self, a: Key, b: Key) -> Option<f64> {
        Some(self.number(a)? / self.number(b)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_list_is_sorted_with_unique_titles() {
        assert!(Key::ALL.is_sorted());
        let titles: std::collections::BTreeSet<_> = Key::ALL.iter().map(|key| key.title()).collect();
        assert_eq!(titles.len(), Key::ALL.len());
    }

    #[test]
    fn readme_explains_every_figure() {
        let readme = include_str!("../README.md");
        for key in Key::ALL {
            assert!(readme.contains(key.title().trim()), "{:?} is not in benches/README.md", key.title());
        }
    }

    #[test]
    fn figures_round_trip_between_processes() {
        let mut figures = Figures::default();
        figures.set(Key::CrunRun, Measured::times([Duration::from_millis(3)]));
        figures.set(Key::BwrapRun, Measured::Absent("not installed".to_owned()));
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
    }
}
