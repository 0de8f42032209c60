//! Untrusted files for the import of snapshots: it must end with a volume, or with an error that leaves nothing.
//!
//! The first byte of the input decides how it becomes a file: unchanged; as an archive that is compressed here; or as
//! the members of an archive, each after its length, with valid hashes added.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use agentiso_core::ids::SnapshotId;
use agentiso_host::carry::{self, Import};
use agentiso_sys::Progress;
use agentiso_sys::jail::Jail;
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

/// The members, in their order.
const MEMBERS: [&str; 5] =
    ["manifest.json", "disk.qcow2", "memory/ram", "memory/device-state", "memory/manifest.json"];

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("agentiso-fuzz-snapshot-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory to work in");
    dir
});

fuzz_target!(|data: &[u8]| {
    let Some((form, bytes)) = data.split_first() else { return };
    let (file, directory) = (DIR.join("file"), DIR.join("volume"));
    let content = match form % 3 {
        0 => bytes.to_vec(),
        1 => compressed(bytes),
        _ => compressed(&archive(bytes)),
    };
    fs::write(&file, content).expect("the file is written");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let looked = carry::look(&file).await;
        let wanted = Import {
            file: &file,
            directory: &directory,
            snapshot: SnapshotId::random(),
            host: None,
            jail: Jail::None,
            cgroups: None,
        };
        let imported = carry::import(wanted, &Progress::silent(), &CancellationToken::new()).await;
        match imported {
            Ok(imported) => {
                let manifest = looked.expect("what was imported can be looked at");
                assert_eq!(imported.vm, manifest.vm);
                fs::remove_dir_all(&directory).expect("the volume is there");
            }
            Err(_) => assert!(!directory.exists(), "a failed import leaves something"),
        }
    });
});

fn compressed(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory is enough")
}

fn archive(mut rest: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut hashes = Vec::new();
    let mut add = |name: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        builder.append_data(&mut header, name, content).expect("memory is enough");
    };
    for name in MEMBERS {
        let Some((length, after)) = rest.split_first_chunk() else { break };
        let (content, after) = after.split_at(after.len().min(u16::from_le_bytes(*length).into()));
        rest = after;
        add(name, content);
        let digest: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        hashes.push(format!("\"{name}\":\"{digest}\""));
    }
    add("hashes.json", format!("{{{}}}", hashes.join(",")).as_bytes());
    builder.into_inner().expect("memory is enough")
}
