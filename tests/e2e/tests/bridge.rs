//! Workspaces at a bridge of the host's kernel. The host is a network namespace of the test's own, and so is "the
//! internet".

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agentiso_testkit::{HostOptions, TestWorkspace, eventually, host_or_skip, record_skip};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::{Value, json};

/// For documentation only, so nobody has it, and public to a policy.
const SERVER: &str = "198.51.100.2";

/// Every name leads to the server, whose pages say by which name they were asked for.
const SERVICES: &str = r#"
import http.server, socket, struct, threading
def names():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("198.51.100.2", 53))
    while True:
        query, client = server.recvfrom(4096)
        end = 12
        while query[end]:
            end += 1 + query[end]
        answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton("198.51.100.2")
        header = query[:2] + b"\x81\x80" + b"\x00\x01\x00\x01\x00\x00\x00\x00"
        server.sendto(header + query[12:end + 5] + answer, client)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the page of " + self.headers["Host"].encode())
    def log_message(self, *_):
        pass
threading.Thread(target=names, daemon=True).start()
server = http.server.ThreadingHTTPServer(("198.51.100.2", 80), Page)
print("ready", flush=True)
server.serve_forever()
"#;

/// The host's namespace is the calling thread's and goes with it; the other goes when this is dropped.
struct Networks {
    internet: String,
    services: Option<Child>,
}

impl Networks {
    /// The reason if this machine does not let us.
    fn make() -> Result<Self, String> {
        // SAFETY: only the network namespace of this thread changes; no file descriptor depends on it.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(|error| format!("no network namespace can be made: {error}"))?;
        let internet = format!("aisobr{}", std::process::id());
        sh(&format!("ip link set lo up; ip netns add {internet}"))?;
        let mut networks = Self { internet: internet.clone(), services: None };
        sh(&format!(
            "ip link add near type veth peer name far netns {internet}; ip address add 198.51.100.1/24 dev near; \
             ip link set near up; ip -n {internet} address add {SERVER}/24 dev far; ip -n {internet} link set far up"
        ))?;
        let mut services = Command::new("ip")
            .args(["netns", "exec", &internet, "python3", "-c", SERVICES])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let output = services.stdout.take().ok_or("no output")?;
        networks.services = Some(services);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        if line == "ready\n" { Ok(networks) } else { Err("its services did not start".to_owned()) }
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        if let Some(mut services) = self.services.take() {
            let _ = services.kill();
            let _ = services.wait();
        }
        let _ = sh(&format!("ip netns delete {}", self.internet));
    }
}

