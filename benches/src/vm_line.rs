//! The QEMU command line of a workspace, read from /proc: it gives the options for the plain boot, and proves on which
//! rung the VM started.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The rung on which a VM started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    ImageTemplate,
    BareTemplate,
    ColdBoot,
}

#[derive(Clone, Debug)]
pub(crate) struct VmLine {
    words: Vec<String>,
}

impl VmLine {
    /// The command line of the process with this pid.
    pub(crate) fn of(pid: i32) -> Result<Self> {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).context("reading a VM's command line")?;
        Ok(Self::parse(&bytes))
    }

    fn parse(bytes: &[u8]) -> Self {
        let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        Self { words: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect() }
    }

    pub(crate) fn qemu(&self) -> &str {
        self.words.first().map_or("qemu-system-x86_64", String::as_str)
    }

    /// The value after an option.
    pub(crate) fn option(&self, name: &str) -> Result<&str> {
        let value = self.words.iter().position(|word| word == name).and_then(|at| self.words.get(at + 1));
        value.map(String::as_str).with_context(|| format!("the VM was started without {name}"))
    }

    /// Whether this is the VM of the workspace.
    pub(crate) fn is_of(&self, workspace_id: &str) -> bool {
        self.option("-name").is_ok_and(|name| name.ends_with(workspace_id))
    }

    /// The value of `-vm`, without the option for agentiso's memory files.
    pub(crate) fn board(&self) -> Result<String> {
        let words = self.option("-machine")?.split(',').filter(|word| !word.starts_with("memory-backend="));
        Ok(words.collect::<Vec<_>>().join(","))
    }

    /// `tcg` or `kvm`.
    pub(crate) fn accelerator(&self) -> Result<&str> {
        let value = self.option("-accel")?;
        Ok(value.split(',').next().unwrap_or(value))
    }

    pub(crate) fn rung(&self) -> Result<Rung> {
        if !self.words.iter().any(|word| word == "-incoming") {
            return Ok(Rung::ColdBoot);
        }
        let memory = self.memory_file()?;
        let template = memory.parent().context("a template's memory is in its directory")?;
        // Only an image template has a disk beside the memory.
        Ok(if template.join("disk.qcow2").exists() { Rung::ImageTemplate } else { Rung::BareTemplate })
    }

    fn memory_file(&self) -> Result<PathBuf> {
        for word in &self.words {
            if let Ok(object) = serde_json::from_str::<serde_json::Value>(word)
                && let Some(path) = object["mem-path"].as_str()
            {
                return Ok(Path::new(path).to_owned());
            }
        }
        bail!("the VM was restored without a memory file")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] =
        b"/usr/bin/qemu\0-machine\0microvm,acpi=on,memory-backend=mem,rtc=on\0-accel\0tcg,tb-size=128\0\
        -append\0console=ttyS0 quiet\0";

    #[test]
    fn options_are_found() {
        let line = VmLine::parse(LINE);
        assert_eq!(line.qemu(), "/usr/bin/qemu");
        assert_eq!(line.board().unwrap(), "microvm,acpi=on,rtc=on");
        assert_eq!(line.accelerator().unwrap(), "tcg");
        assert_eq!(line.option("-append").unwrap(), "console=ttyS0 quiet");
        assert!(line.option("-kernel").is_err());
    }

    #[test]
    fn command_line_shows_the_rung() {
        assert_eq!(VmLine::parse(LINE).rung().unwrap(), Rung::ColdBoot);
        let dir = tempfile::tempdir().unwrap();
        let memory = serde_json::json!({"id": "mem", "mem-path": dir.path().join("ram")});
        let line = VmLine::parse(format!("qemu\0-object\0{memory}\0-incoming\0defer\0").as_bytes());
        assert_eq!(line.rung().unwrap(), Rung::BareTemplate);
        std::fs::write(dir.path().join("disk.qcow2"), "").unwrap();
        assert_eq!(line.rung().unwrap(), Rung::ImageTemplate);
        assert!(VmLine::parse(b"qemu\0-incoming\0defer\0").rung().is_err());
    }
}
