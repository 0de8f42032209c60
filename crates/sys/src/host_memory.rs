//! The memory that the host can still provide, for the decision whether another VM fits.

use std::path::Path;

use crate::files::FileError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    pub total_bytes: u64,
    /// The memory that programs can get without swapping, as the kernel estimates it.
    pub available_bytes: u64,
}

/// Reads `/proc/meminfo`. Returns `None` inside if a line is missing, which happens on no supported kernel.
pub fn host_memory() -> Result<Option<HostMemory>, FileError> {
    let path = Path::new("/proc/meminfo");
    let text = std::fs::read_to_string(path).map_err(FileError::at("read", path))?;
    Ok(parse(&text))
}

fn parse(meminfo: &str) -> Option<HostMemory> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(HostMemory { total_bytes: bytes("MemTotal")?, available_bytes: bytes("MemAvailable")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_lines_are_parsed() {
        let text = "MemTotal:       2048 kB\nMemFree:  1 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(parse(text), Some(HostMemory { total_bytes: 2 << 20, available_bytes: 1 << 20 }));
    }

    #[test]
    fn invalid_meminfo_gives_nothing() {
        assert_eq!(parse("MemTotal: many kB\nMemAvailable: 1 kB"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn host_memory_is_readable_on_this_host() {
        let memory = host_memory().unwrap().unwrap();
        assert!(memory.available_bytes > 0 && memory.available_bytes <= memory.total_bytes);
    }
}
