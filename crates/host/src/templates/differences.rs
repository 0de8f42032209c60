//! The differences between the host on which memory was saved and this host.

use std::fmt;

use super::key::{HostInputs, Inputs};

/// `None` if the memory can be used here, otherwise the reason in words.
pub(crate) fn differences(there: &Inputs, here: &HostInputs) -> Option<String> {
    let (there, here) = (there.host.clone().without_boot_files(), &here.clone().without_boot_files());
    // Destructured field by field, so that a new field cannot be forgotten.
    let HostInputs {
        vm_generation,
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
        unequal("the VM's hardware generation", vm_generation, &here.vm_generation),
        unequal("QEMU", format!("{qemu_version:?}"), format!("{:?}", here.qemu_version)),
        unequal("the accelerator", accelerator.as_str(), here.accelerator.as_str()),
        unequal("the processor", format!("{cpu_model:?}"), format!("{:?}", here.cpu_model)),
        unequal("vm.nested", nested, &here.nested),
    ];
    // These mean little to people; they are shown only if nothing else differs.
    let details = [
        unequal("the size of the QEMU binary", qemu_size, &here.qemu_size),
        unequal("the modification time of the QEMU binary", qemu_modified_ns, &here.qemu_modified_ns),
        unequal("the processor's features", short(cpu_flags_sha256), short(&here.cpu_flags_sha256)),
        unequal("the processor's clock", tsc_step, &here.tsc_step),
    ];
    let mut found: Vec<String> = telling.into_iter().flatten().collect();
    if found.is_empty() {
        found = details.into_iter().flatten().collect();
    }
    match there == *here {
        true => None,
        // Two hashes that differ only beyond the shown digits.
        false if found.is_empty() => Some("the processor's features".to_owned()),
        false => Some(found.join(", ")),
    }
}

fn unequal<T: PartialEq + fmt::Display>(what: &str, there: T, here: T) -> Option<String> {
    (there != here).then(|| format!("{what} (there {there}, here {here})"))
}

/// The first digits of a hash, enough for people to distinguish two. The text is untrusted.
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
    fn equal_hosts_have_no_differences() {
        let there = inputs();
        assert_eq!(differences(&there, &there.host), None);
    }

    #[test]
    fn boot_files_do_not_count_as_differences() {
        let (there, mut here) = (inputs(), inputs().host);
        here.kernel_sha256.push('x');
        here.initrd_sha256.push('x');
        here.kernel_append.push('x');
        assert_eq!(differences(&there, &here), None);
    }

    type Change = fn(&mut HostInputs);

    #[test]
    fn every_differing_input_is_described() {
        let cases: [(Change, &str); 8] = [
            (|h| h.vm_generation += 1, "the VM's hardware generation (there "),
            (|h| h.qemu_version = "QEMU 9".to_owned(), r#"QEMU (there "QEMU 10.0.2", here "QEMU 9")"#),
            (|h| h.qemu_size += 1, "the size of the QEMU binary (there 1, here 2)"),
            (|h| h.qemu_modified_ns += 1, "the modification time of the QEMU binary (there 2, here 3)"),
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
    fn differences_contain_no_terminal_escapes() {
        let mut there = inputs();
        there.host.cpu_model = "\x1b[2J".to_owned();
        there.host.cpu_flags_sha256 = "\x1b[2Jabc".to_owned();
        let told = differences(&there, &inputs().host).unwrap();
        assert!(!told.contains('\x1b'), "{told:?}");
    }
}
