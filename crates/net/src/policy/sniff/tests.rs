//! First bytes of many protocols, in pieces of any size.

use proptest::prelude::*;

use super::*;

fn sniff(bytes: &[u8]) -> Option<Claim> {
    Sniffer::new().push(bytes)
}

fn in_pieces(bytes: &[u8], sizes: &[usize]) -> Option<Claim> {
    let mut sniffer = Sniffer::new();
    let mut rest = bytes;
    for size in sizes.iter().copied().cycle() {
        let (piece, after) = rest.split_at(size.clamp(1, rest.len().max(1)).min(rest.len()));
        rest = after;
        let claim = sniffer.push(piece);
        if claim.is_some() || rest.is_empty() {
            return claim;
        }
    }
    None
}

fn vector(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(content)].concat()
}

fn server_name(name: &[u8]) -> Vec<u8> {
    extension(0, &vector(&[&[0][..], &vector(name)].concat()))
}

/// The handshake message with these extensions.
fn hello(extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([1, 9]);
    body.extend(vector(&[0x13, 0x01, 0x13, 0x02]));
    body.extend([1, 0]);
    body.extend(vector(extensions));
    let len = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1, len[1], len[2], len[3]][..], &body].concat()
}

/// The message in records of at most this size.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[0x16, 3, 1][..], &vector(part)].concat()).collect()
}

fn client_hello(name: &str) -> Vec<u8> {
    let others = extension(10, &[0, 2, 0, 29]);
    records(&hello(&[others.clone(), server_name(name.as_bytes()), others].concat()), 1 << 14)
}

/// A git packet with its length in front.
fn packet(content: &str) -> Vec<u8> {
    format!("{:04x}{content}", content.len() + 4).into_bytes()
}

#[test]
fn git_host_is_found() {
    for (request, host) in [
        ("git-upload-pack /x.git\0host=git.test\0", "git.test"),
        ("git-upload-pack /x.git\0host=git.test\0\0version=2\0", "git.test"),
        ("git-receive-pack /a b\0host=git.test:9419\0", "git.test"),
        ("git-upload-archive /x\0host=203.0.113.10\0", "203.0.113.10"),
    ] {
        let expected = Some(Claim::GitHost(host.to_owned()));
        assert_eq!(sniff(&packet(request)), expected, "{request:?}");
        for size in [1, 3, 7] {
            assert_eq!(in_pieces(&packet(request), &[size]), expected, "{request:?} by {size}");
        }
        let whole = packet(request);
        assert_eq!(sniff(&whole[..whole.len() - 1]), None, "the rest may be on its way");
    }
}

#[test]
fn git_request_without_one_host_names_nobody() {
    for request in [
        "git-upload-pack /x.git\0",
        "git-upload-pack /x.git",
        "git-upload-pack /x.git\0host=\0",
        "git-upload-pack /x.git\0host=a.test\0host=b.test\0",
        "git-upload-pack /x.git\0host=a.test\0\0host=b.test\0",
        "git-upload-pack /x.git\0host=a@b\0",
        "git-upload-pack host=a.test\0",
    ] {
        assert_eq!(sniff(&packet(request)), Some(Claim::NoGitHost), "{request:?}");
    }
    assert_eq!(sniff(b"0003git-upload-pack /x\0host=a.test\0"), Some(Claim::NoGitHost));
    let mut sniffer = Sniffer::new();
    assert_eq!(sniffer.push(b"ffffgit-upload-pack /x\0host=a.test\0"), None);
    assert_eq!(sniffer.finish(), Claim::NoGitHost, "it was never whole");
    // Bytes that only begin like a git packet are read as HTTP.
    let http = b"00ffgit-upload /x HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(sniff(http), Some(Claim::Host("a.test".to_owned())));
}

#[test]
fn tls_server_name_is_found() {
    assert_eq!(sniff(&client_hello("example.com")), Some(Claim::Sni("example.com".to_owned())));
    let message = hello(&server_name(b"example.com"));
    for size in [1, 2, 3, 5, 7, 100] {
        let found = sniff(&records(&message, size));
        assert_eq!(found, Some(Claim::Sni("example.com".to_owned())), "records of {size}");
    }
}

#[test]
fn oversized_client_hello_is_given_up() {
    let padding = extension(21, &[0; 9000]);
    let large = records(&hello(&[padding, server_name(b"example.com")].concat()), 1 << 14);
    assert_eq!(sniff(&large), Some(Claim::Sni("example.com".to_owned())));
    let padding = extension(21, &[0; 20_000]);
    let endless = records(&hello(&[padding, server_name(b"example.com")].concat()), 1 << 14);
    assert_eq!(sniff(&endless), Some(Claim::NoSni));
}

