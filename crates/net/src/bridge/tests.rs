//! Foreign nftables tables stay unchanged byte for byte, and ours come and go as a whole.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use agentiso_core::network::NetworkPolicy;

use crate::bridge::nft::{Action, Chain, Family, Nftables, Table};
use crate::bridge::{Bridge, try_flow_log};
use crate::dns::Resolver;
use crate::flow::log::FlowLog;
use crate::flow::{NetIdentity, Settings};
use crate::netlink::{Message, Netlink, Received, Subsystem};
use crate::policy::{Guard, HostAddresses};

/// All objects in the kernel's nftables, in netlink form.
#[derive(Debug, PartialEq, Eq)]
struct Tables(Vec<Vec<u8>>);

/// Requests for the kinds of objects: tables, chains, rules, sets.
const THINGS: [u16; 4] = [1, 4, 7, 10];

impl Tables {
    /// The objects in our tables, or in all others.
    fn read(ours: bool) -> Self {
        let mut netlink = Netlink::open(Subsystem::Netfilter).unwrap();
        let mut all = Vec::new();
        for thing in THINGS {
            let listed = netlink.list(Message::new(10 << 8 | thing, 0, &[0; 4])).unwrap();
            let is_wanted = |message: &&Received| (message.attributes(4).text(1) == Some("agentiso")) == ours;
            // The last two bytes of the header are a generation counter.
            all.extend(
                listed
                    .iter()
                    .filter(is_wanted)
                    .map(|message| [&message.body[..2], &message.body[4..]].concat()),
            );
        }
        Self(all)
    }
}

/// A foreign table with a chain and an empty rule.
fn make_foreign() {
    let message = |kind: u16| Message::new(10 << 8 | kind, 0x400, &[2, 0, 0, 0]);
    let mut table = message(0);
    table.text(1, "foreign");
    let mut chain = message(3);
    chain.text(1, "foreign").text(3, "theirs").nest(4, |hook| {
        hook.be32(1, 2).be32(2, 0);
    });
    chain.be32(5, 1).text(7, "filter");
    let mut netlink = Netlink::open(Subsystem::Netfilter).unwrap();
    let head = [0, 0, 0, 10];
    let (begin, end) = (Message::new(0x10, 0, &head), Message::new(0x11, 0, &head));
    let mut rule = Message::new(10 << 8 | 6, 0xc00, &[2, 0, 0, 0]);
    rule.text(1, "foreign").text(2, "theirs");
    netlink.batch(begin, vec![table, chain, rule], end).unwrap();
}

/// Runs the test in a new network namespace, or skips it if there can be none.
fn in_namespace(story: impl FnOnce() + Send + 'static) {
    let told = std::thread::spawn(|| {
        // SAFETY: only the network namespace of this thread changes; no file descriptor depends on it.
        let entered = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) };
        if let Err(error) = entered {
            return Err(format!("no network namespace can be made: {error}"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _runtime = runtime.enter();
        story();
        Ok(())
    });
    if let Err(reason) = told.join().unwrap() {
        agentiso_testkit::record_skip(&reason);
    }
}

fn open() -> Bridge {
    Bridge::open("br-test", Settings::new(Arc::new(Resolver::new(Vec::new())))).unwrap()
}

#[test]
fn bridge_tables_leave_foreign_tables_unchanged() {
    in_namespace(|| {
        make_foreign();
        let foreign = Tables::read(false);
        assert_eq!(foreign.0.len(), 3);
        assert_eq!(Tables::read(true).0.len(), 0);
        let first = open();
        let once = Tables::read(true).0.len();
        assert!(once > 10, "{once}");
        assert_eq!(Tables::read(false), foreign);
        drop(first);
        assert_eq!(Tables::read(true).0.len(), 0);
        let second = open();
        assert_eq!(Tables::read(true).0.len(), once);
        drop(second);
        assert_eq!(Tables::read(false), foreign);
        assert_eq!(Tables::read(true).0.len(), 0);
    });
}

#[test]
fn detached_vm_leaves_no_rules() {
    in_namespace(|| {
        let bridge = open();
        let empty = Tables::read(true).0.len();
        let attach = |number: u8| {
            let address = Ipv4Addr::new(10, 42, 0, number);
            let identity = NetIdentity { name: format!("vm{number}"), mac: [2, 0, 0, 0, 0, number], address };
            let guard =
                Guard::new(NetworkPolicy::default(), HostAddresses::fixed([]), Ipv4Addr::new(10, 42, 0, 1));
            bridge.attach(identity, &format!("aiso0000000{number}"), guard, FlowLog::new()).unwrap()
        };
        let one = attach(2);
        let with_one = Tables::read(true).0.len();
        let two = attach(3);
        assert!(empty < with_one && with_one < Tables::read(true).0.len());
        drop(two);
        assert_eq!(Tables::read(true).0.len(), with_one);
        drop(one);
        assert_eq!(Tables::read(true).0.len(), empty);
    });
}

#[test]
fn flow_log_trial_changes_no_tables() {
    in_namespace(|| {
        try_flow_log().unwrap();
        let mut chain = Chain::new("wrong");
        chain.rule([], Action::Goto("nowhere".to_owned()));
        let wrong = Table { family: Family::Inet, sets: Vec::new(), chains: vec![chain] };
        assert!(Nftables::open().unwrap().try_out(&wrong).is_err(), "what cannot be is found out");
        assert_eq!(Tables::read(true).0.len(), 0);
        let bridge = open();
        let tables = Tables::read(true);
        try_flow_log().unwrap();
        assert_eq!(Tables::read(true), tables);
        drop(bridge);
    });
}

/// Set for the child process of the next test, which plays the daemon that is killed.
const IS_DAEMON: &str = "AGENTISO_TEST_IS_DAEMON";

#[expect(clippy::print_stdout, reason = "the parent process waits for this line")]
fn be_a_daemon_until_killed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let _bridge = open();
        println!("ready");
        std::future::pending::<()>().await;
    });
}

#[test]
fn tables_of_killed_daemon_are_taken_over() {
    if std::env::var_os(IS_DAEMON).is_some() {
        return be_a_daemon_until_killed();
    }
    in_namespace(|| {
        make_foreign();
        let foreign = Tables::read(false);
        let name = "bridge::tests::tables_of_killed_daemon_are_taken_over";
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(IS_DAEMON, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("ready")));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        let left = Tables::read(true).0.len();
        assert!(left > 10, "the rules hold without it: {left}");
        assert_eq!(Tables::read(false), foreign);
        let next = open();
        assert_eq!(Tables::read(true).0.len(), left);
        assert_eq!(Tables::read(false), foreign);
        drop(next);
        assert_eq!(Tables::read(true).0.len(), 0);
        assert_eq!(Tables::read(false), foreign);
    });
}
