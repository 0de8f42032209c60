//! How a bridge begins and ends, and what is left of it.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Command, Stdio};

use agentiso_net::bridge::BridgeError;
use serde_json::json;

use crate::namespace::sh;
use crate::server::{Internet, SERVER};
use crate::world::{BRIDGE, attach, eventually, in_namespace, open, story};

fn links() -> String {
    sh("ip -o link show | cut -d: -f2 | cut -d@ -f1 | sort | tr -d '\n'")
}

#[test]
fn a_bridge_that_is_closed_leaves_nothing() {
    story(|world| async move {
        let before = links().replace(&format!(" {BRIDGE}"), "");
        let switch = sh("cat /proc/sys/net/ipv4/ip_forward");
        let one = world.machine(2, json!({"allow_internet": true, "bandwidth_mbps": 5})).await;
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
fn it_does_not_matter_whether_the_host_filters_what_bridges_carry() {
    const SWITCH: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    story(|world| async move {
        if !std::path::Path::new(SWITCH).exists() {
            return agentiso_testkit::record_skip("this kernel does not filter what bridges carry");
        }
        let one = world.machine(2, json!({"allow_domains": ["good.test"], "allow_inter_vm": true})).await;
        let two = world.machine(3, json!({"allow_inter_vm": true, "allowed_ports": [80]})).await;
        let _server = two.guest.listen(80).await;
        let refused = ErrorKind::ConnectionRefused;
        for value in [0, 1] {
            sh(&format!("echo {value} > {SWITCH}"));
            assert_eq!(two.guest.refusal(SERVER, 80).await, refused, "{value}");
            assert_eq!(one.guest.ask("good.test").await, Some(SERVER), "{value}");
            assert_eq!(one.guest.page(SERVER, "good.test").await, "xxxxx", "{value}");
            one.guest.connect(two.seat.address, 80).await.unwrap();
            assert_eq!(one.guest.refusal(two.seat.address, 81).await, refused, "{value}");
            let socket = one.guest.datagrams(SERVER, 7).await;
            assert_eq!(one.guest.echo(&socket, b"hi").await.unwrap(), b"hi", "{value}");
        }
    });
}

#[test]
fn there_is_one_bridge_at_a_time_and_it_takes_nobody_elses_name() {
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
fn a_machine_that_is_still_connected_keeps_its_device_for_the_next_daemon() {
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
fn ports_of_removed_strays_go_at_once() {
    in_namespace(|| async {
        let internet = Internet::new().await;
        let bridge = open().unwrap();
        let stray = attach(&bridge, 2, json!({"allow_internet": true})).await;
        let kept = attach(&bridge, 3, json!({"allow_internet": true})).await;
        // Nobody knows the machine any more, but it runs, as after a daemon that was killed.
        drop(stray.port);
        let address = stray.seat.address;
        sh(&format!("ip neigh replace {address} lladdr 02:00:00:00:00:02 dev {BRIDGE} nud permanent"));
        bridge.sweep().unwrap();
        assert!(links().contains(&stray.tap), "a machine is connected to it: {}", links());
        stray.guest.unplug();
        bridge.sweep().unwrap();
        assert!(!links().contains(&stray.tap) && links().contains(&kept.tap), "{}", links());
        let fixed = sh(&format!("ip neigh show dev {BRIDGE} nud permanent"));
        assert!(
            !fixed.contains(&format!("{address} ")) && fixed.contains(&kept.seat.address.to_string()),
            "{fixed}"
        );
        assert_eq!(kept.guest.page(SERVER, "any.test").await, "xxxxx");
        drop(internet);
    });
}

/// Set for the process that the next test starts of itself, as the daemon that it kills.
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

#[expect(clippy::print_stdout, reason = "who started this waits for it")]
fn say_ready() {
    println!("ready");
}

#[test]
fn what_a_killed_daemon_left_is_taken_up_and_put_in_order() {
    if std::env::var_os(IS_DAEMON).is_some() {
        return be_a_daemon_until_killed();
    }
    in_namespace(|| async {
        let internet = Internet::new().await;
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "life::what_a_killed_daemon_left_is_taken_up_and_put_in_order", "--nocapture"])
            .env(IS_DAEMON, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("ready")));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert!(links().contains("aiso00000003"), "{}", links());
        // Its machines ended with it, so their devices go; the next ones are made anew.
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
