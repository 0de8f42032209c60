//! Round trip of bytes to a guest over the same kind of channel that agentiso uses, without agentiso.

use anyhow::Result;

use crate::figures::{Figures, Key, Measured};
use crate::plain_vm::Plain;
use crate::setup::WARM_UP;

/// About the size of the request of a small command.
const PAYLOAD: [u8; 64] = [b'x'; 64];

pub(crate) fn measure(plain: &Plain, runs: usize) -> Result<Figures> {
    let (_vm, mut echo) = plain.boot_echo()?;
    for _ in 0..WARM_UP {
        echo.round_trip(&PAYLOAD)?;
    }
    let times: Result<Vec<_>> = (0..runs).map(|_| echo.round_trip(&PAYLOAD)).collect();
    let mut figures = Figures::default();
    figures.set(Key::RawEcho, Measured::times(times?));
    Ok(figures)
}
