//! A backend whose steps fail on demand.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use agentiso_disk::{DiskError, LayerInfo, LayerName, Layers, TreeBytes};
use agentiso_sys::files::FileError;
use tokio_util::sync::CancellationToken;

/// The way a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The step is not done.
    Before,
    /// The step is done, and reported as failed.
    After,
    /// The step is not done, and neither are later ones until [`Faulty::mend`].
    CrashBefore,
    /// The step is done, but no later one.
    CrashAfter,
}

impl Fault {
    pub(crate) fn is_crash(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }
}

type Torn = Arc<dyn Fn(&Path, &Path) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Faulty<L> {
    inner: L,
    plan: Arc<Mutex<Plan>>,
    /// Does half of a commit.
    torn: Torn,
}

#[derive(Debug, Default)]
struct Plan {
    /// The number of steps before the fault.
    left: Option<(usize, Fault)>,
    crashed: bool,
    /// Whether a fault happened.
    hit: bool,
}

impl<L: Layers> Faulty<L> {
    pub(crate) fn new(inner: L, torn: impl Fn(&Path, &Path) + Send + Sync + 'static) -> Self {
        Self { inner, plan: Arc::default(), torn: Arc::new(torn) }
    }

    /// Makes a step fail, after `steps` others. Only steps that change something count.
    pub(crate) fn arm(&self, steps: usize, fault: Fault) {
        *self.plan.lock().unwrap() = Plan { left: Some((steps, fault)), crashed: false, hit: false };
    }

    /// Ends the fault, and returns whether it happened.
    pub(crate) fn mend(&self) -> bool {
        std::mem::take(&mut *self.plan.lock().unwrap()).hit
    }

    fn next(&self) -> Option<Fault> {
        let mut plan = self.plan.lock().unwrap();
        if plan.crashed {
            return Some(Fault::CrashBefore);
        }
        let (left, fault) = plan.left?;
        if left > 0 {
            plan.left = Some((left - 1, fault));
            return None;
        }
        plan.left = None;
        plan.hit = true;
        plan.crashed = fault.is_crash();
        Some(fault)
    }

    fn step<T>(&self, path: &Path, work: impl FnOnce() -> Result<T, DiskError>) -> Result<T, DiskError> {
        match self.next() {
            None => work(),
            Some(Fault::Before | Fault::CrashBefore) => Err(broken(path)),
            Some(Fault::After | Fault::CrashAfter) => {
                work()?;
                Err(broken(path))
            }
        }
    }

    /// Reads fail only after a crash.
    fn look<T>(&self, path: &Path, work: impl FnOnce() -> Result<T, DiskError>) -> Result<T, DiskError> {
        match self.plan.lock().unwrap().crashed {
            true => Err(broken(path)),
            false => work(),
        }
    }
}

fn broken(path: &Path) -> DiskError {
    FileError::at("do what a test forbids with", path)(io::Error::other("a fault")).into()
}

impl<L: Layers> Layers for Faulty<L> {
    fn load(&self, dir: &Path) -> Result<Option<String>, DiskError> {
        self.look(dir, || self.inner.load(dir))
    }

    fn store(&self, dir: &Path, record: &str) -> Result<(), DiskError> {
        self.step(dir, || self.inner.store(dir, record))
    }

    fn make_directory(&self, dir: &Path) -> Result<bool, DiskError> {
        self.step(dir, || self.inner.make_directory(dir))
    }

    fn names(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        self.look(dir, || self.inner.names(dir))
    }

    fn inspect(&self, dir: &Path, layer: &LayerName) -> Result<Option<LayerInfo>, DiskError> {
        self.look(dir, || self.inner.inspect(dir, layer))
    }

    fn is_open(&self, dir: &Path, layer: &LayerName) -> Result<bool, DiskError> {
        self.look(dir, || self.inner.is_open(dir, layer))
    }

    fn create(&self, dir: &Path, layer: &LayerName, on: &LayerName, bytes: u64) -> Result<(), DiskError> {
        self.step(dir, || self.inner.create(dir, layer, on, bytes))
    }

    fn adopt(&self, image: &Path, dir: &Path, layer: &LayerName) -> Result<u64, DiskError> {
        self.step(dir, || self.inner.adopt(image, dir, layer))
    }

    fn hold(&self, dir: &Path) -> Result<(), DiskError> {
        self.look(dir, || self.inner.hold(dir))
    }

    fn link(&self, source: &Path, dir: &Path, layer: &LayerName) -> Result<(), DiskError> {
        self.step(dir, || self.inner.link(source, dir, layer))
    }

    fn remove(&self, dir: &Path, name: &str) -> Result<(), DiskError> {
        self.step(dir, || self.inner.remove(dir, name))
    }

    fn sync(&self, dir: &Path) -> Result<(), DiskError> {
        self.step(dir, || self.inner.sync(dir))
    }

    fn commit(&self, dir: &Path, child: &LayerName, into: &LayerName) -> Result<(), DiskError> {
        self.look(dir, || Ok(()))?;
        if self.next().is_none() {
            return self.inner.commit(dir, child, into);
        }
        (self.torn)(&dir.join(child.as_str()), &dir.join(into.as_str()));
        Err(broken(dir))
    }

    fn combine(
        &self,
        dir: &Path,
        layer: &LayerName,
        of: &[LayerName],
        stop: &CancellationToken,
    ) -> Result<(), DiskError> {
        self.step(dir, || self.inner.combine(dir, layer, of, stop))
    }

    fn rebase(&self, dir: &Path, layer: &LayerName, backing: &LayerName) -> Result<(), DiskError> {
        self.step(dir, || self.inner.rebase(dir, layer, backing))
    }

    fn tree_bytes(&self, dir: &Path, name: &str) -> Result<TreeBytes, DiskError> {
        self.look(dir, || self.inner.tree_bytes(dir, name))
    }

    fn overlap(&self, dir: &Path, child: &LayerName, into: &LayerName) -> Result<u64, DiskError> {
        self.look(dir, || self.inner.overlap(dir, child, into))
    }
}
