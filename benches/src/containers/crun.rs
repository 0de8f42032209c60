//! Measurements of crun: a container started for one command, a command in a running container, and 1 GiB of output.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Options, repeated};
use crate::figures::{Figures, Key, Measured};
use crate::output;
use crate::program;
use crate::samples::timed;
use crate::setup::Runs;

const LIMIT: Duration = Duration::from_secs(60);
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A running container. It is removed on drop.
struct Container<'a> {
    crun: &'a dyn Fn() -> Command,
    name: &'static str,
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = program::run((self.crun)().args(["delete", "--force", self.name]), LIMIT);
    }
}

pub(super) fn measure(crun: &Path, options: &Options, runs: Runs) -> Result<Figures> {
    let state = options.dir.join("crun");
    let command = || {
        let mut command = Command::new(crun);
        // Most hosts do not let ordinary users make cgroups, so the comparison runs without them everywhere.
        command.arg("--root").arg(&state).arg("--cgroup-manager=disabled");
        command
    };
    let mut figures = Figures::default();

    let once = bundle(options, "once", &["true"])?;
    let started = repeated(runs.container_starts, |turn| {
        program::run(command().args(["run", "--bundle"]).arg(&once).arg(format!("once-{turn}")), LIMIT)
    });
    figures.set(Key::CrunRun, started?);

    // The end of the run finds a leftover container by this directory in its command line.
    let dir = options.dir.to_string_lossy();
    let waiting = bundle(options, "waiting", &["/bin/sh", "-c", "while :; do sleep 3600; done", &dir])?;
    program::run(command().args(["run", "--detach", "--bundle"]).arg(&waiting).arg("waiting"), LIMIT)?;
    let container = Container { crun: &command, name: "waiting" };
    let executed =
        repeated(runs.round_trips, |_| program::run(command().args(["exec", container.name, "true"]), LIMIT));
    figures.set(Key::CrunExec, executed?);

    let printing = output::command();
    let (bytes, time) = timed(|| {
        let mut command = command();
        command.args(["exec", container.name, "/bin/sh", "-c", &printing]);
        program::count_output(&mut command, output::LIMIT)
    });
    anyhow::ensure!(bytes? == output::BYTES, "not all of the output came");
    figures.set(Key::CrunOutput, Measured::transfer(output::BYTES, time));
    Ok(figures)
}

/// Writes a bundle and returns its directory.
fn bundle(options: &Options, name: &str, args: &[&str]) -> Result<std::path::PathBuf> {
    let dir = options.dir.join(format!("bundle-{name}"));
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let file = dir.join("config.json");
    let text = config(&options.rootfs, args).to_string();
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    Ok(dir)
}

/// The OCI configuration: without limits, because some hosts forbid raising them, and with all kinds of namespaces, as
/// isolation of an AI would use.
fn config(rootfs: &Path, args: &[&str]) -> Value {
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false, "user": {"uid": 0, "gid": 0}, "args": args, "env": [PATH], "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": {"path": rootfs, "readonly": false},
        "hostname": "bench",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid", "noexec"]},
        ],
        "linux": {"namespaces": [
            {"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"},
        ]},
    });
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if !uid.is_root() {
        let namespaces = config["linux"]["namespaces"].as_array_mut();
        namespaces.into_iter().for_each(|list| list.push(json!({"type": "user"})));
        config["linux"]["uidMappings"] = json!([{"containerID": 0, "hostID": uid.as_raw(), "size": 1}]);
        config["linux"]["gidMappings"] = json!([{"containerID": 0, "hostID": gid.as_raw(), "size": 1}]);
    }
    config
}
