//! The generated messages and stubs of `proto/agentiso/guest/v1/guest.proto`.

use std::collections::HashMap;
use std::fmt;

/// Generation 1 of the schema.
#[expect(
    unused_qualifications,
    clippy::all,
    reason = "generated code does not follow the lints of this workspace"
)]
pub mod v1 {
    tonic::include_proto!("agentiso.guest.v1");
}

/// The names of variables without their values, which may be secrets.
struct Names<'a>(&'a HashMap<String, String>);

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl fmt::Debug for v1::ExecRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecRequest")
            .field("shell", &self.shell)
            .field("workdir", &self.workdir)
            .field("env", &Names(&self.env))
            .field("timeout_ms", &self.timeout_ms)
            .field("head_bytes", &self.head_bytes)
            .field("tail_bytes", &self.tail_bytes)
            .field("stream", &self.stream)
            .finish()
    }
}

impl fmt::Debug for v1::StartJobRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartJobRequest")
            .field("shell", &self.shell)
            .field("workdir", &self.workdir)
            .field("env", &Names(&self.env))
            .finish()
    }
}

impl fmt::Debug for v1::SetEnvRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetEnvRequest").field("vars", &Names(&self.vars)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::v1::{ExecOrJobRequest, ExecRequest, SetEnvRequest, StartJobRequest};

    #[test]
    fn values_of_variables_are_never_shown() {
        let env: std::collections::HashMap<_, _> = [("TOKEN".to_owned(), "hush".to_owned())].into();
        let command = StartJobRequest { env: env.clone(), ..StartJobRequest::default() };
        let texts = [
            format!("{:?}", ExecRequest { env: env.clone(), ..ExecRequest::default() }),
            format!("{:?}", ExecOrJobRequest { command: Some(command), ..ExecOrJobRequest::default() }),
            format!("{:?}", SetEnvRequest { vars: env }),
        ];
        for text in texts {
            assert!(text.contains("TOKEN") && !text.contains("hush"), "{text}");
        }
    }
}
