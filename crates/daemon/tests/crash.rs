//! Crash tests: the process ends at named steps and recovery is checked.
