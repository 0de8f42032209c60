//! Classification of git's failures by their messages. Scripts run in the C locale, so the messages are always the
//! same.

use crate::script::Ran;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    NoGit,
    NoDirectory,
    NotARepository,
    NotEmpty,
    Authentication,
    HostKey,
    NoRemote,
    NotFound,
    Unreachable,
    NoSuchBranch,
    NoBranch,
    NonFastForward,
    Rejected,
    Locked,
    NoSpace,
    ForbiddenProtocol,
    TimedOut,
    /// Any other failure; git's own message explains it.
    Other,
}

/// The messages of each trouble. The order matters: the first line of a long error is often only a consequence.
const WORDS: [(Trouble, &[&str]); 13] = [
    (Trouble::NoSpace, &["no space left on device", "disk quota exceeded"]),
    (Trouble::HostKey, &["host key verification failed"]),
    (
        Trouble::Authentication,
        &[
            "authentication failed",
            "could not read username",
            "could not read password",
            "terminal prompts disabled",
            "permission denied (",
            "returned error: 401",
            "returned error: 403",
        ],
    ),
    (
        Trouble::Unreachable,
        &[
            "could not resolve",
            "unable to look up",
            "name or service not known",
            "temporary failure in name resolution",
            "failed to connect",
            "couldn't connect",
            "unable to connect",
            "connection refused",
            "connection timed out",
            "connection reset",
            "network is unreachable",
            "no route to host",
            "empty reply from server",
            "operation timed out",
        ],
    ),
    (Trouble::ForbiddenProtocol, &["not allowed", "not supported"]),
    (
        Trouble::NonFastForward,
        &["non-fast-forward", "fetch first", "stale info", "tip of your current branch is behind"],
    ),
    (Trouble::NoSuchBranch, &["remote branch", "does not match any", "did not match any"]),
    (Trouble::NotFound, &["returned error: 404", "not found", "repository not exported"]),
    (
        Trouble::NoRemote,
        &["does not appear to be a git repository", "no such remote", "no configured push destination"],
    ),
    (Trouble::Rejected, &["[remote rejected]", "pre-receive hook declined", "[rejected]"]),
    (Trouble::NotEmpty, &["is not an empty directory"]),
    (Trouble::Locked, &["index.lock", "another git process seems to be running"]),
    (Trouble::NotARepository, &["not a git repository", "must be run in a work tree"]),
];

impl Trouble {
    /// The trouble of a script that failed.
    pub fn of(ran: &Ran) -> Self {
        if ran.timed_out {
            return Self::TimedOut;
        }
        if let Some((word, _)) = ran.refusal() {
            return match word.as_str() {
                "no_git" => Self::NoGit,
                "no_directory" => Self::NoDirectory,
                "not_empty" => Self::NotEmpty,
                "no_branch" => Self::NoBranch,
                _ => Self::Other,
            };
        }
        let mut said = String::from_utf8_lossy(&ran.stderr).to_lowercase();
        // A push reports refs on standard output.
        said.push_str(&String::from_utf8_lossy(&ran.stdout).to_lowercase());
        let known = WORDS.iter().find(|(_, words)| words.iter().any(|word| said.contains(word)));
        known.map_or(Self::Other, |(trouble, _)| *trouble)
    }

    /// A stable word that programs can compare.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoGit => "no_git",
            Self::NoDirectory => "not_found",
            Self::NotARepository => "not_a_git_repository",
            Self::NotEmpty => "not_empty",
            Self::Authentication => "git_authentication",
            Self::HostKey => "git_host_key",
            Self::NoRemote => "git_no_remote",
            Self::NotFound => "git_not_found",
            Self::Unreachable => "git_unreachable",
            Self::NoSuchBranch | Self::NoBranch => "git_no_branch",
            Self::NonFastForward => "git_non_fast_forward",
            Self::Rejected => "git_rejected",
            Self::Locked => "git_locked",
            Self::NoSpace => "no_space",
            Self::ForbiddenProtocol => "git_protocol",
            Self::TimedOut => "timed_out",
            Self::Other => "git_failed",
        }
    }

    /// Whether the same call may succeed later without any change.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Locked | Self::Unreachable | Self::TimedOut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(words: &str) -> Trouble {
        Trouble::of(&Ran { code: Some(128), stderr: words.into(), ..Ran::default() })
    }

    #[test]
    fn git_error_messages_are_recognised() {
        for (words, trouble) in [
            ("fatal: not a git repository (or any of the parent directories): .git", Trouble::NotARepository),
            (
                "fatal: could not read Username for 'https://x': terminal prompts disabled",
                Trouble::Authentication,
            ),
            ("remote: Invalid\nfatal: Authentication failed for 'https://x/'", Trouble::Authentication),
            ("git@x: Permission denied (publickey).", Trouble::Authentication),
            (
                "Host key verification failed.\nfatal: Could not read from remote repository.",
                Trouble::HostKey,
            ),
            ("fatal: unable to access 'http://x/': Could not resolve host: x", Trouble::Unreachable),
            ("fatal: unable to access 'http://x/': Failed to connect to x port 80", Trouble::Unreachable),
            ("fatal: unable to look up x (port 9418) (Name or service not known)", Trouble::Unreachable),
            ("fatal: 'origin' does not appear to be a git repository", Trouble::NoRemote),
            ("fatal: Remote branch nope not found in upstream origin", Trouble::NoSuchBranch),
            ("error: src refspec nope does not match any", Trouble::NoSuchBranch),
            ("fatal: repository 'http://x/y/' not found", Trouble::NotFound),
            ("fatal: transport 'file' not allowed", Trouble::ForbiddenProtocol),
            ("fatal: Unable to create '/w/.git/index.lock': File exists.", Trouble::Locked),
            ("fatal: write error: No space left on device", Trouble::NoSpace),
            ("something else", Trouble::Other),
        ] {
            assert_eq!(failed(words), trouble, "{words}");
        }
    }

    #[test]
    fn rejected_push_is_recognised_from_stdout() {
        let stdout = b"!\trefs/heads/main:refs/heads/main\t[rejected] (fetch first)\n".to_vec();
        let ran = Ran { code: Some(1), stdout, ..Ran::default() };
        assert_eq!(Trouble::of(&ran), Trouble::NonFastForward);
    }

    #[test]
    fn timeout_outranks_error_messages() {
        let ran = Ran { timed_out: true, stderr: b"not found".to_vec(), ..Ran::default() };
        assert_eq!(Trouble::of(&ran), Trouble::TimedOut);
        assert_eq!(failed("agentiso:no_git x"), Trouble::Other, "only with its exit code");
        let ran = Ran { code: Some(64), stderr: b"agentiso:no_git x\n".to_vec(), ..Ran::default() };
        assert_eq!(Trouble::of(&ran), Trouble::NoGit);
    }
}
