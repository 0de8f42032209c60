//! SHA-256 of bytes and files, as lower-case hexadecimal.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use agentiso_sys::files::{FileContext, FileError};
use agentiso_sys::hex;
use sha2::{Digest, Sha256};

/// Large enough that system calls cost little, small enough for the memory of concurrent tasks.
const BLOCK: usize = 1 << 20;

/// A running hash over parts, each preceded by its length so that the boundaries count.
#[derive(Default)]
pub(crate) struct Fingerprint(Sha256);

impl Fingerprint {
    pub(crate) fn part(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    pub(crate) fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

pub(crate) fn bytes(data: &[u8]) -> String {
    hex(&Sha256::digest(data))
}

/// The hash and the length of a file.
pub(crate) fn file(path: &Path) -> Result<(String, u64), FileError> {
    let mut file = File::open(path).at("open", path)?;
    let mut hasher = Sha256::new();
    let mut block = vec![0; BLOCK];
    let mut total = 0;
    loop {
        let read = file.read(&mut block).at("read", path)?;
        if read == 0 {
            return Ok((hex(&hasher.finalize()), total));
        }
        total += read as u64;
        hasher.update(&block[..read]);
    }
}

/// A UUID derived from a hash, so that equal contents get equal filesystems.
pub(crate) fn uuid_from(hex_digest: &str) -> String {
    let d: String = hex_digest.chars().chain(std::iter::repeat('0')).take(32).collect();
    // Version 8 (custom) and the RFC variant mark it as not random.
    format!("{}-{}-8{}-8{}-{}", &d[..8], &d[8..12], &d[13..16], &d[17..20], &d[20..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_parts_are_separated() {
        let one = Fingerprint::default().part(b"ab").part(b"c").finish();
        let other = Fingerprint::default().part(b"a").part(b"bc").finish();
        assert_ne!(one, other);
    }

    #[test]
    fn sha256_matches_the_known_digest() {
        assert_eq!(bytes(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn uuid_is_derived_from_the_digest() {
        assert_eq!(uuid_from(&bytes(b"abc")), "ba7816bf-8f01-8fea-8141-40de5dae2223");
    }
}
