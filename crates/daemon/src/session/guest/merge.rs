//! Adapter through which the merge engine uses a guest.

use agentiso_core::ids::WorkspaceId;
use agentiso_core::paths::{GuestPath, GuestPathError};
use agentiso_git::merge::GitGuest;
use agentiso_git::{Ran, Script};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::Guest;
use crate::error::OpError;
use crate::vms::WriteFile;

#[derive(Debug)]
pub(crate) struct MergeGuest {
    guest: Guest,
    bench: GuestPath,
}

impl MergeGuest {
    pub(crate) fn new(guest: Guest) -> Result<Self, GuestPathError> {
        // Any random id will do, because no other merge uses it.
        let bench = GuestPath::parse(&format!("/tmp/.agentiso-merge-{}", WorkspaceId::random()))?;
        Ok(Self { guest, bench })
    }
}

impl GitGuest for MergeGuest {
    type Error = OpError;

    fn run<'a>(&'a self, script: &'a Script) -> BoxFuture<'a, Result<Ran, OpError>> {
        self.guest.run_script(script).boxed()
    }

    fn read<'a>(
        &'a self,
        path: &'a GuestPath,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<Bytes, OpError>> {
        async move { Ok(self.guest.read_file(path, offset, limit).await?.data) }.boxed()
    }

    fn write<'a>(&'a self, path: &'a GuestPath, data: Bytes) -> BoxFuture<'a, Result<(), OpError>> {
        let file = WriteFile { path: path.clone(), mode: Some(0o600), create_parents: true };
        self.guest.write_file(file, data).boxed()
    }

    fn bench(&self) -> &GuestPath {
        &self.bench
    }
}
