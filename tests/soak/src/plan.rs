//! The plan of operations and faults: a pure function of the seed. Only [`spares_daemon`] depends on time: it leaves
//! faults out of the sequence.
//!
//! Each client has a sequence of [`Intent`]s, the storm a sequence of [`Strike`]s. An intent has a deed and a number.
//! The number selects the workspace, snapshot or file among those that exist when the intent is carried out.

use std::time::Duration;

use crate::rng::Rng;

/// An operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Create,
    Exec,
    Write,
    WriteLarge,
    Count,
    Check,
    SnapshotDisk,
    SnapshotMemory,
    Restore,
    Fork,
    DeleteSnapshot,
    Stop,
    Destroy,
    Policy,
    Forward,
    Team,
    Mail,
    Swarm,
    Trespass,
    GuestPanic,
    GuestOom,
    GuestClock,
}

impl Deed {
    /// Faults that can only be caused from inside a guest are carried out by the client that owns it.
    pub(crate) fn is_fault(self) -> bool {
        matches!(self, Self::GuestPanic | Self::GuestOom | Self::GuestClock)
    }
}

const DEEDS: [(u64, Deed); 22] = [
    (10, Deed::Create),
    (10, Deed::Exec),
    (18, Deed::Write),
    (6, Deed::WriteLarge),
    (4, Deed::Count),
    (10, Deed::Check),
    (8, Deed::SnapshotDisk),
    (5, Deed::SnapshotMemory),
    (5, Deed::Restore),
    (7, Deed::Fork),
    (4, Deed::DeleteSnapshot),
    (3, Deed::Stop),
    (4, Deed::Destroy),
    (4, Deed::Policy),
    (4, Deed::Forward),
    (6, Deed::Team),
    (6, Deed::Mail),
    (2, Deed::Swarm),
    (3, Deed::Trespass),
    (1, Deed::GuestPanic),
    (1, Deed::GuestOom),
    (1, Deed::GuestClock),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) deed: Deed,
    pub(crate) choice: u64,
}

/// The intents of one client, without end.
#[derive(Clone, Debug)]
pub(crate) struct Intents(Rng);

impl Intents {
    pub(crate) fn of(seed: u64, client: usize) -> Self {
        Self(Rng::stream(seed, &format!("client {client}")))
    }

