//! Checks the environment variables that a client sets for commands in a guest.
//!
//! Names that change which programs run (`PATH`, `LD_*` and the like) are refused.

use thiserror::Error;

/// Bounds of one call's environment, well below the kernel's limits for one process.
pub const MAX_VARIABLES: usize = 1024;
pub(crate) const MAX_VALUE_LEN: usize = 128 * 1024 - 1;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EnvError {
    #[error(
        "invalid environment variable name {0:?}; it must start with a letter or '_', followed by letters, digits or '_'"
    )]
    BadName(String),
    #[error(
        "environment variable {0} may not be set: it changes which programs run (set it inside the command instead)"
    )]
    Reserved(String),
    #[error("the value of {name} has {len} bytes; at most {MAX_VALUE_LEN} are allowed")]
    TooLong { name: String, len: usize },
    #[error("the value of {0} contains a NUL byte")]
    Nul(String),
    #[error("{0} variables were given; at most {MAX_VARIABLES} are allowed")]
    TooMany(usize),
}

pub fn check<'a>(vars: impl ExactSizeIterator<Item = (&'a str, &'a str)>) -> Result<(), EnvError> {
    if vars.len() > MAX_VARIABLES {
        return Err(EnvError::TooMany(vars.len()));
    }
    for (name, value) in vars {
        check_name(name)?;
        if value.len() > MAX_VALUE_LEN {
            return Err(EnvError::TooLong { name: name.to_owned(), len: value.len() });
        }
        if value.contains('\0') {
            return Err(EnvError::Nul(name.to_owned()));
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), EnvError> {
    let mut chars = name.chars();
    let first_ok = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !first_ok || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(EnvError::BadName(name.chars().take(80).collect()));
    }
    if matches!(name, "PATH" | "IFS" | "ENV" | "BASH_ENV") || name.starts_with("LD_") {
        return Err(EnvError::Reserved(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &str) -> Result<(), EnvError> {
        check([(name, value)].into_iter())
    }

    #[test]
    fn reserved_environment_names_are_refused() {
        for name in ["PATH", "IFS", "ENV", "BASH_ENV", "LD_PRELOAD", "LD_X"] {
            assert_eq!(one(name, "x"), Err(EnvError::Reserved(name.to_owned())));
        }
    }

    #[test]
    fn malformed_environment_variables_are_refused() {
        for name in ["", "1A", "A-B", "A=B", "A B", "Ä"] {
            assert!(matches!(one(name, "x"), Err(EnvError::BadName(_))), "{name:?}");
        }
        assert_eq!(one("A", "x\0y"), Err(EnvError::Nul("A".to_owned())));
        assert_eq!(one("_lower_1", "ä\n"), Ok(()));
    }
}
