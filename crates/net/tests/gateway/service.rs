//! A service of the daemon at the gateway's own address.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentiso_core::network::NetworkPolicy;
use agentiso_net::flow::log::FlowEvent;
use agentiso_net::flow::{Duplex, Service};
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{GATEWAY, World, eventually};

const PORT: u16 = 3100;

/// Sends each guest its own address, and then waits for its end.
#[derive(Debug, Default)]
struct Mirror {
    served: Arc<AtomicUsize>,
}

/// A service at another port, for the first guest only.
#[derive(Debug)]
struct Private;

impl Service for Private {
    fn port(&self) -> u16 {
        PORT + 1
    }

    fn admits(&self, guest: Ipv4Addr) -> bool {
        guest == Ipv4Addr::new(10, 42, 0, 2)
    }

    fn serve(&self, _guest: Ipv4Addr, mut stream: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        Box::pin(async move { stream.write_all(b"private").await.unwrap() })
    }
}

struct Serving(Arc<AtomicUsize>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service for Mirror {
    fn port(&self) -> u16 {
        PORT
    }

    fn serve(&self, guest: Ipv4Addr, mut stream: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        self.served.fetch_add(1, Ordering::SeqCst);
        let serving = Serving(self.served.clone());
        Box::pin(async move {
            let _serving = serving;
            stream.write_all(guest.to_string().as_bytes()).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolated_guest_reaches_the_gateway_service() {
    let mirror = Arc::new(Mirror::default());
    let served = mirror.served.clone();
    let world = World::with(|settings| settings.services = vec![mirror]);
    for number in [2, 3] {
        let vm = world.vm(number, NetworkPolicy::default());
        let guest = vm.guest().await;
        let stream = guest.open(SocketAddrV4::new(GATEWAY, PORT)).await.unwrap();
        let expected = format!("10.42.0.{number}");
        assert_eq!(stream.read_exact(expected.len()).await.unwrap(), expected.as_bytes());
        assert_eq!(vm.find(FlowEvent::Opened).len(), 1);
        // The service is dropped, however its guest ends.
        match number {
            2 => stream.reset(),
            _ => drop(vm),
        }
        eventually(|| (served.load(Ordering::SeqCst) == 0).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_ports_of_the_gateway_stay_closed() {
    let world = World::with(|settings| settings.services = vec![Arc::new(Mirror::default())]);
    let vm = world.vm(2, NetworkPolicy { allow_internet: true, ..NetworkPolicy::default() });
    let guest = vm.guest().await;
    for port in [PORT - 1, PORT + 1, 22] {
        let refused = guest.open(SocketAddrV4::new(GATEWAY, port)).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    let without = World::new();
    let vm = without.vm(2, NetworkPolicy::default());
    let refused = vm.guest().await.open(SocketAddrV4::new(GATEWAY, PORT)).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_refuses_and_logs_unadmitted_guests() {
    let world =
        World::with(|settings| settings.services = vec![Arc::new(Mirror::default()), Arc::new(Private)]);
    let (first, second) = (world.vm(2, NetworkPolicy::default()), world.vm(3, NetworkPolicy::default()));
    let place = SocketAddrV4::new(GATEWAY, PORT + 1);
    let guest = first.guest().await;
    let stream = guest.open(place).await.unwrap();
    assert_eq!(stream.read_exact(7).await.unwrap(), b"private");
    let refused = second.guest().await.open(place).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let records = second.find(FlowEvent::Refused);
    assert_eq!((records.len(), records[0].port), (1, Some(PORT + 1)), "{records:?}");
}
