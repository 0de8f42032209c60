//! The boot ladder: the ways to start a VM, fastest first. If one rung fails, the next one is tried, with a warning.
//!
//! ```text
//! create:  image template  ──▶ bare template + fresh overlay ──▶ cold boot + fresh overlay
//! resume:  snapshot memory ──▶ bare template + its own disk  ──▶ cold boot + its own disk
//! start:                       bare template + its own disk  ──▶ cold boot + its own disk
//! ```

use std::path::PathBuf;
use std::time::Duration;

use agentiso_agent::AgentClient;
use agentiso_disk::{Backing, DiskError, Qcow2Storage, Storage};
use agentiso_sys::Progress;
use agentiso_sys::files;
use agentiso_vm::{OnSpawn, Rung, VmSpec};
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::error::BootError;
use super::init::refuse_missing_init;
use super::launch::{Host, Launched, Spawned, Start, agent_socket};
use super::layers;
use crate::Booted;
use crate::qemu::argv::{Begin, Memory};
use crate::qmp::Event;
use crate::templates::Templates;
use crate::templates::keeper::Wanted;
use crate::templates::stage_fits;
use crate::templates::store::Template;
use crate::vm::{Parts, Vm, room};

/// A restore gets this fraction of the boot timeout before the next rung is tried.
const RESTORE_SHARE: u32 = 3;

/// A killed process is gone as soon as the kernel has freed its memory.
const GONE_DEADLINE: Duration = Duration::from_secs(20);

/// The source of a VM's disk on this attempt.
enum Disk {
    /// A new overlay on these layers.
    Fresh(Backing),
    /// The workspace's existing disk.
    Own,
}

pub(crate) struct Ladder<'a> {
    pub(crate) host: &'a Host,
    pub(crate) templates: &'a Templates,
    pub(crate) spec: &'a VmSpec,
    pub(crate) spawned: &'a OnSpawn,
    pub(crate) progress: &'a Progress,
}

