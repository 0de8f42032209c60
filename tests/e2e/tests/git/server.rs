//! A git server in a network namespace of the test's own, which stands for the internet.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use agentiso_testkit::HostOptions;

/// For documentation only, so nobody has it, and public to a policy.
const ADDRESS: &str = "198.51.100.2";

/// Answers every name with its address, and serves repositories with git's own program. Below `/private` it wants a
/// password. In Python because every machine that builds this has it.
const SERVICES: &str = r#"
import base64, http.server, os, socket, struct, subprocess, sys, threading

def names():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("198.51.100.2", 53))
    while True:
        query, client = server.recvfrom(4096)
        at = 12
        while query[at]:
            at += 1 + query[at]
        answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton("198.51.100.2")
        header = query[:2] + b"\x81\x80" + b"\x00\x01\x00\x01\x00\x00\x00\x00"
        server.sendto(header + query[12:at + 5] + answer, client)

class Repositories(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        user = base64.b64encode(b"ann:hunter22").decode()
        if path.startswith("/private") and self.headers["Authorization"] != "Basic " + user:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        environment = dict(os.environ, GIT_PROJECT_ROOT=sys.argv[1], GIT_HTTP_EXPORT_ALL="1", REMOTE_USER="ann",
            REQUEST_METHOD=self.command, PATH_INFO=path, QUERY_STRING=query, CONTENT_LENGTH=str(len(body)),
            CONTENT_TYPE=self.headers["Content-Type"] or "", GIT_PROTOCOL=self.headers["Git-Protocol"] or "",
            HTTP_CONTENT_ENCODING=self.headers["Content-Encoding"] or "")
        ran = subprocess.run(["git", "http-backend"], input=body, stdout=subprocess.PIPE, env=environment)
        head, _, content = ran.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
        status = [value for name, value in headers if name == "Status"]
        self.send_response(int(status[0].split()[0]) if status else 200)
        for name, value in headers:
            if name != "Status":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
    do_POST = do_GET
    def log_message(self, *_):
        pass

threading.Thread(target=names, daemon=True).start()
server = http.server.ThreadingHTTPServer(("198.51.100.2", 80), Repositories)
print("ready", flush=True)
server.serve_forever()
"#;

pub(crate) struct GitServer {
    /// There is one "internet" at a time: all have the same addresses.
    _alone: File,
    name: String,
    services: Option<Child>,
    root: PathBuf,
}

/// A host whose names are those of the server.
pub(crate) fn host() -> HostOptions {
    HostOptions { config: format!("[network]\ndns_servers = [\"{ADDRESS}\"]\n"), ..HostOptions::default() }
}

impl GitServer {
    /// Serves what is below `root`. The reason if this machine does not let us.
    pub(crate) fn start(root: &Path) -> Result<Self, String> {
        let name = format!("aisog{}", std::process::id());
        let lock = std::env::temp_dir().join("agentiso-test-internet.lock");
        let alone = File::create(lock).map_err(|error| error.to_string())?;
        alone.lock().map_err(|error| error.to_string())?;
        let mut server = Self { _alone: alone, name: name.clone(), services: None, root: root.to_owned() };
        let (near, far) = (format!("{name}n"), format!("{name}f"));
        run(&["ip", "netns", "add", &name])?;
        run(&["ip", "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &name])?;
        run(&["ip", "address", "add", "198.51.100.1/24", "dev", &near])?;
        run(&["ip", "link", "set", &near, "up"])?;
        run(&["ip", "-n", &name, "address", "add", &format!("{ADDRESS}/24"), "dev", &far])?;
        run(&["ip", "-n", &name, "link", "set", &far, "up"])?;
        let mut services = Command::new("ip")
            .args(["netns", "exec", &name, "python3", "-c", SERVICES])
            .arg(root)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let output = services.stdout.take().ok_or("no output")?;
        server.services = Some(services);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        if line == "ready\n" { Ok(server) } else { Err("its services did not start".to_owned()) }
    }

    /// Makes a repository of several commits that may be pushed to.
    pub(crate) fn repository(&self, name: &str) {
        let path = self.root.join(name);
        let git = |words: &[&str]| self.git(name, words);
        std::fs::create_dir_all(&path).unwrap();
        git(&["init", "-q", "--bare", "-b", "main", "."]);
        git(&["config", "http.receivepack", "true"]);
        let mut parent: Option<String> = None;
        for number in 1..=3 {
            let blob = self.git_with(name, &["hash-object", "-w", "--stdin"], &format!("line {number}\n"));
            let tree = self.git_with(name, &["mktree"], &format!("100644 blob {blob}\tREADME\n"));
            let message = format!("commit {number}");
            let mut words = vec!["commit-tree", tree.as_str(), "-m", message.as_str()];
            if let Some(parent) = &parent {
                words.extend(["-p", parent.as_str()]);
            }
            parent = Some(git(&words));
        }
        git(&["update-ref", "refs/heads/main", parent.as_deref().unwrap()]);
    }

    pub(crate) fn git(&self, name: &str, words: &[&str]) -> String {
        self.git_with(name, words, "")
    }

    fn git_with(&self, name: &str, words: &[&str], input: &str) -> String {
        use std::io::Write as _;
        let mut child = Command::new("git")
            .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "safe.directory=*"])
            .args(words)
            .current_dir(self.root.join(name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {words:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        if let Some(mut services) = self.services.take() {
            let _ = services.kill();
            let _ = services.wait();
        }
        // With it go both ends of the cable.
        let _ = run(&["ip", "netns", "delete", &self.name]);
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("{}: {error}", words[0]))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
