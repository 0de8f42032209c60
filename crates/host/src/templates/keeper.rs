//! Ensures that each template is made once, by its first user or in the background.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentiso_core::config::InitMode;
use agentiso_core::resources::Resources;
use agentiso_sys::Progress;
use agentiso_sys::files::FileError;
use agentiso_vm::{BaseImage, VmSpec};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::build::{Builder, ImageSource, TemplateError};
use super::key::{HostInputs, Inputs, TemplateKey, TemplateKind};
use super::lock::BuildLock;
use super::store::{Store, Template, TemplateInfo};
use crate::boot::BootError;
use crate::boot::launch::Host;
use crate::qemu::argv::Shape;

/// Requests that wait for the background builder. Further requests are dropped; the next boot asks again.
const QUEUE: usize = 32;

/// A guest that did not answer after a restore may have met a busy host once; the second time the template is at fault.
const STRIKES: u32 = 2;

/// A template that cannot be made is not tried again after this many failures.
const MAX_FAILURES: u32 = 3;

/// The longest time for making one template, even if `vm.boot_timeout_secs` is less: nothing has to wait for it, it has
/// a low priority, and a slow host needs templates the most.
const BUILD_TIMEOUT: Duration = Duration::from_secs(600);

/// The fraction of the boot timeout that a VM waits for a template that is being made. Then it boots.
const WAIT_SHARE: u32 = 2;

/// A request for a template.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    shape: Shape,
    /// `None`: a bare template is requested.
    source: Option<ImageSource>,
}

impl Wanted {
    pub(crate) fn bare(shape: Shape) -> Self {
        Self { shape, source: None }
    }

    pub(crate) fn image(spec: &VmSpec) -> Self {
        let source = ImageSource {
            image: spec.base_image.clone(),
            disk_gb: spec.resources.disk_gb,
            init_mode: spec.init_mode,
        };
        Self { shape: spec.resources.into(), source: Some(source) }
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

/// The templates of one host. Clones share them; the background work ends with the last clone.
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
    /// If false, templates are neither used nor made in the background.
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

    /// Makes the bare template for VMs of this size, unless it exists.
    pub async fn ensure_bare(
        &self,
        resources: Resources,
        progress: &Progress,
    ) -> Result<TemplateKey, TemplateError> {
        let shape = Shape { vcpus: resources.vcpus, memory_mb: resources.memory_mb };
        Ok(self.core.ensure(&Wanted::bare(shape), progress).await?.key)
    }

    /// Makes the template of an image for VMs of this size (and the bare one it needs), unless it exists.
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

    /// Removes useless templates. `images` are the ids of the existing images.
    pub fn prune(&self, images: &HashSet<String>) -> Result<Vec<TemplateKey>, FileError> {
        self.core.store.prune(&self.core.inputs, images)
    }

    /// An existing template, or one that this process is making right now: the caller waits for it up to a fraction of
    /// the boot timeout.
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

    /// Requests a template without waiting for it.
    pub(crate) fn want(&self, wanted: Wanted) {
        if self.core.enabled && self.queue.try_send(wanted).is_err() {
            tracing::debug!("too many templates are requested; this one is not built now");
        }
    }

    pub(crate) fn succeeded(&self, template: &Template) {
        template.touch();
        lock(&self.core.strikes).remove(&template.key);
    }

    /// Records a failed restore; a template that is at fault is taken out of use.
    pub(crate) fn failed(&self, template: &Template, error: &BootError) {
        let strikes = {
            let mut strikes = lock(&self.core.strikes);
            let count = strikes.entry(template.key.clone()).or_insert(0);
            *count += 1;
            *count
        };
        if error.condemns_template() || strikes >= STRIKES {
            tracing::warn!(key = %template.key, "the template is discarded");
            self.core.store.condemn(&template.key);
            lock(&self.core.strikes).remove(&template.key);
        }
    }
}

impl Core {
    async fn ensure(&self, wanted: &Wanted, progress: &Progress) -> Result<Template, TemplateError> {
        let bare = match &wanted.source {
            None => None,
            // The inner function avoids recursion: an image template needs a bare one, which needs no other.
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
        tracing::info!(key = %template.key, memory_mb = wanted.shape.memory_mb, "a template was built");
        Ok(template)
    }
}

/// Removes the entry of a finished build. Callers that still wait hold the lock itself.
struct Forget<'a> {
    building: &'a Mutex<HashMap<TemplateKey, Arc<tokio::sync::Mutex<()>>>>,
    key: &'a TemplateKey,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(self.building).remove(self.key);
    }
}

/// Builds one template at a time, so that most of the host stays available for the VMs in use.
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
                tracing::warn!(%key, %error, "a template could not be built");
                *failures.entry(key).or_insert(0) += 1;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
