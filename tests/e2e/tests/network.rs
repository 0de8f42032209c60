//! The network of a workspace: closed by default, opened by name, with forwards, and with clear errors. Tests against
//! hostile guests are in `conformance`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc;
use std::time::Duration;

use agentiso_e2e::guest::{log, policy, serve};
use agentiso_e2e::internet::{HOST, SERVER};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{TestWorkspace, eventually, host_or_skip};
use serde_json::{Value, json};

/// Fetches a page in the guest. Returns its text or the error.
fn fetch(ws: &TestWorkspace<'_>, name: &str) -> String {
    ws.sh(&format!("perl -e '{}' {name} 2>&1 || true", FETCH.trim()))
}

/// The smallest image has no curl.
const FETCH: &str = r#"
use Socket; my ($name, $as) = @ARGV; my $at = inet_aton($name) or die "no address\n";
socket(S, PF_INET, SOCK_STREAM, 6); connect(S, sockaddr_in(80, $at)) or die "$!\n";
select(S); $| = 1; print S "GET / HTTP/1.0\r\nHost: ".($as || $name)."\r\n\r\n"; select(STDOUT);
my @lines = <S>; die "closed\n" unless @lines; print $lines[-1];
"#;

#[test]
fn workspace_reaches_only_allowed_names() {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(""));
    let client = test.client();
    let ws = client.workspace();
    assert_eq!(fetch(&ws, "good.test"), "no address");
    assert_eq!(fetch(&ws, SERVER), "Connection refused");
    assert!(log(&ws).contains("good.test is not allowed"), "{}", log(&ws));

    let open = policy(&ws, json!({"allow_domains": ["good.test", "*.rebind.test"]}));
    assert_eq!(open["allow_internet"], false);
    assert_eq!(fetch(&ws, "good.test"), "the page of good.test");
    assert_eq!(fetch(&ws, "bad.test"), "no address", "another name of the same address");
    assert_eq!(fetch(&ws, "good.test bad.test"), "closed", "a request that names another host");
    assert_eq!(fetch(&ws, "loopback.rebind.test"), "no address");
    assert_eq!(fetch(&ws, "private.rebind.test"), "no address");

    policy(&ws, json!({"allow_internet": true, "allow_domains": [], "deny_domains": ["bad.test"]}));
    assert_eq!(fetch(&ws, "good.test"), "the page of good.test");
    assert_eq!(fetch(&ws, SERVER), "closed", "nobody can see by which name");
    assert!(log(&ws).contains("could be one that deny_domains refuses"), "{}", log(&ws));
    assert_eq!(fetch(&ws, "bad.test"), "no address");
    assert_eq!(fetch(&ws, "169.254.169.254"), "Connection refused");
    assert_eq!(fetch(&ws, "127.1.2.3"), "Connection refused", "the guest's own");
    assert_eq!(fetch(&ws, "10.42.0.1"), "Connection refused", "the gateway's");
    assert_eq!(fetch(&ws, HOST), "Connection refused", "the host's");

    // The policy holds across a stop and a start, and a restart of the daemon.
    ws.stop();
    // A change while the workspace is stopped applies from the next start.
    policy(&ws, json!({"deny_domains": ["bad.test", "other.test"]}));
    test.kill_daemon();
    let next = test.client();
    next.tool("workspace_adopt", json!({}));
    next.tool("workspace_start", json!({"workspace_id": ws.id}));
    let info = next.tool("workspace_info", json!({"workspace_id": ws.id})).json();
    assert_eq!(
        (&info["network"]["allow_internet"], &info["network"]["deny_domains"]),
        (&json!(true), &json!(["bad.test", "other.test"]))
    );
    let started = next.existing(&ws.id);
    assert_eq!(fetch(&started, "good.test"), "the page of good.test");
    assert_eq!(fetch(&started, "other.test"), "no address");

    // The network log is kept as well, until the workspace is destroyed.
    let logs = next.tool("workspace_logs", json!({"workspace_id": ws.id, "log_type": "network"})).json();
    assert!(logs["network"].as_str().unwrap().contains("good.test is not allowed"), "{logs}");
    let file = test.data().join("workspaces").join(&ws.id).join("network.log");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    next.tool("workspace_destroy", json!({"workspace_id": ws.id}));
    test.assert_no_workspaces_left();
}

fn greeting(port: u64) -> String {
    let mut text = String::new();
    let connected = TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap()));
    let Ok(mut stream) = connected else { return "refused".to_owned() };
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    match stream.read_to_string(&mut text) {
        Ok(_) => text,
        Err(_) => "reset".to_owned(),
    }
}

