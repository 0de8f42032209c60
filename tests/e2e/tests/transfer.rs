//! Transfer of files and directories between the host's transfer directory and a guest.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_testkit::{TestHost, TestWorkspace, eventually, host_or_skip};
use serde_json::{Value, json};

fn transfers(host: &TestHost) -> PathBuf {
    let path = host.data().join("transfers");
    fs::create_dir_all(&path).expect("a directory");
    path
}

fn arguments(direction: &str, host_path: &str, guest_path: &str) -> Value {
    json!({"direction": direction, "host_path": host_path, "guest_path": guest_path})
}

fn upload(ws: &TestWorkspace<'_>, from: &str, to: &str) -> String {
    ws.tool("file_transfer", arguments("upload", from, to)).text
}

fn download(ws: &TestWorkspace<'_>, from: &str, to: &str) -> String {
    ws.tool("file_transfer", arguments("download", to, from)).text
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o7777
}

/// Pseudo-random bytes, always the same.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn binary_file_round_trips_unchanged() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let dir = transfers(&host);
    let content = noise((40 << 20) + 7);
    fs::write(dir.join("in.bin"), &content).expect("written");
    fs::set_permissions(dir.join("in.bin"), fs::Permissions::from_mode(0o750)).expect("its mode is set");
    let said = upload(&ws, "in.bin", "/workspace/new/dir/in.bin");
    for part in ["uploaded", "in.bin", "/workspace/new/dir/in.bin", &content.len().to_string()] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert_eq!(ws.sh("stat -c '%s %a' /workspace/new/dir/in.bin"), format!("{} 750", content.len()));
    ws.sh("chmod 4711 /workspace/new/dir/in.bin");
    let absolute = dir.join("out.bin");
    let said = download(&ws, "/workspace/new/dir/in.bin", absolute.to_str().expect("text"));
    let to = absolute.to_str().expect("text");
    for part in ["downloaded", "/workspace/new/dir/in.bin", to, &content.len().to_string()] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(fs::read(&absolute).expect("read") == content, "the file came back different");
    assert_eq!(mode(&absolute), 0o711, "a guest sets no special bits on the host");
    upload(&ws, "out.bin", "/workspace/new/dir/in.bin");
    fs::write(dir.join("empty"), "").expect("written");
    upload(&ws, "empty", "/workspace/empty");
    assert_eq!(
        ws.sh("stat -c %s /workspace/empty; ls -A /workspace /workspace/new/dir | grep -c tmp; true"),
        "0\n0"
    );
    assert_eq!(fs::read_dir(&dir).expect("listed").count(), 3);
}

#[test]
fn directory_round_trips_with_modes_and_links() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let dir = transfers(&host);
    fs::create_dir_all(dir.join("project/src/deep")).expect("made");
    fs::write(dir.join("project/src/deep/ä \"b\""), noise(300_000)).expect("written");
    fs::write(dir.join("project/run.sh"), "#!/bin/sh\necho ran\n").expect("written");
    fs::set_permissions(dir.join("project/run.sh"), fs::Permissions::from_mode(0o755))
        .expect("its mode is set");
    symlink("run.sh", dir.join("project/link")).expect("linked");
    symlink("/etc/shadow", dir.join("project/outside")).expect("linked");
    for number in 0..300 {
        fs::write(dir.join(format!("project/src/{number}")), number.to_string()).expect("written");
    }
    let said = upload(&ws, "project", "/workspace/project/");
    assert!(said.contains("Directory project was uploaded"), "{said}");
    assert_eq!(ws.sh("/workspace/project/link; readlink /workspace/project/outside"), "ran\n/etc/shadow");
    assert_eq!(ws.sh("find /workspace/project -type f | wc -l"), "302");
    ws.sh("cd /workspace/project && touch new && mkfifo pipe && rm src/0");
    let refused = ws.tool_error("file_transfer", arguments("download", "back", "/workspace/project"));
    assert!(refused.text.contains("outside is a symbolic link to /etc/shadow"), "{}", refused.text);
    assert!(!dir.join("back").exists(), "nothing of it is left");
    ws.sh("rm /workspace/project/outside");
    let back = ws.tool("file_transfer", arguments("download", "back", "/workspace/project"));
    assert!(back.structured["note"].as_str().unwrap().contains("1 pipes"), "{}", back.structured);
    assert_eq!(fs::read(dir.join("back/src/deep/ä \"b\"")).expect("read"), noise(300_000));
    assert!(
        dir.join("back/new").exists() && !dir.join("back/src/0").exists() && !dir.join("back/pipe").exists()
    );
    assert_eq!(mode(&dir.join("back/run.sh")), 0o755);
    assert_eq!(fs::read_link(dir.join("back/link")).expect("a link"), Path::new("run.sh"));
    ws.tool_error("file_transfer", arguments("upload", "project", "/workspace/project")).mentions(&["empty"]);
    let again = ws.tool_error("file_transfer", arguments("download", "back", "/workspace/project"));
    assert_eq!(again.code(), "file_exists");
}

