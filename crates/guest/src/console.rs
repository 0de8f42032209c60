//! Writes lines to the VM's console log.

use std::fmt;
use std::io::{self, Write as _};

/// Writes a line to standard error, which is the console in a VM. It is one write, so that lines of several
/// processes do not mix.
pub fn log(message: fmt::Arguments<'_>) {
    let line = format!("agentiso-guest: {message}\n");
    // A failure is ignored: there is no other place to report it.
    drop(io::stderr().write_all(line.as_bytes()));
}
