//! The report of a run: on the terminal, and as files for the repository.

mod facts;
mod markdown;
mod text;
mod units;
mod write;

pub(crate) use facts::{Facts, load};
pub(crate) use text::render as text;
pub(crate) use write::write;

use crate::figures::Figures;
use crate::goals::{self, Goal};

/// The facts and figures of one run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) facts: Facts,
    pub(crate) figures: Figures,
}

impl Report {
    pub(crate) fn goals(&self) -> Vec<Goal> {
        goals::judge(&self.figures)
    }
}
