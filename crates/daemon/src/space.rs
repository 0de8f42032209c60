//! Space on the host's disk that is promised to snapshots still being written.

use std::sync::{Arc, Mutex, PoisonError};

use agentiso_core::space::{HostSpace, HostSpaceShort};

#[derive(Debug, Default)]
pub(crate) struct SpacePromises(Arc<Mutex<u64>>);

/// Space that is reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct SpacePromise {
    bytes: u64,
    promised: Arc<Mutex<u64>>,
}

impl SpacePromises {
    /// Promises so many bytes if there is room. Checking and promising happen under one lock, so that the same
    /// space is never promised twice.
    pub(crate) fn promise(
        &self,
        space: Option<HostSpace>,
        bytes: u64,
    ) -> Result<SpacePromise, HostSpaceShort> {
        let mut promised = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(space) = space {
            space.admit(bytes, *promised)?;
        }
        *promised = promised.saturating_add(bytes);
        Ok(SpacePromise { bytes, promised: Arc::clone(&self.0) })
    }
}

impl Drop for SpacePromise {
    fn drop(&mut self) {
        let mut promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        *promised = promised.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_space_is_promised_once() {
        let space = Some(HostSpace { total_bytes: 1000, available_bytes: 150 });
        let promises = SpacePromises::default();
        let first = promises.promise(space, 100).unwrap();
        assert!(promises.promise(space, 100).is_err());
        assert!(promises.promise(space, 0).is_ok());
        drop(first);
        assert!(promises.promise(space, 100).is_ok());
    }
}