#[test]
fn tls_without_one_valid_name_is_nameless() {
    let name = server_name(b"example.com");
    let two_names = vector(&[&[0][..], &vector(b"a.com"), &[0], &vector(b"b.com")].concat());
    let bad = [
        records(&hello(&[]), 100),
        records(&hello(&[name.clone(), name.clone()].concat()), 100),
        records(&hello(&extension(0, &two_names)), 100),
        records(&hello(&server_name(b"")), 100),
        records(&hello(&server_name(b"b\xc3\xbccher.de")), 100),
        records(&hello(&server_name(b"a\0b")), 100),
        // Another handshake message, an empty record, an old version, a record that is too long.
        records(&[2, 0, 0, 1, 0], 100),
        vec![0x16, 3, 1, 0, 0],
        vec![0x16, 2, 0, 0, 1],
        vec![0x16, 3, 1, 0xff, 0xff],
        // An alert in the middle.
        [&records(&hello(&name)[..20], 20)[..], &[0x15, 3, 3, 0, 2, 1, 0]].concat(),
    ];
    for bytes in bad {
        assert_eq!(sniff(&bytes), Some(Claim::NoSni), "{bytes:x?}");
    }
}

#[test]
fn sslv2_hello_is_nameless_tls() {
    for hello in
        [&b"\x80\x2e\x01\x00\x02\x00\x15\x00"[..], b"\x80\x2e\x01\x03\x01\x00\x15", b"\x9f\xff\x01\x03\x03"]
    {
        for size in [1, 2, 7] {
            assert_eq!(in_pieces(hello, &[size]), Some(Claim::NoSni), "{hello:x?} by {size}");
        }
        for cut in 1..5 {
            let mut sniffer = Sniffer::new();
            assert_eq!(sniffer.push(&hello[..cut]), None);
            assert_eq!(sniffer.finish(), Claim::NoSni, "it could have become one");
        }
    }
}

#[test]
fn encrypted_client_hello_is_recognized() {
    let name = server_name(b"cover.example");
    for kind in [0xfe0d, 0xffce] {
        let hidden = extension(kind, &[0; 40]);
        for extensions in [[name.clone(), hidden.clone()].concat(), [hidden.clone(), name.clone()].concat()] {
            let found = sniff(&records(&hello(&extensions), 50));
            assert_eq!(found, Some(Claim::Encrypted(Some("cover.example".to_owned()))));
        }
        assert_eq!(sniff(&records(&hello(&hidden), 50)), Some(Claim::Encrypted(None)));
    }
}

#[test]
fn http_host_is_found() {
    let host = |text: &str| Some(Claim::Host(text.to_owned()));
    let cases = [
        ("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", "example.com"),
        ("\r\n\r\nGET / HTTP/1.1\r\nhOsT:example.com:8080\r\nX: y\r\n\r\nbody", "example.com"),
        (" \tGET / HTTP/1.1\r\nHost: example.com\r\n\r\n", "example.com"),
        ("POST /http://other/ HTTP/1.0\nAccept: */*\nHost:  example.com  \n\n", "example.com"),
        ("GET http://Example.com/x HTTP/1.1\r\nHost: example.com\r\n\r\n", "Example.com"),
        ("GET http://example.com:80?x HTTP/1.1\r\n\r\n", "example.com"),
        ("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", "example.com"),
        ("FROBNICATE / HTTP/1.1\r\nHost : example.com\r\n\r\n", "example.com"),
        ("GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", "10.0.0.1"),
    ];
    for (request, name) in cases {
        assert_eq!(sniff(request.as_bytes()), host(name), "{request:?}");
    }
}

#[test]
fn ambiguous_request_names_nobody() {
    let ambiguous = [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com\r\nHost: b.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com\r\n b.com\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a.com\r\nHost: b.com\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\rHost: a.com\r\nHost: b.com\r\n\r\n",
        "GET / HTTP/1.1\rHost: a.com\r\nHost: b.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost\r\nHost: b.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com, b.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com/b.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: b.com@a.com\r\n\r\n",
        "GET http://a.com/ HTTP/1.1\r\nHost: b.com\r\n\r\n",
        "GET http://b.com@a.com/ HTTP/1.1\r\n\r\n",
        "POST /\x01 HTTP/1.1\r\nHost: a.com\r\n\r\n",
        "POST / HTTP/1.1 x\r\nHost: a.com\r\n\r\n",
        "POST HTTP/1.1\r\nHost: a.com\r\n\r\n",
        "GET / /x HTTP/1.1\r\nHost: a.com\r\n\r\n",
        "GET /\r\n",
        "GET\r\n",
        "GET / http/2.0\r\nHost: a.com\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for request in ambiguous {
        assert_eq!(sniff(request.as_bytes()), Some(Claim::NoHost), "{request:?}");
        assert_eq!(in_pieces(request.as_bytes(), &[1]), Some(Claim::NoHost), "{request:?} byte by byte");
    }
}

