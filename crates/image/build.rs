//! Builds the guest agent and puts it where `src/agent.rs` can embed it.
//!
//! The agent is a static binary with another profile and other compiler flags than the host program, so a nested
//! cargo builds it in a target directory of its own. `AGENTISO_GUEST_BINARY` names a prebuilt file instead, or
//! `none` for checks that need no agent.
#![expect(clippy::disallowed_methods, reason = "cargo is run at build time")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const GUEST_PACKAGE: &str = "agentiso-guest";
const GUEST_TARGET: &str = "x86_64-unknown-linux-gnu";
const GUEST_PROFILE: &str = "guest";
/// A static, non-relocatable binary runs as init without a dynamic loader in the initramfs.
const GUEST_RUSTFLAGS: &str = "-C target-feature=+crt-static -C relocation-model=static";

/// Variables that the nested cargo needs to find its toolchain and its registry. Everything else is dropped, because
/// the outer cargo exports flags, target and profile that would change the nested build.
const KEPT_VARIABLES: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "TMPDIR",
];
const KEPT_PREFIXES: [&str; 5] =
    ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_", "CARGO_SOURCE_"];

fn main() {
    println!("cargo::rerun-if-env-changed=AGENTISO_GUEST_BINARY");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let embedded = out.join("agentiso-guest");
    match env::var("AGENTISO_GUEST_BINARY").ok().as_deref() {
        Some("none") => fs::write(&embedded, b"").expect("OUT_DIR is writable"),
        Some(prebuilt) if !prebuilt.is_empty() => {
            println!("cargo::rerun-if-changed={prebuilt}");
            copy(Path::new(prebuilt), &embedded);
        }
        _ => copy(&build_guest(&out), &embedded),
    }
}

fn copy(from: &Path, to: &Path) {
    if let Err(error) = fs::copy(from, to) {
        panic!("cannot embed the guest agent {}: {error}", from.display());
    }
}

fn build_guest(out: &Path) -> PathBuf {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let root =
        manifest.ancestors().nth(2).expect("the crate lies two levels below the workspace").to_path_buf();
    for input in ["crates/guest", "crates/protocol", "crates/tree", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(input).display());
    }

    let target_dir = guest_target_dir(out);
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .current_dir(&root)
        .args(["build", "--quiet", "--package", GUEST_PACKAGE])
        .args(["--profile", GUEST_PROFILE, "--target", GUEST_TARGET, "--target-dir"])
        .arg(&target_dir)
        .env_clear();
    for (name, value) in env::vars_os() {
        let keep = name.to_str().is_some_and(|name| {
            KEPT_VARIABLES.iter().any(|kept| kept.eq_ignore_ascii_case(name))
                || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        });
        if keep {
            cargo.env(name, value);
        }
    }
    cargo.env("RUSTFLAGS", GUEST_RUSTFLAGS);

    match cargo.status() {
        Ok(status) if status.success() => {
            target_dir.join(GUEST_TARGET).join(GUEST_PROFILE).join(GUEST_PACKAGE)
        }
        Ok(status) => panic!(
            "building {GUEST_PACKAGE} failed ({status}); set AGENTISO_GUEST_BINARY=none for checks that need no agent"
        ),
        Err(error) => panic!("cannot start cargo for {GUEST_PACKAGE}: {error}"),
    }
}

/// One directory for all profiles of the outer build, because the guest is the same in each. `OUT_DIR` is
/// `<target>/<profile>/build/<package>/out`.
fn guest_target_dir(out: &Path) -> PathBuf {
    match out.ancestors().nth(4) {
        Some(target) if out.ancestors().nth(2).is_some_and(|build| build.ends_with("build")) => {
            target.join("guest-build")
        }
        _ => out.join("guest-build"),
    }
}
