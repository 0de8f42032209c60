//! What the daemon has counted, for whoever asks.

use std::fmt;

use super::Session;
use crate::metrics::Health;

impl Session {
    /// As OpenMetrics text.
    pub fn metrics(&self) -> Result<String, fmt::Error> {
        let shared = self.shared();
        shared.metrics.text(&shared.state().registry)
    }

    pub fn health(&self) -> Health {
        let shared = self.shared();
        shared.metrics.health(&shared.state().registry)
    }

    /// Counts an answer that is an error. The code is one of ours: what a caller wrote must not become one.
    pub fn count_error(&self, code: &str) {
        self.shared().metrics.failed(code);
    }
}
