//! `agentiso init`: sets up everything that a host needs for its first workspace, step by step. Existing files are
//! kept, so it can be interrupted and run again.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use agentiso_core::names::ImageName;
use agentiso_host::Hypervisor;
use agentiso_host::qemu::version::Qemu;
use agentiso_image::{Existing, Image, Kernel, Recipe};
use agentiso_sys::Progress;
use serde::Serialize;

use super::check;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::vm_setup::{self, BootFiles};
use crate::{example_config, output, runtime};

/// Set up this host: directories, kernel, initramfs, base image, templates
///
/// Needs no root. Existing files are kept; run it again after an interruption or an upgrade.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso init
  agentiso init --yes --config /etc/agentiso.toml
  agentiso init --kernel /boot/vmlinuz-custom")]
pub(crate) struct Arguments {
    /// Do not ask before downloading
    #[arg(long, short)]
    yes: bool,
    /// Print the steps with their results and times as JSON at the end
    #[arg(long)]
    json: bool,
    /// Use this kernel instead of Debian's
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Use this initramfs instead of agentiso's own
    #[arg(long, value_name = "FILE")]
    initrd: Option<PathBuf>,
    /// Ignored: this version does not support ZFS storage
    #[arg(long, value_name = "PATH")]
    pool_path: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    let context = with_overrides(context, &arguments)?;
    if arguments.pool_path.is_some() {
        eprintln!("note: --pool-path is ignored: this version stores disks as qcow2 files, not on ZFS");
    }
    confirm_download(&context, arguments.yes)?;
    let steps = runtime::block_on(set_up(&context))??;
    if arguments.json {
        output::json(&steps)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One completed step, for `--json`.
#[derive(Debug, Serialize)]
struct Step {
    name: &'static str,
    result: String,
    seconds: f64,
}

#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
struct Steps(Vec<Step>);

impl Steps {
    fn done(&mut self, name: &'static str, display: Display, result: &str) {
        let seconds = display.done(result).as_secs_f64();
        self.0.push(Step { name, result: result.to_owned(), seconds });
    }
}

/// Applies `--kernel` and `--initrd` to this run. The daemon uses only the configuration, so a note says how to set
/// them there.
fn with_overrides(context: &Context, arguments: &Arguments) -> Result<Context, Failure> {
    let mut context = context.clone();
    let vm = &mut context.config.vm;
    for (option, given, place, key) in [
        ("--kernel", &arguments.kernel, &mut vm.kernel_path, "kernel_path"),
        ("--initrd", &arguments.initrd, &mut vm.initrd_path, "initrd_path"),
    ] {
        let Some(given) = given else { continue };
        let path = given
            .canonicalize()
            .map_err(|error| Failure::usage(format!("{option}: cannot read {}: {error}", given.display())))?;
        if place.as_ref() != Some(&path) {
            let shown = toml_string(&path);
            eprintln!(
                "note: for the daemon to use it, set `{key} = {shown}` under [vm] in the configuration"
            );
        }
        *place = Some(path);
    }
    Ok(context)
}

/// The path as a TOML string. TOML's basic strings are escaped like JSON's.
fn toml_string(path: &Path) -> String {
    serde_json::Value::from(path.display().to_string()).to_string()
}

/// Asks before the large download of the base image. Without a terminal it does not ask.
fn confirm_download(context: &Context, yes: bool) -> Result<(), Failure> {
    let there = agentiso_image::get(&context.image_dirs(), &context.config.storage.base_image)?.is_some();
    if yes || there || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(());
    }
    eprint!("Building the base image downloads several hundred MB of Debian packages. Continue? [Y/n] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "" | "y" | "yes" => Ok(()),
        _ => Err(Failure::new("cancelled; nothing was changed")
            .hint("run `agentiso init` again when you are ready")),
    }
}

async fn set_up(context: &Context) -> Result<Steps, Failure> {
    let mut steps = Steps::default();
    let display = Display::start("QEMU");
    let qemu = Qemu::find(&context.config.vm.qemu_binary).await.map_err(|error| {
        Failure::from(error).hint("on Debian and Ubuntu: apt-get install qemu-system-x86 qemu-utils")
    })?;
    steps.done("QEMU", display, &qemu.version_line);

    make_directories(context)?;
    example_config::write(context)?;
    let kernel = kernel(context, &mut steps).await?;
    let display = Display::start("initramfs");
    let initrd = vm_setup::initramfs(context, &kernel).await?;
    steps.done("initramfs", display, "ready");
    let image = base_image(context, &mut steps).await?;

    let display = Display::start("accelerator");
    display.update("looking for KVM", None);
    let hypervisor = vm_setup::hypervisor(context, &BootFiles { kernel, initrd }).await?;
    let facts = hypervisor.facts();
    let verdict = format!("{}, {}", facts.accelerator.as_str(), facts.accelerator_reason);
    steps.done("accelerator", display, &verdict);
    if context.config.vm.templates {
        templates(context, &hypervisor, &image, &mut steps).await;
    }
    drop(hypervisor);

    let findings = check::examine(context).await;
    if findings.is_fit() {
        return Ok(steps);
    }
    findings.print()?;
    Err(Failure::new("this host is not ready; see the failed checks above"))
}

fn make_directories(context: &Context) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let paths = &context.config.paths;
    for dir in [&paths.data, &paths.workspaces, &paths.transfer, &paths.run] {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| {
            Failure::new(format!("cannot create {}: {error}", dir.display()))
                .hint("`agentiso check` shows which configuration key sets this directory")
        })?;
    }
    for dir in [&paths.images, &paths.kernels, &paths.initramfs] {
        std::fs::create_dir_all(dir)
            .map_err(|error| Failure::new(format!("cannot create {}: {error}", dir.display())))?;
    }
    Ok(())
}

