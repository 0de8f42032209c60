//! Sees to it that each template is made once, by whoever needs it first, or in the background.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentiso_core::config::InitMode;
use agentiso_core::resources::Resources;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::build::{Builder, ImageSource, TemplateError};
use super::key::{HostInputs, Inputs, TemplateKey, TemplateKind};
use super::lock::BuildLock;
use super::store::{Store, Template, TemplateInfo};
use crate::boot::BootError;
use crate::boot::launch::Host;
use crate::files::FileError;
use crate::progress::Progress;
use crate::qemu::argv::Shape;
use crate::spec::{BaseImage, MachineSpec};

/// Sizes waiting to be built in the background. A request beyond it is dropped; the next boot asks again.
const QUEUE: usize = 32;

/// A guest that did not answer after a restore may have met a busy host once; twice is the template's fault.
const STRIKES: u32 = 2;

/// A size whose template cannot be made is not tried again and again.
const MAX_FAILURES: u32 = 3;

/// What making one template may take, also where `vm.boot_timeout_secs` is less: nobody need wait for it, it has a low
/// priority, and the slower a host is, the more it needs templates.
const BUILD_TIMEOUT: Duration = Duration::from_secs(600);

/// Of the time that a boot may take, the part that a machine waits for a template that is being made. Then it boots.
const WAIT_SHARE: u32 = 2;

/// What a template is wanted for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    shape: Shape,
    /// `None`: a bare one is enough.
    source: Option<ImageSource>,
}

impl Wanted {
    pub(crate) fn bare(shape: Shape) -> Self {
        Self { shape, source: None }
    }

    pub(crate) fn image(spec: &MachineSpec) -> Self {
        let source = ImageSource {
            image: spec.base_image.clone(),
            disk_gb: spec.resources.disk_gb,
            init_mode: spec.init_mode,
        };
        Self { shape: spec.shape(), source: Some(source) }
    }

    fn inputs(&self, host: &HostInputs) -> Inputs {
        let kind = match &self.source {
            None => TemplateKind::Bare,
            Some(source) => TemplateKind::Image {
                image_id: source.image.id.clone(),
                image_name: source.image.name.to_string(),
                disk_gb: source.disk_gb,
                init_mode: match source.init_mode {
                    InitMode::Fast => "fast".to_owned(),
                    InitMode::System => "system".to_owned(),
                },
            },
        };
        Inputs::new(host, self.shape, kind)
    }
}

/// The templates of one host. Clones share them; the background work ends with the last one.
#[derive(Clone, Debug)]
pub struct Templates {
    core: Arc<Core>,
    queue: mpsc::Sender<Wanted>,
    _worker: Arc<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
struct Core {
    host: Host,
    inputs: HostInputs,
    store: Store,
    run_root: PathBuf,
    /// Off: none is found and none is made in the background.
    enabled: bool,
    /// Held while this process builds the template with that key.
    building: Mutex<HashMap<TemplateKey, Arc<tokio::sync::Mutex<()>>>>,
    strikes: Mutex<HashMap<TemplateKey, u32>>,
}

impl Templates {
    pub(crate) fn new(
        host: Host,
        inputs: HostInputs,
        store: Store,
        run_root: PathBuf,
        enabled: bool,
    ) -> Self {
        let core = Arc::new(Core {
            host,
            inputs,
            store,
            run_root,
            enabled,
            building: Mutex::default(),
            strikes: Mutex::default(),
        });
        let (queue, requests) = mpsc::channel(QUEUE);
        let worker = tokio::spawn(work(core.clone(), requests));
        Self { core, queue, _worker: Arc::new(AbortOnDropHandle::new(worker)) }
    }

    /// Makes the bare template for machines of this size, unless it is there.
    pub async fn ensure_bare(
        &self,
        resources: Resources,
        progress: &Progress,
    ) -> Result<TemplateKey, TemplateError> {
        let shape = Shape { vcpus: resources.vcpus, memory_mb: resources.memory_mb };
        Ok(self.core.ensure(&Wanted::bare(shape), progress).await?.key)
    }

    /// Makes the template of an image for machines of this size (and the bare one it needs), unless it is there.
    pub async fn ensure_image(
        &self,
        image: &BaseImage,
        resources: Resources,
        init_mode: InitMode,
        progress: &Progress,
    ) -> Result<TemplateKey, TemplateError> {
        let shape = Shape { vcpus: resources.vcpus, memory_mb: resources.memory_mb };
        let source = ImageSource { image: image.clone(), disk_gb: resources.disk_gb, init_mode };
        Ok(self.core.ensure(&Wanted { shape, source: Some(source) }, progress).await?.key)
    }

    pub fn list(&self) -> Vec<TemplateInfo> {
        self.core.store.list()
    }

