//! Golden command lines, and the relations that must hold between any two of them.

use std::sync::LazyLock;

use super::*;

fn vm<'a>(memory: Memory, begin: Begin, dir: &'a Path) -> Vm<'a> {
    Vm {
        qemu: QemuVersion { major: 10, minor: 0 },
        accelerator: Chosen::Tcg,
        id: "0f8fad5b-d9cb-469f-a165-70867728950e".parse().unwrap(),
        shape: Shape { vcpus: 2, memory_mb: 512 },
        memory,
        begin,
        kernel: Path::new("/data/kernels/k/vmlinuz"),
        initrd: Path::new("/data/initramfs/i.cpio.gz"),
        kernel_args: "console=ttyS0 quiet",
        layers: &*LAYERS,
        run_dir: dir,
        card: socket(),
        card_fd: None,
        kvm: None,
        nested: false,
        qmp_fd: 11,
        agent_fd: 12,
        console_fd: 13,
    }
}

static LAYERS: LazyLock<[Layer; 2]> = LazyLock::new(|| {
    let layer = |name: &str, set, fd| Layer {
        file: Path::new("/data/workspaces/w").join(name),
        given: Given { set, fd },
    };
    [layer("disk.qcow2", 10, 14), layer("layer0.qcow2", 11, 15)]
});

fn socket() -> &'static Card {
    static SOCKET: LazyLock<Card> = LazyLock::new(|| Card::Socket("/run/a/n-0f8fad5b".into()));
    &SOCKET
}

fn lines(vm: &Vm<'_>) -> String {
    let mut text = String::new();
    for arg in argv(vm) {
        let arg = arg.into_string().unwrap();
        text += if arg.starts_with('-') { "\n" } else { " " };
        text += &arg;
    }
    text.trim_start().to_owned() + "\n"
}

#[test]
fn boot_command_line_matches_golden() {
    let boot = vm(Memory::Private, Begin::Boot, Path::new("/run/a/0f8fad5b"));
    assert_eq!(lines(&boot), include_str!("golden/boot.txt"));
}

#[test]
fn restore_command_line_matches_golden() {
    let ram = Memory::Template("/data/templates/t/ram".into());
    let restore = vm(ram, Begin::Restore, Path::new("/run/a/0f8fad5b"));
    assert_eq!(lines(&restore), include_str!("golden/restore.txt"));
}

#[test]
fn kvm_command_line_on_oldest_qemu_matches_golden() {
    let ram = Memory::Recorded("/data/templates/t/ram".into());
    let mut old = vm(ram, Begin::Boot, Path::new("/run/a/0f8fad5b"));
    old.accelerator = Chosen::Kvm;
    old.qemu = QemuVersion { major: 8, minor: 2 };
    old.layers = &[];
    old.kvm = Some(Given { set: 1, fd: 16 });
    assert_eq!(lines(&old), include_str!("golden/kvm-8.2-template.txt"));
}

#[test]
fn bridge_changes_only_the_netdev_option() {
    let dir = Path::new("/run/a/0f8fad5b");
    let card = Card::Tap("aiso0f8fad5b".to_owned());
    let at_socket = vm(Memory::Private, Begin::Boot, dir);
    let at_bridge = lines(&Vm { card: &card, card_fd: Some(17), ..at_socket.clone() });
    let at_socket = lines(&at_socket);
    let differing: Vec<&str> =
        at_bridge.lines().filter(|line| !at_socket.lines().any(|other| other == *line)).collect();
    assert_eq!(differing, [r#"-netdev {"type":"tap","id":"net0","fd":"17"}"#]);
}

#[test]
fn restore_differs_only_in_memory_and_start() {
    let dir = Path::new("/run/a/0f8fad5b");
    let save = lines(&vm(Memory::Recorded("/t/ram".into()), Begin::Boot, dir));
    let restore = lines(&vm(Memory::Template("/t/ram".into()), Begin::Restore, dir));
    let differing: Vec<&str> =
        restore.lines().filter(|line| !save.lines().any(|other| other == *line)).collect();
    assert_eq!(differing.len(), 3, "{differing:?}");
    assert!(differing[0].starts_with("-object"));
    assert_eq!(differing[1..], ["-S", "-incoming defer"]);
}

#[test]
fn special_characters_in_paths_stay_quoted() {
    let mut odd = vm(Memory::Private, Begin::Boot, Path::new("/run/a,b"));
    let card = Card::Socket("/run/a,b=\"c\"/n-0f8fad5b".into());
    odd.card = &card;
    let args: Vec<String> = argv(&odd).into_iter().map(|arg| arg.into_string().unwrap()).collect();
    let netdev = &args[args.iter().position(|arg| arg == "-netdev").unwrap() + 1];
    let parsed: Value = serde_json::from_str(netdev).unwrap();
    assert_eq!(parsed["addr"]["path"], "/run/a,b=\"c\"/n-0f8fad5b");
}

#[test]
fn two_gib_vm_leaves_room_for_tables() {
    let mut large = vm(Memory::Private, Begin::Boot, Path::new("/run/a/0f8fad5b"));
    large.shape.memory_mb = 2048;
    let text = lines(&large);
    assert!(text.contains("\n-m 2097144K\n") && text.contains("\"size\":2147475456"), "{text}");
}

#[test]
fn guests_get_virtualization_and_counters_only_when_configured() {
    let dir = Path::new("/run/a/0f8fad5b");
    for accelerator in [Chosen::Kvm, Chosen::Tcg] {
        let plain = Vm { accelerator, ..vm(Memory::Private, Begin::Boot, dir) };
        let processor =
            |vm: &Vm<'_>| lines(vm).lines().find(|line| line.starts_with("-cpu")).unwrap().to_owned();
        assert!(processor(&plain).ends_with(",vmx=off,svm=off,pmu=off"), "{}", processor(&plain));
        let nested = Vm { nested: true, ..plain };
        assert!(!processor(&nested).contains(','), "{}", processor(&nested));
    }
}
