//! A model of volumes and their content. Its steps are run on a backend where every step may fail or be interrupted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentiso_core::ids::SnapshotId;
use agentiso_disk::{DiskError, KeyframeDue, LayerName, Layers, Merge, Storage, VOLUME_FILE};
use tokio_util::sync::CancellationToken;

use crate::faulty::{Fault, Faulty};
use crate::lab::{Content, Lab, VIRTUAL, image_content};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write {
        block: u64,
        value: u8,
    },
    /// Includes a write of the VM between its move and the end of the snapshot.
    Snapshot {
        block: u64,
        value: u8,
    },
    Abandon,
    Restore {
        which: usize,
    },
    Fork {
        which: usize,
    },
    Forget {
        which: usize,
    },
    Merge {
        which: usize,
        by_vm: bool,
    },
    Flatten {
        after: usize,
    },
    Destroy,
}

/// A step, its fault, and whether the VM survives a crash.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) volume: usize,
    pub(crate) step: Step,
    pub(crate) fault: Option<(usize, Fault)>,
    pub(crate) survives: bool,
    /// Selects, bit by bit, the uncertain changes that survive a loss of power.
    pub(crate) kept: u64,
}

/// The expected content of a volume.
#[derive(Clone, Debug)]
struct Expected {
    dir: PathBuf,
    head: Content,
    snapshots: Vec<(SnapshotId, Content)>,
}

impl Expected {
    fn ids(&self) -> Vec<SnapshotId> {
        self.snapshots.iter().map(|(id, _)| *id).collect()
    }

    fn pick(&self, which: usize) -> Option<(SnapshotId, Content)> {
        self.snapshots.get(which % self.snapshots.len().max(1)).cloned()
    }
}

/// The expected state of the volume after a failed step.
#[derive(Debug, Default)]
struct Failed {
    /// The file that a VM writes to.
    head: Option<PathBuf>,
    /// Content that the head may have instead.
    or: Option<Content>,
    /// A directory that recovery removes.
    half_made: Option<PathBuf>,
    gone: bool,
}

pub(crate) struct Story<B: Lab> {
    lab: Arc<B>,
    storage: Faulty<B::Backend>,
    volumes: Vec<Expected>,
    made: usize,
}

impl<B: Lab> Story<B> {
    pub(crate) async fn begin() -> Self {
        let lab = Arc::new(B::new());
        let half = lab.clone();
        let storage = Faulty::new(lab.backend(), move |child, into| half.commit_half(child, into));
        let dir = lab.directory("0");
        storage.create_from_image(&dir, &lab.image(), VIRTUAL).await.unwrap();
        let volumes = vec![Expected { dir, head: image_content(), snapshots: Vec::new() }];
        Self { lab, storage, volumes, made: 1 }
    }

    pub(crate) async fn attempt(&mut self, attempt: &Attempt) {
        if self.volumes.is_empty() {
            return;
        }
        let index = attempt.volume % self.volumes.len();
        let charges = self.charges().await;
        if let Some((steps, fault)) = attempt.fault {
            self.storage.arm(steps, fault);
        }
        let failed = self.step(index, &attempt.step).await;
        let hit = self.storage.mend();
        let crashed = hit && attempt.fault.is_some_and(|(_, fault)| fault.is_crash());
        match failed {
            Ok(()) => {}
            Err((error, _)) if !hit => panic!("{:?} failed: {error}", attempt.step),
            Err((_, failed)) => {
                let mut bits = attempt.kept;
                let survives = attempt.survives || !crashed;
                if !survives {
                    self.lab.power_loss(&mut || {
                        bits = bits.rotate_right(1);
                        bits & 1 == 1
                    });
                }
                if !crashed && !failed.gone {
                    self.check_content(index).await;
                }
                self.recover(index, failed, survives).await;
            }
        }
        if hit {
            // This also settles changes in other volumes that were not certain to be on disk.
            for kept in self.volumes.clone() {
                self.storage.settle(&kept.dir, None, &kept.ids()).await.unwrap();
            }
        }
        self.check_charges(&charges, index).await;
        for index in 0..self.volumes.len() {
            self.check_content(index).await;
            self.check_files(index).await;
        }
    }

    /// The bytes that each volume is charged for.
    async fn charges(&self) -> Vec<(PathBuf, u64)> {
        let mut charges = Vec::new();
        for kept in &self.volumes {
            let sizes = self.lab.backend().sizes(&kept.dir).await.unwrap();
            charges.push((kept.dir.clone(), sizes.charged_bytes));
        }
        charges
    }

