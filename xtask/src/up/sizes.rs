//! The disk space that agentiso uses.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::Value;

/// Rows for the closing table, from the directories that `agentiso check --json` names.
pub(super) fn rows(check: &Value, binary: &Path) -> Vec<(String, String)> {
    let mut rows = vec![("agentiso (one file)".to_owned(), human(occupied(binary)))];
    for kind in ["images", "kernels", "initramfs", "templates"] {
        if let Some(dir) = check["paths"][kind].as_str() {
            rows.push((kind.to_owned(), format!("{}  {dir}", human(occupied(Path::new(dir))))));
        }
    }
    rows
}

/// The bytes in allocated blocks, because RAM files and disks are sparse. Unreadable files count as 0.
fn occupied(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    // stat(2) counts in units of 512 bytes, whatever the filesystem's block size.
    let own = metadata.blocks() * 512;
    if !metadata.is_dir() {
        return own;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    own + entries.map(|entry| occupied(&entry.path())).sum::<u64>()
}

fn human(bytes: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    let mib = bytes as f64 / MIB;
    if mib >= 1024.0 { format!("{:.1} GiB", mib / 1024.0) } else { format!("{mib:.1} MiB") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_take_no_space() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("sparse")).unwrap();
        file.set_len(1 << 30).unwrap();
        assert!(occupied(dir.path()) < 1 << 20);
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(human(1 << 20), "1.0 MiB");
        assert_eq!(human(3 << 30), "3.0 GiB");
    }
}