    /// Removes templates that are of no use to anybody. `images` are the ids of the images there are.
    pub fn prune(&self, images: &HashSet<String>) -> Result<Vec<TemplateKey>, FileError> {
        self.core.store.prune(&self.core.inputs, images)
    }

    /// A template that is there, or being made by us right now: who comes second waits for the first, but not longer than
    /// a boot is worth.
    pub(crate) async fn find(&self, wanted: &Wanted) -> Option<Template> {
        if !self.core.enabled {
            return None;
        }
        let inputs = wanted.inputs(&self.core.inputs);
        if let Some(template) = self.core.store.find(&inputs) {
            return Some(template);
        }
        let under_way = lock(&self.core.building).get(&inputs.key()).cloned()?;
        let patience = self.core.host.boot_timeout / WAIT_SHARE;
        let _finished = tokio::time::timeout(patience, under_way.lock()).await.ok()?;
        self.core.store.find(&inputs)
    }

    /// Asks for a template without waiting for it.
    pub(crate) fn want(&self, wanted: Wanted) {
        if self.core.enabled && self.queue.try_send(wanted).is_err() {
            tracing::debug!("too many templates are wanted; this one is left for another time");
        }
    }

    pub(crate) fn succeeded(&self, template: &Template) {
        template.touch();
        lock(&self.core.strikes).remove(&template.key);
    }

    /// Notes that a restore failed; a template that is to blame is taken out of use.
    pub(crate) fn failed(&self, template: &Template, error: &BootError) {
        let strikes = {
            let mut strikes = lock(&self.core.strikes);
            let count = strikes.entry(template.key.clone()).or_insert(0);
            *count += 1;
            *count
        };
        if error.condemns_template() || strikes >= STRIKES {
            tracing::warn!(key = %template.key, "the template is taken out of use");
            self.core.store.condemn(&template.key);
            lock(&self.core.strikes).remove(&template.key);
        }
    }
}

impl Core {
    async fn ensure(&self, wanted: &Wanted, progress: &Progress) -> Result<Template, TemplateError> {
        let bare = match &wanted.source {
            None => None,
            // Boxed by way of the inner function: an image template needs a bare one, which needs nothing.
            Some(_) => match self.store.find(&wanted.inputs(&self.inputs)) {
                Some(template) => return Ok(template),
                None => Some(self.ensure_one(&Wanted::bare(wanted.shape), None, progress).await?),
            },
        };
        self.ensure_one(wanted, bare.as_ref(), progress).await
    }

    async fn ensure_one(
        &self,
        wanted: &Wanted,
        bare: Option<&Template>,
        progress: &Progress,
    ) -> Result<Template, TemplateError> {
        let inputs = wanted.inputs(&self.inputs);
        if let Some(template) = self.store.find(&inputs) {
            return Ok(template);
        }
        let key = inputs.key();
        let alone = lock(&self.building).entry(key.clone()).or_default().clone();
        let _alone = alone.lock().await;
        let _forget = Forget { building: &self.building, key: &key };
        let _only_process = BuildLock::acquire(self.store.dir(), &key).await?;
        if let Some(template) = self.store.find(&inputs) {
            return Ok(template);
        }
        let limit = self.host.boot_timeout.max(BUILD_TIMEOUT);
        let (host, store, run_root) = (&self.host, &self.store, self.run_root.as_path());
        let builder = Builder { host, store, run_root, progress, limit };
        let build = async {
            match (&wanted.source, bare) {
                (Some(source), Some(bare)) => builder.image(&inputs, bare, source).await,
                (Some(_) | None, _) => builder.bare(&inputs).await,
            }
        };
        let built = tokio::time::timeout(limit, build).await;
        let template = built.unwrap_or(Err(TemplateError::TimedOut { seconds: limit.as_secs() }))?;
        tracing::info!(key = %template.key, memory_mb = wanted.shape.memory_mb, "a template was made");
        Ok(template)
    }
}

/// Removes the entry of a finished build. Whoever still waits holds the lock itself.
struct Forget<'a> {
    building: &'a Mutex<HashMap<TemplateKey, Arc<tokio::sync::Mutex<()>>>>,
    key: &'a TemplateKey,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(self.building).remove(self.key);
    }
}

/// Builds one template at a time, so that the machines people use keep most of the host.
async fn work(core: Arc<Core>, mut requests: mpsc::Receiver<Wanted>) {
    let mut failures: HashMap<TemplateKey, u32> = HashMap::new();
    while let Some(wanted) = requests.recv().await {
        let key = wanted.inputs(&core.inputs).key();
        if failures.get(&key).is_some_and(|count| *count >= MAX_FAILURES) {
            continue;
        }
        match core.ensure(&wanted, &Progress::silent()).await {
            Ok(_) => {
                failures.remove(&key);
            }
            Err(error) => {
                tracing::warn!(%key, %error, "a template could not be made");
                *failures.entry(key).or_insert(0) += 1;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
