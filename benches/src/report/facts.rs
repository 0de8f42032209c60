//! Facts about the host: enough to understand the figures, without identifying it.

use std::process::Command;

use anyhow::Result;
use serde::Serialize;

use crate::setup::{DISK_GB, MEMORY_MB, Setup, VCPUS};
use crate::vm_line::VmLine;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) date: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) qemu: String,
    pub(crate) accelerator: String,
    pub(crate) image: String,
    /// The load average of the last minute when the run began.
    pub(crate) load_before: f64,
}

impl Facts {
    pub(crate) fn gather(setup: &Setup, line: &VmLine, load_before: f64) -> Result<Self> {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpuinfo
            .lines()
            .find(|line| line.starts_with("model name"))
            .and_then(|line| line.split(": ").nth(1));
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory =
            meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
        let version = Command::new(line.qemu()).arg("--version").output()?;
        let version = String::from_utf8_lossy(&version.stdout).lines().next().unwrap_or_default().to_owned();
        Ok(Self {
            date: jiff::Zoned::now().date().to_string(),
            cpu: cpu.unwrap_or("unknown processor").trim().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 1024,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            qemu: version.trim_start_matches("QEMU emulator version ").to_owned(),
            accelerator: line.accelerator()?.to_owned(),
            image: setup.image.clone(),
            load_before,
        })
    }

    /// The kind of host, for file names.
    pub(crate) fn kind(&self) -> String {
        format!("{}-{}core", self.accelerator, self.cores)
    }

    pub(super) fn title(&self) -> String {
        format!("Benchmark of {} on {} cores ({})", self.date, self.cores, self.accelerator)
    }

    pub(super) fn sentence(&self) -> String {
        format!(
            "{}, {} cores, {:.0} GB, Linux {}, QEMU {}, accelerator {}; workspaces of {VCPUS} vCPUs, {MEMORY_MB} MB \
             and {DISK_GB} GB from {}; load before the run {:.2}.",
            self.cpu,
            self.cores,
            self.memory_bytes as f64 / 1e9,
            self.kernel,
            self.qemu,
            self.accelerator,
            self.image,
            self.load_before
        )
    }
}

/// The load average of the last minute.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}
