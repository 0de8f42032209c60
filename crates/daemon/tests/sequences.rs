//! Runs random sequences of calls, faults and crashes; after each step the registry must agree with the disks, the
//! processes and the quota.

mod support;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_core::lifecycle::Phase;
use agentiso_core::names::{NamePrefix, WorkspaceRef};
use agentiso_core::quota::SESSION_QUOTA;
use agentiso_daemon::ledger;
use agentiso_daemon::{
    CreateRequest, Daemon, ExecSpec, ForkManyRequest, ForkRequest, Progress, Session, SessionKind,
    WorkspaceInfo,
};
use proptest::prelude::*;
use support::{FakeHost, Fault, Volume, named, open, snap};

const SESSIONS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Create {
        session: usize,
        name: u8,
        memory_mb: u32,
    },
    CreateFails {
        session: usize,
        fault: Fault,
    },
    CreateTogether {
        session: usize,
        count: usize,
    },
    Destroy {
        session: usize,
        pick: usize,
    },
    DestroyFails {
        session: usize,
        pick: usize,
    },
    Stop {
        session: usize,
        pick: usize,
    },
    Start {
        session: usize,
        pick: usize,
    },
    Adopt {
        session: usize,
        pick: usize,
        force: bool,
    },
    HangUp {
        session: usize,
    },
    VmDies {
        pick: usize,
    },
    Write {
        pick: usize,
        text: u8,
    },
    OnSnapshots(OnSnapshots),
    /// The daemon dies while the step is under way.
    CutShort {
        step: OnSnapshots,
        after_us: u64,
    },
    FaultIn {
        step: OnSnapshots,
        fault: Fault,
    },
    FullDisk,
    Crash,
    Shutdown,
}

#[derive(Clone, Debug)]
enum OnSnapshots {
    Take { pick: usize, name: u8, memory: bool },
    Restore { pick: usize, which: usize },
    Delete { pick: usize, which: usize },
    Fork { pick: usize, which: usize },
    ForkMany { pick: usize, which: usize, count: u32 },
}

/// A step on snapshots, by a session that may do everything.
fn snapshot_step() -> impl Strategy<Value = OnSnapshots> {
    let (pick, which) = (0..12usize, 0..6usize);
    let on_one = (pick.clone(), which);
    prop_oneof![
        4 => (pick, 0..6u8, any::<bool>())
            .prop_map(|(pick, name, memory)| OnSnapshots::Take { pick, name, memory }),
        3 => on_one.clone().prop_map(|(pick, which)| OnSnapshots::Restore { pick, which }),
        2 => on_one.clone().prop_map(|(pick, which)| OnSnapshots::Delete { pick, which }),
        2 => on_one.clone().prop_map(|(pick, which)| OnSnapshots::Fork { pick, which }),
        1 => (on_one, 1..5u32).prop_map(|((pick, which), count)| OnSnapshots::ForkMany { pick, which, count }),
    ]
}

fn snapshot_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::SnapshotFails),
        Just(Fault::SnapshotFailsHalfway),
        Just(Fault::DeleteFails),
        Just(Fault::RestoreFails),
        Just(Fault::BranchFails),
        Just(Fault::SettleFails),
        Just(Fault::BootFailsAfterSpawn),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let session = 0..SESSIONS;
    let pick = 0..12usize;
    let fault = prop_oneof![
        Just(Fault::BootFailsBeforeSpawn),
        Just(Fault::BootFailsAfterSpawn),
        Just(Fault::NoSpace)
    ];
    prop_oneof![
        6 => (session.clone(), 0..20u8, prop_oneof![Just(128), Just(4096), Just(8192)])
            .prop_map(|(session, name, memory_mb)| Step::Create { session, name, memory_mb }),
        2 => (session.clone(), fault).prop_map(|(session, fault)| Step::CreateFails { session, fault }),
        1 => (session.clone(), 2..14usize).prop_map(|(session, count)| Step::CreateTogether { session, count }),
        3 => (session.clone(), pick.clone()).prop_map(|(session, pick)| Step::Destroy { session, pick }),
        1 => (session.clone(), pick.clone()).prop_map(|(session, pick)| Step::DestroyFails { session, pick }),
        2 => (session.clone(), pick.clone()).prop_map(|(session, pick)| Step::Stop { session, pick }),
        2 => (session.clone(), pick.clone()).prop_map(|(session, pick)| Step::Start { session, pick }),
        2 => (session.clone(), pick.clone(), any::<bool>())
            .prop_map(|(session, pick, force)| Step::Adopt { session, pick, force }),
        1 => session.prop_map(|session| Step::HangUp { session }),
        1 => pick.clone().prop_map(|pick| Step::VmDies { pick }),
        4 => (pick, 0..100u8).prop_map(|(pick, text)| Step::Write { pick, text }),
        10 => snapshot_step().prop_map(Step::OnSnapshots),
        3 => (snapshot_step(), 0..4000u64)
            .prop_map(|(step, after_us)| Step::CutShort { step, after_us }),
        2 => (snapshot_step(), snapshot_fault())
            .prop_map(|(step, fault)| Step::FaultIn { step, fault }),
        1 => Just(Step::FullDisk),
        2 => Just(Step::Crash),
        1 => Just(Step::Shutdown),
    ]
}

