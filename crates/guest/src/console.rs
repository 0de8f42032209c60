//! Notes for whoever reads the machine's console log.

use std::fmt;
use std::io::{self, Write as _};

/// Writes a line to standard error, which is the console in a machine. One write, so that lines of several
/// processes do not mix.
pub fn log(message: fmt::Arguments<'_>) {
    let line = format!("agentiso-guest: {message}\n");
    // A console that cannot be written to leaves nobody to tell.
    drop(io::stderr().write_all(line.as_bytes()));
}
