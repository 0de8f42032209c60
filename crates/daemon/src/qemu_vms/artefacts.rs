//! Finds the files that VMs boot from: the kernel, the initramfs and the images. Nothing is downloaded here.

use std::collections::HashSet;
use std::path::PathBuf;

use agentiso_core::config::Config;
use agentiso_core::names::ImageName;
use agentiso_image::initramfs::InitramfsError;
use agentiso_image::{Dirs, Image, KernelError, KernelSource, NoGuestAgent, PackageSource, silent};
use thiserror::Error;

use crate::vms::{BaseImage, ImageFailure, ImageRef};

#[derive(Debug, Error)]
pub(super) enum ArtefactError {
    #[error("no kernel yet")]
    NoKernel,
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Initramfs(#[from] InitramfsError),
    #[error(transparent)]
    NoGuestAgent(#[from] NoGuestAgent),
}

pub(super) struct BootFiles {
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
}

fn dirs(config: &Config) -> Dirs {
    let paths = &config.paths;
    Dirs { images: paths.images.clone(), kernels: paths.kernels.clone(), initramfs: paths.initramfs.clone() }
}

pub(super) async fn boot_files(config: &Config) -> Result<BootFiles, ArtefactError> {
    let dirs = dirs(config);
    let kernel = match &config.vm.kernel_path {
        Some(vmlinuz) => {
            let modules = vmlinuz.with_file_name("modules");
            let source = KernelSource::Files {
                vmlinuz: vmlinuz.clone(),
                modules: modules.is_dir().then_some(modules),
            };
            // These are files of the host: they are copied, not downloaded.
            agentiso_image::kernel::ensure(&dirs, &source, false, &silent).await?
        }
        None => {
            let image = &config.image;
            let packages =
                PackageSource { mirror: image.mirror.clone(), suite: image.suite.clone(), keyring: None };
            let source = KernelSource::Packages(packages);
            agentiso_image::kernel::installed(&dirs, &source)?.ok_or(ArtefactError::NoKernel)?
        }
    };
    let initrd = match &config.vm.initrd_path {
        Some(path) => agentiso_image::initramfs::configured(path)?,
        None => agentiso_image::initramfs::ensure(&dirs, &kernel, agentiso_image::guest_agent()?).await?,
    };
    Ok(BootFiles { kernel: kernel.vmlinuz, initrd })
}

fn find(config: &Config, name: &ImageName) -> Result<Image, ImageFailure> {
    match agentiso_image::get(&dirs(config), name) {
        Ok(Some(image)) => Ok(image),
        Ok(None) => Err(ImageFailure::Missing { name: name.clone(), known: names(config) }),
        Err(error) => Err(ImageFailure::Broken { name: name.clone(), reason: error.to_string() }),
    }
}

pub(super) fn image(config: &Config, name: &ImageName) -> Result<ImageRef, ImageFailure> {
    let image = find(config, name)?;
    Ok(ImageRef { name: name.clone(), id: image.manifest.id, virtual_size: image.manifest.filesystem.bytes })
}

pub(super) fn base_image(config: &Config, name: &ImageName) -> Result<BaseImage, ImageFailure> {
    let image = find(config, name)?;
    Ok(BaseImage {
        name: name.clone(),
        id: image.manifest.id,
        disk: image.disk,
        virtual_size: image.manifest.filesystem.bytes,
    })
}

fn names(config: &Config) -> Vec<String> {
    let images = agentiso_image::list(&dirs(config)).unwrap_or_default();
    images.into_iter().map(|image| image.manifest.name).collect()
}

pub(super) fn image_ids(config: &Config) -> HashSet<String> {
    let images = agentiso_image::list(&dirs(config)).unwrap_or_default();
    images.into_iter().map(|image| image.manifest.id).collect()
}