/// The content that every disk must have, according to the calls that were answered.
#[derive(Clone, Debug, Default)]
struct Model(BTreeMap<WorkspaceId, Disk>);

#[derive(Clone, Debug)]
struct Disk {
    content: String,
    snapshots: BTreeMap<SnapshotId, String>,
}

impl Model {
    /// Follows workspaces that came and went without the model: fresh ones, and forks, which hold the content of
    /// their snapshot.
    fn follow(&mut self, all: &[WorkspaceInfo]) {
        let frozen: BTreeMap<_, _> = self.0.values().flat_map(|disk| disk.snapshots.clone()).collect();
        self.0.retain(|id, _| all.iter().any(|info| info.id == *id));
        for info in all {
            let content = match &info.forked_from {
                Some(from) => frozen.get(&from.snapshot_id).cloned(),
                None => Some("fresh".to_owned()),
            };
            if let Some(content) = content {
                self.0.entry(info.id).or_insert(Disk { content, snapshots: BTreeMap::new() });
            }
        }
    }

    /// Accepts the effects of an interrupted step: either all of it or nothing.
    fn reconcile(&mut self, all: &[WorkspaceInfo], root: &Path) {
        self.follow(all);
        for info in all {
            let (volume, disk) = (volume(root, info), self.0.get_mut(&info.id).unwrap());
            let before = disk.content.clone();
            let mut known = BTreeMap::new();
            for snapshot in &info.snapshots {
                // A snapshot whose call was not answered can only be of the state before.
                known.insert(snapshot.id, disk.snapshots.get(&snapshot.id).unwrap_or(&before).clone());
            }
            if volume.content != before {
                let went_back = volume.origin.and_then(|id| known.get(&id));
                assert_eq!(went_back, Some(&volume.content), "{} holds what it never held", info.name);
                disk.content.clone_from(&volume.content);
            }
            disk.snapshots = known;
        }
    }

    fn check(&self, all: &[WorkspaceInfo], root: &Path) {
        for info in all {
            let (volume, disk) = (volume(root, info), &self.0[&info.id]);
            assert_eq!(volume.content, disk.content, "{}", info.name);
            let names: HashSet<_> = info.snapshots.iter().map(|snapshot| &snapshot.name).collect();
            assert_eq!(names.len(), info.snapshots.len(), "names of snapshots are unique");
            let mut parents = HashSet::new();
            for snapshot in &info.snapshots {
                assert!(snapshot.parent.as_ref().is_none_or(|parent| parents.contains(parent)));
                parents.insert(&snapshot.name);
                assert_eq!(
                    volume.snapshots[&snapshot.id].content, disk.snapshots[&snapshot.id],
                    "{}",
                    info.name
                );
            }
            let current = info.snapshots.iter().find(|snapshot| snapshot.current).map(|snapshot| snapshot.id);
            assert!(info.snapshots.iter().filter(|snapshot| snapshot.current).count() <= 1);
            // A snapshot that only the volume has is being removed; the origins may differ meanwhile.
            if volume.snapshots.len() == info.snapshots.len() {
                assert_eq!(current, volume.origin, "{}", info.name);
            }
        }
    }
}

fn volume(root: &Path, info: &WorkspaceInfo) -> Volume {
    Volume::load(&root.join("workspaces").join(info.id.to_string())).expect("a disk")
}

/// One daemon with its clients; a crash replaces it as a whole.
struct System {
    runtime: tokio::runtime::Runtime,
    daemon: Daemon,
    sessions: Vec<Session>,
    model: Model,
}

