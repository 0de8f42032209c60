//! The file with the token of clients over HTTP. Whoever can read it can do everything that an MCP client can.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use agentiso_http::Token;

use crate::failure::Failure;

/// A token and a line feed; what is longer is another file.
const MAX_BYTES: u64 = 1024;

pub(super) fn read(path: &Path) -> Result<Token, Failure> {
    let shown = path.display();
    let failed = |error: io::Error| Failure::new(format!("the token in {shown} cannot be read: {error}"));
    let file = fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        let sentence = format!("{shown} can be read by others, so what is in it is no secret");
        return Err(Failure::new(sentence).hint(format!("write a new token into it and chmod 600 {shown}")));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    Token::parse(text.trim()).map_err(|error| Failure::new(format!("{shown} has no token in it: {error}")))
}

/// Of two that make it at the same time, one is first and both use its token.
pub(super) fn read_or_make(path: &Path) -> Result<Token, Failure> {
    if !fs::exists(path)? {
        let failed = |error: io::Error| Failure::new(format!("{} cannot be made: {error}", path.display()));
        make(path, &Token::random("")?).map_err(failed)?;
    }
    read(path)
}

/// Complete or not at all, and never in place of another.
fn make(path: &Path, token: &Token) -> io::Result<()> {
    let unborn = path.with_extension(format!("{}.new", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unborn)?;
        writeln!(file, "{}", token.expose())?;
        file.sync_all()?;
        match fs::hard_link(&unborn, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    })();
    // The failure that counts is the first.
    let _ = fs::remove_file(&unborn);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_makes_a_token_and_later_ones_use_it() {
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
    fn a_file_that_others_can_read_or_that_has_no_token_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "x".repeat(40)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("by others"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read(&path).is_ok());
        fs::write(&path, "password\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("no token"));
        assert!(read(&dir.path().join("missing")).is_err());
    }
}
