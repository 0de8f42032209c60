//! Copies a bundle from one workspace to another through the host, one piece at a time.

use agentiso_core::paths::{GuestPath, GuestPathError};

use super::error::MergeError;
use super::guest::GitGuest;
use super::scripts::MAX_BUNDLE;

/// The bytes of a bundle that the host holds at a time.
const PIECE: u64 = 1024 * 1024;

/// The path of a file on a bench.
pub(super) fn inside(bench: &GuestPath, name: &str) -> Result<GuestPath, GuestPathError> {
    GuestPath::parse(&format!("{bench}/{name}"))
}

/// Copies the source's bundle of this size to the target's bench as `part.000000` and so on.
pub(super) async fn bundle<S: GitGuest, T: GitGuest>(
    source: &S,
    target: &T,
    size: u64,
) -> Result<(), MergeError<String>> {
    let size = size.min(MAX_BUNDLE);
    let from = path(source.bench(), "bundle")?;
    let mut offset = 0;
    while offset < size {
        let limit = PIECE.min(size - offset);
        let piece = source.read(&from, offset, limit).await.map_err(|error| failed(&error))?;
        if piece.len() as u64 != limit {
            return Err(MergeError::Answer("a part of the bundle"));
        }
        let to = path(target.bench(), &format!("part.{:06}", offset / PIECE))?;
        target.write(&to, piece).await.map_err(|error| failed(&error))?;
        offset += limit;
    }
    Ok(())
}

pub(super) fn path(bench: &GuestPath, name: &str) -> Result<GuestPath, MergeError<String>> {
    inside(bench, name).map_err(|error| failed(&error))
}

fn failed(error: &dyn std::fmt::Display) -> MergeError<String> {
    MergeError::Guest(error.to_string())
}
