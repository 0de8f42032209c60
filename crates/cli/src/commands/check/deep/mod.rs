//! `agentiso check --deep`: tries every way to start a VM on this host, measures its time and checks the result.
//!
//! The daemon is not used. The VMs, their templates and sockets are in separate directories, which are removed at the
//! end, also after a failure or an interruption.

mod notes;
mod report;
mod scratch;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentiso_core::config::Config;
use agentiso_core::resources::Resources;
use agentiso_host::HypervisorSettings;
use agentiso_image::{Kernel, KernelSource};
use agentiso_selfcheck::{LadderRun, Plan, Step, Verdict};
use agentiso_sys::Progress;
use agentiso_vm::BaseImage;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::vm_setup::{self, BootFiles};
use crate::{output, runtime};
use notes::Notes;
use report::Rung;
use scratch::Scratch;

/// The results for small VMs hold for larger ones too, which only take longer.
const MAX_VCPUS: u32 = 2;
const MAX_MEMORY_MB: u32 = 512;

/// The needed disk space in units of a VM's memory: two templates, two snapshots, the stream of one, and disks.
const MEMORIES: u64 = 6;

pub(super) fn run(context: &Context, dir: Option<&Path>, as_json: bool) -> Result<ExitCode, Failure> {
    let (began, notes) = (Instant::now(), Notes::listen());
    let needed = (u64::from(memory_mb(&context.config)) * MEMORIES) << 20;
    let scratch = Scratch::make(&context.config.paths, dir, needed)?;
    let deep = DeepCheck { context, scratch: &scratch, notes: &notes, as_json };
    let result = runtime::block_on(deep.run());
    // The directories are removed before the result is printed.
    drop(scratch);
    let (rungs, vm) = result??;
    let time = began.elapsed();
    if as_json {
        output::json(&report::json(&rungs, time, vm))?;
    } else {
        output::line("")?;
        output::line(&report::summary(&rungs, time))?;
    }
    Ok(if report::all_passed(&rungs) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct DeepCheck<'a> {
    context: &'a Context,
    scratch: &'a Scratch,
    notes: &'a Notes,
    as_json: bool,
}

impl DeepCheck<'_> {
    async fn run(&self) -> Result<(Vec<Rung>, Value), Failure> {
        if !self.as_json {
            output::line(&report::heading())?;
        }
        let began = Instant::now();
        let prepared = self.boot_files().await;
        let mut rungs = vec![self.boot_files_rung(&prepared, began.elapsed())];
        self.show(&rungs[0])?;
        let Ok((files, image)) = prepared else {
            for step in Step::ALL {
                let rung = Rung::without(step, report::BOOT_FILES);
                self.show(&rung)?;
                rungs.push(rung);
            }
            return Ok((rungs, Value::Null));
        };
        let plan = self.plan(&files, image);
        let vm = json!({
            "image": plan.image.name.to_string(),
            "vcpus": plan.resources.vcpus,
            "memory_mb": plan.resources.memory_mb,
            "disk_gb": plan.resources.disk_gb,
        });
        let mut run = LadderRun::new(plan);
        for step in Step::ALL {
            let display = match self.as_json {
                true => Display::silent(),
                false => Display::start(step.as_str()),
            };
            let display = Arc::new(display);
            let shown = Arc::clone(&display);
            let progress = Progress::new(move |step, fraction| shown.update(step, fraction));
            let result = run.take(step, &progress).await;
            // The progress line is cleared before the row is printed.
            drop((progress, display));
            let rung = Rung::new(result, self.notes.take());
            self.show(&rung)?;
            rungs.push(rung);
        }
        run.finish().await;
        Ok((rungs, vm))
    }

    fn show(&self, rung: &Rung) -> Result<(), Failure> {
        match self.as_json {
            true => Ok(()),
            false => output::line(&report::row(rung)),
        }
    }

    /// The configured kernel, initramfs and image. Nothing is downloaded or built. Configured kernel files are
    /// installed.
    async fn boot_files(&self) -> Result<(BootFiles, BaseImage), Failure> {
        let (context, dirs) = (self.context, self.context.image_dirs());
        let missing = |what: &str| Failure::new(format!("no {what} yet; run `agentiso init`"));
        let source = context.kernel_source();
        let kernel: Kernel = match &source {
            KernelSource::Packages(_) => {
                agentiso_image::kernel::installed(&dirs, &source)?.ok_or_else(|| missing("kernel"))?
            }
            KernelSource::Files { .. } => {
                agentiso_image::kernel::ensure(&dirs, &source, false, &agentiso_image::silent).await?
            }
        };
        let initrd = vm_setup::initramfs(context, &kernel).await?;
        let name = &context.config.storage.base_image;
        let image = agentiso_image::get(&dirs, name)?;
        let image = image.ok_or_else(|| missing(&format!("image {name}")))?;
        Ok((BootFiles { kernel, initrd }, vm_setup::base_image(context, &image)))
    }

    fn boot_files_rung(&self, prepared: &Result<(BootFiles, BaseImage), Failure>, time: Duration) -> Rung {
        let (verdict, detail) = match prepared {
            Ok((files, image)) => {
                (Verdict::Passed, format!("kernel {}, image {}", files.kernel.version, image.name))
            }
            Err(failure) => (Verdict::Failed { reason: failure.to_string() }, String::new()),
        };
        let (checks, notes) = (Vec::new(), self.notes.take());
        Rung { name: report::BOOT_FILES, verdict, time, detail, checks, notes }
    }

    fn plan(&self, files: &BootFiles, image: BaseImage) -> Plan {
        let (config, dir) = (&self.context.config, self.scratch.data());
        Plan {
            settings: HypervisorSettings {
                qemu_binary: config.vm.qemu_binary.clone(),
                accelerator: config.vm.accelerator,
                kernel: files.kernel.vmlinuz.clone(),
                initrd: files.initrd.clone(),
                kernel_append: config.vm.kernel_append.clone(),
                boot_timeout: Duration::from_secs(config.vm.boot_timeout_secs),
                templates_dir: dir.join("templates"),
                templates: true,
                run_dir: self.scratch.run().to_owned(),
                probe_file: dir.join("probe.json"),
                cgroups: None,
                jail: config.vm.jail,
                nested: config.vm.nested,
            },
            resources: vm_size(config, image.virtual_size),
            image,
            init_mode: config.vm.init_mode,
            subnet: config.subnet(),
            dns: config.network.dns_servers.clone(),
            data_dir: dir.join("workspaces"),
            on_spawn: self.scratch.on_spawn(),
        }
    }
}

