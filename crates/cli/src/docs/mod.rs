//! Checks the references in docs/ against the code. With `AGENTISO_UPDATE_DOCS` set, generated ones are written
//! instead.

mod cli;
mod configuration;

use std::path::PathBuf;

fn document(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}
