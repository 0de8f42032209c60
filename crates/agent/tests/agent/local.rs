//! Tests of a port in the guest that the host serves.

use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::time::Duration;

use agentiso_agent::{AgentError, ErrorCode, LocalListener, limits};
use agentiso_vm::{AgentFailure, LocalConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{SOON, TestAgent};

/// A free port.
fn free_port() -> u16 {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("bound").port()
}

async fn program(port: u16) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("connected")
}

async fn listen(agent: &TestAgent) -> (u16, LocalListener) {
    let port = free_port();
    (port, agent.client.listen(port).await.expect("listening"))
}

#[tokio::test]
async fn guest_program_exchanges_data_with_the_listener() {
    let agent = TestAgent::start().await;
    let (port, mut listener) = listen(&agent).await;
    for length in [3, 300_000] {
        let asking = tokio::spawn(async move {
            let mut program = program(port).await;
            program.write_all(b"ping").await.expect("sent");
            let mut answer = Vec::new();
            program.read_to_end(&mut answer).await.expect("answered");
            answer.len()
        });
        let connection = timeout(SOON, listener.accept()).await.expect("in time").expect("a connection");
        assert!(connection.uptime > Duration::ZERO);
        let LocalConnection { mut stream, delivered, .. } = connection;
        let mut asked = [0; 4];
        stream.read_exact(&mut asked).await.expect("heard");
        assert_eq!(&asked, b"ping");
        stream.write_all(&vec![b'x'; length]).await.expect("said");
        stream.shutdown().await.expect("ended");
        drop(stream);
        assert_eq!(asking.await.expect("it ran"), length);
        timeout(SOON, delivered).await.expect("in time").expect("the program has it");
    }
}

#[tokio::test]
async fn unread_answer_is_reported_as_an_error() {
    let agent = TestAgent::start().await;
    let (port, mut listener) = listen(&agent).await;
    let mut asking = program(port).await;
    asking.write_all(b"ping").await.expect("sent");
    let connection = timeout(SOON, listener.accept()).await.expect("in time").expect("a connection");
    let LocalConnection { mut stream, delivered, .. } = connection;
    stream.read_exact(&mut [0; 4]).await.expect("heard");
    stream.write_all(b"pong").await.expect("said");
    asking.readable().await.expect("there is something to read");
    drop(asking);
    stream.shutdown().await.expect("ended");
    drop(stream);
    let ended = timeout(SOON, delivered).await.expect("in time");
    assert!(matches!(&ended, Err(AgentFailure::Refused { code: ErrorCode::System, .. })), "{ended:?}");
}

#[tokio::test]
async fn listener_refuses_taken_ports_and_frees_its_own() {
    let agent = TestAgent::start().await;
    let (port, listener) = listen(&agent).await;
    assert!(StdListener::bind((Ipv4Addr::LOCALHOST, port)).is_err(), "it is taken");
    let second = agent.client.listen(free_port()).await;
    assert!(matches!(second, Err(AgentError::Guest { code: ErrorCode::Busy, .. })), "{second:?}");
    drop(listener);
    let freed = async {
        while StdListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, freed).await.expect("free again");
    let owner = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let taken = agent.client.listen(owner.local_addr().expect("bound").port()).await;
    assert!(matches!(taken, Err(AgentError::Guest { code: ErrorCode::Busy, .. })), "{taken:?}");
}

#[tokio::test]
async fn local_connections_beyond_the_limit_wait() {
    let agent = TestAgent::start().await;
    let (port, mut listener) = listen(&agent).await;
    let mut programs = Vec::new();
    let mut carried = Vec::new();
    for _ in 0..limits::MAX_LOCAL_CONNECTIONS {
        programs.push(program(port).await);
        carried.push(timeout(SOON, listener.accept()).await.expect("in time").expect("a connection"));
    }
    programs.push(program(port).await);
    assert!(timeout(Duration::from_millis(200), listener.accept()).await.is_err(), "one too many");
    drop(carried.remove(0));
    timeout(SOON, listener.accept()).await.expect("in time").expect("the one that waited");
}
