//! URLs of repositories: network protocols only, never paths or commands.

use thiserror::Error;

use crate::redact::redact;
use crate::refs::is_shell_character;

/// The longest accepted URL.
const MAX_URL_LEN: usize = 2048;

const SCHEMES: [&str; 4] = ["https", "http", "git", "ssh"];

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    #[error("must not be empty")]
    Empty,
    #[error("has {0} bytes; at most {MAX_URL_LEN} are allowed")]
    TooLong(usize),
    #[error("must not begin with '-': it would be taken for an option")]
    LeadingDash,
    #[error("contains {0:?}, which is not allowed in a repository URL")]
    BadCharacter(char),
    #[error("must begin with https://, http://, git:// or ssh://, or look like user@host:path")]
    UnknownScheme,
    #[error("has no host")]
    NoHost,
    #[error("has an invalid host name")]
    BadHost,
    #[error("has no path to a repository")]
    NoPath,
}

/// The URL of a repository. It may contain credentials; use [`GitUrl::shown`] for display.
#[derive(Clone, PartialEq, Eq)]
pub struct GitUrl {
    text: String,
    host: String,
}

impl GitUrl {
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.is_empty() {
            return Err(UrlError::Empty);
        }
        if text.len() > MAX_URL_LEN {
            return Err(UrlError::TooLong(text.len()));
        }
        if text.starts_with('-') {
            return Err(UrlError::LeadingDash);
        }
        let is_bad = |c: char| is_shell_character(c) || c.is_control() || c.is_whitespace();
        if let Some(bad) = text.chars().find(|c| is_bad(*c)) {
            return Err(UrlError::BadCharacter(bad));
        }
        let host = match text.split_once("://") {
            Some((scheme, rest)) => of_url(scheme, rest)?,
            None => of_scp(text)?,
        };
        Ok(Self { text: text.to_owned(), host })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The URL without credentials.
    pub fn shown(&self) -> String {
        redact(&self.text)
    }

    /// The name or address of the host, without a port.
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// Debug output has no credentials either.
impl std::fmt::Debug for GitUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GitUrl").field(&self.shown()).finish()
    }
}

fn of_url(scheme: &str, rest: &str) -> Result<String, UrlError> {
    if !SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
        return Err(UrlError::UnknownScheme);
    }
    let (authority, path) = rest.split_once('/').ok_or(match rest.is_empty() {
        true => UrlError::NoHost,
        false => UrlError::NoPath,
    })?;
    if path.is_empty() {
        return Err(UrlError::NoPath);
    }
    let with_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match with_port.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address, port),
        None => with_port.split_at(with_port.find(':').unwrap_or(with_port.len())),
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.parse::<u16>().is_ok());
    if !is_port {
        return Err(UrlError::BadHost);
    }
    checked_host(host)
}

/// The host of `user@host:path`, the syntax of scp.
fn of_scp(text: &str) -> Result<String, UrlError> {
    let (user, rest) = text.split_once('@').ok_or(UrlError::UnknownScheme)?;
    let (host, path) = rest.split_once(':').ok_or(UrlError::UnknownScheme)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if user.is_empty() || !user.chars().all(plain) {
        return Err(UrlError::UnknownScheme);
    }
    if path.is_empty() || path.starts_with('-') {
        return Err(UrlError::NoPath);
    }
    checked_host(host)
}

/// Checks a host. One that begins with a dash would be an option of ssh.
fn checked_host(host: &str) -> Result<String, UrlError> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '%');
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    if host.starts_with('-') || !host.chars().all(plain) {
        return Err(UrlError::BadHost);
    }
    Ok(host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn repositories_over_a_network_are_accepted() {
        for (url, host) in [
            ("https://example.com/a/b.git", "example.com"),
            ("HTTP://Example.com:8080/a", "example.com"),
            ("git://10.0.0.1/a", "10.0.0.1"),
            ("ssh://git@example.com:22/~a/b", "example.com"),
            ("https://user:pa@ss@example.com/a", "example.com"),
            ("https://[::1]:80/a", "::1"),
            ("git@github.com:a/b.git", "github.com"),
        ] {
            assert_eq!(GitUrl::parse(url).map(|u| u.host().to_owned()).as_deref(), Ok(host), "{url}");
        }
    }

    #[test]
    fn paths_commands_and_options_are_refused() {
        for bad in [
            "",
            "-x",
            "--upload-pack=touch /x",
            "/etc",
            "../x",
            "file:///etc",
            "ext::sh -c x",
            "ftp://a/b",
            "https://",
            "https:///a",
            "https://a",
            "https://a/",
            "ssh://-oProxyCommand=x/a",
            "git@-oProxyCommand=x:a",
            "git@host",
            "git@host:",
            "git@host:-x",
            "@host:a",
            "host:a",
            "https://a b/c",
            "https://a/b;c",
            "https://a/$(b)",
            "https://a/`b`",
            "https://a/b|c",
            "https://a/b&c",
            "https://a/'b",
            "https://a/\"b",
            "https://a\\b/c",
            "https://a/b\n",
            "https://a/b\r",
            "https://a/b\0",
            "https://a:port/b",
            "https://a:99999/b",
        ] {
            assert!(GitUrl::parse(bad).is_err(), "{bad:?}");
        }
        assert!(GitUrl::parse(&format!("https://a/{}", "b".repeat(3000))).is_err());
    }

    #[test]
    fn shown_url_has_no_credentials() {
        let url = GitUrl::parse("https://user:secret@example.com/a").unwrap();
        assert_eq!(url.shown(), "https://***@example.com/a");
        assert!(!format!("{url:?}").contains("secret"));
        assert!(url.as_str().contains("secret"));
    }

    proptest! {
        #[test]
        fn accepted_url_contains_no_option_or_shell_text(text in "\\PC{0,40}|(https|ssh)://[-a-z@:/.]{0,20}") {
            if let Ok(url) = GitUrl::parse(&text) {
                prop_assert!(!url.as_str().starts_with('-') && !url.host().starts_with('-'));
                prop_assert!(!url.as_str().contains(is_shell_character));
                prop_assert!(!url.host().is_empty());
            }
        }
    }
}
