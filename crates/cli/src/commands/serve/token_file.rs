//! The file with the token of HTTP clients. Anyone who can read it can do everything that an MCP client can.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use agentiso_http::Token;

use crate::failure::Failure;

/// The most bytes of the file: a token and a line feed are shorter.
const MAX_BYTES: u64 = 1024;

pub(super) fn read(path: &Path) -> Result<Token, Failure> {
    let shown = path.display();
    let failed = |error: io::Error| Failure::new(format!("cannot read the token file {shown}: {error}"));
    let file = fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        let sentence = format!("the token file {shown} can be read by other users");
        return Err(
            Failure::new(sentence).hint(format!("write a new token to it and run `chmod 600 {shown}`"))
        );
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    Token::parse(text.trim())
        .map_err(|error| Failure::new(format!("{shown} contains no valid token: {error}")))
}

/// Reads the token, and makes it first if there is none. If two processes make it at the same time, both use the token
/// of the first.
pub(super) fn read_or_make(path: &Path) -> Result<Token, Failure> {
    if !fs::exists(path)? {
        let failed = |error: io::Error| Failure::new(format!("cannot create {}: {error}", path.display()));
        make(path, &Token::random("")?).map_err(failed)?;
    }
    read(path)
}

/// Writes the token. The file appears complete or not at all, and never replaces an existing one.
fn make(path: &Path, token: &Token) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        writeln!(file, "{}", token.expose())?;
        file.sync_all()?;
        match fs::hard_link(&temporary, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    })();
    // An error of the removal is ignored; the first error counts.
    let _ = fs::remove_file(&temporary);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_made_once_and_reused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http-token");
        let made = read_or_make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_or_make(&path).unwrap(), made);
        make(&path, &Token::random("").unwrap()).unwrap();
        assert_eq!(read(&path).unwrap(), made);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn readable_or_invalid_token_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "x".repeat(40)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("by other users"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read(&path).is_ok());
        fs::write(&path, "password\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("no valid token"));
        assert!(read(&dir.path().join("missing")).is_err());
    }
}
