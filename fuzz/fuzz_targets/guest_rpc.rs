//! Arbitrary bytes from a host for the agent, on an open connection: the agent must answer, refuse or disconnect.
//!
//! The first byte decides whether the rest is framed, so that both the link and HTTP/2 are reached. The agent believes
//! that it has no root file system yet, so requests are parsed, and refused before they affect this host.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use agentiso_guest::server::serve;
use agentiso_guest::system::{System, SystemError};
use agentiso_protocol::link::{MAX_PAYLOAD, data_header, opening};
use agentiso_protocol::schema::v1;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The time limit of one input.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Bare;

impl System for Bare {
    fn stage(&self) -> v1::Stage {
        v1::Stage::Bare
    }

    fn init_mode(&self) -> v1::InitMode {
        v1::InitMode::Fast
    }

    fn boot_id(&self) -> String {
        String::new()
    }

    fn attach_root(&self, _request: &v1::AttachRootRequest) -> Result<v1::AttachRootResponse, SystemError> {
        Err(SystemError::NotVm)
    }

    fn grow_root(&self, _expected_bytes: u64) -> Result<v1::GrowRootResponse, SystemError> {
        Err(SystemError::NotVm)
    }

    fn identify(&self, _request: &v1::IdentifyRequest) -> Result<v1::IdentifyResponse, SystemError> {
        Err(SystemError::NotVm)
    }

    fn stir(&self, _random: &[u8]) {}

    fn catch_up(&self, _request: &v1::CatchUpRequest) -> Result<v1::CatchUpResponse, SystemError> {
        Err(SystemError::NotVm)
    }

    fn quiesce(&self, _grace_ms: u32) -> Result<v1::ShutdownResponse, SystemError> {
        Err(SystemError::NotVm)
    }

    fn power_off(&self) {}
}

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let mut stream = opening(&[7; 16]);
    if first & 1 == 0 {
        stream.extend_from_slice(rest);
    } else {
        let payload = if first & 2 == 0 { [PREFACE, rest].concat() } else { rest.to_vec() };
        for chunk in payload.chunks(MAX_PAYLOAD) {
            stream.extend_from_slice(&data_header(chunk.len()));
            stream.extend_from_slice(chunk);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (mut host, guest) = UnixStream::pair().expect("a pair of sockets");
        let talk = async move {
            // The agent may disconnect at any byte.
            if host.write_all(&stream).await.is_ok() && host.shutdown().await.is_ok() {
                let mut sink = vec![0; 4096];
                while host.read(&mut sink).await.is_ok_and(|count| count > 0) {}
            }
        };
        let both = async { tokio::join!(serve(guest, Arc::new(Bare)), talk) };
        assert!(timeout(LIMIT, both).await.is_ok(), "the agent hangs");
    });
});
