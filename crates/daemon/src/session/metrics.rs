//! The daemon's metrics and its health, for any client.

use std::fmt;

use super::Session;
use crate::metrics::Health;

impl Session {
    /// The metrics as OpenMetrics text.
    pub fn metrics(&self) -> Result<String, fmt::Error> {
        let shared = self.shared();
        shared.metrics.text(&shared.state().registry)
    }

    pub fn health(&self) -> Health {
        let shared = self.shared();
        shared.metrics.health(&shared.state().registry)
    }

    /// Counts an answer that is an error. The code must be one of ours: text from a client must not become a label.
    pub fn count_error(&self, code: &str) {
        self.shared().metrics.failed(code);
    }
}
