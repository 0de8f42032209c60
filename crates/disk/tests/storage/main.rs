//! Tests of volumes by reading their content: one suite for every backend, and random stories against a model.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

mod charges;
mod conformance;
mod faulty;
mod lab;
mod memory;
mod memory_lab;
mod property;
mod qcow2_file;
mod qcow2_lab;
mod qemu;
mod story;
