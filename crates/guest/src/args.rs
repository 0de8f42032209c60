//! The command line. People never write it, except for `--socket-fd` in tests.

use std::ffi::OsString;

/// What this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Process 1 of a machine.
    Init,
    /// Restarts the agent where another init is process 1.
    Keeper {
        /// Process id of the agent that runs already.
        agent: i32,
        /// What it needs to start another one.
        fds: InheritedFds,
    },
    /// Serves the machine's port.
    Agent {
        /// What it got from init.
        fds: InheritedFds,
    },
    /// Serves a socket, without a machine.
    Socket {
        /// The connected socket.
        fd: i32,
    },
}

/// Descriptors that outlive the change of the root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InheritedFds {
    /// This program.
    pub program: i32,
    /// Root directory of the initramfs, where the modules are.
    pub initramfs: i32,
}

impl InheritedFds {
    /// The arguments that pass them on.
    pub fn to_args(self) -> [String; 4] {
        let number = |fd: i32| fd.to_string();
        ["--program-fd".into(), number(self.program), "--initramfs-fd".into(), number(self.initramfs)]
    }
}

/// Why a command line is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// There is no such argument.
    #[error("argument {0:?} is not known")]
    Unknown(OsString),
    /// A number was expected.
    #[error("{0} needs a number")]
    Number(&'static str),
    /// Arguments are missing.
    #[error("nothing to do: this program is the init of a machine; --socket-fd serves a socket instead")]
    Incomplete,
}

/// Reads the command line of the process with this id.
pub fn parse(args: impl IntoIterator<Item = OsString>, pid: u32) -> Result<Role, ArgsError> {
    if pid == 1 {
        // The kernel passes unknown boot options to init; they mean nothing here.
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
    fn process_1_is_init_whatever_the_kernel_passes() {
        assert_eq!(parse(["/init".into(), "splash".into()], 1), Ok(Role::Init));
    }

    #[test]
    fn passed_descriptors_come_back() {
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
    fn half_a_command_line_is_refused() {
        assert_eq!(read(&[]), Err(ArgsError::Incomplete));
        assert_eq!(read(&["--agent"]), Err(ArgsError::Incomplete));
        assert_eq!(read(&["--socket-fd", "-1"]), Err(ArgsError::Number("--socket-fd")));
        assert_eq!(read(&["--help"]), Err(ArgsError::Unknown("--help".into())));
    }
}