#[test]
fn transfer_never_leaves_its_directory() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let dir = transfers(&host);
    fs::write(host.data().join("secret"), "hush").expect("written");
    symlink("../secret", dir.join("link")).expect("linked");
    symlink("..", dir.join("up")).expect("linked");
    ws.write("/f", "from the guest");
    let secret = host.data().join("secret");
    let secret = secret.to_str().expect("text");
    for path in ["../secret", "/etc/passwd", secret, "x/../../secret"] {
        for direction in ["upload", "download"] {
            let refused = ws.tool_error("file_transfer", arguments(direction, path, "/f"));
            assert!(
                ["outside_transfer_dir", "host_path_not_found"].contains(&refused.code()),
                "{}",
                refused.text
            );
        }
    }
    for direction in ["upload", "download"] {
        for path in ["link", "up/secret"] {
            let refused = ws.tool_error("file_transfer", arguments(direction, path, "/f"));
            assert_eq!(refused.code(), "is_link", "{}", refused.text);
        }
    }
    assert_eq!(fs::read(secret).expect("read"), b"hush");
    assert_eq!(ws.read("/f"), "from the guest");
    // Links in a directory from a guest must not leave it, and the next transfer does not follow those that stay
    // inside.
    for target in ["/", "../../secret", "sub/../../secret"] {
        ws.sh(&format!("rm -rf /d; mkdir -p /d/sub; ln -s {target} /d/sub/away"));
        let refused = ws.tool_error("file_transfer", arguments("download", "d", "/d"));
        assert!(refused.text.contains("sub/away is a symbolic link"), "{}", refused.text);
    }
    ws.sh("rm -rf /d; mkdir /d; echo x > /d/file; ln -s file /d/link; ln -s . /d/here");
    download(&ws, "/d", "d");
    for path in ["d/link", "d/here/file"] {
        let refused = ws.tool_error("file_transfer", arguments("upload", path, "/stolen"));
        assert_eq!(refused.code(), "is_link", "{}", refused.text);
    }
    assert_ne!(ws.exec("test -e /stolen").exit_code, 0);
}

#[test]
fn failed_transfer_names_reason_and_leaves_nothing() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let dir = transfers(&host);
    fs::write(dir.join("file"), vec![7; 6 << 20]).expect("written");
    let count = || fs::read_dir(&dir).expect("listed").count();
    let refused = |direction: &str, host: &str, guest: &str| {
        ws.tool_error("file_transfer", arguments(direction, host, guest))
    };
    refused("upload", "none", "/f").mentions(&["none", "does not exist"]);
    refused("upload", "file", "/etc").mentions(&["/etc", "directory"]);
    refused("upload", "file", "relative").mentions(&["absolute"]);
    refused("download", "new", "/none").mentions(&["/none"]);
    refused("download", "new", "/dev/zero").mentions(&["/dev/zero"]);
    refused("download", "no/parent", "/etc/hostname").mentions(&["no/parent"]);
    refused("download", "", "/etc/hostname").mentions(&["host_path"]);
    refused("sideways", "file", "/f").mentions(&["upload, download"]);
    ws.sh("fallocate -l $(($(df -k --output=avail / | tail -1) - 2048))K /fill; dd if=/dev/zero of=/rest bs=64k 2>/dev/null; sync; true");
    refused("upload", "file", "/workspace/new/f").mentions(&["space"]);
    assert_eq!(ws.sh("rm /fill /rest; ls -A /workspace"), "", "not even a directory is left");
    assert_eq!(count(), 1);

    ws.sh("fallocate -l 600M /big");
    let running = client.start_tool("file_transfer", ws.with_id(arguments("download", "big", "/big")));
    eventually("it is under way", Duration::from_secs(60), || count() == 2);
    client.cancel(&running);
    eventually("a cancelled download leaves nothing", Duration::from_secs(30), || count() == 1);
    let file = fs::File::create(dir.join("huge")).expect("made");
    file.set_len(4 << 30).expect("sparse");
    let running =
        client.start_tool("file_transfer", ws.with_id(arguments("upload", "huge", "/workspace/huge")));
    eventually("it is under way", Duration::from_secs(60), || ws.sh("ls -A /workspace").contains("tmp"));
    client.cancel(&running);
    eventually("a cancelled upload leaves nothing", Duration::from_secs(60), || {
        ws.sh("ls -A /workspace").is_empty()
    });
}

#[test]
fn long_transfer_reports_without_delaying_calls() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    fs::write(transfers(&host).join("file"), noise(32 << 20)).expect("written");
    let call = client.request(
        "tools/call",
        json!({"name": "file_transfer", "arguments": ws.with_id(arguments("upload", "file", "/workspace/f")),
            "_meta": {"progressToken": "p"}}),
    );
    assert_eq!(ws.sh("echo quick"), "quick");
    call.result();
    let seen = client.unsolicited();
    assert!(
        seen.iter().any(|n| n["params"]["message"].as_str().is_some_and(|m| m.contains("MiB sent"))),
        "{seen:?}"
    );
}