#[test]
fn other_protocols_are_opaque_from_their_first_line() {
    let greetings: [&[u8]; 10] = [
        b"\x20\x00\x00\x01\x85",
        b"A\x00\x00\x00\x01 \x02",
        b"SSH-2.0-OpenSSH_10.0 Debian-5\r\n",
        b"EHLO example.com\r\n",
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
        b"*1\r\n$4\r\nPING\r\n",
        b"get key\r\n",
        b"\x80\x01\x02",
        b"\x80\x2e\x01\x04",
        b"\x80\x2e\x01\x00\x03",
    ];
    for greeting in greetings {
        assert_eq!(sniff(greeting), Some(Claim::Opaque), "{greeting:?}");
    }
}

#[test]
fn unfinished_greeting_names_nobody() {
    let mut sniffer = Sniffer::new();
    assert_eq!(sniffer.push(b"GET / HTTP/1.1\r\nHost: example.com\r\n"), None);
    assert_eq!(sniffer.finish(), Claim::NoHost);
    assert_eq!(sniffer.push(b"\r\n"), Some(Claim::NoHost));
    let mut sniffer = Sniffer::new();
    assert_eq!(sniffer.push(&client_hello("example.com")[..40]), None);
    assert_eq!(sniffer.finish(), Claim::NoSni);
    let mut sniffer = Sniffer::new();
    assert_eq!(sniffer.push(b"PO"), None);
    assert_eq!(sniffer.finish(), Claim::NoHost);
    assert_eq!(Sniffer::new().finish(), Claim::Opaque);
}

#[test]
fn endless_request_head_is_given_up() {
    let endless = [b"GET / HTTP/1.1\r\nHost: a.com\r\nCookie: ".as_slice(), &[b'x'; MAX_BYTES]].concat();
    assert_eq!(in_pieces(&endless, &[1000]), Some(Claim::NoHost));
    assert_eq!(sniff(&[b'\n'; MAX_BYTES]), Some(Claim::NoHost));
}

fn greeting() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z0-9.-]{1,60}".prop_map(|name| client_hello(&name)),
        ("[a-z0-9.-]{1,60}", 1_usize..50)
            .prop_map(|(name, size)| records(&hello(&server_name(name.as_bytes())), size)),
        "(\r\n)?(GET|POST|X) (/|http://a\\.b/)( |  )HTTP/1\\.[01]\r?\n(Host: [a-z.]{0,9}\r?\n){0,2}(X: y\r\n){0,3}\r\n".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| [vec![0x16, 3, 1], bytes].concat()),
        ("[a-z.]{1,30}", any::<prop::sample::Index>(), any::<u8>()).prop_map(|(name, at, byte)| {
            let mut bytes = client_hello(&name);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        }),
    ]
}

proptest! {
    #[test]
    fn claim_ignores_piece_boundaries(bytes in greeting(), sizes in prop::collection::vec(1_usize..40, 1..8)) {
        prop_assert_eq!(in_pieces(&bytes, &sizes), in_pieces(&bytes, &[1]));
        prop_assert_eq!(in_pieces(&bytes, &[usize::MAX]), in_pieces(&bytes, &[1]));
    }

    #[test]
    fn tls_start_is_never_opaque(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut sniffer = Sniffer::new();
        sniffer.push(&[0x16]);
        sniffer.push(&bytes);
        prop_assert!(matches!(sniffer.finish(), Claim::Sni(_) | Claim::NoSni | Claim::Encrypted(_)));
    }

    #[test]
    fn http_start_is_never_opaque(path in "/[!-~]{0,20}", head in "([ -~]{0,20}\r\n){0,4}") {
        let mut sniffer = Sniffer::new();
        sniffer.push(format!("GET {path} HTTP/1.1\r\n{head}").as_bytes());
        prop_assert!(matches!(sniffer.finish(), Claim::Host(_) | Claim::NoHost));
    }
}