    pub(crate) fn next(&mut self) -> Intent {
        Intent { deed: self.0.weighted(&DEEDS), choice: self.0.draw() }
    }
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    KillDaemon,
    /// SIGTERM, which stops all VMs.
    StopDaemon,
    /// The daemon dies at a named step of this deed.
    DaemonAtStep(&'static str, Deed),
    /// The VMs of this deed die while the daemon pauses at a named step of it.
    VmAtStep(&'static str, Deed),
    /// The `serve` of a client dies while the daemon pauses at a named step of its deed.
    ServeAtStep(&'static str, Deed),
    KillVm,
    PauseVm {
        secs: u64,
    },
    PauseDaemon {
        secs: u64,
    },
    KillServe,
    /// A client disconnects during its call.
    CutConnection,
    FillDisk {
        secs: u64,
    },
    /// One write of the daemon fails with this error.
    WriteError {
        errno: &'static str,
        place: &'static str,
    },
    /// The daemon is killed and starts again with another monotonic clock.
    JumpClock {
        secs: i64,
    },
    /// The daemon is killed, and the next one finds a damaged ledger.
    DamageLedger(Damage),
}

/// The period in which one stretch without daemon faults occurs.
const PERIOD: Duration = Duration::from_secs(600);

/// The stretch within each period. It begins early enough for a run of six minutes.
const SPARED_FROM: Duration = Duration::from_secs(240);

const SPARED_UNTIL: Duration = Duration::from_secs(360);

/// Whether faults that end the daemon are left out at this time of the run. Otherwise no daemon would live long enough
/// to show a leak.
pub(crate) fn spares_daemon(elapsed: Duration) -> bool {
    let within = elapsed.as_secs() % PERIOD.as_secs();
    (SPARED_FROM.as_secs()..SPARED_UNTIL.as_secs()).contains(&within)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// One byte is changed.
    Byte,
    /// The second half is missing.
    Half,
}

impl Fault {
    pub(crate) fn ends_daemon(self) -> bool {
        match self {
            Self::KillDaemon
            | Self::StopDaemon
            | Self::DaemonAtStep(..)
            | Self::JumpClock { .. }
            | Self::DamageLedger(_) => true,
            Self::VmAtStep(..)
            | Self::ServeAtStep(..)
            | Self::KillVm
            | Self::PauseVm { .. }
            | Self::PauseDaemon { .. }
            | Self::KillServe
            | Self::CutConnection
            | Self::FillDisk { .. }
            | Self::WriteError { .. } => false,
        }
    }

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::KillDaemon => "daemon killed",
            Self::StopDaemon => "daemon stopped",
            Self::DaemonAtStep(..) => "daemon killed at a named step",
            Self::VmAtStep(..) => "QEMU killed at a named step",
            Self::ServeAtStep(..) => "serve killed at a named step",
            Self::KillVm => "QEMU killed",
            Self::PauseVm { .. } => "QEMU paused (SIGSTOP)",
            Self::PauseDaemon { .. } => "daemon paused (SIGSTOP)",
            Self::KillServe => "serve killed",
            Self::CutConnection => "connection cut",
            Self::FillDisk { .. } => "host disk full",
            Self::WriteError { errno: "ENOSPC", .. } => "ENOSPC injected",
            Self::WriteError { .. } => "EIO injected",
            Self::JumpClock { .. } => "daemon's clock jumped",
            Self::DamageLedger(_) => "ledger damaged",
        }
    }
}

/// The daemon's named steps in the deeds of clients. Those of export, import and the warm pool are not among them.
const STEPS: [(&str, Deed); 42] = [
    ("create.reserved", Deed::Create),
    ("create.ledgered", Deed::Create),
    ("create.spawned", Deed::Create),
    ("create.recorded", Deed::Create),
    ("create.booted", Deed::Create),
    ("create.saved", Deed::Create),
    ("snapshot.begun", Deed::SnapshotDisk),
    ("snapshot.noted", Deed::SnapshotMemory),
    ("snapshot.pivoted", Deed::SnapshotDisk),
    ("snapshot.resumed", Deed::SnapshotMemory),
    ("snapshot.converting", Deed::SnapshotMemory),
    ("snapshot.converted", Deed::SnapshotMemory),
    ("snapshot.taken", Deed::SnapshotMemory),
    ("snapshot.ledgered", Deed::SnapshotDisk),
    ("restore.ledgered", Deed::Restore),
    ("restore.halted", Deed::Restore),
    ("restore.switched", Deed::Restore),
    ("restore.spawned", Deed::Restore),
    ("restore.recorded", Deed::Restore),
    ("restore.booted", Deed::Restore),
    ("restore.saved", Deed::Restore),
    ("fork.reserved", Deed::Fork),
    ("fork.ledgered", Deed::Fork),
    ("fork.branched", Deed::Fork),
    ("fork.spawned", Deed::Fork),
    ("fork.recorded", Deed::Fork),
    ("fork.booted", Deed::Fork),
    ("fork.prepared", Deed::Fork),
    ("fork.saved", Deed::Fork),
    ("delete.ledgered", Deed::DeleteSnapshot),
    ("delete.merging", Deed::DeleteSnapshot),
    ("delete.merged", Deed::DeleteSnapshot),
    ("delete.removed", Deed::DeleteSnapshot),
    ("stop.ledgered", Deed::Stop),
    ("stop.halted", Deed::Stop),
    ("start.ledgered", Deed::Stop),
    ("start.spawned", Deed::Stop),
    ("start.recorded", Deed::Stop),
    ("start.booted", Deed::Stop),
    ("destroy.ledgered", Deed::Destroy),
    ("destroy.halted", Deed::Destroy),
    ("destroy.erased", Deed::Destroy),
];

/// The steps at which no VM runs, or none that the clients or the ledger know.
const WITHOUT_VM: [&str; 9] = [
    "create.reserved",
    "create.ledgered",
    "create.saved",
    "restore.halted",
    "restore.switched",
    "stop.halted",
    "start.ledgered",
    "destroy.halted",
    "destroy.erased",
];

/// The tools whose calls pass a step.
pub(crate) fn tools_at(step: &str) -> &'static [&'static str] {
    match step.split('.').next().unwrap_or_default() {
        "create" => &["workspace_create", "team"],
        "fork" => &["workspace_fork", "swarm_run"],
        "snapshot" | "restore" | "delete" => &["snapshot"],
        "stop" => &["workspace_stop"],
        "start" => &["workspace_start"],
        "destroy" => &["workspace_destroy", "team", "swarm_run"],
        _ => &[],
    }
}

