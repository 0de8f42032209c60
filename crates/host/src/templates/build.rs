//! Makes a template: brings a VM up to the state that should be saved, stops it and saves it.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_agent::{AgentClient, Stage};
use agentiso_core::config::InitMode;
use agentiso_core::ids::WorkspaceId;
use agentiso_disk::{Backing, DiskError, Qcow2Storage, Storage};
use agentiso_sys::Progress;
use agentiso_sys::files::FileError;
use agentiso_vm::{BaseImage, ExecSpec, Identity, NetworkIdentity};
use thiserror::Error;
use tokio::time::Instant;

use super::copy::copy_sparse;
use super::key::Inputs;
use super::manifest;
use super::store::{Building, Store, Template};
use crate::boot::launch::{Host, Launched, Start};
use crate::boot::{BootError, layers, refuse_missing_init};
use crate::qemu::argv::{Begin, Memory, Shape};
use crate::qmp::QmpError;

/// Saving writes some 100 KB; the RAM is in its file already.
const SAVE_DEADLINE: Duration = Duration::from_secs(30);

/// QEMU flushes the disk and unmaps the memory, whose dirty pages may have to be written first.
const QUIT_DEADLINE: Duration = Duration::from_secs(60);

/// The warm-up command is the smallest possible.
const WARM_UP_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum TemplateError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("the VM for the template did not start: {0}")]
    Boot(#[from] BootError),
    #[error("the VM for the template could not be saved: {0}")]
    Save(#[source] QmpError),
    #[error("QEMU did not exit within {} s after the template was saved", QUIT_DEADLINE.as_secs())]
    Quit,
    #[error("the saved device state cannot be read back")]
    DeviceState,
    #[error("the template was not built within {seconds} s")]
    TimedOut { seconds: u64 },
}

/// The source of an image template.
#[derive(Clone, Debug)]
pub(super) struct ImageSource {
    pub(super) image: BaseImage,
    pub(super) disk_gb: u32,
    pub(super) init_mode: InitMode,
}

/// Builds templates in one store with one host's QEMU.
pub(super) struct Builder<'a> {
    pub(super) host: &'a Host,
    pub(super) store: &'a Store,
    pub(super) run_root: &'a Path,
    pub(super) progress: &'a Progress,
    /// The longest time for one template.
    pub(super) limit: Duration,
}

