//! The head of a request, as far as it decides anything. What two readers could take for two things is refused.

use http::request::Parts;
use http::{HeaderMap, Method};
use thiserror::Error;

#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    /// Without the query.
    pub(crate) path: String,
    headers: HeaderMap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum HeadError {
    #[error("the request line must have a path and nothing before it")]
    Target,
    #[error("the header {0} is there twice")]
    Twice(&'static str),
    #[error("the header {0} has characters that a header cannot have")]
    Text(&'static str),
}

/// Headers that decide something. Of two that differ, another reader might take the other one.
const DECISIVE: &[&str] = &[
    "host",
    "authorization",
    "origin",
    "content-type",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
];

impl Head {
    pub(crate) fn of(parts: Parts) -> Result<Self, HeadError> {
        // A host in the request line would count for more than the header, which is what we look at.
        if parts.uri.authority().is_some() {
            return Err(HeadError::Target);
        }
        for name in DECISIVE {
            let mut values = parts.headers.get_all(*name).iter();
            let first = values.next();
            if values.next().is_some() {
                return Err(HeadError::Twice(name));
            }
            if first.is_some_and(|value| value.to_str().is_err()) {
                return Err(HeadError::Text(name));
            }
        }
        Ok(Self { method: parts.method, path: parts.uri.path().to_owned(), headers: parts.headers })
    }

    /// The value of a header, by its name in lower case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// All values of a header that is a list, and may as well be written in several lines. `None`: there is none.
    pub(crate) fn list(&self, name: &str) -> Option<String> {
        let lines: Vec<_> = self.headers.get_all(name).iter().filter_map(|line| line.to_str().ok()).collect();
        (!lines.is_empty()).then(|| lines.join(","))
    }
}

#[cfg(test)]
impl Head {
    /// For tests of what reads it.
    pub(crate) fn with(headers: &[(&str, &str)]) -> Self {
        let request =
            headers.iter().fold(http::Request::post("/mcp"), |r, (name, value)| r.header(*name, *value));
        Self::of(request.body(()).unwrap().into_parts().0).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(request: http::request::Builder) -> Result<Head, HeadError> {
        Head::of(request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn an_ordinary_head_is_read() {
        let head = of(http::Request::post("/mcp?x=1").header("Host", "a:1")).unwrap();
        assert_eq!((head.method.as_str(), head.path.as_str()), ("POST", "/mcp"));
        assert_eq!((head.get("host"), head.get("origin")), (Some("a:1"), None));
    }

    #[test]
    fn what_two_readers_could_take_for_two_things_is_refused() {
        let twice = http::Request::post("/mcp").header("Host", "a").header("host", "a");
        assert_eq!(of(twice).unwrap_err(), HeadError::Twice("host"));
        let foreign = http::Request::post("/mcp").header("Origin", &b"http://\xff"[..]);
        assert_eq!(of(foreign).unwrap_err(), HeadError::Text("origin"));
        assert_eq!(of(http::Request::post("http://a/mcp")).unwrap_err(), HeadError::Target);
    }
}