/// The points at which a write of the daemon can be made to fail.
const PLACES: [&str; 6] =
    ["ledger.write", "ledger.sync", "files.write", "files.sync", "mail.write", "mail.sync"];

/// Whether a place belongs to the inboxes of teams, which no VM needs.
pub(crate) fn is_of_mail(place: &str) -> bool {
    place.starts_with("mail.")
}

#[derive(Clone, Copy, Debug)]
enum Draft {
    KillDaemon,
    StopDaemon,
    Step,
    VmStep,
    ServeStep,
    KillVm,
    PauseVm,
    PauseDaemon,
    KillServe,
    Cut,
    Fill,
    Write,
    Clock,
    Damage,
}

const FAULTS: [(u64, Draft); 13] = [
    (5, Draft::KillDaemon),
    (1, Draft::StopDaemon),
    (10, Draft::Step),
    (6, Draft::VmStep),
    (5, Draft::ServeStep),
    (8, Draft::KillVm),
    (4, Draft::PauseVm),
    (2, Draft::PauseDaemon),
    (4, Draft::KillServe),
    (4, Draft::Cut),
    (3, Draft::Fill),
    (6, Draft::Write),
    (2, Draft::Clock),
];

/// The weight of ledger damage beside those above, unless it is turned off.
const DAMAGE: (u64, Draft) = (1, Draft::Damage);

/// One fault, and how many operations of the clients go before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strike {
    pub(crate) fault: Fault,
    pub(crate) after: u64,
    pub(crate) choice: u64,
}

/// The strikes of the storm, without end.
#[derive(Clone, Debug)]
pub(crate) struct Strikes {
    rng: Rng,
    faults: Vec<(u64, Draft)>,
    most_between: u64,
}

impl Strikes {
    pub(crate) fn of(seed: u64, most_between: u64, damages_ledger: bool) -> Self {
        let faults = FAULTS.into_iter().chain(damages_ledger.then_some(DAMAGE)).collect();
        Self { rng: Rng::stream(seed, "storm"), faults, most_between: most_between.max(1) }
    }

