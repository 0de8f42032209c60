//! Tests of the random numbers of a VM that was just restored.

use std::sync::{Arc, Mutex};

use agentiso_agent::AgentClient;
use agentiso_guest::server::serve;
use agentiso_guest::system::{NoSystem, System, SystemError};
use agentiso_protocol::schema::v1;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::support::SOON;

/// Records the bytes that its generator was seeded with.
#[derive(Debug, Default)]
struct SeedRecorder(Mutex<Vec<Vec<u8>>>);

impl System for SeedRecorder {
    fn stage(&self) -> v1::Stage {
        NoSystem.stage()
    }

    fn init_mode(&self) -> v1::InitMode {
        NoSystem.init_mode()
    }

    fn boot_id(&self) -> String {
        NoSystem.boot_id()
    }

    fn attach_root(&self, request: &v1::AttachRootRequest) -> Result<v1::AttachRootResponse, SystemError> {
        NoSystem.attach_root(request)
    }

    fn grow_root(&self, expected_bytes: u64) -> Result<v1::GrowRootResponse, SystemError> {
        NoSystem.grow_root(expected_bytes)
    }

    fn identify(&self, request: &v1::IdentifyRequest) -> Result<v1::IdentifyResponse, SystemError> {
        NoSystem.identify(request)
    }

    fn stir(&self, random: &[u8]) {
        self.0.lock().unwrap().push(random.to_vec());
    }

    fn catch_up(&self, request: &v1::CatchUpRequest) -> Result<v1::CatchUpResponse, SystemError> {
        NoSystem.catch_up(request)
    }

    fn quiesce(&self, grace_ms: u32) -> Result<v1::ShutdownResponse, SystemError> {
        NoSystem.quiesce(grace_ms)
    }

    fn power_off(&self) {}
}

#[tokio::test]
async fn connection_seeds_the_guest_before_calls() {
    let mut brought = Vec::new();
    // Two VMs of one snapshot have the same state, and are opened by two connections.
    for _ in 0..2 {
        let vm = Arc::new(SeedRecorder::default());
        let (host, guest) = UnixStream::pair().unwrap();
        let serving = Arc::clone(&vm);
        let _server = AbortOnDropHandle::new(tokio::spawn(async move { drop(serve(guest, serving).await) }));
        // The greeting is the first call.
        let _client = AgentClient::over(host, Instant::now() + SOON).await.unwrap();
        brought.append(&mut vm.0.lock().unwrap());
    }
    assert_eq!(brought.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16]);
    assert_ne!(brought[0], brought[1]);
}