#[test]
fn host_port_forwards_into_a_workspace() {
    let test = host_or_skip!();
    let client = test.client();
    let ws = client.workspace();
    let ip = ws.created["ip"].as_str().unwrap().to_owned();
    serve(&ws, 8080, "0.0.0.0");
    serve(&ws, 8081, &ip);
    let add = |port: u16| ws.tool("port_forward", json!({"action": "add", "guest_port": port})).json();
    let (any, own, none) = (add(8080), add(8081), add(8082));
    let port = |added: &Value| added["host_port"].as_u64().unwrap();
    assert_eq!(any["guest_port"], 8080);
    assert!(port(&any) >= 1024);
    eventually("the server answers", Duration::from_secs(20), || greeting(port(&any)) == "hello\n");
    eventually("so does the other", Duration::from_secs(20), || greeting(port(&own)) == "hello\n");
    assert_ne!(greeting(port(&none)), "hello\n");
    assert!(log(&ws).contains("nothing listens on port 8082"), "{}", log(&ws));

    // Port conflicts, with other programs and with other forwards.
    let somebody = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = somebody.local_addr().unwrap().port();
    let conflict = |host_port: u64| {
        ws.tool_error("port_forward", json!({"action": "add", "guest_port": 90, "host_port": host_port}))
            .code()
            .to_owned()
    };
    assert_eq!(conflict(taken.into()), "port_in_use");
    assert_eq!(conflict(port(&any)), "port_in_use");
    assert_eq!(conflict(80), "invalid_arguments");
    assert_eq!(conflict(7070), "bad_port");
    ws.tool_error("port_forward", json!({"action": "add", "guest_port": 8080})).mentions(&["already"]);
    // A requested port is used once it is free.
    serve(&ws, 90, "0.0.0.0");
    drop(somebody);
    let asked = json!({"action": "add", "guest_port": 90, "host_port": taken});
    assert_eq!(ws.tool("port_forward", asked).json()["host_port"], taken);
    eventually("the third answers", Duration::from_secs(20), || greeting(taken.into()) == "hello\n");

    // Forwards hold across policy changes and a restart of the daemon.
    policy(&ws, json!({"allow_internet": false, "allow_cidrs": ["192.0.2.1"]}));
    assert_eq!(greeting(port(&any)), "hello\n");
    test.kill_daemon();
    let next = test.client();
    next.tool("workspace_adopt", json!({}));
    eventually("the server answers again", Duration::from_secs(30), || greeting(port(&any)) == "hello\n");
    let remove = json!({"workspace_id": ws.id, "action": "remove", "guest_port": 8080});
    assert!(next.tool("port_forward", remove.clone()).text.contains("8080"));
    assert_eq!(greeting(port(&any)), "refused");
    next.tool_error("port_forward", remove).mentions(&["not forwarded", "8081"]);
    next.tool("workspace_destroy", json!({"workspace_id": ws.id}));
    assert_eq!(greeting(port(&own)), "refused");
    test.assert_no_workspaces_left();
}

#[test]
fn forward_with_taken_port_reports_and_recovers() {
    let test = host_or_skip!();
    test.cli_ok(&["create", "dev"]);
    let added: Value =
        serde_json::from_str(&test.cli_ok(&["net", "forward", "dev", "8080", "--json"])).unwrap();
    let port = added["host_port"].as_u64().unwrap();
    assert_ne!(greeting(port), "refused");
    test.kill_daemon();
    let somebody = TcpListener::bind(("127.0.0.1", u16::try_from(port).unwrap())).unwrap();
    let listed = test.cli_ok(&["net", "ls"]);
    let why = format!("host port {port} is in use");
    assert!(listed.contains("(not listening)") && listed.contains(&why), "{listed}");
    let client = test.client();
    client.tool("workspace_adopt", json!({}));
    let dev = json!({"workspace_id": "dev"});
    let info = client.tool("workspace_info", dev.clone()).json();
    assert!(info["network"]["problems"][0].as_str().unwrap().contains(&why), "{info}");
    client.tool("workspace_stop", dev.clone());
    client.tool("workspace_start", dev.clone()).mentions(&["Warning", &why]);
    client.tool("workspace_stop", dev.clone());
    drop(somebody);
    let started = client.tool("workspace_start", dev.clone());
    assert!(!started.text.contains("Warning"), "{}", started.text);
    assert!(client.tool("workspace_info", dev.clone()).json()["network"]["problems"].is_null());
    assert_ne!(greeting(port), "refused");
    client.tool("workspace_destroy", dev);
}

#[test]
fn workspaces_connect_only_if_both_allow_it() {
    let test = host_or_skip!();
    let client = test.client();
    let [one, two] =
        [client.workspace_with(json!({"name": "one"})), client.workspace_with(json!({"name": "two"}))];
    let ip = two.created["ip"].as_str().unwrap().to_owned();
    serve(&two, 80, "0.0.0.0");
    let hello = |name: &str| {
        one.sh(&format!(
            "perl -e 'use Socket; my $at = inet_aton(shift) or die \"no address\\n\"; socket(S, PF_INET, SOCK_STREAM, 6); \
             connect(S, sockaddr_in(80, $at)) or die \"$!\\n\"; print <S>' {name} 2>&1 || true"
        ))
    };
    assert_ne!(hello(&ip), "hello");
    policy(&one, json!({"allow_inter_vm": true}));
    assert_ne!(hello(&ip), "hello", "the other does not allow it");
    assert_eq!(hello("two"), "no address");
    policy(&two, json!({"allow_inter_vm": true}));
    eventually("both allow it", Duration::from_secs(20), || hello(&ip) == "hello");
    assert_eq!(hello("two"), "hello");
    policy(&two, json!({"allowed_ports": [81]}));
    assert_ne!(hello(&ip), "hello", "not at that port");
    policy(&two, json!({"allow_inter_vm": false, "allowed_ports": []}));
    assert_ne!(hello(&ip), "hello");
    // The log of the workspace that opened a connection records its end, with the byte counts.
    let ended =
        |line: &str| line.contains("closed tcp") && line.contains("(two)") && line.contains(", 6 bytes down");
    eventually("the log tells of the end", Duration::from_secs(20), || log(&one).lines().any(ended));
}

