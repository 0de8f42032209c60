//! Decides from the head of a request whether it is admitted, before a byte of the body is read.
//!
//! `Host` and `Origin` keep web pages out: a page that a browser has loaded may make the browser send requests here,
//! under a name of the page's choice that resolves to our address, but it cannot choose these two headers.

use std::net::{IpAddr, SocketAddr};

use http::header::{ALLOW, WWW_AUTHENTICATE};
use http::{Method, StatusCode};

use crate::backend::Backend;
use crate::head::Head;
use crate::refusal::{Refusal, code};

/// The only path that is served.
pub(crate) const PATH: &str = "/mcp";

/// Ports of an authority that names none.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// The names under which the server of one connection may be addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// The address that the client connected to.
    local: SocketAddr,
    /// Further names, with a port or for all ports.
    names: Vec<String>,
}

impl Hosts {
    /// Admits the address that was connected to, `localhost` if that address is loopback, and `names`.
    pub fn new(local: SocketAddr, names: Vec<String>) -> Self {
        Self { local, names }
    }

    /// Whether a page of this origin is one of ours. We speak plain HTTP; a proxy that adds TLS has one of the
    /// configured names, and our pages may have been loaded through it.
    fn admits_origin(&self, origin: &str) -> bool {
        if let Some(authority) = origin.strip_prefix("http://") {
            return self.admits(authority);
        }
        origin.strip_prefix("https://").is_some_and(|authority| self.is_named(authority, HTTPS_PORT))
    }

    fn admits(&self, authority: &str) -> bool {
        if self.is_named(authority, HTTP_PORT) {
            return true;
        }
        let Some((host, port)) = split(authority) else { return false };
        let ip = self.local.ip().to_canonical();
        let is_ours = match host.parse::<IpAddr>() {
            Ok(written) => written.to_canonical() == ip,
            Err(_) => host.eq_ignore_ascii_case("localhost") && ip.is_loopback(),
        };
        is_ours && port == self.local.port()
    }

    fn is_named(&self, authority: &str, default_port: u16) -> bool {
        let host = split(authority).map_or(authority, |(host, _)| host);
        let with_port = format!("{authority}:{default_port}");
        let is_written = |name: &String| {
            [authority, host, &with_port].iter().any(|written| name.eq_ignore_ascii_case(written))
        };
        self.names.iter().any(is_written)
    }
}

/// Host and port; IPv6 addresses are in brackets.
fn split(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    match port.strip_prefix(':') {
        Some(port) => Some((host, port.parse().ok()?)),
        None if port.is_empty() => Some((host, HTTP_PORT)),
        None => None,
    }
}

/// The action of an admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Post,
    /// Listen for notifications of a session.
    Listen,
    /// End a session.
    Delete,
}

/// Checks that the request is for us and does not come from a page of another site; otherwise returns the reason.
pub(crate) fn check_site(head: &Head, hosts: &Hosts) -> Result<(), &'static str> {
    if !head.get("host").is_some_and(|host| hosts.admits(host)) {
        return Err("the Host header names another server");
    }
    match head.get("origin").is_none_or(|origin| hosts.admits_origin(origin)) {
        true => Ok(()),
        false => Err("the Origin header names another site; requests from web pages are refused"),
    }
}

pub(crate) fn admit(head: &Head, hosts: &Hosts, backend: &impl Backend) -> Result<Action, Refusal> {
    check_site(head, hosts).map_err(|problem| Refusal::new(StatusCode::FORBIDDEN, code::REFUSED, problem))?;
    if !bearer(head).is_some_and(|token| backend.knows(token)) {
        return Err(Refusal::new(
            StatusCode::UNAUTHORIZED,
            code::REFUSED,
            "a valid bearer token is required",
        )
        .with_header(WWW_AUTHENTICATE, "Bearer realm=\"agentiso\""));
    }
    if head.path != PATH {
        let message = format!("not found; MCP is at {PATH}");
        return Err(Refusal::new(StatusCode::NOT_FOUND, code::REFUSED, message));
    }
    let is_in_session = head.get("mcp-session-id").is_some();
    match head.method {
        Method::POST => Ok(Action::Post),
        Method::GET if is_in_session => Ok(Action::Listen),
        Method::DELETE => Ok(Action::Delete),
        _ => {
            let words = "only POST, DELETE and, in a session, GET are allowed";
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, code::REFUSED, words)
                .with_header(ALLOW, "POST, DELETE"))
        }
    }
}

fn bearer(head: &Head) -> Option<&str> {
    let (scheme, token) = head.get("authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(local: &str) -> Hosts {
        Hosts::new(local.parse().unwrap(), vec!["vm.example".to_owned(), "other.example:8080".to_owned()])
    }

    #[test]
    fn host_header_must_be_address_or_name() {
        let local = hosts("127.0.0.1:3000");
        for ours in ["127.0.0.1:3000", "localhost:3000", "LOCALHOST:3000", "vm.example", "VM.example:9"] {
            assert!(local.admits(ours), "{ours}");
        }
        for foreign in [
            "",
            "127.0.0.1",
            "127.0.0.1:3001",
            "evil.example:3000",
            "127.0.0.2:3000",
            "[::1]:3000",
            "x:",
            "a:b:c",
            "other.example",
            "other.example:80",
            "127.0.0.1:3000:1",
            "user@127.0.0.1:3000",
            "localhost.:3000",
        ] {
            assert!(!local.admits(foreign), "{foreign}");
        }
        assert!(hosts("[::1]:80").admits("[::1]") && hosts("[::1]:80").admits("localhost"));
        assert!(hosts("[::ffff:10.0.0.1]:81").admits("10.0.0.1:81"));
        assert!(!hosts("10.42.0.1:3100").admits("localhost:3100"));
    }

    #[test]
    fn https_origin_must_be_a_configured_name() {
        let names = ["vm.example", "other.example:8443", "third.example:443"].map(str::to_owned).to_vec();
        let local = Hosts::new("127.0.0.1:3000".parse().unwrap(), names);
        for ours in [
            "http://127.0.0.1:3000",
            "http://vm.example",
            "https://vm.example",
            "https://VM.example:9",
            "https://other.example:8443",
            "https://third.example",
        ] {
            assert!(local.admits_origin(ours), "{ours}");
        }
        for foreign in [
            "null",
            "https://127.0.0.1:3000",
            "https://localhost:3000",
            "https://evil.example",
            "https://vm.example.evil.example",
            "https://other.example",
            "http://third.example",
            "ftp://vm.example",
            "vm.example",
        ] {
            assert!(!local.admits_origin(foreign), "{foreign}");
        }
    }

    proptest! {
        #[test]
        fn unknown_authority_is_never_admitted(name in "[a-z0-9.:@\\[\\]-]{0,24}") {
            let local = hosts("127.0.0.1:3000");
            let known = ["127.0.0.1:3000", "localhost:3000", "other.example:8080"];
            let named = name == "vm.example" || name.starts_with("vm.example:");
            prop_assume!(!known.contains(&name.as_str()) && !named);
            prop_assert!(!local.admits(&name));
        }
    }
}
