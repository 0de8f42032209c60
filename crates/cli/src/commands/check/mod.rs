//! `agentiso check`: checks whether this host can run workspaces, and shows the accelerator and backends in use.
//!
//! Nothing is downloaded or built; only directories are made, and a probe VM is booted if KVM might work and was not
//! tried yet. With `--deep`, VMs are made and destroyed as well: see [`deep`].

mod deep;
mod host;
mod network;
mod report;
mod side_channels;
mod state;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use agentiso_core::config::{self, Backend, InitMode, Paths};
use agentiso_daemon::ledger::{self, Found};
use agentiso_daemon::{FoundDaemon, Owner, find_daemon, others_vms, running_daemon};
use agentiso_host::boot::IMAGE_INIT;
use agentiso_host::qemu::version::Qemu;
use agentiso_host::templates::TemplateKind;
use agentiso_host::{HostFacts, Hypervisor, strays};
use agentiso_image::{Image, Kernel};
use agentiso_sys::cgroup::Place;
use agentiso_sys::jail::{self, Jail};
use agentiso_vm::Stray;
use serde_json::json;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::vm_setup::{self, BootFiles};
use crate::{other_daemon, output, runtime};
use report::{Outcome, Picked, Verdict};
use side_channels::HostSetup;

/// Check whether this host can run workspaces
///
/// Prints one line per prerequisite, with a fix if something is missing, then the chosen backends and why they were chosen.
/// Exits with 0 only if all requirements are met. How well the host's hardware isolates guests from each other
/// (hyperthreads, page merging, swap, processor vulnerabilities) is reported as notes, not as failures.
///
/// With --deep, it tries every way to start a VM instead: cold boot, templates, snapshots and restores of disk and memory,
/// forks, and a fork of a fork. After each it examines the VM: clock, random numbers, names, addresses, file system, open
/// files, timers, processes. It prints one line per rung of the boot ladder, with a verdict and a time; if a rung fails, it
/// prints the reason and goes on with the next. It takes a minute or two without KVM, needs no daemon, does not disturb a
/// running one, and cleans up after itself. Exits with 0 only if every rung passes.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso check
  agentiso check --json | jq .picked.accelerator
  agentiso check --deep
  agentiso check --deep --json | jq '.rungs[] | {name, verdict, seconds}'")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Try every rung of the boot ladder, and verify that restored and forked VMs are independent
    #[arg(long)]
    deep: bool,
    /// Directory for the temporary files of --deep, a few GB [default: in the state directory]
    #[arg(long, value_name = "DIR", requires = "deep")]
    dir: Option<PathBuf>,
}

/// The results of all checks.
#[derive(Debug)]
pub(crate) struct Findings {
    outcomes: Vec<Outcome>,
    picked: Vec<(&'static str, Picked)>,
}

impl Findings {
    pub(crate) fn is_fit(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.verdict != Verdict::Failed)
    }

