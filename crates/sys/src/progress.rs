//! Reports the progress of a long operation to its caller.

use std::fmt;
use std::sync::Arc;

type Report = dyn Fn(&str, Option<f32>) + Send + Sync;

/// The receiver of progress reports: a line of text, and a fraction between 0 and 1 if one is known.
///
/// The receiver must not block, because it is called in the middle of the work.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Report>>);

impl Progress {
    pub fn new(report: impl Fn(&str, Option<f32>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    /// A receiver that ignores every report.
    pub fn silent() -> Self {
        Self(None)
    }

    pub fn report(&self, message: &str, fraction: Option<f32>) {
        if let Some(report) = &self.0 {
            report(message, fraction);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(watched)" } else { "Progress(silent)" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn progress_reports_reach_only_their_receiver() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let progress = Progress::new(move |text, part| sink.lock().unwrap().push((text.to_owned(), part)));
        progress.clone().report("half", Some(0.5));
        Progress::silent().report("nobody hears this", None);
        assert_eq!(*seen.lock().unwrap(), [("half".to_owned(), Some(0.5))]);
    }
}
