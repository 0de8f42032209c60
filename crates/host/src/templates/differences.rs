//! In which way the host that memory was taken on differs from this one.

use std::fmt;

use super::key::{HostInputs, Inputs};

/// Whether memory can be used here, in words if it cannot.
pub(crate) fn differences(there: &Inputs, here: &HostInputs) -> Option<String> {
    let (there, here) = (there.host.clone().once_booted(), &here.clone().once_booted());
    // Taken apart field by field, so that one that is added cannot be forgotten.
    let HostInputs {
        machine_generation,
        qemu_version,
        qemu_size,
        qemu_modified_ns,
        accelerator,
        cpu_model,
        cpu_flags_sha256,
        tsc_step,
        kernel_sha256: _,
        initrd_sha256: _,
        kernel_append: _,
        nested,
    } = &there;
    let telling = [
        unequal("the generation of the machine", machine_generation, &here.machine_generation),
        unequal("QEMU", format!("{qemu_version:?}"), format!("{:?}", here.qemu_version)),
        unequal("the accelerator", accelerator.as_str(), here.accelerator.as_str()),
        unequal("the processor", format!("{cpu_model:?}"), format!("{:?}", here.cpu_model)),
        unequal("vm.nested", nested, &here.nested),
    ];
    // These say little to people; they are named where nothing else differs.
    let details = [
        unequal("the size of QEMU", qemu_size, &here.qemu_size),
        unequal("the build of QEMU", qemu_modified_ns, &here.qemu_modified_ns),
        unequal("the processor's features", short(cpu_flags_sha256), short(&here.cpu_flags_sha256)),
        unequal("the processor's clock", tsc_step, &here.tsc_step),
    ];
    let mut found: Vec<String> = telling.into_iter().flatten().collect();
    if found.is_empty() {
        found = details.into_iter().flatten().collect();
    }
    match there == *here {
        true => None,
        // A hash that differs only where it is not shown.
        false if found.is_empty() => Some("the processor's features".to_owned()),
        false => Some(found.join(", ")),
    }
}

fn unequal<T: PartialEq + fmt::Display>(what: &str, there: T, here: T) -> Option<String> {
    (there != here).then(|| format!("{what} (there {there}, here {here})"))
}

/// As much of a hash as tells two apart for people. Somebody else may have written it.
fn short(hash: &str) -> String {
    hash.chars().filter(char::is_ascii_alphanumeric).take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerator::Chosen;
    use crate::qemu::argv::Shape;
    use crate::templates::key::TemplateKind;
    use crate::templates::key::tests::host_inputs;

    fn inputs() -> Inputs {
        Inputs::new(&host_inputs(), Shape { vcpus: 1, memory_mb: 256 }, TemplateKind::Snapshot)
    }

    #[test]
    fn the_same_kind_of_host_has_no_differences() {
        let there = inputs();
        assert_eq!(differences(&there, &there.host), None);
    }

    #[test]
    fn machines_that_booted_from_other_files_have_no_differences() {
        let (there, mut here) = (inputs(), inputs().host);
        here.kernel_sha256.push('x');
        here.initrd_sha256.push('x');
        here.kernel_append.push('x');
        assert_eq!(differences(&there, &here), None);
    }

    type Change = fn(&mut HostInputs);

    #[test]
    fn every_input_that_differs_is_told_in_words() {
        let cases: [(Change, &str); 8] = [
            (|h| h.machine_generation += 1, "the generation of the machine (there "),
            (|h| h.qemu_version = "QEMU 9".to_owned(), r#"QEMU (there "QEMU 10.0.2", here "QEMU 9")"#),
            (|h| h.qemu_size += 1, "the size of QEMU (there 1, here 2)"),
            (|h| h.qemu_modified_ns += 1, "the build of QEMU (there 2, here 3)"),
            (|h| h.accelerator = Chosen::Kvm, "the accelerator (there tcg, here kvm)"),
            (|h| h.cpu_model = "x".to_owned(), r#"the processor (there "cpu", here "x")"#),
            (|h| h.cpu_flags_sha256.push('x'), "the processor's features (there f, here fx)"),
            (|h| h.tsc_step += 1, "the processor's clock (there 250, here 251)"),
        ];
        for (change, words) in cases {
            let (there, mut here) = (inputs(), inputs().host);
            change(&mut here);
            let told = differences(&there, &here).unwrap();
            assert!(told.starts_with(words), "{told}");
        }
        let mut both = inputs().host;
        both.accelerator = Chosen::Kvm;
        both.nested = true;
        let told = differences(&inputs(), &both).unwrap();
        assert_eq!(told, "the accelerator (there tcg, here kvm), vm.nested (there false, here true)");
    }

    #[test]
    fn what_somebody_wrote_into_the_file_cannot_write_to_a_terminal() {
        let mut there = inputs();
        there.host.cpu_model = "\x1b[2J".to_owned();
        there.host.cpu_flags_sha256 = "\x1b[2Jabc".to_owned();
        let told = differences(&there, &inputs().host).unwrap();
        assert!(!told.contains('\x1b'), "{told:?}");
    }
}
