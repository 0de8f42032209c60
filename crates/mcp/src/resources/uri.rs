//! Addresses of resources: `agentiso://workspace/NAME`, `…/file/PATH`, `…/job/ID` and `agentiso://vault/PATH`.

use std::fmt;

use agentiso_core::names::{NameError, WorkspaceName, WorkspaceRef};
use agentiso_core::paths::{GuestPath, GuestPathError};
use agentiso_vault::{NotePath, PathError};
use thiserror::Error;

const SCHEME: &str = "agentiso://";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Uri {
    Workspace(WorkspaceRef),
    File(WorkspaceRef, GuestPath),
    Job(WorkspaceRef, u64),
    Note(NotePath),
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum UriError {
    #[error(
        "resources are agentiso://workspace/NAME, agentiso://workspace/NAME/file/PATH, \
         agentiso://workspace/NAME/job/ID and agentiso://vault/PATH"
    )]
    Shape,
    #[error("invalid percent-encoding: write two hexadecimal digits after each %, and use UTF-8")]
    Encoding,
    #[error("invalid workspace: {0}")]
    Workspace(#[from] NameError),
    #[error(transparent)]
    File(#[from] GuestPathError),
    #[error("invalid path: {0}")]
    Note(#[from] PathError),
    #[error("a job id is a number, at least 1")]
    Job,
}

impl Uri {
    pub(crate) fn parse(text: &str) -> Result<Self, UriError> {
        let rest = text.strip_prefix(SCHEME).ok_or(UriError::Shape)?;
        if let Some(path) = rest.strip_prefix("vault/") {
            return Ok(Self::Note(NotePath::parse(&decode(path)?)?));
        }
        let rest = rest.strip_prefix("workspace/").ok_or(UriError::Shape)?;
        let (name, part) = match rest.split_once('/') {
            Some((name, part)) => (name, Some(part)),
            None => (rest, None),
        };
        let workspace = match WorkspaceRef::parse(&decode(name)?) {
            id @ WorkspaceRef::Id(_) => id,
            WorkspaceRef::Name(name) => WorkspaceRef::Name(WorkspaceName::parse(&name)?.as_str().to_owned()),
        };
        let Some(part) = part else { return Ok(Self::Workspace(workspace)) };
        if let Some(id) = part.strip_prefix("job/") {
            let id = id.parse().ok().filter(|id| *id > 0).ok_or(UriError::Job)?;
            return Ok(Self::Job(workspace, id));
        }
        // The slash before the path is also the path's first character.
        let path = part.strip_prefix("file").filter(|path| path.starts_with('/')).ok_or(UriError::Shape)?;
        Ok(Self::File(workspace, GuestPath::parse(&decode(path)?)?))
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workspace(workspace) => write!(f, "{SCHEME}workspace/{workspace}"),
            Self::File(workspace, path) => {
                write!(f, "{SCHEME}workspace/{workspace}/file{}", encode(path.as_str()))
            }
            Self::Job(workspace, id) => write!(f, "{SCHEME}workspace/{workspace}/job/{id}"),
            Self::Note(path) => write!(f, "{SCHEME}vault/{}", encode(&path.to_string())),
        }
    }
}

/// Percent-encodes every byte except letters, digits and characters that are allowed in the path of a URI.
fn encode(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => encoded.push(char::from(byte)),
            b'-' | b'.' | b'_' | b'~' | b'/' | b'@' | b':' | b'+' | b',' | b'=' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn decode(text: &str) -> Result<String, UriError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit(), digit());
                let value = high.zip(low).map(|(high, low)| high * 16 + low);
                value.and_then(|value| u8::try_from(value).ok()).ok_or(UriError::Encoding)?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).map_err(|_| UriError::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_uri_kind_round_trips() {
        for text in [
            "agentiso://workspace/web",
            "agentiso://workspace/3f2b8c1e-0000-4000-8000-000000000001",
            "agentiso://workspace/web/file/etc/os-release",
            "agentiso://workspace/web/file/a%20b%3F%25",
            "agentiso://workspace/web/job/17",
            "agentiso://vault/plans/today.md",
        ] {
            assert_eq!(Uri::parse(text).unwrap().to_string(), text);
        }
        let raw = Uri::parse("agentiso://workspace/web/file/a?b#c").unwrap();
        assert_eq!(raw.to_string(), "agentiso://workspace/web/file/a%3Fb%23c");
    }

    #[test]
    fn malformed_uri_says_why() {
        for (text, error) in [
            ("file:///etc/passwd", UriError::Shape),
            ("agentiso://", UriError::Shape),
            ("agentiso://vault", UriError::Shape),
            ("agentiso://workspace/web/", UriError::Shape),
            ("agentiso://workspace/web/files/x", UriError::Shape),
            ("agentiso://workspace/web/file", UriError::Shape),
            ("agentiso://workspace/web/job/0", UriError::Job),
            ("agentiso://workspace/web/job/-1", UriError::Job),
            ("agentiso://workspace/web/file/%4", UriError::Encoding),
            ("agentiso://workspace/web/file/%zz", UriError::Encoding),
            ("agentiso://workspace/web/file/%ff", UriError::Encoding),
            ("agentiso://workspace/web/file/%00", UriError::File(GuestPathError::Nul)),
            ("agentiso://vault/../x", UriError::Note(PathError::Parent)),
            ("agentiso://vault/%2e%2e/x", UriError::Note(PathError::Parent)),
            ("agentiso://vault//etc/passwd", UriError::Note(PathError::Absolute)),
        ] {
            assert_eq!(Uri::parse(text), Err(error), "{text}");
        }
        assert!(matches!(Uri::parse("agentiso://workspace/a%2Fb"), Err(UriError::Workspace(_))));
    }

    proptest! {
        #[test]
        fn any_file_path_round_trips_through_uri(path in "/\\PC{0,40}") {
            let file = Uri::File(WorkspaceRef::parse("web"), GuestPath::parse(&path).unwrap());
            let text = file.to_string();
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(Uri::parse(&text), Ok(file));
        }

        #[test]
        fn parsed_uri_round_trips_for_any_text(text in "(agentiso://)?(workspace/|vault/)?\\PC{0,40}") {
            if let Ok(uri) = Uri::parse(&text) {
                prop_assert_eq!(Uri::parse(&uri.to_string()), Ok(uri));
            }
        }
    }
}