impl Ladder<'_> {
    /// Starts a new VM. On an error, or when dropped, the directory that it made is removed.
    pub(crate) async fn create(&self) -> Result<Booted, BootError> {
        let spec = self.spec;
        refuse_small_disk(spec)?;
        refuse_missing_init(&spec.base_image, spec.init_mode).await?;
        files::make_private_dir(&spec.data_dir)?;
        let made = MadeDir(Some(spec.data_dir.clone()));
        let began = Instant::now();
        let wanted = Wanted::image(spec);
        // An image template was saved with a network; a VM without one must not inherit it.
        let template = match spec.identity.network {
            Some(_) => self.templates.find(&wanted).await,
            None => None,
        };
        if let Some(template) = template {
            let backing = template.backing(spec.base_image.name.as_str());
            let attempt = self.restore(&template, Rung::ImageTemplate, Disk::Fresh(backing));
            if let Some(vm) = self.fall_through(&template, Rung::ImageTemplate, attempt.await)? {
                made.keep();
                return Ok(booted(vm, Rung::ImageTemplate, began));
            }
        }
        let started = self.any_disk(began, || Disk::Fresh((&spec.base_image).into())).await;
        if would_profit_from_template(&started) {
            // Made while this VM is already in use, so that the next one need not wait for it.
            self.templates.want(wanted);
        }
        let started = started?;
        made.keep();
        Ok(started)
    }

    /// Starts a VM from its existing disk.
    pub(crate) async fn start(&self) -> Result<Booted, BootError> {
        let disk = Qcow2Storage.head(&self.spec.data_dir).await?;
        if let Err(source) = disk.metadata() {
            return Err(files::FileError::at("find the disk", &disk)(source).into());
        }
        self.any_disk(Instant::now(), || Disk::Own).await
    }

    /// Starts a VM on its existing disk with the memory that belongs to that disk: its processes go on. If that fails,
    /// the VM starts from the disk alone, with a warning that gives the reason.
    pub(crate) async fn resume(&self, memory: Result<Template, String>) -> Result<Booted, BootError> {
        let began = Instant::now();
        let lost = match memory {
            Ok(memory) => match self.restore(&memory, Rung::Memory, Disk::Own).await {
                Ok(vm) => return Ok(booted(vm, Rung::Memory, began)),
                Err(error) if error.is_worth_another_try() => error.to_string(),
                Err(error) => return Err(at(Rung::Memory)(error)),
            },
            Err(reason) => reason,
        };
        tracing::warn!(workspace = %self.spec.id, lost, "the memory of the snapshot cannot be used");
        let booted = self.start().await?;
        let warning =
            format!("its memory could not be restored ({lost}); it was started from its disk instead");
        Ok(Booted { warning: Some(warning), ..booted })
    }

    /// The rungs that work with any disk.
    async fn any_disk(&self, began: Instant, disk: impl Fn() -> Disk) -> Result<Booted, BootError> {
        let wanted = Wanted::bare(self.spec.resources.into());
        if let Some(template) = self.templates.find(&wanted).await {
            let attempt = self.restore(&template, Rung::BareTemplate, disk());
            if let Some(vm) = self.fall_through(&template, Rung::BareTemplate, attempt.await)? {
                return Ok(booted(vm, Rung::BareTemplate, began));
            }
        }
        self.progress.report("booting: there is no template for this size yet", Some(0.2));
        let vm = self.boot(disk()).await;
        if would_profit_from_template(&vm) {
            self.templates.want(wanted);
        }
        Ok(booted(vm.map_err(at(Rung::ColdBoot))?, Rung::ColdBoot, began))
    }

    /// A VM, or `None` if the next rung should be tried.
    fn fall_through(
        &self,
        template: &Template,
        rung: Rung,
        attempt: Result<Vm, BootError>,
    ) -> Result<Option<Vm>, BootError> {
        match attempt {
            Ok(vm) => {
                self.templates.succeeded(template);
                Ok(Some(vm))
            }
            Err(error) if error.is_worth_another_try() => {
                tracing::warn!(workspace = %self.spec.id, %rung, %error, "restore failed; trying the next rung");
                self.templates.failed(template, &error);
                Ok(None)
            }
            Err(error) => Err(at(rung)(error)),
        }
    }

    async fn restore(&self, template: &Template, rung: Rung, disk: Disk) -> Result<Vm, BootError> {
        self.progress.report(&format!("restoring from the {rung}"), Some(0.3));
        let limit = self.host.boot_timeout / RESTORE_SHARE;
        let start = self.prepare(Memory::Template(template.ram()), Begin::Restore, disk).await?;
        self.bring_up(start, limit, Some((template, rung))).await
    }

    async fn boot(&self, disk: Disk) -> Result<Vm, BootError> {
        let start = self.prepare(Memory::Private, Begin::Boot, disk).await?;
        self.bring_up(start, self.host.boot_timeout, None).await
    }

    /// Starts QEMU and brings the guest up to its own identity, within a time limit.
    async fn bring_up(
        &self,
        start: Start,
        limit: Duration,
        template: Option<(&Template, Rung)>,
    ) -> Result<Vm, BootError> {
        let spawned = self.host.spawn(&start)?;
        let process = spawned.process().clone();
        let up = self.finish(spawned, start, limit, template).await;
        // A QEMU that failed has been killed. The next rung opens the same disk, which stays locked until the process
        // is gone.
        if up.is_err() && tokio::time::timeout(GONE_DEADLINE, process.wait()).await.is_err() {
            return Err(BootError::NotGone { pid: process.pid(), seconds: GONE_DEADLINE.as_secs() });
        }
        up
    }

    /// Turns a started QEMU into a VM. On an error QEMU is killed.
    async fn finish(
        &self,
        spawned: Spawned,
        start: Start,
        limit: Duration,
        template: Option<(&Template, Rung)>,
    ) -> Result<Vm, BootError> {
        let late = |console_tail| BootError::TimedOut { seconds: limit.as_secs(), console_tail };
        let deadline = Instant::now() + limit;
        let mut laps = Laps::begin();
        let answering = tokio::time::timeout_at(deadline, self.answering(spawned)).await;
        let launched = answering.map_err(|_elapsed| late(String::new()))??;
        laps.lap("answering");
        let rising = self.identified_guest(&launched, template, deadline, &mut laps);
        let agent = match tokio::time::timeout_at(deadline, rising).await {
            Ok(result) => result?,
            Err(_elapsed) => return Err(late(launched.report_stuck().await)),
        };
        // This is done before the VM is handed over, so that a boot that is cancelled here is still undone. It is done
        // after the events are subscribed to, because the guest may reach its limit at once.
        let events = launched.events();
        room::watch(self.spec, launched.qmp()).await;
        tracing::debug!(workspace = %start.id, laps = %laps.0, "the VM is up");
        Ok(vm(launched, events, agent, start))
    }

    async fn identified_guest(
        &self,
        launched: &Launched,
        template: Option<(&Template, Rung)>,
        deadline: Instant,
        laps: &mut Laps,
    ) -> Result<AgentClient, BootError> {
        if let Some((template, _rung)) = template {
            launched.restore(&template.device_state()).await?;
            laps.lap("loaded");
        }
        let agent = launched.greet(deadline).await?;
        laps.lap("greeted");
        if let Some((_template, rung)) = template
            && !stage_fits(rung != Rung::BareTemplate, agent.hello().stage)
        {
            return Err(BootError::NotRooted);
        }
        let agent = launched.root(agent, self.spec.init_mode, &self.spec.base_image.name, deadline).await?;
        laps.lap("rooted");
        launched.identify(&agent, &self.spec.identity).await?;
        laps.lap("identified");
        Ok(agent)
    }

    async fn prepare(&self, memory: Memory, begin: Begin, disk: Disk) -> Result<Start, BootError> {
        let spec = self.spec;
        match disk {
            Disk::Fresh(backing) => {
                Qcow2Storage.create_from_image(&spec.data_dir, &backing, spec.disk_bytes()).await?;
            }
            Disk::Own => {}
        }
        let layers = layers::of(&spec.data_dir).await?;
        Ok(Start {
            id: spec.id,
            shape: spec.resources.into(),
            memory,
            begin,
            layers,
            run_dir: spec.run_dir.clone(),
            card: Some(spec.card.clone()),
            console_log: spec.console_log(),
            stderr_log: spec.stderr_log(),
        })
    }

    /// Waits until QEMU answers. Meanwhile its identity is recorded, before anything depends on it.
    async fn answering(&self, spawned: Spawned) -> Result<Launched, BootError> {
        let record = spawned.process().record().clone();
        let recording = async { Ok(self.spawned.tell(record).await?) };
        // A VM that is in no record must not come up.
        let ((), launched) = tokio::try_join!(recording, spawned.answering())?;
        Ok(launched)
    }
}