    pub(crate) fn next(&mut self) -> Strike {
        let rng = &mut self.rng;
        let fault = match rng.weighted(&self.faults) {
            Draft::KillDaemon => Fault::KillDaemon,
            Draft::StopDaemon => Fault::StopDaemon,
            Draft::Step => {
                let (step, deed) = rng.one_of(&STEPS);
                Fault::DaemonAtStep(step, deed)
            }
            Draft::VmStep => {
                let has_vm = |(step, _): &(&str, Deed)| !WITHOUT_VM.contains(step);
                let steps: Vec<_> = STEPS.into_iter().filter(has_vm).collect();
                let (step, deed) = rng.one_of(&steps);
                Fault::VmAtStep(step, deed)
            }
            Draft::ServeStep => {
                let (step, deed) = rng.one_of(&STEPS);
                Fault::ServeAtStep(step, deed)
            }
            Draft::KillVm => Fault::KillVm,
            Draft::PauseVm => Fault::PauseVm { secs: 1 + rng.below(6) },
            Draft::PauseDaemon => Fault::PauseDaemon { secs: 1 + rng.below(5) },
            Draft::KillServe => Fault::KillServe,
            Draft::Cut => Fault::CutConnection,
            Draft::Fill => Fault::FillDisk { secs: 2 + rng.below(6) },
            Draft::Write => Fault::WriteError {
                errno: if rng.below(2) == 0 { "ENOSPC" } else { "EIO" },
                place: rng.one_of(&PLACES),
            },
            Draft::Clock => {
                const DAY: i64 = 86_400;
                Fault::JumpClock { secs: rng.one_of(&[60, DAY, 400 * DAY]) }
            }
            Draft::Damage => Fault::DamageLedger(if rng.below(2) == 0 { Damage::Byte } else { Damage::Half }),
        };
        Strike { fault, after: rng.below(self.most_between) + 1, choice: rng.draw() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn deeds(seed: u64, client: usize) -> Vec<Intent> {
        let mut intents = Intents::of(seed, client);
        (0..500).map(|_| intents.next()).collect()
    }

    fn strikes(seed: u64) -> Vec<Strike> {
        let mut strikes = Strikes::of(seed, 4, true);
        (0..500).map(|_| strikes.next()).collect()
    }

    #[test]
    fn plan_follows_from_the_seed() {
        assert_eq!(deeds(1, 0), deeds(1, 0));
        assert_ne!(deeds(1, 0), deeds(2, 0));
        assert_ne!(deeds(1, 0), deeds(1, 1));
        assert_eq!(strikes(1), strikes(1));
        assert_ne!(strikes(1), strikes(2));
    }

    #[test]
    fn daemon_is_spared_for_two_minutes_in_ten() {
        let spared = (0..1200).filter(|second| spares_daemon(Duration::from_secs(*second))).count();
        assert_eq!(spared, 240);
        assert!(!spares_daemon(Duration::ZERO));
        assert!(strikes(1).iter().any(|strike| !strike.fault.ends_daemon()));
    }

    #[test]
    fn every_step_and_write_has_a_place() {
        // Read as text: building the daemon only for its lists would take longer than all other tests of this crate.
        let read = |krate: &str| {
            let file = format!("{}/../../crates/{krate}/src/fault.rs", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(file).unwrap()
        };
        let lists = read("daemon") + &read("sys");
        for name in STEPS.iter().map(|(step, _)| step).chain(&PLACES) {
            assert!(
                lists.contains(&format!("\"{name}\",")) || lists.contains(&format!("\"{name}\"]")),
                "{name}"
            );
        }
    }

    #[test]
    fn every_step_is_passed_by_a_tool() {
        assert!(STEPS.iter().all(|(step, _)| !tools_at(step).is_empty()));
        assert!(tools_at("other.step").is_empty());
    }

    #[test]
    fn vms_die_only_at_steps_with_vms() {
        assert!(WITHOUT_VM.iter().all(|step| STEPS.iter().any(|(known, _)| known == step)));
        let of_vms = strikes(1).into_iter().filter_map(|strike| {
            let Fault::VmAtStep(step, _) = strike.fault else { return None };
            Some(step)
        });
        let drawn: BTreeSet<&str> = of_vms.collect();
        assert!(drawn.len() > 10 && drawn.iter().all(|step| !WITHOUT_VM.contains(step)), "{drawn:?}");
    }

    #[test]
    fn plan_has_every_deed_and_fault() {
        let seen: BTreeSet<Deed> = deeds(3, 0).into_iter().map(|intent| intent.deed).collect();
        assert_eq!(seen.len(), DEEDS.len(), "{seen:?}");
        let kinds: BTreeSet<&str> = strikes(3).into_iter().map(|strike| strike.fault.kind()).collect();
        assert_eq!(kinds.len(), FAULTS.len() + 2, "two errors of writes, and the ledger: {kinds:?}");
    }
}