    pub(crate) fn print(&self) -> Result<(), Failure> {
        report::print(&self.outcomes, &self.picked)
    }
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.deep {
        return deep::run(context, arguments.dir.as_deref(), arguments.json);
    }
    let findings = runtime::block_on(examine(context))?;
    if arguments.json {
        let paths = &context.config.paths;
        let picked: serde_json::Map<_, _> =
            findings.picked.iter().map(|(name, picked)| ((*name).to_owned(), json!(picked))).collect();
        output::json(&json!({
            "ok": findings.is_fit(),
            "checks": findings.outcomes,
            "picked": picked,
            "paths": {
                "state_file": paths.state_file,
                "images": paths.images,
                "kernels": paths.kernels,
                "initramfs": paths.initramfs,
                "templates": vm_setup::templates_dir(paths),
                "run": paths.run,
                "log": paths.daemon_log(),
            },
        }))?;
    } else {
        findings.print()?;
    }
    Ok(if findings.is_fit() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) async fn examine(context: &Context) -> Findings {
    let config = &context.config;
    let mut outcomes = vec![qemu(context).await];
    let (kernel, found) = kernel(context);
    outcomes.push(found);
    let (image, found) = base_image(context);
    outcomes.push(found);
    outcomes.extend(image.as_ref().and_then(|image| init(context, image)));
    outcomes.push(host::image_tools(image.is_some()));
    outcomes.extend(host::directories(&config.paths));
    outcomes.extend(host::socket_length(&config.paths.run));
    outcomes.push(host::memory(config));
    outcomes.push(host::space(&config.paths));
    outcomes.extend(network::bridge(&config.network));
    outcomes.push(cgroups(context));
    outcomes.push(jail(context).await);
    outcomes.extend(side_channels::outcomes(&HostSetup::read(Path::new("/"))));

    let (hypervisor, found) = accelerator(context, kernel, &outcomes).await;
    outcomes.push(found);
    if let (Some(hypervisor), Some(image)) = (&hypervisor, &image) {
        outcomes.push(templates(context, hypervisor, image));
    }
    outcomes.extend(state::ledger(&config.paths));
    outcomes.extend(state::quarantine(&config.paths));
    outcomes.extend(state::mail(&config.paths));
    outcomes.push(daemon(context));
    let facts = hypervisor.as_ref().map(Hypervisor::facts);
    Findings { outcomes, picked: picked(facts.as_ref(), config.network.backend.chosen()) }
}

async fn qemu(context: &Context) -> Outcome {
    match Qemu::find(&context.config.vm.qemu_binary).await {
        Ok(qemu) => Outcome::ok("QEMU", qemu.version_line),
        Err(error) => {
            Outcome::failed("QEMU", error.to_string(), "run `./x packages`, or install QEMU 8.2 or newer")
        }
    }
}

fn kernel(context: &Context) -> (Option<Kernel>, Outcome) {
    const NAME: &str = "kernel";
    match agentiso_image::kernel::installed(&context.image_dirs(), &context.kernel_source()) {
        Ok(Some(kernel)) => {
            let outcome = Outcome::ok(NAME, kernel.version.clone());
            (Some(kernel), outcome)
        }
        Ok(None) => (None, Outcome::failed(NAME, "not installed", "agentiso init")),
        Err(error) => {
            (None, Outcome::failed(NAME, error.to_string(), "agentiso init, or set vm.kernel_path"))
        }
    }
}

fn base_image(context: &Context) -> (Option<Image>, Outcome) {
    const NAME: &str = "base image";
    let name = &context.config.storage.base_image;
    match agentiso_image::get(&context.image_dirs(), name) {
        Ok(Some(image)) => {
            let outcome =
                Outcome::ok(NAME, format!("{name}, {}", output::size(image.manifest.filesystem.bytes)));
            (Some(image), outcome)
        }
        Ok(None) if agentiso_image::list(&context.image_dirs()).is_ok_and(|images| images.is_empty()) => {
            (None, Outcome::failed(NAME, "no base image yet", "agentiso init"))
        }
        Ok(None) => (
            None,
            Outcome::failed(NAME, format!("{name} is not built yet"), format!("agentiso image build {name}")),
        ),
        Err(error) => {
            let fix = format!("agentiso image build {name} --force");
            (None, Outcome::failed(NAME, format!("{name}: {error}"), fix))
        }
    }
}

/// Checks that the base image has an init if the configured init mode needs one; `None` if it does not.
fn init(context: &Context, image: &Image) -> Option<Outcome> {
    const NAME: &str = "init";
    match context.config.vm.init_mode {
        InitMode::Fast => return None,
        InitMode::System => {}
    }
    let name = &context.config.storage.base_image;
    Some(match agentiso_host::boot::has_init(&image.disk) {
        Ok(true) => Outcome::ok(NAME, format!("{IMAGE_INIT} of {name}")),
        Ok(false) => Outcome::failed(
            NAME,
            format!("{name} has no {IMAGE_INIT}, which vm.init_mode = \"system\" (or \"openrc\") needs"),
            "set storage.base_image to an image with an init, such as debian-system, or vm.init_mode to \"fast\"",
        ),
        Err(error) => Outcome::note(
            NAME,
            format!("cannot tell whether {name} has {IMAGE_INIT}: {error}"),
            format!("agentiso image build {name} --force"),
        ),
    })
}

/// Chooses the accelerator, unless an earlier check failed that it depends on.
async fn accelerator(
    context: &Context,
    kernel: Option<Kernel>,
    earlier: &[Outcome],
) -> (Option<Hypervisor>, Outcome) {
    const NAME: &str = "accelerator";
    let blocked = earlier.iter().find(|outcome| {
        outcome.verdict == Verdict::Failed
            && matches!(outcome.name, "QEMU" | "kernel" | "state" | "sockets" | "jail")
    });
    let Some(kernel) = kernel.filter(|_| blocked.is_none()) else {
        let first = blocked.map_or("kernel", |outcome| outcome.name);
        return (None, Outcome::failed(NAME, "not tried", format!("fix \"{first}\" first")));
    };
    let opened = async {
        let initrd = vm_setup::initramfs(context, &kernel).await?;
        vm_setup::hypervisor(context, &BootFiles { kernel, initrd }).await
    }
    .await;
    match opened {
        Ok(hypervisor) => {
            let facts = hypervisor.facts();
            let detail = format!("{}, {}", facts.accelerator.as_str(), facts.accelerator_reason);
            (Some(hypervisor), Outcome::ok(NAME, detail))
        }
        Err(failure) => (None, Outcome::failed(NAME, failure.to_string(), "see docs/troubleshooting.md")),
    }
}

fn templates(context: &Context, hypervisor: &Hypervisor, image: &Image) -> Outcome {
    const NAME: &str = "templates";
    if !context.config.vm.templates {
        return Outcome::note(NAME, "disabled; every VM boots cold", "set vm.templates to true");
    }
    let there = hypervisor.templates().list();
    let of_image = there.iter().any(|template| match &template.manifest.inputs.kind {
        TemplateKind::Image { image_id, .. } => *image_id == image.manifest.id,
        TemplateKind::Bare | TemplateKind::Snapshot => false,
    });
    if of_image {
        Outcome::ok(NAME, format!("{} ready", there.len()))
    } else {
        Outcome::note(NAME, "none for the base image yet; the first workspace boots cold", "agentiso init")
    }
}

/// Checks the jail of QEMU processes. If a daemon runs, its answer counts, because it may have other privileges than
/// this command. Otherwise the jail is tried with QEMU as the current user.
async fn jail(context: &Context) -> Outcome {
    const NAME: &str = "jail";
    let vm = &context.config.vm;
    if let Some((jail, reason)) = daemon_jail(context).await {
        let detail = format!("{jail}: {reason} (reported by the running daemon)");
        return match (jail == Jail::None.as_str(), vm.jail) {
            (false, _) => jail_outcome(NAME, detail, &context.config.paths),
            (true, config::Jail::Required) => Outcome::failed(
                NAME,
                detail,
                "stop the daemon with `agentiso daemon stop`; the next one starts only with a jail",
            ),
            (true, config::Jail::Auto | config::Jail::Off) => {
                Outcome::note(NAME, detail, "set vm.jail to required and restart the daemon")
            }
        };
    }
    let Ok(qemu) = Qemu::find(&vm.qemu_binary).await else {
        return Outcome::failed(NAME, "not tried", "fix \"QEMU\" first");
    };
    match jail::find(&qemu.path, vm.jail).await {
        Ok(jail) => jail_outcome(NAME, format!("{jail}: {}", jail.describe()), &context.config.paths),
        Err(error) if vm.jail == config::Jail::Required => Outcome::failed(
            NAME,
            format!("vm.jail is \"required\", but {error}"),
            format!("{}, or set the key to auto", error.fix()),
        ),
        Err(error) => Outcome::note(NAME, format!("{}: {error}", Jail::None.describe()), error.fix()),
    }
}

/// The outcome when there is a jail. VMs that were started without one are named.
fn jail_outcome(name: &'static str, found: String, paths: &Paths) -> Outcome {
    match vms_without_jail(paths) {
        without if without.is_empty() => Outcome::ok(name, found),
        without => Outcome::note(
            name,
            format!("{found}; running without a jail: {}", without.join(", ")),
            "agentiso stop NAME, then agentiso start NAME",
        ),
    }
}

/// The jail of the running daemon's VMs, with its reason. `None` if no daemon runs or it does not report its jail.
async fn daemon_jail(context: &Context) -> Option<(String, String)> {
    let mut client = Client::open_running(context).await.ok()??;
    let host = client.status().await.ok()?.host?;
    Some((host.jail, host.jail_reason)).filter(|(jail, reason)| !jail.is_empty() && !reason.is_empty())
}

/// Workspaces whose VMs have no jail, for example because a version without jails started them. They are given by name,
/// or by id if the ledger does not know them.
fn vms_without_jail(paths: &Paths) -> Vec<String> {
    let names = match ledger::read(&paths.state_file) {
        Ok(Found::Whole(document)) => document.workspaces,
        Ok(_) | Err(_) => Default::default(),
    };
    let vms = strays::find_strays(&paths.run, &HashSet::new()).unwrap_or_default();
    let without = vms
        .iter()
        .filter(|vm| !vm.is_template_build())
        .filter(|vm| jail::of_process(vm.record.pid) == Some(Jail::None));
    let name = |vm: &Stray| names.get(&vm.id).map(|entry| entry.name.to_string());
    without.map(|vm| name(vm).unwrap_or_else(|| vm.id.to_string())).collect()
}

/// Checks cgroups for the running daemon or, if none runs, for a daemon that this process would start.
fn cgroups(context: &Context) -> Outcome {
    const NAME: &str = "cgroups";
    let pid = running_daemon(&context.config.paths.lock_file()).unwrap_or_else(std::process::id);
    match Place::find(pid) {
        Ok(place) => Outcome::ok(NAME, format!("every VM gets a cgroup in {}", place.dir().display())),
        Err(error) if context.config.resources.cgroup_required => Outcome::failed(
            NAME,
            format!("resources.cgroup_required is true, but {error}"),
            format!("{}, or set the key to false", error.fix()),
        ),
        Err(error) => Outcome::note(NAME, format!("VMs run without cgroups: {error}"), error.fix()),
    }
}

fn daemon(context: &Context) -> Outcome {
    let paths = &context.config.paths;
    match find_daemon(paths) {
        Some(FoundDaemon::Other { owner, in_our_directory }) => Outcome::failed(
            "daemon",
            other_daemon::sentence(paths, &owner),
            other_daemon::hint(in_our_directory),
        ),
        Some(FoundDaemon::Ours { pid }) => Outcome::ok("daemon", format!("running, pid {pid}")),
        None => not_running(paths, others_vms(paths)),
    }
}

/// `others`: the owner of VMs that prevent a start, and their number.
fn not_running(paths: &Paths, others: Option<(Owner, usize)>) -> Outcome {
    match others {
        Some((owner, vms)) => Outcome::failed(
            "daemon",
            other_daemon::vms_sentence(paths, &owner, vms),
            other_daemon::hint(false),
        ),
        None => Outcome::ok("daemon", "not running; it is started by the first command that needs it"),
    }
}

fn picked(facts: Option<&HostFacts>, network: Backend) -> Vec<(&'static str, Picked)> {
    let accelerator = match facts {
        Some(facts) => Picked::new(facts.accelerator.as_str(), facts.accelerator_reason.clone()),
        None => Picked::new("none", "not determined, see above"),
    };
    let (storage, transport) =
        facts.map_or(("qcow2", "virtio-serial"), |facts| (facts.storage, facts.transport));
    let reason = match network {
        Backend::Gateway => "user-space gateway, needs no privileges; network policies apply",
        Backend::Bridge => "network.backend = \"bridge\"; network policies become nftables rules of the host",
    };
    vec![
        ("accelerator", accelerator),
        ("storage", Picked::new(storage, "overlays on the base image, needs no privileges")),
        ("transport", Picked::new(transport, "needs no privileges and survives a restore from a template")),
        ("network", Picked::new(network.as_str(), reason)),
    ]
}

#[cfg(test)]
mod tests {
    use agentiso_core::config::{Config, UserDirs};

    use super::*;

    #[test]
    fn foreign_vms_fail_the_daemon_check() {
        let dirs = UserDirs { uid: 1000, home: "/home".into(), state_home: None, runtime_dir: None };
        let paths = Config::parse("[vm]\nrun_dir = \"/run/shared\"\n", &dirs).unwrap().paths;
        assert_eq!(not_running(&paths, None).verdict, Verdict::Ok);
        let owner = Owner { pid: 1, state_file: "/elsewhere/state.json".to_owned() };
        let outcome = not_running(&paths, Some((owner, 2)));
        assert_eq!(outcome.verdict, Verdict::Failed);
        for part in ["/run/shared", "/elsewhere/state.json", "2 of its VMs"] {
            assert!(outcome.detail.contains(part), "{part:?} is not in {}", outcome.detail);
        }
        assert!(outcome.fix.unwrap().contains("vm.run_dir"));
    }
}