async fn kernel(context: &Context, steps: &mut Steps) -> Result<Kernel, Failure> {
    let display = Display::start("kernel");
    let kernel = agentiso_image::kernel::ensure(
        &context.image_dirs(),
        &context.kernel_source(),
        false,
        &display.reporter(),
    )
    .await?;
    steps.done("kernel", display, &kernel.version);
    Ok(kernel)
}

async fn base_image(context: &Context, steps: &mut Steps) -> Result<Image, Failure> {
    let name = &context.config.storage.base_image;
    let dirs = context.image_dirs();
    let display = Display::start(&format!("image {name}"));
    let image = match (agentiso_image::get(&dirs, name)?, recipe(name)) {
        (Some(image), _) => image,
        (None, Some(recipe)) => {
            agentiso_image::build(
                &dirs,
                name,
                recipe,
                &context.package_source(),
                Existing::Keep,
                &display.reporter(),
            )
            .await?
        }
        (None, None) => {
            return Err(Failure::new(format!(
                "storage.base_image is {name}, which does not exist and has no recipe"
            ))
            .hint(format!(
                "run `agentiso image import {name} FILE`, or set storage.base_image to debian-dev"
            )));
        }
    };
    let result = format!("ready, {}", output::size(image.manifest.filesystem.bytes));
    steps.done("base image", display, &result);
    Ok(image)
}

fn recipe(name: &ImageName) -> Option<Recipe> {
    Recipe::parse(name.as_str())
}

/// Makes the templates. A failure is reported but not fatal: without templates the host works, only slower.
async fn templates(context: &Context, hypervisor: &Hypervisor, image: &Image, steps: &mut Steps) {
    let config = &context.config;
    let display = Arc::new(Display::start("templates"));
    let shown = Arc::clone(&display);
    let progress = Progress::new(move |step, fraction| shown.update(step, fraction));
    let image = vm_setup::base_image(context, image);
    let made = hypervisor
        .templates()
        .ensure_image(&image, config.default_resources(), config.vm.init_mode, &progress)
        .await;
    drop(progress);
    let result = match made {
        Ok(_) => "ready".to_owned(),
        Err(error) => format!("failed, VMs will boot cold: {error}"),
    };
    // The only other holder was the callback.
    if let Some(display) = Arc::into_inner(display) {
        steps.done("templates", display, &result);
    }
}