    /// Checks that an operation on one volume does not change the charges of the others, and that a fork is charged
    /// only for its head.
    async fn check_charges(&self, before: &[(PathBuf, u64)], touched: usize) {
        for (dir, charged) in self.charges().await {
            match before.iter().position(|(other, _)| *other == dir) {
                Some(index) if index == touched => {}
                Some(index) => assert_eq!(charged, before[index].1, "{}", dir.display()),
                None => {
                    let head = self.lab_head(&dir).await;
                    let head = self.storage.tree_bytes(&dir, name(&head).as_str()).unwrap();
                    assert_eq!(charged, head.all, "{}", dir.display());
                }
            }
        }
    }

    async fn recover(&mut self, index: usize, failed: Failed, survives: bool) {
        if let Some(half_made) = failed.half_made {
            self.storage.delete(&half_made).await.unwrap();
            assert!(self.storage.names(&half_made).unwrap().is_empty());
        }
        if failed.gone {
            let kept = self.volumes.remove(index);
            self.storage.delete(&kept.dir).await.unwrap();
            assert!(self.storage.names(&kept.dir).unwrap().is_empty());
            return;
        }
        let kept = &self.volumes[index];
        let running = failed.head.filter(|_| survives);
        self.storage.settle(&kept.dir, running.as_deref(), &kept.ids()).await.unwrap();
        if let Some(or) = failed.or
            && self.lab.content(&self.storage.head(&kept.dir).await.unwrap()) == or
        {
            self.volumes[index].head = or;
        }
    }

    async fn step(&mut self, index: usize, step: &Step) -> Result<(), (DiskError, Failed)> {
        let kept = self.volumes[index].clone();
        let dir = &kept.dir;
        let head = self.lab_head(dir).await;
        let running = || Failed { head: Some(head.clone()), ..Failed::default() };
        match step {
            Step::Write { block, value } => {
                self.lab.write(&head, *block, *value);
                set(&mut self.volumes[index].head, *block, *value);
                Ok(())
            }
            Step::Snapshot { block, value } => {
                let id = SnapshotId::random();
                let begun = self.storage.begin_snapshot(dir, id).await;
                let pivot = begun.map_err(|error| (error, running()))?;
                self.lab.write(&pivot.to, *block, *value);
                set(&mut self.volumes[index].head, *block, *value);
                let moved = Failed { head: Some(pivot.to), ..Failed::default() };
                self.storage.finish_snapshot(dir, id).await.map_err(|error| (error, moved))?;
                self.volumes[index].snapshots.push((id, kept.head));
                Ok(())
            }
            Step::Abandon => {
                let id = SnapshotId::random();
                self.storage.begin_snapshot(dir, id).await.map_err(|error| (error, running()))?;
                self.storage.abandon_snapshot(dir, id).await.map_err(|error| (error, running()))
            }
            Step::Restore { which } => {
                let Some((id, content)) = kept.pick(*which) else { return Ok(()) };
                let or = Some(content.clone());
                let restored = self.storage.restore(dir, id).await;
                restored.map_err(|error| (error, Failed { or, ..Failed::default() }))?;
                self.volumes[index].head = content;
                Ok(())
            }
            Step::Fork { which } => self.fork(&kept, *which).await,
            Step::Forget { which } => {
                let Some((id, _)) = kept.pick(*which) else { return Ok(()) };
                self.volumes[index].snapshots.retain(|(other, _)| *other != id);
                self.storage.forget_snapshot(dir, id).await.map_err(|error| (error, running()))
            }
            Step::Merge { which, by_vm } => {
                let merges = self.storage.redundant(dir).await.unwrap();
                let Some(merge) = merges.get(which % merges.len().max(1)) else { return Ok(()) };
                match *by_vm && merge.under_head {
                    true => self.merge_by_vm(dir, merge, running()).await,
                    false => {
                        let merged = self.storage.merge_offline(dir, merge).await;
                        merged.map_err(|error| (error, Failed::default()))
                    }
                }
            }
            Step::Flatten { after } => {
                let made =
                    self.storage.keyframe(dir, KeyframeDue::after(*after), &CancellationToken::new()).await;
                let Some(made) = made.map_err(|error| (error, running()))? else { return Ok(()) };
                self.storage.adopt_keyframe(dir, &made).await.map_err(|error| (error, running()))
            }
            Step::Destroy => {
                let gone = Failed { gone: true, ..Failed::default() };
                self.storage.delete(dir).await.map_err(|error| (error, gone))?;
                assert!(self.storage.names(dir).unwrap().is_empty());
                self.volumes.remove(index);
                Ok(())
            }
        }
    }

