//! Volumes, judged by what is read from them: one suite for every backend, and random stories against a model.

mod conformance;
mod lab;
mod memory_lab;
mod qcow2_file;
mod qcow2_lab;
