//! Time of the kernel's boot without agentiso: the lower bound of any cold boot.

use anyhow::Result;

use crate::figures::{Figures, Key, Measured};
use crate::plain_vm::Plain;

pub(crate) fn measure(plain: &Plain, runs: usize) -> Result<Figures> {
    let times: Result<Vec<_>> = (0..runs).map(|_| Ok(plain.boot()?.boot)).collect();
    let mut figures = Figures::default();
    figures.set(Key::PlainBoot, Measured::times(times?));
    Ok(figures)
}