#[test]
fn configured_network_defaults_apply_unless_overridden() {
    let internet = internet_or_skip!();
    let open = "default_allow_internet = true\ndefault_allow_inter_vm = true\n";
    let test = host_or_skip!(internet.host_options(open));
    let client = test.client();
    let [one, two] = [client.workspace(), client.workspace_with(json!({"name": "two"}))];
    let closed = client.workspace_with(json!({"name": "closed", "allow_internet": false,
        "network_policy": {"allow_inter_vm": false}}));
    serve(&two, 80, "0.0.0.0");
    serve(&closed, 80, "0.0.0.0");
    let address = |ws: &TestWorkspace<'_>| ws.created["ip"].as_str().unwrap().to_owned();
    assert_eq!(fetch(&one, "good.test"), "the page of good.test");
    assert_eq!(fetch(&one, HOST), "Connection refused", "the host stays closed");
    eventually("one reaches the other", Duration::from_secs(20), || fetch(&one, &address(&two)) == "hello");
    assert_eq!(fetch(&one, &address(&closed)), "Connection refused");
    assert_eq!(fetch(&closed, "good.test"), "no address");
    assert_eq!(fetch(&closed, SERVER), "Connection refused");
    assert_eq!(fetch(&closed, &address(&two)), "Connection refused");
}

#[test]
fn cli_shows_and_changes_the_network_policy() {
    let test = host_or_skip!();
    test.cli_ok(&["create", "dev"]);
    assert!(test.cli_ok(&["net", "ls"]).contains("nothing"));
    let shown =
        test.cli_ok(&["net", "policy", "dev", "--allow-domain", "*.Example.com:443", "--bandwidth", "50"]);
    assert!(shown.contains("*.example.com:443") && shown.contains("50 Mbit/s"), "{shown}");
    let refused =
        test.cli(&["net", "policy", "dev", "--allow-domain", "no spaces", "--deny-cidr", "1.2.3.4/99"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(stderr.contains("allow_domains[0]") && stderr.contains("deny_cidrs[0]"), "{stderr}");
    let added: Value =
        serde_json::from_str(&test.cli_ok(&["net", "forward", "dev", "8080", "--json"])).unwrap();
    let listed = test.cli_ok(&["net", "ls"]);
    assert!(listed.contains(&format!("127.0.0.1:{}", added["host_port"])), "{listed}");
    test.cli_ok(&["exec", "dev", "--", "perl", "-e", "gethostbyname(q(nowhere.test))"]);
    for shown in [["net", "log", "dev"].as_slice(), &["net", "ls"], &["net", "ls", "--json"]] {
        assert!(test.cli_ok(shown).contains("nowhere.test is not allowed"), "{shown:?}");
    }
    assert!(!test.cli_ok(&["net", "ls", "-n", "0"]).contains("nowhere.test"));
    test.cli_ok(&["net", "unforward", "dev", "8080"]);
    assert!(!test.cli_ok(&["net", "ls"]).contains("8080"));
    test.cli_ok(&["rm", "dev"]);
    test.assert_no_workspaces_left();
}

#[test]
fn cli_follows_the_network_log() {
    let test = host_or_skip!();
    test.cli_ok(&["create", "dev"]);
    let ask = |name: &str| {
        test.cli_ok(&["exec", "dev", "--", "perl", "-e", &format!("gethostbyname(q({name}))")]);
    };
    ask("before.test");
    for json in [false, true] {
        let words: &[&str] =
            if json { &["net", "log", "dev", "-f", "--json"] } else { &["net", "log", "dev", "-f"] };
        let mut following = test.spawn(words);
        let output = BufReader::new(following.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        // This thread ends when the output ends.
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let until = |part: &str| loop {
            let line = lines.recv_timeout(Duration::from_secs(60));
            let line = line.unwrap_or_else(|error| panic!("{part} does not appear: {error}"));
            if line.contains(part) {
                return line;
            }
        };
        until("before.test is not allowed");
        // It keeps following, and prints each line as soon as the event happens.
        for name in ["one.test", "two.test"] {
            let name = format!("{json}.{name}");
            ask(&name);
            let line = until(&name);
            assert!(line.contains("is not allowed"), "{line}");
            assert!(!json || serde_json::from_str::<Value>(&line).unwrap()["event"] == "refused", "{line}");
        }
        assert!(following.try_wait().unwrap().is_none(), "it goes on until it is interrupted");
        following.kill().unwrap();
        following.wait().unwrap();
    }
    test.cli_ok(&["rm", "dev"]);
    test.assert_no_workspaces_left();
}
