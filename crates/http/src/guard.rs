//! Who may ask anything at all. Decided from the head, before a byte of the body is read.
//!
//! `Host` and `Origin` keep web pages out: a page that a browser has loaded may make the browser send requests here,
//! under a name of the page's choice that resolves to our address, but it cannot choose these two headers.

use std::net::{IpAddr, SocketAddr};

use http::header::{ALLOW, WWW_AUTHENTICATE};
use http::{Method, StatusCode};

use crate::backend::Backend;
use crate::head::Head;
use crate::refusal::{Refusal, code};

/// The only path there is.
pub(crate) const PATH: &str = "/mcp";

/// Which port an authority without one means.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// Under which names one connection's server may be addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// What the client connected to.
    local: SocketAddr,
    /// Further names, with a port or for all ports.
    names: Vec<String>,
}

impl Hosts {
    /// The address that was connected to, `localhost` if it is one of loopback, and these names.
    pub fn new(local: SocketAddr, names: Vec<String>) -> Self {
        Self { local, names }
    }

    /// Whether a page of this origin is one of ours. We speak plain HTTP; a proxy that speaks TLS for us has a name that
    /// we were told, and pages there may have been loaded from it.
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

/// What is asked for, once the door is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Post,
    /// What the server says unasked, in a session.
    Listen,
    /// The end of a session.
    Delete,
}

/// Whether the request is for us and comes from no other site's page; else why it is refused.
pub(crate) fn check_site(head: &Head, hosts: &Hosts) -> Result<(), &'static str> {
    if !head.get("host").is_some_and(|host| hosts.admits(host)) {
        return Err("the Host header names another server");
    }
    match head.get("origin").is_none_or(|origin| hosts.admits_origin(origin)) {
        true => Ok(()),
        false => Err("requests from web pages are not answered: the Origin header names another site"),
    }
}

pub(crate) fn admit(head: &Head, hosts: &Hosts, backend: &impl Backend) -> Result<Wish, Refusal> {
    check_site(head, hosts).map_err(|problem| Refusal::new(StatusCode::FORBIDDEN, code::REFUSED, problem))?;
    if !bearer(head).is_some_and(|token| backend.knows(token)) {
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, code::REFUSED, "a valid bearer token is needed")
            .with_header(WWW_AUTHENTICATE, "Bearer realm=\"agentiso\""));
    }
    if head.path != PATH {
        let message = format!("there is nothing here; MCP is at {PATH}");
        return Err(Refusal::new(StatusCode::NOT_FOUND, code::REFUSED, message));
    }
    let is_in_session = head.get("mcp-session-id").is_some();
    match head.method {
        Method::POST => Ok(Wish::Post),
        Method::GET if is_in_session => Ok(Wish::Listen),
        Method::DELETE => Ok(Wish::Delete),
        _ => {
            let words = "only POST, GET in a session and DELETE are answered";
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
    fn a_server_answers_to_its_address_and_its_names() {
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
    fn pages_that_came_over_tls_are_ours_under_the_names_of_a_proxy() {
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
        fn no_authority_with_another_name_is_admitted(name in "[a-z0-9.:@\\[\\]-]{0,24}") {
            let local = hosts("127.0.0.1:3000");
            let known = ["127.0.0.1:3000", "localhost:3000", "other.example:8080"];
            let named = name == "vm.example" || name.starts_with("vm.example:");
            prop_assume!(!known.contains(&name.as_str()) && !named);
            prop_assert!(!local.admits(&name));
        }
    }
}
