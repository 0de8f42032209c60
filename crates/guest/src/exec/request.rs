//! Checks requests to run a command and converts them to the form that the kernel needs.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::time::Duration;

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;

use super::variables::Variables;

/// The environment of a command, unless the stored variables or the request override it.
const DEFAULT_ENV: [(&str, &str); 6] = [
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "root"),
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("TERM", "dumb"),
    ("USER", "root"),
];

/// A valid request to run a command.
pub struct CheckedExec {
    pub(super) args: [CString; 3],
    pub(super) env: Vec<CString>,
    /// Absent: the default, or `/` if that does not exist.
    pub(super) workdir: Option<CString>,
    pub(super) timeout: Duration,
    pub(super) head_bytes: usize,
    pub(super) tail_bytes: usize,
}

impl CheckedExec {
    /// The command line.
    pub(crate) fn shell(&self) -> &[u8] {
        self.args[2].as_bytes()
    }
}

/// Omits the environment, whose values may be secrets.
impl fmt::Debug for CheckedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedExec")
            .field("args", &self.args)
            .field("workdir", &self.workdir)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The reason for which a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The command is empty.
    #[error("the command is empty")]
    Empty,
    /// The text has a zero byte, which cannot be passed to a program.
    #[error("{0} contains a zero byte")]
    ZeroByte(&'static str),
    /// The text is longer than the kernel or this agent accepts.
    #[error("{what} is longer than {limit} bytes")]
    TooLong {
        /// The part of the request.
        what: &'static str,
        /// The most bytes.
        limit: usize,
    },
    /// A variable cannot have this name.
    #[error("invalid environment variable name {0:?}")]
    EnvName(String),
    /// The working directory must be an absolute path.
    #[error("the working directory must be an absolute path")]
    RelativeWorkdir,
    /// The time limit is zero or too long.
    #[error("the time limit must be between 1 and {} ms", limits::MAX_EXEC_TIMEOUT_MS)]
    Timeout,
    /// The request asks for more output than one answer can hold.
    #[error("at most {} bytes of each stream can be kept", limits::MAX_CAPTURE_BYTES)]
    Capture,
}

/// Checks a request from the host. The command gets the stored variables as well; those of the request override them.
pub fn check(request: v1::ExecRequest, stored: &Variables) -> Result<CheckedExec, RequestError> {
    if request.shell.is_empty() {
        return Err(RequestError::Empty);
    }
    let shell = string("the command", request.shell, limits::MAX_COMMAND_BYTES)?;
    let workdir = match request.workdir.first() {
        None => None,
        Some(b'/') => Some(string("the working directory", request.workdir, limits::MAX_PATH_BYTES)?),
        Some(_) => return Err(RequestError::RelativeWorkdir),
    };
    if !(1..=limits::MAX_EXEC_TIMEOUT_MS).contains(&request.timeout_ms) {
        return Err(RequestError::Timeout);
    }
    let kept = request.head_bytes.checked_add(request.tail_bytes);
    if kept.is_none_or(|kept| kept > limits::MAX_CAPTURE_BYTES) {
        return Err(RequestError::Capture);
    }
    Ok(CheckedExec {
        args: [c"sh".to_owned(), c"-c".to_owned(), shell],
        env: environment(stored.all(), request.env)?,
        workdir,
        timeout: Duration::from_millis(request.timeout_ms),
        head_bytes: request.head_bytes as usize,
        tail_bytes: request.tail_bytes as usize,
    })
}

/// Checks a request for a job, which has no time limit of its own and whose output is kept by the job table.
pub fn check_job(request: v1::StartJobRequest, stored: &Variables) -> Result<CheckedExec, RequestError> {
    let v1::StartJobRequest { shell, workdir, env } = request;
    let timeout_ms = limits::MAX_EXEC_TIMEOUT_MS;
    check(v1::ExecRequest { shell, workdir, env, timeout_ms, ..v1::ExecRequest::default() }, stored)
}

fn string(what: &'static str, bytes: impl Into<Vec<u8>>, limit: usize) -> Result<CString, RequestError> {
    let bytes = bytes.into();
    if bytes.len() > limit {
        return Err(RequestError::TooLong { what, limit });
    }
    CString::new(bytes).map_err(|_zero| RequestError::ZeroByte(what))
}

/// The bytes that these variables take in the kernel's space for environments.
pub(super) fn env_size(variables: &BTreeMap<String, String>) -> usize {
    variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
}

fn environment(
    stored: BTreeMap<String, String>,
    given: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<CString>, RequestError> {
    const WHAT: &str = "the environment";
    let mut all: BTreeMap<String, String> =
        DEFAULT_ENV.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    all.extend(stored);
    for (name, value) in given {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(RequestError::EnvName(name));
        }
        all.insert(name, value);
    }
    if env_size(&all) > limits::MAX_ENV_BYTES {
        return Err(RequestError::TooLong { what: WHAT, limit: limits::MAX_ENV_BYTES });
    }
    all.into_iter()
        .map(|(name, value)| string(WHAT, format!("{name}={value}"), limits::MAX_ENV_BYTES))
        .collect()
}

#[cfg(test)]
mod tests {
    use agentiso_protocol::limits;
    use agentiso_protocol::schema::v1::ExecRequest;

    use super::{RequestError, Variables, check};

    fn request() -> ExecRequest {
        ExecRequest { shell: "true".into(), timeout_ms: 1, ..ExecRequest::default() }
    }

    #[test]
    fn invalid_exec_requests_are_refused_by_name() {
        let refused = |change: fn(&mut ExecRequest)| {
            let mut request = request();
            change(&mut request);
            check(request, &Variables::default()).expect_err("it is refused")
        };
        assert_eq!(refused(|r| r.shell = "".into()), RequestError::Empty);
        assert_eq!(refused(|r| r.shell = "a\0b".into()), RequestError::ZeroByte("the command"));
        assert_eq!(refused(|r| r.workdir = "tmp".into()), RequestError::RelativeWorkdir);
        assert_eq!(refused(|r| r.timeout_ms = 0), RequestError::Timeout);
        assert_eq!(refused(|r| r.timeout_ms = u64::MAX), RequestError::Timeout);
        assert_eq!(refused(|r| (r.head_bytes, r.tail_bytes) = (u64::MAX, 1)), RequestError::Capture);
        assert_eq!(refused(|r| r.head_bytes = limits::MAX_CAPTURE_BYTES + 1), RequestError::Capture);
        assert_eq!(
            refused(|r| drop(r.env.insert("A=B".into(), String::new()))),
            RequestError::EnvName("A=B".into())
        );
        let long = RequestError::TooLong { what: "the command", limit: limits::MAX_COMMAND_BYTES };
        assert_eq!(refused(|r| r.shell = vec![b'x'; limits::MAX_COMMAND_BYTES + 1].into()), long);
    }

    #[test]
    fn request_variables_override_stored_and_default_ones() {
        let stored = Variables::default();
        let pairs = [("HOME", "/stored"), ("USER", "stored"), ("KEY", "stored")];
        assert_eq!(stored.add(pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))), Ok(3));
        let mut request = request();
        request.env.insert("HOME".into(), "/home".into());
        let checked = check(request, &stored).expect("it is fine");
        assert!(!format!("{checked:?}").contains("stored"), "values are not shown");
        let env = checked.env;
        assert!(env.contains(&c"HOME=/home".to_owned()));
        assert!(env.contains(&c"USER=stored".to_owned()) && env.contains(&c"KEY=stored".to_owned()));
        assert!(env.contains(&c"TERM=dumb".to_owned()));
        assert!(!env.contains(&c"HOME=/root".to_owned()));
    }
}
