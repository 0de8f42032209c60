//! How a slow operation tells its caller how far it is.

use std::fmt;
use std::sync::Arc;

type Report = dyn Fn(&str, Option<f32>) + Send + Sync;

/// Cheap to clone; the default reports to nobody.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Report>>);

impl Progress {
    pub fn silent() -> Self {
        Self(None)
    }

    /// `report` gets what is being done and, where it is known, which part of the whole (0 to 1) is behind us.
    /// It is called from async code and must not block.
    pub fn new(report: impl Fn(&str, Option<f32>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    pub fn report(&self, step: &str, fraction: Option<f32>) {
        if let Some(report) = &self.0 {
            report(step, fraction);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}
