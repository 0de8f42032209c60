//! `image build`: turns a recipe into a published image.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentiso_core::names::ImageName;
use agentiso_sys::files::FileContext;

use crate::apt::{Backports, PrivateApt};
use crate::assemble::{self, Contents, EPOCH};
use crate::blocking;
use crate::bootstrap;
use crate::error::ImageError;
use crate::manifest::Origin;
use crate::progress::{Phase, Reporter, enter};
use crate::publish::{Slot, create_private_dir, require_space};
use crate::recipe::Recipe;
use crate::rootfs;
use crate::source::{Dirs, PackageSource};
use crate::stage::{Stage, StageError, TarSummary, unpack};
use crate::store::{Image, load, refuse_in_use};

const PROGRAMS: &[&str] = &["mmdebstrap", "apt-get", "mke2fs"];

/// Whether an existing image is used or replaced.
pub enum Existing<'a> {
    Keep,
    /// Build again and replace it, unless it is in use: overlays break when the disk below them changes.
    Replace {
        users: &'a (dyn Fn(&ImageName) -> Vec<String> + Send + Sync),
    },
}

impl std::fmt::Debug for Existing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keep => "Keep",
            Self::Replace { .. } => "Replace",
        })
    }
}

/// Builds the recipe as the image `name`. Two callers at once share one build.
pub async fn build(
    dirs: &Dirs,
    name: &ImageName,
    recipe: Recipe,
    source: &PackageSource,
    existing: Existing<'_>,
    report: Reporter<'_>,
) -> Result<Image, ImageError> {
    let keep = matches!(existing, Existing::Keep);
    let destination = dirs.images.join(name.as_str());
    if keep && let Some(image) = load(&destination)? {
        return Ok(image);
    }
    let slot = Arc::new(Slot::acquire(&dirs.images, name.as_str(), report).await?);
    match existing {
        Existing::Keep => {
            if let Some(image) = load(&destination)? {
                return Ok(image);
            }
        }
        Existing::Replace { users } => refuse_in_use(name, users)?,
    }
    let made = async {
        let work = slot.working_dir()?;
        require_space(&work, recipe.needed_bytes())?;
        let contents = lay_out(recipe, source, &slot, &work, report).await?;
        // Minutes have passed; a workspace may have started to use the old image.
        if let Existing::Replace { users } = existing {
            refuse_in_use(name, users)?;
        }
        assemble::finish(name, contents, &slot, &work, report).await
    }
    .await;
    slot.conclude(made)
}

async fn lay_out(
    recipe: Recipe,
    source: &PackageSource,
    slot: &Arc<Slot>,
    work: &Path,
    report: Reporter<'_>,
) -> Result<Contents, ImageError> {
    enter(report, Phase::Indexes);
    let apt_dir = work.join("apt");
    create_private_dir(&apt_dir)?;
    let apt = PrivateApt::prepare(&apt_dir, source, Backports::Ignore).await?;

    enter(report, Phase::Bootstrap);
    let tar = work.join("rootfs.tar");
    bootstrap::run(recipe, &apt, work, &tar, report).await?;

    enter(report, Phase::Unpack);
    let sources = apt.public_sources();
    let (stage, summary) = {
        let (tree, sources) = (work.join("tree"), sources.clone());
        blocking::run(Arc::clone(slot), move || stage_tar(recipe, &tree, tar, &sources)).await?
    };
    let requested = recipe.packages().iter().map(|name| (*name).to_owned()).collect();
    Ok(Contents {
        stage,
        origin: Origin::Recipe { recipe: recipe.name().to_owned(), suite: apt.suite.clone(), requested },
        sources,
        content_sha256: summary.sha256,
        programs: PROGRAMS,
    })
}

fn stage_tar(
    recipe: Recipe,
    tree: &Path,
    tar: PathBuf,
    sources: &[String],
) -> Result<(Stage, TarSummary), StageError> {
    let mut stage = Stage::create(tree, EPOCH)?;
    let summary = unpack(&mut stage, File::open(&tar).at("open", &tar)?, &|_| true)?;
    fs::remove_file(&tar).at("remove", &tar)?;
    rootfs::tidy(&mut stage, recipe, sources)?;
    Ok((stage, summary))
}
