//! Machines that exist in memory: a few commands, a few files, no boot.
//!
//! Commands: `echo TEXT`, `bytes N`, `wait` (until it is killed), `late` (times out), `signal N`, `panic`.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentiso_core::memory::HostMemory;
use agentiso_core::names::ImageName;
use agentiso_core::paths::GuestPath;
use agentiso_core::resources::Resources;
use agentiso_daemon::machines::{
    AttachFailure, BootFailure, Booted, DiskUsage, EraseFailure, ExecEvents, ExitReason, GuestAgent,
    ImageFailure, ImageRef, Machine, MachineRecord, MachineSpec, Machines, SpawnHook,
};
use agentiso_daemon::{
    AgentFailure, Captured, DirEntry, DirListing, EntryKind, ExecEvent, ExecOutcome, ExecSpec, FileContent,
    GuestCode, HostFacts, Progress, Rung, TemplateInfo, WriteFile,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;

/// Entries of a directory that are listed at once.
const MAX_LISTED: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct FakeMachines {
    /// Commands that wait now.
    pub(crate) waiting: Arc<AtomicUsize>,
}

impl FakeMachines {
    /// Resolves once exactly so many commands wait.
    pub(crate) async fn waiting_commands(&self, count: usize) {
        let seen = async {
            while self.waiting.load(Ordering::SeqCst) != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), seen).await.expect("commands that begin and end");
    }

    async fn boot(&self, spawned: SpawnHook, progress: &Progress) -> Result<Booted, BootFailure> {
        progress.report("booting", Some(0.5));
        let machine = Arc::new(FakeMachine {
            agent: Arc::new(FakeGuest { files: Mutex::default(), waiting: self.waiting.clone() }),
            off: watch::Sender::new(false),
        });
        spawned(machine.record()).await?;
        progress.report("ready", Some(1.0));
        Ok(Booted { machine, rung: Rung::ImageTemplate, boot_time: Duration::from_millis(7) })
    }
}

impl Machines for FakeMachines {
    fn image(&self, name: &ImageName) -> Result<ImageRef, ImageFailure> {
        if name.as_str() == "debian-dev" {
            return Ok(ImageRef { name: name.clone(), id: "0".repeat(64), virtual_size: 1 << 30 });
        }
        Err(ImageFailure::Missing { name: name.clone(), known: vec!["debian-dev".to_owned()] })
    }

    fn create<'a>(
        &'a self,
        _: &'a MachineSpec,
        spawned: SpawnHook,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        self.boot(spawned, progress).boxed()
    }

    fn start<'a>(
        &'a self,
        _: &'a MachineSpec,
        spawned: SpawnHook,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        self.boot(spawned, progress).boxed()
    }

    fn is_alive(&self, _: &MachineRecord) -> bool {
        false
    }

    fn attach<'a>(
        &'a self,
        _: &'a MachineSpec,
        _: &'a MachineRecord,
    ) -> BoxFuture<'a, Result<Arc<dyn Machine>, AttachFailure>> {
        async { Err(AttachFailure::Gone) }.boxed()
    }

    fn halt<'a>(&'a self, _: &'a MachineSpec, _: Option<&'a MachineRecord>) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }

    fn erase<'a>(&'a self, _: &'a MachineSpec) -> BoxFuture<'a, Result<(), EraseFailure>> {
        async { Ok(()) }.boxed()
    }

    fn remove_strays<'a>(
        &'a self,
        _: &'a (dyn Fn(&str) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Vec<String>> {
        async { Vec::new() }.boxed()
    }

    fn prepare<'a>(&'a self, _: &'a ImageName, _: Resources) -> BoxFuture<'a, Result<(), BootFailure>> {
        async { Ok(()) }.boxed()
    }

    fn templates(&self) -> Vec<TemplateInfo> {
        Vec::new()
    }

    fn disk_usage(&self, _: &MachineSpec) -> Option<DiskUsage> {
        Some(DiskUsage { used_bytes: 4096, virtual_bytes: 1 << 30 })
    }

    fn host_memory(&self) -> Option<HostMemory> {
        None
    }

    fn facts(&self) -> BoxFuture<'_, Result<HostFacts, BootFailure>> {
        async { Err(BootFailure::HostUnfit { reason: "a fake has no facts".to_owned() }) }.boxed()
    }
}

#[derive(Debug)]
struct FakeMachine {
    agent: Arc<FakeGuest>,
    off: watch::Sender<bool>,
}

impl FakeMachine {
    fn end() -> ExitReason {
        ExitReason { clean: true, text: "it was switched off".to_owned() }
    }
}

impl Machine for FakeMachine {
    fn record(&self) -> MachineRecord {
        MachineRecord { pid: i32::MAX, start_time: 1, boot_id: "fake".to_owned() }
    }

    fn agent(&self) -> Arc<dyn GuestAgent> {
        self.agent.clone()
    }

    fn exited(&self) -> BoxFuture<'static, ExitReason> {
        let mut off = self.off.subscribe();
        async move {
            if off.wait_for(|off| *off).await.is_err() {
                pending::<()>().await;
            }
            Self::end()
        }
        .boxed()
    }

    fn shutdown(&self, _: Duration) -> BoxFuture<'_, ExitReason> {
        self.off.send_replace(true);
        async { Self::end() }.boxed()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        self.off.send_replace(true);
        async {}.boxed()
    }
}

