//! The daemon's service at the gateway's own address.

use std::io::{ErrorKind, Read};
use std::net::Ipv4Addr;
use std::sync::Arc;

use agentiso_net::bridge::Bridge;
use agentiso_net::dns::Resolver;
use agentiso_net::flow::{Duplex, Service, Settings};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::guest::SOON;
use crate::world::{BRIDGE, GATEWAY, attach, in_namespace};

const PORT: u16 = 3100;

/// Sends each guest its own address.
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
fn isolated_vms_reach_the_bridge_service() {
    in_namespace(|| async {
        let names = Arc::new(Resolver::new(Vec::new()));
        let services: Vec<Arc<dyn Service>> = vec![Arc::new(Mirror)];
        let bridge = Bridge::open(BRIDGE, Settings { services, ..Settings::new(names) }).unwrap();
        for number in [2, 3] {
            let vm = attach(&bridge, number, json!({})).await;
            let mut stream = vm.guest.connect(GATEWAY, PORT).await.unwrap();
            let told = vm.guest.run(move || {
                let mut text = String::new();
                stream.set_read_timeout(Some(SOON)).unwrap();
                stream.read_to_string(&mut text).unwrap();
                text
            });
            assert_eq!(told.await, vm.identity.address.to_string());
            assert_eq!(vm.guest.refusal(GATEWAY, PORT + 1).await, ErrorKind::ConnectionRefused);
        }
    });
}
