//! Tests of concurrent calls, and of calls that an agent outside a VM refuses.

use std::time::{Duration, Instant, SystemTime};

use agentiso_agent::{AttachRoot, ErrorCode, Identity, InitMode, Stage};
use agentiso_guest::service::Agent;
use agentiso_guest::system::NoSystem;
use agentiso_protocol::schema::v1::HelloRequest;
use agentiso_protocol::schema::v1::guest_server::Guest as _;
use agentiso_vm::ExecSpec;

use crate::support::TestAgent;

#[tokio::test]
async fn hello_reports_protocol_stage_and_features() {
    let agent = TestAgent::start().await;
    let hello = agent.client.hello();
    assert_eq!((hello.protocol, hello.stage, hello.init_mode), (1, Stage::Rooted, InitMode::Fast));
    assert!(hello.features.iter().any(|feature| feature == "root.attach"));
    assert_eq!(hello.boot_id.len(), 36);
}

#[tokio::test]
async fn agent_refuses_an_outdated_host() {
    let agent = Agent::new(std::sync::Arc::new(NoSystem));
    let request = HelloRequest { host_version: "0".into(), protocol: 0 };
    let status = agent.hello(tonic::Request::new(request)).await.expect_err("refused");
    assert_eq!(ErrorCode::split(status.message()).map(|(code, _)| code), Some(ErrorCode::ProtocolMismatch));
}

#[tokio::test]
async fn many_calls_run_beside_a_long_command() {
    let agent = TestAgent::start().await;
    let long = agent
        .client
        .exec(ExecSpec::shell("sleep 1000").within(Duration::from_secs(900)))
        .await
        .expect("sent");
    let noisy =
        agent.client.exec(ExecSpec::shell("yes").within(Duration::from_secs(900))).await.expect("sent");
    let started = Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..200_usize {
        let client = agent.client.clone();
        calls.spawn(async move {
            match number % 4 {
                0 => client.ping(vec![0; 1000].into()).await.expect("answered"),
                1 => drop(client.stat("/etc/passwd", true).await.expect("answered")),
                2 => drop(client.memory_info().await.expect("answered")),
                _ => client.ping(Vec::new().into()).await.expect("answered"),
            }
        });
    }
    // More file calls than can run at once: some wait.
    let results = calls.join_all();
    tokio::time::timeout(Duration::from_secs(20), results).await.expect("nothing waits for the long command");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    drop((long, noisy));
}

#[tokio::test]
async fn agent_outside_a_vm_refuses_system_calls() {
    let agent = TestAgent::start().await;
    let client = &agent.client;
    let identity = Identity {
        realtime: SystemTime::now(),
        entropy: vec![1; 64],
        hostname: "ws".into(),
        machine_id: "ab".repeat(16),
        network: None,
    };
    for result in [
        client.attach_root(AttachRoot::default()).await.map(drop),
        client.identify(identity).await.map(drop),
        client.grow_root(0).await.map(drop),
        client.shutdown(Duration::from_secs(1)).await.map(drop),
    ] {
        assert_eq!(result.expect_err("refused").code(), Some(ErrorCode::NotVm));
    }
    client.sync().await.expect("synced");
}

#[tokio::test]
async fn process_starts_are_timed() {
    let agent = TestAgent::start().await;
    let times = agent.client.spawn_probe(5).await.expect("timed");
    assert_eq!(times.len(), 5);
    assert!(times.iter().all(|time| *time > Duration::ZERO));
}
