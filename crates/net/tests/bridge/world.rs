//! A test host with a bridge, in a namespace of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use agentiso_core::ids::WorkspaceId;
use agentiso_core::network::NetworkPolicy;
use agentiso_net::bridge::{Bridge, Port, tap_name};
use agentiso_net::dns::Resolver;
use agentiso_net::flow::log::FlowLog;
use agentiso_net::flow::{NetIdentity, Settings};
use agentiso_net::policy::{Guard, HostAddresses};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::guest::Guest;
use crate::namespace::enter;
use crate::server::{HOST, Internet, SERVER};

pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
pub(crate) const BRIDGE: &str = "br-test";

pub(crate) struct World {
    pub(crate) internet: Internet,
    pub(crate) bridge: Bridge,
}

/// A VM at the bridge, with the daemon's handles for it.
pub(crate) struct TestVm {
    pub(crate) guest: Guest,
    pub(crate) port: Port,
    pub(crate) log: FlowLog,
    pub(crate) identity: NetIdentity,
    pub(crate) tap: String,
}

/// Runs a test in a world of its own, or skips it with the reason.
pub(crate) fn in_world<F: Future<Output = ()>>(tell: impl FnOnce(World) -> F + Send) {
    in_namespace(|| async {
        let world = World { internet: Internet::new().await, bridge: open().unwrap() };
        tell(world).await;
    });
}

/// The same without a bridge or an internet.
pub(crate) fn in_namespace<F: Future<Output = ()>>(tell: impl FnOnce() -> F + Send) {
    let told = thread::scope(|scope| {
        let told = scope.spawn(|| {
            enter().map_err(|error| format!("no network namespace can be made: {error}"))?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(tell());
            Ok::<_, String>(())
        });
        told.join()
    });
    match told {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => agentiso_testkit::record_skip(&reason),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

pub(crate) fn open() -> Result<Bridge, agentiso_net::bridge::BridgeError> {
    let names = Resolver::new(vec![SocketAddr::from((SERVER, 53))]);
    Bridge::open(BRIDGE, Settings::new(Arc::new(names)))
}

pub(crate) fn policy(value: Value) -> NetworkPolicy {
    serde_json::from_value(value).unwrap()
}

impl World {
    /// VM number `number`, with its card connected.
    pub(crate) async fn vm(&self, number: u8, allowed: Value) -> TestVm {
        attach(&self.bridge, number, allowed).await
    }
}

pub(crate) async fn attach(bridge: &Bridge, number: u8, allowed: Value) -> TestVm {
    attach_on(bridge, number, allowed, &Handle::current()).await
}

/// The same with a runtime for the VM alone.
pub(crate) async fn attach_on(bridge: &Bridge, number: u8, allowed: Value, lane: &Handle) -> TestVm {
    let id: WorkspaceId = format!("{number:08x}-0000-4000-8000-000000000000").parse().unwrap();
    let tap = tap_name(&id);
    let address = Ipv4Addr::new(10, 42, 0, number);
    let identity = NetIdentity { name: format!("vm{number}"), mac: [2, 0, 0, 0, 0, number], address };
    let host = HostAddresses::fixed([HOST, GATEWAY, Ipv4Addr::LOCALHOST]);
    let log = FlowLog::new();
    let guard = Guard::new(policy(allowed), host, GATEWAY);
    let port = {
        let _entered = lane.enter();
        bridge.attach(identity.clone(), &tap, guard, log.clone()).unwrap()
    };
    let guest = Guest::plug(&tap, &identity).await;
    TestVm { guest, port, log, identity, tap }
}

impl TestVm {
    pub(crate) fn allow(&self, value: Value) {
        self.port.set_policy(policy(value));
    }

    pub(crate) fn log(&self) -> String {
        self.log.tail(100).iter().map(|record| format!("{record}\n")).collect()
    }

    /// Waits until the log contains the text.
    pub(crate) async fn logs(&self, text: &str) {
        eventually(|| self.log().contains(text), || format!("{text:?} in {}", self.log())).await;
    }
}

pub(crate) async fn eventually(mut is: impl FnMut() -> bool, what: impl Fn() -> String) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < until, "{}", what());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
