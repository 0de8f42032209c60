//! A host whose disk is full: the guest is suspended, loses nothing and resumes when there is space.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agentiso_testkit::{HostOptions, TestHost, eventually, host_or_skip, record_skip};
use serde_json::json;

/// A small file system below /tmp. It is unmounted on drop.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(megabytes: u32) -> Result<Self, String> {
        let dir = Path::new("/tmp").join(format!("aiso-full-{}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|error| error.to_string())?;
        let disk = Self(dir);
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&disk.0).status();
        match mounted {
            Ok(status) if status.success() => Ok(disk),
            Ok(_) | Err(_) => Err("a file system can only be mounted by root".to_owned()),
        }
    }

    fn free_bytes(&self) -> u64 {
        let output =
            Command::new("df").args(["--output=avail", "-B1"]).arg(&self.0).output().expect("df runs");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().nth(1).expect("a second line").trim().parse().expect("a number")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn full_host_disk_suspends_guest_until_space_returns() {
    drop(host_or_skip!());
    let disk = match SmallDisk::mount(2500) {
        Ok(disk) => disk,
        Err(reason) => return record_skip(&reason),
    };
    let host = TestHost::start_with(HostOptions { parent: disk.0.clone(), ..HostOptions::default() });
    let client = host.client();
    let ws = client.workspace();
    // Another file fills the host's disk except for 20 MiB.
    let filler = disk.0.join("filler");
    let length = disk.free_bytes() - (20 << 20);
    let filled = Command::new("fallocate").arg("-l").arg(length.to_string()).arg(&filler).status();
    assert!(filled.expect("fallocate runs").success());
    ws.sh("nohup sh -c 'head -c 60000000 /dev/zero | tr \"\\0\" x > /root/big; sync; echo > /root/done' >/dev/null 2>&1 &");
    eventually("the guest is suspended", Duration::from_secs(90), || ws.state() == "suspended");
    ws.tool_error("exec", json!({ "command": "true" })).mentions(&["disk is full"]);
    client.tool_error("workspace_create", json!({})).mentions(&["space"]);

    std::fs::remove_file(&filler).expect("the filler goes");
    eventually("the guest goes on", Duration::from_secs(90), || ws.state() == "running");
    ws.sh("while [ ! -e /root/done ]; do sleep 0.2; done");
    let expected = ws.sh("head -c 60000000 /dev/zero | tr '\\0' x | sha256sum");
    assert_eq!(ws.sh("sha256sum < /root/big"), expected);
    ws.destroy();
    host.assert_no_workspaces_left();
}

#[test]
fn image_on_another_file_system_is_copied_once() {
    drop(host_or_skip!());
    let disk = match SmallDisk::mount(2500) {
        Ok(disk) => disk,
        Err(reason) => return record_skip(&reason),
    };
    let host = TestHost::start_with(HostOptions { parent: disk.0.clone(), ..HostOptions::default() });
    let client = host.client();
    let (one, other) = (client.workspace(), client.workspace());
    let layer = |id: &str| {
        std::fs::symlink_metadata(host.data().join("workspaces").join(id).join("layer0.qcow2"))
            .expect("a layer")
    };
    let (first, second) = (layer(&one.id), layer(&other.id));
    assert!(first.is_file(), "a link to the cache would break with it");
    assert_eq!(first.ino(), second.ino());
    one.write("/root/kept", "kept\n");
    one.stop();
    one.start();
    assert_eq!(one.read("/root/kept"), "kept\n");
}