fn sh(command: &str) -> Result<String, String> {
    let output = Command::new("sh").args(["-ec", command]).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Links of the host that agentiso made.
fn links() -> String {
    sh("ip -o link show | cut -d: -f2 | cut -d@ -f1 | grep -E 'aiso|br-' || true").unwrap()
}

fn host() -> HostOptions {
    let config = format!("[network]\nbackend = \"bridge\"\ndns_servers = [\"{SERVER}\"]\n");
    HostOptions { config, ..HostOptions::default() }
}

/// The smallest image has no curl.
const FETCH: &str = r#"
use Socket; my ($name, $as) = @ARGV; my $at = inet_aton($name) or die "no address\n";
socket(S, PF_INET, SOCK_STREAM, 6); connect(S, sockaddr_in(80, $at)) or die "$!\n";
select(S); $| = 1; print S "GET / HTTP/1.0\r\nHost: ".($as || $name)."\r\n\r\n"; select(STDOUT);
my @lines = <S>; die "closed\n" unless @lines; print $lines[-1];
"#;

fn fetch(ws: &TestWorkspace<'_>, name: &str) -> String {
    ws.sh(&format!("perl -e '{}' {name} 2>&1 || true", FETCH.trim()))
}

fn policy(ws: &TestWorkspace<'_>, change: Value) {
    ws.tool("network_policy", change);
}

#[test]
fn a_workspace_at_the_bridge_reaches_what_it_was_allowed_to_through_a_killed_daemon() {
    let _networks = match Networks::make() {
        Ok(networks) => networks,
        Err(reason) => return record_skip(&reason),
    };
    let test = host_or_skip!(host());
    let client = test.client();
    let ws = client.workspace();
    assert!(links().contains("br-agentiso") && links().contains("aiso"), "{}", links());
    assert!(test.cli_ok(&["status"]).contains("network: bridge"));
    assert_eq!(fetch(&ws, "good.test"), "no address");
    assert_eq!(fetch(&ws, SERVER), "Connection refused");
    policy(&ws, json!({"allow_domains": ["good.test"]}));
    assert_eq!(fetch(&ws, "good.test"), "the page of good.test");
    assert_eq!(fetch(&ws, "bad.test"), "no address");
    assert_eq!(fetch(&ws, "good.test bad.test"), "closed");
    policy(&ws, json!({"allow_internet": true, "allow_domains": []}));
    assert_eq!(fetch(&ws, SERVER), format!("the page of {SERVER}"));
    for special in ["169.254.169.254", "10.42.0.1", "198.51.100.1"] {
        assert_eq!(fetch(&ws, special), "Connection refused", "{special}");
    }
    let log = ws.tool("workspace_logs", json!({"log_type": "network"})).json();
    let log = log["network"].as_str().unwrap();
    assert!(log.contains("an address of the host itself"), "{log}");

    // Its card stays connected, its rules hold, and the next daemon takes both up.
    let before = links();
    test.kill_daemon();
    assert_eq!(links(), before);
    let next = test.client();
    next.tool("workspace_adopt", json!({}));
    let command = format!("perl -e '{}' good.test", FETCH.trim());
    let page = next.tool("exec", json!({"workspace_id": ws.id, "command": command})).json();
    assert_eq!(page["stdout"], "the page of good.test");
    assert_eq!(links(), before);
    next.tool("workspace_destroy", json!({"workspace_id": ws.id}));
    assert!(!links().contains("aiso"), "{}", links());
    test.stop_daemon();
    eventually("nothing is left", Duration::from_secs(20), || links().is_empty());
}

#[test]
fn workspaces_at_the_bridge_meet_if_both_want_to_and_ports_of_the_host_lead_into_them() {
    let _networks = match Networks::make() {
        Ok(networks) => networks,
        Err(reason) => return record_skip(&reason),
    };
    let test = host_or_skip!(host());
    let client = test.client();
    let [one, two] =
        [client.workspace_with(json!({"name": "one"})), client.workspace_with(json!({"name": "two"}))];
    two.sh(
        "cat > /root/serve.pl <<'X'\nuse Socket; socket(S, PF_INET, SOCK_STREAM, 6); bind(S, sockaddr_in(80, INADDR_ANY)) or die; \
         listen(S, 5); while (accept(C, S)) { print C \"hello\\n\"; close C }\nX\nnohup perl /root/serve.pl >/dev/null 2>&1 &",
    );
    let hello = |name: &str| {
        one.sh(&format!(
            "perl -e 'use Socket; my $at = inet_aton(shift) or die \"no address\\n\"; socket(S, PF_INET, SOCK_STREAM, 6); \
             connect(S, sockaddr_in(80, $at)) or die \"$!\\n\"; print <S>' {name} 2>&1 || true"
        ))
    };
    let ip = two.created["ip"].as_str().unwrap().to_owned();
    assert_eq!(hello(&ip), "Connection refused");
    for ws in [&one, &two] {
        policy(ws, json!({"allow_inter_vm": true}));
    }
    eventually("both allow it", Duration::from_secs(20), || hello(&ip) == "hello");
    assert_eq!(hello("two"), "hello");

    let added = two.tool("port_forward", json!({"action": "add", "guest_port": 80})).json();
    let port = u16::try_from(added["host_port"].as_u64().unwrap()).unwrap();
    let mut text = String::new();
    TcpStream::connect(("127.0.0.1", port)).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\n");

    // A fork is a machine of its own, and so is its port.
    two.snapshot_with_memory("served");
    let three = two.fork_with("served", json!({"new_name": "three"}));
    assert_ne!(three.created["ip"], json!(ip));
    assert_eq!(hello("three"), "hello");
    test.stop_daemon();
    eventually("nothing is left", Duration::from_secs(60), || links().is_empty());
}
