//! The generated messages and stubs of `proto/agentiso/guest/v1/guest.proto`.

/// Generation 1 of the schema.
#[expect(
    unused_qualifications,
    clippy::all,
    reason = "generated code does not follow the lints of this workspace"
)]
pub mod v1 {
    tonic::include_proto!("agentiso.guest.v1");
}
