//! `image import`: makes an image from a foreign root filesystem, given as a tar or a directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentiso_core::names::ImageName;
use agentiso_sys::files::FileContext;

use crate::assemble::{self, Contents, EPOCH};
use crate::blocking;
use crate::error::ImageError;
use crate::manifest::Origin;
use crate::progress::{Phase, Reporter, enter};
use crate::publish::Slot;
use crate::rootfs;
use crate::source::Dirs;
use crate::stage::{Stage, copy_directory, unpack};
use crate::store::Image;

const PROGRAMS: &[&str] = &["mke2fs"];
/// Without one of these the agent could not start any command in the image.
const SHELLS: [&str; 2] = ["bin/sh", "usr/bin/sh"];

/// Makes the image `name` from a tar (plain, gzip, xz or zstd) or a directory. The name must be free.
pub async fn import(
    dirs: &Dirs,
    name: &ImageName,
    source: &Path,
    report: Reporter<'_>,
) -> Result<Image, ImageError> {
    let slot = Arc::new(Slot::acquire(&dirs.images, name.as_str(), report).await?);
    if slot.destination().exists() {
        return Err(ImageError::Exists { name: name.as_str().to_owned() });
    }
    let made = async {
        let work = slot.working_dir()?;
        enter(report, Phase::Unpack);
        let (source, tree) = (source.to_owned(), work.join("tree"));
        let contents = blocking::run(Arc::clone(&slot), move || lay_out(&source, &tree)).await?;
        assemble::finish(name, contents, &slot, &work, report).await
    }
    .await;
    slot.conclude(made)
}

fn lay_out(source: &PathBuf, tree: &Path) -> Result<Contents, ImageError> {
    let metadata = source.metadata().at("inspect", source)?;
    let mut stage = Stage::create(tree, EPOCH)?;
    let (origin, content_sha256) = if metadata.is_dir() {
        let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        copy_directory(&mut stage, source, us)?;
        (Origin::ImportedDirectory, String::new())
    } else if metadata.is_file() {
        let summary = unpack(&mut stage, File::open(source).at("open", source)?, &|_| true)?;
        let file_name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (Origin::ImportedTar { file_name }, summary.sha256)
    } else {
        return Err(ImageError::NotImportable { path: source.clone() });
    };
    let has_shell = SHELLS.iter().any(|shell| stage.contains(shell));
    if !has_shell {
        return Err(ImageError::NoShell { path: source.clone() });
    }
    rootfs::adopt(&mut stage)?;
    Ok(Contents { stage, origin, sources: Vec::new(), content_sha256, programs: PROGRAMS })
}
