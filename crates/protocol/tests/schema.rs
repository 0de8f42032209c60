//! Tests that the schema stays compatible with the released one: everything in the fixture must still be there.
//!
//! After an addition, run with `UPDATE_SCHEMA_FIXTURE=1` to add it to the fixture. An incompatible change fails even
//! then.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use prost::Message as _;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

use agentiso_protocol::schema::v1::{Captured, ExecEvent, ExecExited, ExecRequest, HelloRequest, exec_event};

const CURRENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest.binpb"));

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/guest-v1.binpb")
}

/// Everything in a schema that matters on the wire, one entry each.
fn meanings(set: &FileDescriptorSet) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for file in &set.file {
        let package = file.package();
        for message in &file.message_type {
            add_message(&mut found, &format!("{package}.{}", message.name()), message);
        }
        for enumeration in &file.enum_type {
            add_enum(&mut found, package, enumeration);
        }
        for service in &file.service {
            for method in &service.method {
                found.insert(
                    format!("method {package}.{}/{}", service.name(), method.name()),
                    format!(
                        "{} {} -> {} {}",
                        method.client_streaming(),
                        method.input_type(),
                        method.server_streaming(),
                        method.output_type()
                    ),
                );
            }
        }
    }
    found
}

fn add_message(found: &mut BTreeMap<String, String>, name: &str, message: &DescriptorProto) {
    for field in &message.field {
        let oneof = field.oneof_index.and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?));
        found.insert(
            format!("field {name} {}", field.number()),
            format!(
                "{} {:?} {:?} {} in {:?}",
                field.name(),
                field.label(),
                field.r#type(),
                field.type_name(),
                oneof.map(|oneof| oneof.name())
            ),
        );
    }
    for nested in &message.nested_type {
        add_message(found, &format!("{name}.{}", nested.name()), nested);
    }
}

fn add_enum(found: &mut BTreeMap<String, String>, package: &str, enumeration: &EnumDescriptorProto) {
    for value in &enumeration.value {
        let key = format!("value {package}.{} {}", enumeration.name(), value.number());
        found.insert(key, value.name().to_owned());
    }
}

/// The entries of the released schema that are missing from or different in the current one.
fn broken_promises(released: &FileDescriptorSet, current: &FileDescriptorSet) -> Vec<String> {
    let current = meanings(current);
    meanings(released)
        .into_iter()
        .filter(|(key, meaning)| current.get(key) != Some(meaning))
        .map(|(key, meaning)| format!("{key}: was {meaning}, is {:?}", current.get(&key)))
        .collect()
}

#[test]
fn schema_is_compatible_with_the_released_fixture() {
    let current = FileDescriptorSet::decode(CURRENT).expect("the compiled schema is a descriptor set");
    let released = FileDescriptorSet::decode(fs::read(fixture()).expect("the fixture exists").as_slice())
        .expect("the fixture is a descriptor set");
    assert_eq!(broken_promises(&released, &current), Vec::<String>::new());
    if std::env::var_os("UPDATE_SCHEMA_FIXTURE").is_some() {
        fs::write(fixture(), CURRENT).expect("the fixture can be written");
    } else {
        assert_eq!(
            meanings(&released),
            meanings(&current),
            "the schema was extended: freeze it with UPDATE_SCHEMA_FIXTURE=1"
        );
    }
}

#[test]
fn schema_changes_are_reported_as_broken() {
    let released = FileDescriptorSet::decode(CURRENT).expect("the compiled schema is a descriptor set");
    let mut changed = released.clone();
    changed.file[0].message_type[0].field[0].name = Some("renamed".into());
    changed.file[0].service[0].method.remove(0);
    changed.file[0].enum_type[0].value.remove(1);
    assert_eq!(broken_promises(&released, &changed).len(), 3);
}

/// The expected bytes of generation 1 were written by hand from the wire format.
#[test]
fn messages_encode_to_the_bytes_of_generation_1() {
    let hello = HelloRequest { host_version: "0.1.0".into(), protocol: 1 };
    assert_eq!(hello.encode_to_vec(), b"\x0a\x050.1.0\x10\x01");

    let exec = ExecRequest {
        shell: "true".into(),
        timeout_ms: 300,
        env: [("A".into(), "b".into())].into(),
        head_bytes: 1,
        tail_bytes: 2,
        stream: true,
        ..ExecRequest::default()
    };
    let bytes = b"\x0a\x04true\x1a\x06\x0a\x01A\x12\x01b\x20\xac\x02\x28\x01\x30\x02\x38\x01";
    assert_eq!(exec.encode_to_vec(), bytes);

    let exited = ExecEvent {
        event: Some(exec_event::Event::Exited(ExecExited {
            exit_code: Some(0),
            timed_out: true,
            stdout: Some(Captured { head: "x".into(), tail: "y".into(), total_bytes: 9 }),
            duration_us: 5,
            ..ExecExited::default()
        })),
    };
    let bytes = b"\x1a\x10\x08\x00\x18\x01\x22\x08\x0a\x01x\x12\x01y\x18\x09\x30\x05";
    assert_eq!(exited.encode_to_vec(), bytes);
    assert_eq!(ExecEvent::decode(bytes.as_slice()), Ok(exited));
}
