//! Random sequences of what clients, faults and crashes can do; after each step the books must balance.

mod support;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use agentiso_core::lifecycle::Phase;
use agentiso_core::names::WorkspaceRef;
use agentiso_core::quota::SESSION_QUOTA;
use agentiso_daemon::ledger;
use agentiso_daemon::{CreateRequest, Daemon, Progress, Session, SessionKind};
use proptest::prelude::*;
use support::{Fault, World, named, open};

const SESSIONS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Create { session: usize, name: u8, memory_mb: u32 },
    CreateFails { session: usize, fault: Fault },
    CreateTogether { session: usize, count: usize },
    Destroy { session: usize, pick: usize },
    DestroyFails { session: usize, pick: usize },
    Stop { session: usize, pick: usize },
    Start { session: usize, pick: usize },
    Adopt { session: usize, pick: usize, force: bool },
    HangUp { session: usize },
    MachineDies { pick: usize },
    FullDisk,
    Crash,
    Shutdown,
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
        1 => pick.prop_map(|pick| Step::MachineDies { pick }),
        1 => Just(Step::FullDisk),
        2 => Just(Step::Crash),
        1 => Just(Step::Shutdown),
    ]
}

/// One daemon with its clients; a crash replaces it as a whole.
struct Host {
    runtime: tokio::runtime::Runtime,
    daemon: Daemon,
    sessions: Vec<Session>,
}

impl Host {
    fn open(root: &Path, world: &Arc<World>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let daemon = runtime.block_on(open(root, world));
        let sessions = (0..SESSIONS).map(|_| daemon.open_session(SessionKind::Client)).collect();
        Self { runtime, daemon, sessions }
    }

    /// Ids in a stable order, so that a number picks the same workspace again when a case is replayed.
    fn pick(&self, pick: usize) -> Option<WorkspaceRef> {
        let all = self.sessions[0].list(None);
        let settled: Vec<_> =
            all.iter().filter(|info| matches!(info.phase, Phase::Running | Phase::Stopped)).collect();
        (!settled.is_empty()).then(|| WorkspaceRef::Id(settled[pick % settled.len()].id))
    }

    /// Refusals are part of the game: what counts is what the books say afterwards.
    fn take(mut self, step: &Step, root: &Path, world: &Arc<World>) -> Self {
        let quiet = Progress::silent();
        match *step {
            Step::Create { session, name, memory_mb } => {
                let request = CreateRequest { memory_mb: Some(memory_mb), ..named(&format!("w{name}")) };
                let _ = self.runtime.block_on(self.sessions[session].create(request, &quiet));
            }
            Step::CreateFails { session, fault } => {
                world.inject(fault);
                let _ = self.runtime.block_on(self.sessions[session].create(support::small(), &quiet));
                world.calm();
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
                world.inject(Fault::EraseFails);
                let _ = self.runtime.block_on(self.sessions[session].destroy(&wanted));
                world.calm();
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
            Step::MachineDies { pick } => {
                let processes = world.processes();
                if !processes.is_empty() {
                    world.kill(processes[pick % processes.len()].0, "signal 9");
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
            Step::Crash => return self.replace(root, world, false),
            Step::Shutdown => return self.replace(root, world, true),
        }
        self
    }

    /// The end of one daemon and the start of the next.
    fn replace(self, root: &Path, world: &Arc<World>, orderly: bool) -> Self {
        let Self { runtime, daemon, sessions } = self;
        if orderly {
            runtime.block_on(daemon.clone().shutdown());
            assert!(world.processes().is_empty(), "a machine outlived an orderly shutdown");
        }
        // The lock goes with the last handle, and tasks hold handles.
        drop(runtime);
        drop((daemon, sessions));
        Self::open(root, world)
    }

    fn check(&self, root: &Path, world: &Arc<World>) {
        self.runtime.block_on(support::eventually("a settled state", || {
            let all = self.sessions[0].list(None);
            let settled = all.iter().all(|info| match info.phase {
                Phase::Running => info.pid.is_some_and(|pid| world.lives(pid)),
                Phase::Stopped => true,
                Phase::Creating | Phase::Starting | Phase::Stopping | Phase::Destroying => false,
            });
            settled && world.processes().len() == all.iter().filter(|info| info.pid.is_some()).count()
        }));
        let all = self.sessions[0].list(None);
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

    /// Everything that is in memory is in the file, once nothing is under way.
    fn check_ledger(&self, root: &Path) {
        self.runtime.block_on(support::eventually("a ledger that equals the registry", || {
            let Ok(Some(document)) = ledger::read(&root.join("state.json")) else { return false };
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
    fn the_books_balance_after_any_sequence_of_calls_faults_and_crashes(
        steps in proptest::collection::vec(step(), 1..24),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let world = World::new(dir.path());
        let mut host = Host::open(dir.path(), &world);
        for step in &steps {
            host = host.take(step, dir.path(), &world);
            host.check(dir.path(), &world);
        }
        // A save that failed is made good by the next one.
        let session = host.daemon.open_session(SessionKind::Shell);
        host.runtime.block_on(session.create(named("last"), &Progress::silent())).unwrap();
        host.check_ledger(dir.path());
    }
}