impl System {
    fn open(root: &Path, host: &Arc<FakeHost>, model: Model) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let daemon = runtime.block_on(open(root, host));
        let sessions = (0..SESSIONS).map(|_| daemon.open_session(SessionKind::Client)).collect();
        Self { runtime, daemon, sessions, model }
    }

    fn shell(&self) -> Session {
        self.daemon.open_session(SessionKind::Shell)
    }

    /// Picks from ids in a stable order, so that a number picks the same workspace again when a case is replayed.
    fn pick(&self, pick: usize) -> Option<WorkspaceRef> {
        let all = self.sessions[0].list(None);
        let settled: Vec<_> =
            all.iter().filter(|info| matches!(info.phase, Phase::Running | Phase::Stopped)).collect();
        (!settled.is_empty()).then(|| WorkspaceRef::Id(settled[pick % settled.len()].id))
    }

    /// Refusals are allowed: only the state afterwards counts.
    fn take(mut self, step: &Step, root: &Path, host: &Arc<FakeHost>) -> Self {
        let quiet = Progress::silent();
        match step.clone() {
            Step::Write { pick, text } => {
                let Some(wanted) = self.pick(pick) else { return self };
                let (session, text) = (self.shell(), format!("text {text}"));
                let written = self.runtime.block_on(async {
                    session.guest(&wanted).await?.exec(ExecSpec::shell(format!("write {text}"))).await
                });
                if let (Ok(_), WorkspaceRef::Id(id)) = (written, wanted) {
                    self.model.0.get_mut(&id).unwrap().content = text;
                }
            }
            Step::OnSnapshots(step) => self.with_snapshots(step),
            Step::FaultIn { step, fault } => {
                host.inject(fault);
                self.with_snapshots(step);
                host.clear_faults();
                self.settled(host);
                let all = self.sessions[0].list(None);
                self.model.reconcile(&all, root);
            }
            Step::CutShort { step, after_us } => {
                let under_way = self.under_way(step);
                self.runtime.spawn(under_way);
                let moment = Duration::from_micros(after_us);
                self.runtime.block_on(async { tokio::time::sleep(moment).await });
                let mut next = self.replace(root, host, false);
                next.settled(host);
                let all = next.sessions[0].list(None);
                next.model.reconcile(&all, root);
                return next;
            }
            Step::Create { session, name, memory_mb } => {
                let request = CreateRequest { memory_mb: Some(memory_mb), ..named(&format!("w{name}")) };
                let _ = self.runtime.block_on(self.sessions[session].create(request, &quiet));
            }
            Step::CreateFails { session, fault } => {
                host.inject(fault);
                let _ = self.runtime.block_on(self.sessions[session].create(support::small(), &quiet));
                host.clear_faults();
            }
            Step::CreateTogether { session, count } => {
                let creates = (0..count).map(|_| self.sessions[session].create(support::small(), &quiet));
                self.runtime.block_on(futures::future::join_all(creates));
            }
            Step::Destroy { session, pick } => {
                let Some(wanted) = self.pick(pick) else { return self };
                let _ = self.runtime.block_on(self.sessions[session].destroy(&wanted));
            }
            Step::DestroyFails { session, pick } => {
                let Some(wanted) = self.pick(pick) else { return self };
                host.inject(Fault::EraseFails);
                let _ = self.runtime.block_on(self.sessions[session].destroy(&wanted));
                host.clear_faults();
            }
            Step::Stop { session, pick } => {
                let Some(wanted) = self.pick(pick) else { return self };
                let _ = self.runtime.block_on(self.sessions[session].stop(&wanted));
            }
            Step::Start { session, pick } => {
                let Some(wanted) = self.pick(pick) else { return self };
                let _ = self.runtime.block_on(self.sessions[session].start(&wanted, &quiet));
            }
            Step::Adopt { session, pick, force } => {
                let Some(wanted) = self.pick(pick) else { return self };
                let _ = self.runtime.block_on(self.sessions[session].adopt(&wanted, force));
            }
            Step::HangUp { session } => {
                self.sessions[session] = self.daemon.open_session(SessionKind::Client);
            }
            Step::VmDies { pick } => {
                let processes = host.processes();
                if !processes.is_empty() {
                    host.kill(processes[pick % processes.len()].0, "signal 9");
                }
            }
            Step::FullDisk => {
                // The next save fails once.
                let trap = root.join("state.json.tmp");
                let _ = std::os::unix::fs::symlink("/dev/full", &trap);
                let _ = self.runtime.block_on(self.sessions[0].create(support::small(), &quiet));
                // A create that the quota refused saved nothing; the trap must not wait for another step.
                let _ = std::fs::remove_file(&trap);
            }
            Step::Crash => return self.replace(root, host, false),
            Step::Shutdown => return self.replace(root, host, true),
        }
        self
    }

    /// Ends one daemon and starts the next.
    fn replace(self, root: &Path, host: &Arc<FakeHost>, orderly: bool) -> Self {
        let Self { runtime, daemon, sessions, model } = self;
        if orderly {
            runtime.block_on(daemon.clone().shutdown());
            assert!(host.processes().is_empty(), "a VM outlived an orderly shutdown");
        }
        // The lock is released with the last handle, and tasks hold handles.
        drop(runtime);
        drop((daemon, sessions));
        Self::open(root, host, model)
    }

    /// The snapshot picked by one number, of the workspace picked by another.
    fn pick_snapshot(&self, pick: usize, which: usize) -> Option<(WorkspaceId, SnapshotId, String)> {
        let Some(WorkspaceRef::Id(id)) = self.pick(pick) else { return None };
        let info = self.sessions[0].list(None).into_iter().find(|info| info.id == id)?;
        let snapshots = &info.snapshots;
        let snapshot = (!snapshots.is_empty()).then(|| &snapshots[which % snapshots.len()])?;
        Some((id, snapshot.id, snapshot.name.to_string()))
    }

    /// Takes a step and updates the model with its result.
    fn with_snapshots(&mut self, step: OnSnapshots) {
        let quiet = Progress::silent();
        match step {
            OnSnapshots::Take { pick, name, memory } => {
                let Some(wanted) = self.pick(pick) else { return };
                let (session, name) = (self.shell(), snap(&format!("s{name}")));
                let taken = session.snapshot(&wanted, name, memory, &quiet);
                if let Ok(made) = self.runtime.block_on(taken) {
                    let disk = self.model.0.get_mut(&made.workspace.id).unwrap();
                    disk.snapshots.insert(made.snapshot.id, disk.content.clone());
                }
            }
            OnSnapshots::Restore { pick, which } => {
                let Some((id, snapshot, name)) = self.pick_snapshot(pick, which) else { return };
                let (session, wanted, name) = (self.shell(), WorkspaceRef::Id(id), snap(&name));
                let restored = session.restore(&wanted, &name, &quiet);
                if self.runtime.block_on(restored).is_ok() {
                    let disk = self.model.0.get_mut(&id).unwrap();
                    disk.content.clone_from(&disk.snapshots[&snapshot]);
                }
            }
            OnSnapshots::Delete { pick, which } => {
                let Some((id, snapshot, name)) = self.pick_snapshot(pick, which) else { return };
                let (session, wanted, name) = (self.shell(), WorkspaceRef::Id(id), snap(&name));
                let deleted = session.delete_snapshot(&wanted, &name);
                if self.runtime.block_on(deleted).is_ok() {
                    self.model.0.get_mut(&id).unwrap().snapshots.remove(&snapshot);
                }
            }
            OnSnapshots::Fork { .. } | OnSnapshots::ForkMany { .. } => {
                let under_way = self.under_way(step);
                self.runtime.block_on(under_way);
            }
        }
    }

    /// The same step, with its answer ignored.
    fn under_way(&self, step: OnSnapshots) -> futures::future::BoxFuture<'static, ()> {
        let (session, quiet) = (self.shell(), Progress::silent());
        match step {
            OnSnapshots::Take { pick, name, memory } => {
                let Some(wanted) = self.pick(pick) else { return Box::pin(async {}) };
                let name = snap(&format!("s{name}"));
                Box::pin(async move { drop(session.snapshot(&wanted, name, memory, &quiet).await) })
            }
            OnSnapshots::Restore { pick, which } => {
                let Some((id, _, name)) = self.pick_snapshot(pick, which) else { return Box::pin(async {}) };
                let (wanted, name) = (WorkspaceRef::Id(id), snap(&name));
                Box::pin(async move { drop(session.restore(&wanted, &name, &quiet).await) })
            }
            OnSnapshots::Delete { pick, which } => {
                let Some((id, _, name)) = self.pick_snapshot(pick, which) else { return Box::pin(async {}) };
                let (wanted, name) = (WorkspaceRef::Id(id), snap(&name));
                Box::pin(async move { drop(session.delete_snapshot(&wanted, &name).await) })
            }
            OnSnapshots::Fork { pick, which } => {
                let Some((id, _, name)) = self.pick_snapshot(pick, which) else { return Box::pin(async {}) };
                let (source, snapshot) = (WorkspaceRef::Id(id), snap(&name));
                let request = ForkRequest { source, snapshot, new_name: None, setup_commands: Vec::new() };
                Box::pin(async move { drop(session.fork(request, &quiet).await) })
            }
            OnSnapshots::ForkMany { pick, which, count } => {
                let Some((id, _, name)) = self.pick_snapshot(pick, which) else { return Box::pin(async {}) };
                let request = ForkManyRequest {
                    source: WorkspaceRef::Id(id),
                    snapshot: snap(&name),
                    count,
                    name_prefix: NamePrefix::parse("worker").unwrap(),
                    setup_commands: Vec::new(),
                };
                Box::pin(async move { drop(session.fork_many(request, &quiet).await) })
            }
        }
    }

    /// Waits until nothing is under way and every process has its workspace.
    fn settled(&self, host: &Arc<FakeHost>) {
        self.runtime.block_on(support::eventually("a settled state", || {
            let all = self.sessions[0].list(None);
            let settled = all.iter().all(|info| match info.phase {
                Phase::Running => info.pid.is_some_and(|pid| host.lives(pid)),
                Phase::Stopped => true,
                Phase::Creating
                | Phase::Starting
                | Phase::Stopping
                | Phase::Restoring
                | Phase::Suspended
                | Phase::Destroying => false,
            });
            settled && host.processes().len() == all.iter().filter(|info| info.pid.is_some()).count()
        }));
    }

    fn check(&mut self, root: &Path, host: &Arc<FakeHost>) {
        self.settled(host);
        let all = self.sessions[0].list(None);
        self.model.follow(&all);
        self.model.check(&all, root);
        let names: HashSet<_> = all.iter().map(|info| &info.name).collect();
        let addresses: HashSet<_> = all.iter().map(|info| info.ip).collect();
        assert_eq!((names.len(), addresses.len()), (all.len(), all.len()), "names and addresses are unique");
        for session in &self.sessions {
            let owned: Vec<_> = all.iter().filter(|info| info.owner.as_ref() == Some(session.id())).collect();
            let memory: u64 = owned.iter().map(|info| u64::from(info.resources.memory_mb)).sum();
            assert!(owned.len() as u64 <= SESSION_QUOTA.workspaces && memory <= SESSION_QUOTA.memory_mb);
        }
        let mut disks = 0;
        for info in &all {
            assert!(root.join("workspaces").join(info.id.to_string()).join("disk.qcow2").exists());
            disks += 1;
        }
        assert_eq!(
            std::fs::read_dir(root.join("workspaces")).unwrap().count(),
            disks,
            "no disk is left behind"
        );
    }

    /// Checks that the file has everything that is in memory, once nothing is under way.
    fn check_ledger(&self, root: &Path) {
        self.runtime.block_on(support::eventually("a ledger that equals the registry", || {
            let found = ledger::read(&root.join("state.json")).ok().and_then(ledger::Found::into_document);
            let Some(document) = found else { return false };
            let all = self.sessions[0].list(None);
            all.len() == document.workspaces.len()
                && all.iter().all(|info| {
                    document.workspaces.get(&info.id).is_some_and(|stored| {
                        stored.name == info.name && stored.phase == info.phase && stored.ip == info.ip
                    })
                })
        }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn registry_and_disks_agree_after_any_sequence(
        steps in proptest::collection::vec(step(), 1..24),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let host = FakeHost::new(dir.path());
        let mut system = System::open(dir.path(), &host, Model::default());
        for step in &steps {
            system = system.take(step, dir.path(), &host);
            system.check(dir.path(), &host);
        }
        let session = system.shell();
        for info in session.list(None) {
            system.runtime.block_on(session.destroy(&WorkspaceRef::Id(info.id))).unwrap();
        }
        system.check(dir.path(), &host);
        // The next save repeats a save that failed.
        system.runtime.block_on(session.create(named("last"), &Progress::silent())).unwrap();
        system.check_ledger(dir.path());
    }
}
