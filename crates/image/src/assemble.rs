//! Turns a stage into a published image: filesystem, qcow2, manifest, rename. Recipes and imports share these steps.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use agentiso_core::names::ImageName;
use agentiso_sys::files::{FileContext, FileError};

use crate::blocking;
use crate::error::ImageError;
use crate::ext4;
use crate::hash::{self, Fingerprint};
use crate::manifest::{self, FileRecord, Filesystem, ImageManifest, Origin, SCHEMA_VERSION, packages_of};
use crate::progress::{Phase, Reporter, enter};
use crate::publish::{Slot, remove_tree, require_space};
use crate::qcow2;
use crate::stage::{Stage, Survey};
use crate::store::{DISK, Image, load};
use crate::tools;

/// 2025-01-01: the time of everything that packages do not date themselves, so that equal inputs give equal trees.
pub(crate) const EPOCH: i64 = 1_735_689_600;

/// The facts about an image that are known before its disk is written.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) stage: Stage,
    pub(crate) origin: Origin,
    pub(crate) sources: Vec<String>,
    pub(crate) content_sha256: String,
    pub(crate) programs: &'static [&'static str],
}

/// Writes the disk and the manifest and publishes both. `work` is the slot's working directory.
pub(crate) async fn finish(
    name: &ImageName,
    contents: Contents,
    slot: &Arc<Slot>,
    work: &Path,
    report: Reporter<'_>,
) -> Result<Image, ImageError> {
    enter(report, Phase::Filesystem);
    let Contents { stage, origin, sources, content_sha256, programs } = contents;
    let status = stage.read("var/lib/dpkg/status")?.unwrap_or_default();
    let packages = packages_of(&String::from_utf8_lossy(&status));
    let (tree, skipped) = (stage.path().to_owned(), stage.skipped_special);
    let survey = blocking::run(Arc::clone(slot), move || Survey::take(&stage)).await?;
    // The raw image and the qcow2 exist together for a moment.
    require_space(work, survey.bytes * 2 + survey.bytes / 4)?;
    let seed = if content_sha256.is_empty() {
        hash::bytes(tree_digest(&survey).as_bytes())
    } else {
        content_sha256.clone()
    };
    let uuid = hash::uuid_from(
        &Fingerprint::default().part(name.as_str().as_bytes()).part(seed.as_bytes()).finish(),
    );

    let ready = work.join("ready");
    fs::create_dir(&ready).at("create", &ready)?;
    let raw = work.join("disk.ext4");
    let bytes = ext4::write(&raw, &tree, &survey, &uuid, EPOCH, work).await?;
    {
        let slot = Arc::clone(slot);
        let tree = tree.clone();
        blocking::run(slot, move || remove_tree(&tree)).await?;
    }

    enter(report, Phase::Disk);
    let disk = ready.join(DISK);
    {
        let (raw, disk) = (raw.clone(), disk.clone());
        blocking::run(Arc::clone(slot), move || qcow2::write(&raw, &disk)).await?;
    }
    fs::remove_file(&raw).at("remove", &raw)?;

    enter(report, Phase::Checksums);
    let versions = tools::versions(programs).await;
    let record = {
        let disk = disk.clone();
        blocking::run(Arc::clone(slot), move || FileRecord::of(&disk)).await?
    };
    let origin_text = serde_json::to_vec(&origin).unwrap_or_default();
    let id = Fingerprint::default()
        .part(b"agentiso image 1")
        .part(&origin_text)
        .part(content_sha256.as_bytes())
        .part(record.sha256.as_bytes())
        .finish();
    let manifest = ImageManifest {
        schema_version: SCHEMA_VERSION,
        name: name.as_str().to_owned(),
        id,
        origin,
        packages,
        sources,
        content_sha256,
        filesystem: Filesystem { kind: "ext4".to_owned(), uuid, bytes },
        skipped_special_files: skipped,
        files: BTreeMap::from([(DISK.to_owned(), record)]),
        created_at: jiff::Timestamp::now(),
        tools: versions,
    };
    manifest::write(&ready, &manifest)?;

    enter(report, Phase::Publish);
    let published = {
        let publisher = Arc::clone(slot);
        blocking::run(Arc::clone(slot), move || publisher.publish(&ready)).await?
    };
    match load(&published)? {
        Some(image) => Ok(image),
        None => Err(FileError::new("find the published", &published, std::io::ErrorKind::NotFound).into()),
    }
}

/// Directories have no stream to hash; their shape is hashed instead, and the disk's hash is in the id anyway.
fn tree_digest(survey: &Survey) -> String {
    format!("{}:{}", survey.inodes, survey.bytes)
}