impl Builder<'_> {
    /// Boots a VM until its agent waits for a disk.
    pub(super) async fn bare(&self, inputs: &Inputs) -> Result<Template, TemplateError> {
        let began = Instant::now();
        let building = self.store.begin(&inputs.key())?;
        let start = self.start(inputs, &building, Begin::Boot, Vec::new());
        self.progress.report("booting a VM for the bare template", Some(0.1));
        let deadline = began + self.limit;
        let launched = self.host.spawn(&start)?.answering().await?;
        let agent = launched.greet(deadline).await?;
        self.save(launched, agent, building, inputs, began).await
    }

    /// Extends a bare template by the image's disk as its root.
    pub(super) async fn image(
        &self,
        inputs: &Inputs,
        bare: &Template,
        source: &ImageSource,
    ) -> Result<Template, TemplateError> {
        let began = Instant::now();
        let deadline = began + self.limit;
        refuse_missing_init(&source.image, source.init_mode).await?;
        let building = self.store.begin(&inputs.key())?;
        let name = source.image.name.as_str();
        self.progress.report(&format!("building a template of the image {name}"), Some(0.6));
        let backing = Backing { name: name.to_owned(), layers: vec![source.image.disk.clone()] };
        let bytes = u64::from(source.disk_gb) << 30;
        Qcow2Storage.create_from_image(building.dir(), &backing, bytes).await?;
        let disk = layers::of(building.dir()).await?;
        // The VM writes to its RAM file, so it gets a copy of the bare template's.
        let (from, to) = (bare.ram(), building.dir().join(manifest::RAM));
        let copied = tokio::task::spawn_blocking(move || {
            copy_sparse(&from, &to).map_err(FileError::at("copy to", &to))
        });
        copied.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let start = self.start(inputs, &building, Begin::Restore, disk);
        let launched = self.host.spawn(&start)?.answering().await?;
        launched.restore(&bare.device_state()).await?;
        let agent = launched.greet(deadline).await?;
        let agent = launched.root(agent, source.init_mode, &source.image.name, deadline).await?;
        warm_up(&launched, &agent).await?;
        self.save(launched, agent, building, inputs, began).await
    }

    fn start(&self, inputs: &Inputs, building: &Building, begin: Begin, layers: Vec<PathBuf>) -> Start {
        let id = WorkspaceId::random();
        Start {
            id,
            shape: Shape { vcpus: inputs.vcpus, memory_mb: inputs.memory_mb },
            memory: Memory::Recorded(building.dir().join(manifest::RAM)),
            begin,
            layers,
            run_dir: self.run_root.join(format!("t-{}", id.short())),
            card: None,
            console_log: building.dir().join("console.log"),
            stderr_log: building.dir().join("stderr.log"),
        }
    }

    async fn save(
        &self,
        launched: Launched,
        agent: AgentClient,
        building: Building,
        inputs: &Inputs,
        began: Instant,
    ) -> Result<Template, TemplateError> {
        self.progress.report("saving the template", Some(0.9));
        // The agent must be saved idle, not in the middle of our connection. QEMU tells the guest through its memory
        // that we disconnected, and must have done so before the devices are saved: a device whose queue in memory is
        // ahead of its state never delivers a message again.
        drop(agent);
        let qmp = launched.qmp();
        qmp.agent_hung_up().await.map_err(TemplateError::Save)?;
        qmp.execute("stop", None).await.map_err(TemplateError::Save)?;
        let device_state = building.dir().join(manifest::DEVICE_STATE);
        qmp.save_devices(&device_state, SAVE_DEADLINE).await.map_err(TemplateError::Save)?;
        qmp.execute("quit", None).await.map_err(TemplateError::Save)?;
        let gone = tokio::time::timeout(QUIT_DEADLINE, launched.process().wait()).await;
        gone.map_err(|_elapsed| TemplateError::Quit)?;
        drop(launched);
        let (store, inputs) = (self.store.clone(), inputs.clone());
        let published = tokio::task::spawn_blocking(move || publish(&store, building, inputs, began));
        published.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }
}

/// Lets the guest do once what every restored VM does first: take an identity and run a command. Then drivers are
/// loaded, and the pages that were read are shared by all restored VMs. The whole identity is replaced when a VM gets
/// its own.
async fn warm_up(launched: &Launched, agent: &AgentClient) -> Result<(), BootError> {
    let network = NetworkIdentity {
        mac: [0x02, 0, 0, 0, 0, 1],
        address: Ipv4Addr::new(169, 254, 0, 2),
        prefix: 16,
        gateway: Ipv4Addr::new(169, 254, 0, 1),
        dns: vec![Ipv4Addr::new(169, 254, 0, 1)],
    };
    let identity = Identity {
        hostname: "template".to_owned(),
        machine_id: "0".repeat(31) + "1",
        network: Some(network),
    };
    launched.identify(agent, &identity).await?;
    launched
        .unless_dead(async {
            let command = agent.exec(ExecSpec::shell("true").within(WARM_UP_DEADLINE)).await?;
            command.outcome().await?;
            agent.sync().await
        })
        .await
}

/// Makes the files read-only and gives the directory its final name. Waits for the disk, so it runs in its own thread.
fn publish(
    store: &Store,
    building: Building,
    inputs: Inputs,
    began: Instant,
) -> Result<Template, TemplateError> {
    let sealed = manifest::seal(building.dir(), inputs, began.elapsed())?;
    let manifest = sealed.ok_or(TemplateError::DeviceState)?;
    Ok(store.publish(building, &manifest.inputs.key())?)
}

/// Whether the agent in a restored template is in the stage that this kind of template requires.
pub(crate) fn stage_fits(image_template: bool, stage: Stage) -> bool {
    match stage {
        Stage::Bare => !image_template,
        Stage::Rooted => image_template,
    }
}
