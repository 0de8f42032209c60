//! Compiles the schema to Rust, and writes the compiled descriptor for the compatibility test.
//!
//! The schema is compiled by `protox`, so that no `protoc` has to be installed.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use prost::Message as _;

const SCHEMA: &str = "agentiso/guest/v1/guest.proto";

/// Messages that hold environment variables.
const SECRETIVE: [&str; 3] = [
    ".agentiso.guest.v1.ExecRequest",
    ".agentiso.guest.v1.SetEnvRequest",
    ".agentiso.guest.v1.StartJobRequest",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile([SCHEMA], ["proto"])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    fs::write(out.join("guest.binpb"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_transport(false)
        // Answers of a guest are checked before they are decoded.
        .codec_path("crate::codec::BoundedCodec")
        // Payloads are passed on without copying them out of the receive buffer.
        .bytes(".")
        // Values of environment variables may be secrets: `schema` implements `Debug` for these messages.
        .skip_debug(SECRETIVE)
        .compile_fds(descriptors)?;
    Ok(())
}
