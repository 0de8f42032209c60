//! Final changes to a root filesystem: adds what a workspace needs, and removes what would give two workspaces the same
//! identity or let anybody log in.

use crate::recipe::Recipe;
use crate::stage::{Stage, StageError};

/// Directories that the guest mounts over or works in.
const NEEDED: [(&str, u32); 8] = [
    ("dev", 0o755),
    ("proc", 0o555),
    ("sys", 0o555),
    ("run", 0o755),
    ("tmp", 0o1777),
    ("root", 0o700),
    ("etc", 0o755),
    ("workspace", 0o755),
];

/// Prepares a tree that was built from a recipe.
pub(crate) fn tidy(stage: &mut Stage, recipe: Recipe, sources: &[String]) -> Result<(), StageError> {
    adopt(stage)?;
    stage.rewrite("etc/apt/sources.list", (sources.join("\n") + "\n").as_bytes())?;
    // It holds settings of the build, such as proxies of the building host.
    stage.remove("etc/apt/apt.conf.d/99mmdebstrap")?;
    stage.rewrite(
        "etc/apt/apt.conf.d/90agentiso",
        b"APT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\n",
    )?;
    for directory in
        ["var/lib/apt/lists", "var/cache/apt", "var/cache/apt/archives", "var/log", "var/log/apt"]
    {
        stage.remove_files_in(directory, |_| true)?;
    }
    if let Some(shadow) = stage.read("etc/shadow")? {
        stage.rewrite("etc/shadow", lock_passwords(&String::from_utf8_lossy(&shadow)).as_bytes())?;
    }
    match recipe {
        Recipe::DebianDev => {
            // Debian guards the system's Python against pip. A workspace is disposable, and AI agents use `pip install`
            // system-wide.
            stage.rewrite(
                "etc/pip.conf",
                b"[global]\nbreak-system-packages = true\nroot-user-action = ignore\n",
            )
        }
        Recipe::DebianMinimal => Ok(()),
        // No login is possible, so no prompt is shown: an empty unit file masks the unit.
        Recipe::DebianSystem => stage.rewrite("etc/systemd/system/getty.target", b""),
    }
}

/// Prepares any tree, imported ones too: adds the directories that a workspace needs, and removes the identity.
pub(crate) fn adopt(stage: &mut Stage) -> Result<(), StageError> {
    for (path, mode) in NEEDED {
        stage.require_directory(path, mode)?;
    }
    // Empty, not missing: it is written at every start, and programs accept an empty one.
    stage.remove("etc/machine-id")?;
    stage.rewrite("etc/machine-id", b"")?;
    stage.remove("var/lib/dbus/machine-id")?;
    stage.remove("etc/hostname")?;
    stage.rewrite("etc/hostname", b"localhost\n")?;
    stage.remove("etc/resolv.conf")?;
    stage.remove("var/lib/systemd/random-seed")?;
    stage.remove_files_in("etc/ssh", |name| name.starts_with("ssh_host_"))
}

/// Replaces every password by `*`, which matches none.
fn lock_passwords(shadow: &str) -> String {
    let mut locked = String::new();
    for line in shadow.lines() {
        let mut fields: Vec<&str> = line.split(':').collect();
        if let Some(password) = fields.get_mut(1) {
            *password = "*";
        }
        locked.push_str(&fields.join(":"));
        locked.push('\n');
    }
    locked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_passwords_are_locked() {
        let shadow = "root::19000:0:99999:7:::\nme:$y$j9T$abc:19000:0:99999:7:::\nbin:*:1::::::\n";
        assert_eq!(
            lock_passwords(shadow),
            "root:*:19000:0:99999:7:::\nme:*:19000:0:99999:7:::\nbin:*:1::::::\n"
        );
    }

    #[test]
    fn identity_files_are_removed_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "keep me").unwrap();
        let mut stage = Stage::create(&dir.path().join("stage"), 0).unwrap();
        let attributes = crate::stage::Attributes::root(0o644, 0);
        stage.symlink("etc/machine-id".as_ref(), &outside, attributes.clone()).unwrap();
        stage.file("etc/ssh/ssh_host_rsa_key".as_ref(), attributes.clone(), &mut &b"secret"[..]).unwrap();
        stage.file("etc/ssh/ssh_config".as_ref(), attributes, &mut &b"config"[..]).unwrap();
        adopt(&mut stage).unwrap();
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "keep me");
        assert_eq!(stage.read("etc/machine-id").unwrap(), Some(Vec::new()));
        assert_eq!(stage.read("etc/ssh/ssh_host_rsa_key").unwrap(), None);
        assert_eq!(stage.read("etc/ssh/ssh_config").unwrap(), Some(b"config".to_vec()));
    }
}