#[derive(Debug)]
struct FakeGuest {
    files: Mutex<BTreeMap<String, (Vec<u8>, u32)>>,
    waiting: Arc<AtomicUsize>,
}

/// Counts a waiting command for as long as it is not dropped.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn captured(output: &[u8], spec: &ExecSpec) -> Captured {
    let head = output.len().min(spec.head_bytes as usize);
    let tail = (output.len() - head).min(spec.tail_bytes as usize);
    Captured {
        head: Bytes::copy_from_slice(&output[..head]),
        tail: Bytes::copy_from_slice(&output[output.len() - tail..]),
        total_bytes: output.len() as u64,
    }
}

fn missing(path: &GuestPath) -> AgentFailure {
    AgentFailure::Refused { code: GuestCode::NotFound, message: format!("{path} does not exist") }
}

impl GuestAgent for FakeGuest {
    fn exec(&self, spec: ExecSpec) -> BoxFuture<'_, Result<ExecEvents, AgentFailure>> {
        let waiting = self.waiting.clone();
        async move {
            let (word, rest) = spec.command.split_once(' ').unwrap_or((&spec.command, ""));
            let mut outcome = ExecOutcome { exit_code: Some(0), ..ExecOutcome::default() };
            match word {
                "echo" => outcome.stdout = captured(format!("{rest}\n").as_bytes(), &spec),
                "bytes" => outcome.stdout = captured(&vec![b'x'; rest.parse().unwrap_or(0)], &spec),
                "late" => {
                    outcome = ExecOutcome { signal: Some(9), timed_out: true, ..ExecOutcome::default() };
                    outcome.stdout = captured(b"so far", &spec);
                }
                "signal" => outcome = ExecOutcome { signal: rest.parse().ok(), ..ExecOutcome::default() },
                "panic" => panic!("as asked"),
                "wait" => {
                    waiting.fetch_add(1, Ordering::SeqCst);
                    let guard = Waiting(waiting);
                    let never = futures::stream::once(async move {
                        let _guard = guard;
                        pending::<Result<ExecEvent, AgentFailure>>().await
                    });
                    return Ok(never.boxed());
                }
                _ => outcome.exit_code = Some(127),
            }
            Ok(futures::stream::iter([Ok(ExecEvent::Exited(outcome))]).boxed())
        }
        .boxed()
    }

    fn read_file<'a>(
        &'a self,
        path: &'a GuestPath,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<FileContent, AgentFailure>> {
        async move {
            let files = self.files.lock().expect("no panic");
            let (data, mode) = files.get(path.as_str()).ok_or_else(|| missing(path))?;
            let begin = (offset as usize).min(data.len());
            let end = begin.saturating_add(limit as usize).min(data.len());
            let data_slice = Bytes::copy_from_slice(&data[begin..end]);
            Ok(FileContent { data: data_slice, size: data.len() as u64, mode: *mode })
        }
        .boxed()
    }

    fn write_file(&self, file: WriteFile, data: Bytes) -> BoxFuture<'_, Result<(), AgentFailure>> {
        async move {
            let entry = (data.to_vec(), file.mode.unwrap_or(0o644));
            self.files.lock().expect("no panic").insert(file.path.as_str().to_owned(), entry);
            Ok(())
        }
        .boxed()
    }

    fn edit_file<'a>(
        &'a self,
        path: &'a GuestPath,
        old: &'a str,
        new: &'a str,
        replace_all: bool,
    ) -> BoxFuture<'a, Result<u64, AgentFailure>> {
        async move {
            let mut files = self.files.lock().expect("no panic");
            let (data, _) = files.get_mut(path.as_str()).ok_or_else(|| missing(path))?;
            let text = String::from_utf8_lossy(data).into_owned();
            if !text.contains(old) {
                let message = format!("the text does not occur in {path}");
                return Err(AgentFailure::Refused { code: GuestCode::NoMatch, message });
            }
            let count = if replace_all { usize::MAX } else { 1 };
            *data = text.replacen(old, new, count).into_bytes();
            Ok(1)
        }
        .boxed()
    }

    fn list_dir<'a>(&'a self, path: &'a GuestPath) -> BoxFuture<'a, Result<DirListing, AgentFailure>> {
        async move {
            let files = self.files.lock().expect("no panic");
            let inside = format!("{}/", path.as_str().trim_end_matches('/'));
            let entries = files.iter().filter_map(|(name, (data, mode))| {
                let name = name.strip_prefix(&inside)?.to_owned();
                Some(DirEntry {
                    name,
                    kind: EntryKind::File,
                    size: data.len() as u64,
                    mode: *mode,
                    modified: 5,
                })
            });
            let listing: Vec<_> = entries.rev().collect();
            let truncated = listing.len() > MAX_LISTED;
            Ok(DirListing { entries: listing.into_iter().take(MAX_LISTED).collect(), truncated })
        }
        .boxed()
    }
}
