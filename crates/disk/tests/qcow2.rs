//! Checks the qcow2 headers that we write with `qemu-img`.

use std::path::Path;
use std::time::Duration;

use agentiso_disk::qcow2_header::{Header, create_overlay};
use agentiso_disk::{Backing, Qcow2Storage, Storage};
use agentiso_sys::command::{CommandError, Tool};

async fn qemu_img(args: &[&str], dir: &Path) -> Result<String, CommandError> {
    let script = "cd \"$1\" && shift && exec qemu-img \"$@\"";
    let shell = Tool::new("sh", "dash", Duration::from_secs(60)).args(["-c", script, "sh"]).args([dir]);
    shell.args(args).run().await.map(|done| done.stdout)
}

#[tokio::test]
async fn qemu_img_accepts_our_headers() {
    let dir = tempfile::tempdir().unwrap();
    if Tool::new("qemu-img", "qemu-utils", Duration::from_secs(60)).args(["--version"]).run().await.is_err() {
        agentiso_testkit::record_skip("qemu-img is not installed");
        return;
    }
    qemu_img(&["create", "-q", "-f", "qcow2", "base.qcow2", "1G"], dir.path()).await.unwrap();
    for gib in [1u64, 2, 10, 100, 4096, 65536] {
        let name = format!("{gib}.qcow2");
        create_overlay(&dir.path().join(&name), "base.qcow2", gib << 30).unwrap();
        qemu_img(&["check", "-q", &name], dir.path()).await.unwrap();
        let info = qemu_img(&["info", "--backing-chain", "--output=json", &name], dir.path()).await.unwrap();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert_eq!(info[0]["virtual-size"], gib << 30);
        assert_eq!(info[0]["backing-filename"], "base.qcow2");
        assert_eq!(info[0]["backing-filename-format"], "qcow2");
        assert_eq!(info[1]["format"], "qcow2", "the backing file is found beside the overlay");
    }
}

#[tokio::test]
async fn overlay_shows_data_of_qemu_img_disk() {
    let dir = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("raw"), vec![7u8; 3 << 20]).unwrap();
    if let Err(CommandError::Missing { .. }) =
        Tool::new("qemu-img", "qemu-utils", Duration::from_secs(60)).args(["--version"]).run().await
    {
        agentiso_testkit::record_skip("qemu-img is not installed");
        return;
    }
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", "raw", "image.qcow2"], dir.path()).await.unwrap();
    assert_eq!(Header::read(&dir.path().join("image.qcow2")).unwrap().virtual_size, 3 << 20);
    let backing = Backing { name: "image".to_owned(), layers: vec![dir.path().join("image.qcow2")] };
    Qcow2Storage.create_from_image(work.path(), &backing, 8 << 20).await.unwrap();
    qemu_img(&["convert", "-O", "raw", "disk.qcow2", "out"], work.path()).await.unwrap();
    let out = std::fs::read(work.path().join("out")).unwrap();
    assert_eq!(out.len(), 8 << 20);
    assert!(out[..3 << 20].iter().all(|b| *b == 7) && out[3 << 20..].iter().all(|b| *b == 0));
}
