//! The servers of a namespace: one Python program, because every host that builds agentiso has Python.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use crate::namespace::Namespace;

/// Running servers and the lines that they have printed so far.
#[derive(Debug)]
pub(super) struct Services {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Services {
    pub(super) fn start(namespace: &Namespace, part: &str, dir: &Path) -> Result<Self, String> {
        let mut child = namespace
            .command("python3")
            .args(["-c", include_str!("services.py"), part])
            .arg(dir)
            // Held as long as the child runs: the program ends when its input closes.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let output = child.stdout.take().ok_or("no output")?;
        let mut services = Self { child, lines: Arc::default() };
        let mut output = BufReader::new(output);
        let mut first = String::new();
        let read = output.read_line(&mut first);
        if read.is_err() || first != "ready\n" {
            services.end();
            return Err(format!("the services of the {part} namespace did not start"));
        }
        let lines = services.lines.clone();
        // This thread ends with the services.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(services)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes a certificate for the names of the servers in `dir`, and the authority that signs it.
pub(super) fn certificate(dir: &Path) -> Result<(), String> {
    let names = "subjectAltName=DNS:good.test,DNS:www.good.test,DNS:bad.test,DNS:other.test\n";
    std::fs::write(dir.join("names"), names).map_err(|error| error.to_string())?;
    let steps = "\
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=authority \
            -keyout authority.key -out authority.pem && \
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=server \
            -keyout server.key -out server.csr && \
        openssl x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 \
            -extfile names -out server.pem";
    shell(dir, steps)
}

fn shell(dir: &Path, steps: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-c", steps]).current_dir(dir).output();
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
