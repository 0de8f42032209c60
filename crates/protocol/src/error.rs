//! Error codes of failed calls. They stay the same across versions.
//!
//! On the wire a failure is a gRPC status whose message reads `code: text`. The code is needed because the status alone
//! is too coarse: a missing file and a missing working directory differ. The text is for people.

use tonic::{Code, Status};

use crate::limits::MAX_ERROR_TEXT_BYTES;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal => $status:ident,)+) => {
        /// The reason of a failed call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $variant,)+
        }

        impl ErrorCode {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code as it is written on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            const fn status_code(self) -> Code {
                match self { $(Self::$variant => Code::$status,)+ }
            }
        }
    };
}

codes! {
    /// The file or directory does not exist.
    NotFound = "not_found" => NotFound,
    /// A file was expected and a directory was found.
    IsDirectory = "is_directory" => FailedPrecondition,
    /// A directory was expected and something else was found.
    NotDirectory = "not_directory" => FailedPrecondition,
    /// A device, pipe or socket cannot be read or replaced as a file.
    NotRegular = "not_regular" => FailedPrecondition,
    /// The file or its file system does not permit it, for instance because it is read-only.
    PermissionDenied = "permission_denied" => PermissionDenied,
    /// The disk is full.
    NoSpace = "no_space" => ResourceExhausted,
    /// The file or the result is larger than the call allows.
    TooLarge = "too_large" => OutOfRange,
    /// The path leads through too many symbolic links.
    LinkLoop = "link_loop" => FailedPrecondition,
    /// The text to be replaced does not occur.
    NoMatch = "no_match" => FailedPrecondition,
    /// The directory exists and is not empty.
    NotEmpty = "not_empty" => FailedPrecondition,
    /// There is no such job, or the agent has dropped it.
    NoJob = "no_job" => NotFound,
    /// The working directory of a command does not exist or is no directory.
    BadWorkdir = "bad_workdir" => FailedPrecondition,
    /// The shell could not be started.
    SpawnFailed = "spawn_failed" => FailedPrecondition,
    /// The agent's limit of concurrent calls of this kind is reached.
    Busy = "busy" => ResourceExhausted,
    /// The guest has too little memory for the call.
    OutOfMemory = "out_of_memory" => ResourceExhausted,
    /// The request violates the protocol.
    Invalid = "invalid" => InvalidArgument,
    /// No common protocol generation.
    ProtocolMismatch = "protocol_mismatch" => FailedPrecondition,
    /// The disk is not attached yet.
    NotRooted = "not_rooted" => FailedPrecondition,
    /// A device did not appear in time.
    NoDevice = "no_device" => FailedPrecondition,
    /// The agent does not run as the init of a VM and refuses to change the system that it runs on.
    NotVm = "not_machine" => FailedPrecondition,
    /// The VM is shutting down.
    ShuttingDown = "shutting_down" => Unavailable,
    /// The kernel refused something that should have worked.
    System = "system" => Internal,
}

impl ErrorCode {
    /// Parses a code from the wire.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// The status that carries this code.
    pub fn status(self, message: impl AsRef<str>) -> Status {
        Status::new(self.status_code(), format!("{}: {}", self.as_str(), clip(message.as_ref())))
    }

    /// Splits the message of a status into code and text; `None` if it does not begin with a known code.
    pub fn split(message: &str) -> Option<(Self, &str)> {
        let (code, text) = message.split_once(": ")?;
        Some((Self::parse(code)?, clip(text)))
    }
}

/// Cuts a text at a character boundary so that it fits in a header.
pub fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_ERROR_TEXT_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::{ErrorCode, clip};
    use crate::limits::MAX_ERROR_TEXT_BYTES;

    #[test]
    fn every_code_survives_the_wire() {
        for code in ErrorCode::ALL {
            let status = code.status("a: b");
            assert_eq!(ErrorCode::split(status.message()), Some((*code, "a: b")));
        }
    }

    #[test]
    fn codes_are_distinct() {
        let mut names: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorCode::ALL.len());
    }

    #[test]
    fn text_without_known_code_is_not_split() {
        assert_eq!(ErrorCode::split("strange: news"), None);
        assert_eq!(ErrorCode::split("not_found"), None);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = "ä".repeat(MAX_ERROR_TEXT_BYTES);
        assert!(clip(&text).len() <= MAX_ERROR_TEXT_BYTES);
        assert!(clip(&format!("x{text}")).ends_with('ä'));
    }
}