fn booted(vm: Vm, rung: Rung, began: Instant) -> Booted {
    Booted { vm, rung, boot_time: began.elapsed(), warning: None }
}

/// Takes ownership of a VM that is up.
fn vm(launched: Launched, events: broadcast::Receiver<Event>, agent: AgentClient, start: Start) -> Vm {
    let (process, qmp, recorder) = launched.keep();
    Vm::new(Parts {
        id: start.id,
        process,
        qmp,
        events,
        agent: Some(agent),
        agent_socket: agent_socket(&start.run_dir),
        run_dir: start.run_dir,
        recorder,
        unrecorded: Vec::new(),
        console_log: start.console_log,
        stderr_log: start.stderr_log,
    })
}

/// Collects the duration of each step of a boot, for the log.
struct Laps(String, Instant);

impl Laps {
    fn begin() -> Self {
        Self(String::new(), Instant::now())
    }

    fn lap(&mut self, step: &str) {
        self.0 += &format!("{step} {} ms, ", self.1.elapsed().as_millis());
        self.1 = Instant::now();
    }
}

/// Whether a template would help the next VM of this kind: not if this boot failed for another reason than time.
fn would_profit_from_template<T>(booted: &Result<T, BootError>) -> bool {
    booted.as_ref().err().is_none_or(BootError::is_late)
}

fn at(rung: Rung) -> impl Fn(BootError) -> BootError {
    move |source| {
        // A process that cannot be recorded is no fault of the rung.
        if matches!(source, BootError::Unrecorded(_)) {
            return source;
        }
        BootError::Rung { rung, source: Box::new(source) }
    }
}

fn refuse_small_disk(spec: &VmSpec) -> Result<(), DiskError> {
    if spec.disk_bytes() >= spec.base_image.virtual_size {
        return Ok(());
    }
    Err(DiskError::TooSmall {
        image: spec.base_image.name.to_string(),
        wanted_gib: u64::from(spec.resources.disk_gb),
        needed_gib: spec.base_image.virtual_size.div_ceil(1 << 30),
    })
}

/// A directory that is removed unless it is kept.
struct MadeDir(Option<PathBuf>);

impl MadeDir {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for MadeDir {
    fn drop(&mut self) {
        if let Some(dir) = self.0.take()
            && let Err(error) = files::discard_dir(&dir)
        {
            tracing::warn!(%error, "could not remove the directory of a workspace that was not created");
        }
    }
}
