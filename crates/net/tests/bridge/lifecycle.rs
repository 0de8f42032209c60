//! Start and end of a bridge, and what it leaves behind.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Command, Stdio};

use agentiso_net::bridge::BridgeError;
use serde_json::json;

use crate::namespace::sh;
use crate::server::{Internet, SERVER};
use crate::world::{BRIDGE, attach, eventually, in_namespace, in_world, open};

fn links() -> String {
    sh("ip -o link show | cut -d: -f2 | cut -d@ -f1 | sort | tr -d '\n'")
}

#[test]
fn closed_bridge_leaves_nothing() {
    in_world(|world| async move {
        let before = links().replace(&format!(" {BRIDGE}"), "");
        let switch = sh("cat /proc/sys/net/ipv4/ip_forward");
        let one = world.vm(2, json!({"allow_internet": true, "bandwidth_mbps": 5})).await;
        assert!(links().contains(" aiso00000002"), "{}", links());
        let (port, guest) = (one.port, one.guest);
        guest.unplug();
        drop(port);
        assert!(!links().contains("aiso") && links().contains(BRIDGE), "{}", links());
        drop(world.bridge);
        assert_eq!(links(), before);
        assert_eq!(sh("cat /proc/sys/net/ipv4/ip_forward"), switch, "the host's own switch");
    });
}

#[test]
fn bridge_works_with_and_without_host_filtering() {
    const SWITCH: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    in_world(|world| async move {
        if !std::path::Path::new(SWITCH).exists() {
            return agentiso_testkit::record_skip("this kernel does not filter what bridges carry");
        }
        let one = world.vm(2, json!({"allow_domains": ["good.test"], "allow_inter_vm": true})).await;
        let two = world.vm(3, json!({"allow_inter_vm": true, "allowed_ports": [80]})).await;
        let _server = two.guest.listen(80).await;
        let refused = ErrorKind::ConnectionRefused;
        for value in [0, 1] {
            sh(&format!("echo {value} > {SWITCH}"));
            assert_eq!(two.guest.refusal(SERVER, 80).await, refused, "{value}");
            assert_eq!(one.guest.ask("good.test").await, Some(SERVER), "{value}");
            assert_eq!(one.guest.page(SERVER, "good.test").await, "xxxxx", "{value}");
            one.guest.connect(two.identity.address, 80).await.unwrap();
            assert_eq!(one.guest.refusal(two.identity.address, 81).await, refused, "{value}");
            let socket = one.guest.datagrams(SERVER, 7).await;
            assert_eq!(one.guest.echo(&socket, b"hi").await.unwrap(), b"hi", "{value}");
        }
    });
}

#[test]
fn second_or_foreign_bridge_is_refused() {
    in_namespace(|| async {
        sh(&format!("ip link add {BRIDGE} type bridge"));
        let taken = sh(&format!("ip -d link show {BRIDGE}"));
        assert!(matches!(open(), Err(BridgeError::Foreign { .. })));
        assert_eq!(sh(&format!("ip -d link show {BRIDGE}")), taken);
        sh(&format!("ip link delete {BRIDGE}"));
        let first = open().unwrap();
        assert!(matches!(open(), Err(BridgeError::Taken)));
        drop(first);
        drop(open().unwrap());
    });
}

#[test]
fn connected_vm_keeps_its_tap_after_close() {
    in_namespace(|| async {
        let internet = Internet::new().await;
        let bridge = open().unwrap();
        let one = attach(&bridge, 2, json!({"allow_internet": true})).await;
        assert_eq!(one.guest.page(SERVER, "any.test").await, "xxxxx");
        let guest = one.guest;
        drop(one.port);
        bridge.close();
        drop(bridge);
        assert!(links().contains(&one.tap), "{}", links());
        assert_ne!(guest.page(SERVER, "any.test").await, "xxxxx", "nothing passes meanwhile");
        drop((guest, internet));
    });
}

#[test]
fn sweep_removes_ports_of_removed_strays() {
    in_namespace(|| async {
        let internet = Internet::new().await;
        let bridge = open().unwrap();
        let stray = attach(&bridge, 2, json!({"allow_internet": true})).await;
        let kept = attach(&bridge, 3, json!({"allow_internet": true})).await;
        // The VM is not attached any more but still runs, as after a killed daemon.
        drop(stray.port);
        let address = stray.identity.address;
        sh(&format!("ip neigh replace {address} lladdr 02:00:00:00:00:02 dev {BRIDGE} nud permanent"));
        bridge.sweep().unwrap();
        assert!(links().contains(&stray.tap), "a VM is connected to it: {}", links());
        stray.guest.unplug();
        bridge.sweep().unwrap();
        assert!(!links().contains(&stray.tap) && links().contains(&kept.tap), "{}", links());
        let fixed = sh(&format!("ip neigh show dev {BRIDGE} nud permanent"));
        assert!(
            !fixed.contains(&format!("{address} ")) && fixed.contains(&kept.identity.address.to_string()),
            "{fixed}"
        );
        assert_eq!(kept.guest.page(SERVER, "any.test").await, "xxxxx");
        drop(internet);
    });
}

/// Set for the child process of the next test, which plays the daemon that is killed.
const IS_DAEMON: &str = "AGENTISO_TEST_IS_DAEMON";

fn be_a_daemon_until_killed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bridge = open().unwrap();
        let _one = attach(&bridge, 2, json!({"allow_internet": true})).await;
        let _two = attach(&bridge, 3, json!({"allow_internet": true})).await;
        say_ready();
        std::future::pending::<()>().await;
    });
}

#[expect(clippy::print_stdout, reason = "the parent process waits for this line")]
fn say_ready() {
    println!("ready");
}

#[test]
fn bridge_of_killed_daemon_is_taken_over() {
    if std::env::var_os(IS_DAEMON).is_some() {
        return be_a_daemon_until_killed();
    }
    in_namespace(|| async {
        let internet = Internet::new().await;
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lifecycle::bridge_of_killed_daemon_is_taken_over", "--nocapture"])
            .env(IS_DAEMON, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("ready")));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert!(links().contains("aiso00000003"), "{}", links());
        // Its VMs ended with it, so their devices are removed and created again.
        let mut opened = None;
        eventually(
            || {
                opened = open().ok();
                opened.is_some()
            },
            || "the bridge is free".to_owned(),
        )
        .await;
        let bridge = opened.unwrap();
        assert!(!links().contains("aiso"), "{}", links());
        let one = attach(&bridge, 2, json!({"allow_internet": true})).await;
        assert_eq!(one.guest.page(SERVER, "any.test").await, "xxxxx");
        drop(internet);
    });
}
