//! The command line of the agent. Only the kernel and the agent itself write it, and tests with `--socket-fd`.

use std::ffi::OsString;

/// The role of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Process 1 of a guest.
    Init,
    /// Restarts the agent in a guest where the image's init is process 1.
    Keeper {
        /// Process id of the agent that already runs.
        agent: i32,
        /// Descriptors for starting another agent.
        fds: InheritedFds,
    },
    /// Serves the VM's port.
    Agent {
        /// Descriptors from init.
        fds: InheritedFds,
    },
    /// Serves a socket, outside a VM.
    Socket {
        /// The connected socket.
        fd: i32,
    },
}

/// Descriptors that stay usable after the change of the root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InheritedFds {
    /// The file of this program.
    pub program: i32,
    /// Root directory of the initramfs, where the kernel modules are.
    pub initramfs: i32,
}

impl InheritedFds {
    /// The arguments that pass them on.
    pub fn to_args(self) -> [String; 4] {
        let number = |fd: i32| fd.to_string();
        ["--program-fd".into(), number(self.program), "--initramfs-fd".into(), number(self.initramfs)]
    }
}

/// The reason for which a command line is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// There is no such argument.
    #[error("unknown argument {0:?}")]
    Unknown(OsString),
    /// A number was expected.
    #[error("{0} needs a number")]
    Number(&'static str),
    /// Arguments are missing.
    #[error("nothing to do: this program runs as init of a guest; use --socket-fd to serve a socket")]
    Incomplete,
}

/// Parses the command line of the process with this id.
pub fn parse(args: impl IntoIterator<Item = OsString>, pid: u32) -> Result<Role, ArgsError> {
    if pid == 1 {
        // The kernel passes unknown boot options to init; they are ignored.
        return Ok(Role::Init);
    }
    let (mut agent_role, mut keep, mut program, mut initramfs, mut socket) = (false, None, None, None, None);
    let mut args = args.into_iter().skip(1);
    while let Some(arg) = args.next() {
        let mut number = |name| {
            let value = args.next().and_then(|text| text.to_str()?.parse::<i32>().ok());
            value.filter(|value| *value >= 0).ok_or(ArgsError::Number(name))
        };
        match arg.to_str() {
            Some("--agent") => agent_role = true,
            Some("--keep") => keep = Some(number("--keep")?),
            Some("--program-fd") => program = Some(number("--program-fd")?),
            Some("--initramfs-fd") => initramfs = Some(number("--initramfs-fd")?),
            Some("--socket-fd") => socket = Some(number("--socket-fd")?),
            Some(_) | None => return Err(ArgsError::Unknown(arg)),
        }
    }
    let fds = match (program, initramfs) {
        (Some(program), Some(initramfs)) => Some(InheritedFds { program, initramfs }),
        (_, _) => None,
    };
    match (socket, agent_role, keep, fds) {
        (Some(fd), false, None, None) => Ok(Role::Socket { fd }),
        (None, true, None, Some(fds)) => Ok(Role::Agent { fds }),
        (None, false, Some(agent), Some(fds)) => Ok(Role::Keeper { agent, fds }),
        (_, _, _, _) => Err(ArgsError::Incomplete),
    }
}

#[cfg(test)]
mod tests {
    use super::{ArgsError, InheritedFds, Role, parse};

    fn read(args: &[&str]) -> Result<Role, ArgsError> {
        parse(std::iter::once("@agentiso-guest").chain(args.iter().copied()).map(Into::into), 77)
    }

    #[test]
    fn process_1_is_always_init() {
        assert_eq!(parse(["/init".into(), "splash".into()], 1), Ok(Role::Init));
    }

    #[test]
    fn inherited_fds_survive_the_command_line() {
        let fds = InheritedFds { program: 7, initramfs: 9 };
        let passed = fds.to_args();
        let mut args = vec!["--agent"];
        args.extend(passed.iter().map(String::as_str));
        assert_eq!(read(&args), Ok(Role::Agent { fds }));
        args[0] = "--keep";
        args.insert(1, "12");
        assert_eq!(read(&args), Ok(Role::Keeper { agent: 12, fds }));
    }

    #[test]
    fn incomplete_guest_command_line_is_refused() {
        assert_eq!(read(&[]), Err(ArgsError::Incomplete));
        assert_eq!(read(&["--agent"]), Err(ArgsError::Incomplete));
        assert_eq!(read(&["--socket-fd", "-1"]), Err(ArgsError::Number("--socket-fd")));
        assert_eq!(read(&["--help"]), Err(ArgsError::Unknown("--help".into())));
    }
}
