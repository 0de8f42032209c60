//! Collects the log warnings of the host crate while a rung is tried, for example why a faster way was given up.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Collects warnings, or whatever `RUST_LOG` asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<u8>>>);

impl Notes {
    pub(super) fn listen() -> Self {
        let notes = Self::default();
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(notes.clone())
            .with_ansi(false)
            .with_target(false)
            .without_time();
        // It fails if a subscriber is set already; then that one gets the warnings.
        let _ = subscriber.try_init();
        notes
    }

    /// Returns and clears the lines since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&bytes).lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl Write for Notes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Notes {
    type Writer = Self;

    fn make_writer(&'a self) -> Self::Writer {
        self.clone()
    }
}
