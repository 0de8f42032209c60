//! The head of a request, as far as decisions depend on it. Heads that two readers could understand differently are
//! refused.

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
    #[error("the request line must have a path, not a URL")]
    Target,
    #[error("duplicate header {0}")]
    Twice(&'static str),
    #[error("the header {0} has invalid characters")]
    Text(&'static str),
}

/// Headers that decisions depend on. If one is there twice, another reader might use the other value.
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
        // A host in the request line would override the header, and the header is what is checked.
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

    /// All values of a list header, which may be split over several lines. `None` if the header is absent.
    pub(crate) fn list(&self, name: &str) -> Option<String> {
        let lines: Vec<_> = self.headers.get_all(name).iter().filter_map(|line| line.to_str().ok()).collect();
        (!lines.is_empty()).then(|| lines.join(","))
    }
}

#[cfg(test)]
impl Head {
    /// A head for tests of its readers.
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
    fn ordinary_head_is_read() {
        let head = of(http::Request::post("/mcp?x=1").header("Host", "a:1")).unwrap();
        assert_eq!((head.method.as_str(), head.path.as_str()), ("POST", "/mcp"));
        assert_eq!((head.get("host"), head.get("origin")), (Some("a:1"), None));
    }

    #[test]
    fn ambiguous_head_is_refused() {
        let twice = http::Request::post("/mcp").header("Host", "a").header("host", "a");
        assert_eq!(of(twice).unwrap_err(), HeadError::Twice("host"));
        let foreign = http::Request::post("/mcp").header("Origin", &b"http://\xff"[..]);
        assert_eq!(of(foreign).unwrap_err(), HeadError::Text("origin"));
        assert_eq!(of(http::Request::post("http://a/mcp")).unwrap_err(), HeadError::Target);
    }
}
