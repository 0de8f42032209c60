//! Opens the kernel, initramfs and hypervisor of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use agentiso_core::config::Paths;
use agentiso_host::{Hypervisor, HypervisorSettings};
use agentiso_image::{Image, Kernel};
use agentiso_vm::BaseImage;

use crate::context::Context;
use crate::failure::Failure;

/// The files that a VM boots from.
#[derive(Clone, Debug)]
pub(crate) struct BootFiles {
    pub(crate) kernel: Kernel,
    pub(crate) initrd: PathBuf,
}

/// The configured initramfs, or the default one for this kernel, which is made if it does not exist yet.
pub(crate) async fn initramfs(context: &Context, kernel: &Kernel) -> Result<PathBuf, Failure> {
    match &context.config.vm.initrd_path {
        Some(path) if path.is_file() => Ok(agentiso_image::initramfs::configured(path)?),
        Some(path) => Err(Failure::new(format!("vm.initrd_path: {} does not exist", path.display()))),
        None => {
            let agent = agentiso_image::guest_agent()?;
            Ok(agentiso_image::initramfs::ensure(&context.image_dirs(), kernel, agent).await?)
        }
    }
}

/// Finds QEMU and chooses the accelerator, which may need a probe boot.
pub(crate) async fn hypervisor(context: &Context, files: &BootFiles) -> Result<Hypervisor, Failure> {
    let config = &context.config;
    let settings = HypervisorSettings {
        qemu_binary: config.vm.qemu_binary.clone(),
        accelerator: config.vm.accelerator,
        kernel: files.kernel.vmlinuz.clone(),
        initrd: files.initrd.clone(),
        kernel_append: config.vm.kernel_append.clone(),
        boot_timeout: Duration::from_secs(config.vm.boot_timeout_secs),
        templates_dir: templates_dir(&config.paths),
        templates: config.vm.templates,
        run_dir: config.paths.run.clone(),
        probe_file: config.paths.probe_file(),
        // Only a daemon may move itself into a cgroup.
        cgroups: None,
        jail: config.vm.jail,
        nested: config.vm.nested,
    };
    Ok(Hypervisor::open(settings).await?)
}

/// The directory of templates for the current user.
pub(crate) fn templates_dir(paths: &Paths) -> PathBuf {
    agentiso_host::templates_dir(&paths.templates, &paths.own_templates())
}

/// A built image in the form that the hypervisor needs.
pub(crate) fn base_image(context: &Context, image: &Image) -> BaseImage {
    BaseImage {
        name: context.config.storage.base_image.clone(),
        id: image.manifest.id.clone(),
        disk: image.disk.clone(),
        virtual_size: image.manifest.filesystem.bytes,
    }
}