fn memory_mb(config: &Config) -> u32 {
    config.resources.default_memory_mb.min(MAX_MEMORY_MB)
}

/// The default size of workspaces within bounds, with a disk that is larger than the image, so that it has to grow.
fn vm_size(config: &Config, image_bytes: u64) -> Resources {
    let image_gib = u32::try_from(image_bytes.div_ceil(1 << 30)).unwrap_or(u32::MAX);
    Resources {
        vcpus: config.resources.default_vcpus.min(MAX_VCPUS),
        memory_mb: memory_mb(config),
        disk_gb: image_gib.saturating_add(1),
    }
}

#[cfg(test)]
mod tests {
    use agentiso_core::config::UserDirs;

    use super::*;

    #[test]
    fn deep_check_vm_size_is_bounded() {
        let dirs = UserDirs { uid: 1, home: "/home/u".into(), state_home: None, runtime_dir: None };
        let size = |text: &str| vm_size(&Config::parse(text, &dirs).unwrap(), (2 << 30) + 1);
        assert_eq!(size(""), Resources { vcpus: 2, memory_mb: 512, disk_gb: 4 });
        let small = size("[resources]\ndefault_vcpus = 1\ndefault_memory_mb = 256");
        assert_eq!(small, Resources { vcpus: 1, memory_mb: 256, disk_gb: 4 });
        let large = size("[resources]\ndefault_memory_mb = 4096\nmax_memory_mb = 8192");
        assert_eq!(large.memory_mb, 512);
    }
}