    async fn fork(&mut self, source: &Expected, which: usize) -> Result<(), (DiskError, Failed)> {
        // Four volumes are enough to affect each other.
        let Some((id, content)) = source.pick(which).filter(|_| self.volumes.len() < 4) else {
            return Ok(());
        };
        let dir = self.lab.directory(&self.made.to_string());
        self.made += 1;
        if let Err(error) = self.storage.fork(&source.dir, id, &dir).await {
            return Err((error, Failed { half_made: Some(dir), ..Failed::default() }));
        }
        self.volumes.push(Expected { dir, head: content, snapshots: Vec::new() });
        Ok(())
    }

    /// Does what QEMU does in a block commit: data first, then the one layer above it in its own chain.
    async fn merge_by_vm(
        &self,
        dir: &Path,
        merge: &Merge,
        running: Failed,
    ) -> Result<(), (DiskError, Failed)> {
        self.storage.begin_merge(dir, merge).await.map_err(|error| (error, running))?;
        let vm = self.lab.backend();
        vm.commit(dir, &name(&merge.child), &name(&merge.into)).unwrap();
        let chain = self.lab.backend().chain(dir, None).await.unwrap();
        for above in merge.above.iter().filter(|above| chain.contains(above)) {
            vm.rebase(dir, &name(above), &name(&merge.into)).unwrap();
        }
        let head = if merge.child_is_head { merge.into.clone() } else { chain[0].clone() };
        let moved = Failed { head: Some(head), ..Failed::default() };
        self.storage.merged_online(dir, merge).await.map_err(|error| (error, moved))
    }

    async fn lab_head(&self, dir: &Path) -> PathBuf {
        self.lab.backend().head(dir).await.unwrap()
    }

    async fn check_content(&self, index: usize) {
        let kept = &self.volumes[index];
        let backend = self.lab.backend();
        let head = backend.chain(&kept.dir, None).await.unwrap().remove(0);
        // A VM that has moved writes to the pivot's upper layer before the record changes.
        if self.storage.load(&kept.dir).unwrap().is_some_and(|text| !text.contains("pivot")) {
            assert_eq!(self.lab.content(&head), kept.head, "the head of {}", kept.dir.display());
        }
        for (id, content) in &kept.snapshots {
            let layer = backend.chain(&kept.dir, Some(*id)).await.unwrap().remove(0);
            assert_eq!(self.lab.content(&layer), *content, "the snapshot {id}");
        }
    }

    /// Checks that every file is needed, and that the sizes are plausible.
    async fn check_files(&self, index: usize) {
        let kept = &self.volumes[index];
        let backend = self.lab.backend();
        let mut needed = BTreeSet::from([kept.dir.join(VOLUME_FILE)]);
        for of in kept.ids().into_iter().map(Some).chain([None]) {
            needed.extend(backend.chain(&kept.dir, of).await.unwrap());
        }
        let there = backend.names(&kept.dir).unwrap().into_iter().map(|name| kept.dir.join(name)).collect();
        assert_eq!(needed, there);
        let sizes = backend.sizes(&kept.dir).await.unwrap();
        assert_eq!(sizes.virtual_bytes, VIRTUAL);
        assert_eq!(
            sizes.snapshots.keys().copied().collect::<BTreeSet<_>>(),
            kept.ids().into_iter().collect()
        );
        for snapshot in sizes.snapshots.values() {
            assert!(snapshot.used_bytes <= snapshot.referenced_bytes, "{sizes:?}");
            assert!(snapshot.used_bytes <= sizes.used_bytes, "{sizes:?}");
        }
    }

    /// Deletes all other volumes and all snapshots. One layer must be left on the image.
    pub(crate) async fn end(mut self) {
        let Some(mut kept) = self.volumes.pop() else { return };
        for other in self.volumes.drain(..) {
            self.storage.delete(&other.dir).await.unwrap();
        }
        for (id, _) in kept.snapshots.drain(..) {
            self.storage.forget_snapshot(&kept.dir, id).await.unwrap();
        }
        while let Some(merge) = self.storage.redundant(&kept.dir).await.unwrap().first() {
            self.storage.merge_offline(&kept.dir, merge).await.unwrap();
        }
        assert_eq!(self.storage.names(&kept.dir).unwrap().len(), 3, "record, image, head");
        self.volumes.push(kept);
        self.check_content(0).await;
        self.check_files(0).await;
    }
}

fn set(content: &mut Content, block: u64, value: u8) {
    match value {
        0 => content.remove(&block),
        value => content.insert(block, value),
    };
}

fn name(path: &Path) -> LayerName {
    LayerName::try_from(path.file_name().unwrap().to_str().unwrap().to_owned()).unwrap()
}
