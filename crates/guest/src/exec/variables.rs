//! Environment variables that the agent stores and gives to every command.
//!
//! They may be secrets, so they are kept only in the agent's memory and are never shown. They are part of snapshots
//! with memory, and so of restores and forks from these. They are lost when the workspace stops.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agentiso_protocol::limits;

use super::request::{RequestError, env_size};

/// The stored variables.
#[derive(Default)]
pub struct Variables(Mutex<BTreeMap<String, String>>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

impl Variables {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds variables, or replaces those of the same name: all of them or none. Returns the number of stored variables.
    pub fn add(&self, vars: impl IntoIterator<Item = (String, String)>) -> Result<usize, RequestError> {
        let mut stored = self.lock();
        let mut all = stored.clone();
        for (name, value) in vars {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(RequestError::EnvName(name));
            }
            if value.contains('\0') {
                return Err(RequestError::ZeroByte("the value of a variable"));
            }
            all.insert(name, value);
        }
        if env_size(&all) > limits::MAX_STORED_ENV_BYTES {
            let what = "the stored environment";
            return Err(RequestError::TooLong { what, limit: limits::MAX_STORED_ENV_BYTES });
        }
        *stored = all;
        Ok(stored.len())
    }

    /// All stored variables.
    pub(super) fn all(&self) -> BTreeMap<String, String> {
        self.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use agentiso_protocol::limits;

    use super::{RequestError, Variables};

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn one_bad_variable_rejects_the_whole_set() {
        let variables = Variables::default();
        assert_eq!(variables.add([pair("A", "1"), pair("B", "2")]), Ok(2));
        assert!(matches!(variables.add([pair("A", "3"), pair("C", "\0")]), Err(RequestError::ZeroByte(_))));
        assert!(matches!(variables.add([pair("A", "3"), pair("", "x")]), Err(RequestError::EnvName(_))));
        let long = "x".repeat(limits::MAX_STORED_ENV_BYTES);
        assert!(matches!(
            variables.add([pair("A", "3"), pair("L", &long)]),
            Err(RequestError::TooLong { .. })
        ));
        assert_eq!(variables.all(), [pair("A", "1"), pair("B", "2")].into());
        assert_eq!(variables.add([pair("A", "3")]), Ok(2));
    }

    #[test]
    fn stored_variable_values_are_never_shown() {
        let variables = Variables::default();
        assert_eq!(variables.add([pair("TOKEN", "hush")]), Ok(1));
        assert_eq!(format!("{variables:?}"), "{\"TOKEN\"}");
    }
}
