//! The daemon's service at the gateway's own address.

use std::io::{ErrorKind, Read};
use std::net::Ipv4Addr;
use std::sync::Arc;

use agentiso_net::bridge::{Bridge, BridgeSettings};
use agentiso_net::dns::Resolver;
use agentiso_net::gateway::{Duplex, Service};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::guest::SOON;
use crate::world::{BRIDGE, GATEWAY, attach, in_namespace};

const PORT: u16 = 3100;

/// Tells everybody who they are.
#[derive(Debug)]
struct Mirror;

impl Service for Mirror {
    fn port(&self) -> u16 {
        PORT
    }

    fn serve(&self, guest: Ipv4Addr, mut stream: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        Box::pin(async move { stream.write_all(guest.to_string().as_bytes()).await.unwrap() })
    }
}

#[test]
fn machines_without_a_network_reach_the_service_and_are_known_there() {
    in_namespace(|| async {
        let names = Arc::new(Resolver::new(Vec::new()));
        let services: Vec<Arc<dyn Service>> = vec![Arc::new(Mirror)];
        let bridge = Bridge::open(BridgeSettings { services, ..BridgeSettings::new(BRIDGE, names) }).unwrap();
        for number in [2, 3] {
            let machine = attach(&bridge, number, json!({})).await;
            let mut stream = machine.guest.connect(GATEWAY, PORT).await.unwrap();
            let told = machine.guest.run(move || {
                let mut text = String::new();
                stream.set_read_timeout(Some(SOON)).unwrap();
                stream.read_to_string(&mut text).unwrap();
                text
            });
            assert_eq!(told.await, machine.seat.address.to_string());
            assert_eq!(machine.guest.refusal(GATEWAY, PORT + 1).await, ErrorKind::ConnectionRefused);
        }
    });
}
