//! `agentiso init --kernel FILE --initrd FILE`: VMs that boot a kernel and initramfs of the user's own.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

use std::path::{Path, PathBuf};
use std::process::Command;

use agentiso_testkit::{TestHost, host_or_skip, test_cache};
use serde_json::Value;

/// The first entry of a directory that is not a lock.
fn entry(dir: &Path) -> PathBuf {
    let entries = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    let is_lock = |path: &PathBuf| path.file_name().unwrap().as_encoded_bytes().starts_with(b"@");
    entries.into_iter().find(|path| !is_lock(path)).unwrap_or_else(|| panic!("{} is empty", dir.display()))
}

fn sha256(file: &Path) -> String {
    let said = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8(said.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// Gives the host a cache with its own kernels and templates; images are shared with other tests.
fn give_cache_of_its_own(host: &TestHost, shared: &Path) -> PathBuf {
    let own = host.dir().join("cache");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::symlink(shared.join("images"), own.join("images")).unwrap();
    let config = std::fs::read_to_string(host.config_path()).unwrap();
    let moved = config.replace(&shared.display().to_string(), &own.display().to_string());
    assert_ne!(moved, config);
    std::fs::write(host.config_path(), moved).unwrap();
    own
}

/// The inputs of every existing template.
fn templates(cache: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(cache.join("templates")).into_iter().flatten().flatten();
    let manifests = entries.filter_map(|entry| std::fs::read(entry.path().join("manifest.json")).ok());
    manifests.map(|text| serde_json::from_slice::<Value>(&text).unwrap()["inputs"]["host"].take()).collect()
}

#[test]
fn own_kernel_and_initramfs_are_used() {
    let host = host_or_skip!();
    let shared = test_cache().expect("there is a host");
    let cache = give_cache_of_its_own(&host, &shared);
    let (kernel, initrd) = (host.dir().join("my-vmlinuz"), host.dir().join("my-initrd"));
    std::fs::copy(entry(&shared.join("kernels")).join("vmlinuz"), &kernel).unwrap();
    // Makes the file differ from agentiso's own: the kernel skips zeros after an archive.
    let mut archive = std::fs::read(entry(&shared.join("initramfs"))).unwrap();
    archive.extend([0; 512]);
    std::fs::write(&initrd, archive).unwrap();
    let [k, i] = [&kernel, &initrd].map(|path| path.to_str().unwrap());

    for (option, more) in [("--kernel", ["--initrd", i]), ("--initrd", ["--kernel", k])] {
        let refused = host.cli(&["init", "--yes", option, "/nonexistent/file", more[0], more[1]]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(option) && said.contains("/nonexistent/file"), "{said}");
    }
    let no_kernel = host.cli(&["init", "--yes", "--kernel", host.config_path().to_str().unwrap()]);
    let said = String::from_utf8_lossy(&no_kernel.stderr).into_owned();
    assert!(!no_kernel.status.success() && said.contains("config.toml"), "{said}");
    assert_eq!(templates(&cache), Vec::<Value>::new());

    let done = host.cli(&["init", "--yes", "--json", "--kernel", k, "--initrd", i]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    let steps: Vec<Value> = serde_json::from_slice(&done.stdout).unwrap();
    let result = |name: &str| {
        let step =
            steps.iter().find(|step| step["name"] == name).unwrap_or_else(|| panic!("no {name}: {steps:?}"));
        step["result"].as_str().unwrap().to_owned()
    };
    let version = result("kernel");
    assert_eq!(result("templates"), "ready", "{steps:?}");
    let made = templates(&cache);
    assert!(!made.is_empty());
    for inputs in &made {
        assert_eq!(
            (&inputs["kernel_sha256"], &inputs["initrd_sha256"]),
            (&sha256(&kernel).into(), &sha256(&initrd).into())
        );
    }
    // The daemon follows the configuration, so the lines of the printed note are added to it.
    let mut config = std::fs::read_to_string(host.config_path()).unwrap();
    config.push_str("[vm]\n");
    for (key, path) in [("kernel_path", k), ("initrd_path", i)] {
        let line = format!("{key} = \"{path}\"");
        assert!(said.contains(&line) && said.contains("[vm]"), "{said}");
        config.push_str(&format!("{line}\n"));
    }
    std::fs::write(host.config_path(), config).unwrap();
    let again = host.cli(&["init", "--yes", "--kernel", k, "--initrd", i]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.success() && !said.contains("note:"), "it is in the configuration: {said}");
    host.cli_ok(&["create", "box"]);
    assert_eq!(host.cli_ok(&["exec", "box", "--", "uname", "-r"]).trim(), version);
    let pid = host.vms()[0];
    let line = String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap()).into_owned();
    let from = cache.join("templates").display().to_string();
    assert!(line.contains(&from), "it comes up from what these files made: {line}");
    assert_eq!(templates(&cache).len(), made.len(), "what was made by init is used");
    host.cli_ok(&["rm", "box"]);
    host.assert_no_workspaces_left();
}
