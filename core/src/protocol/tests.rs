//! Goal: the lines of the protocol page, good and bad, mean what the page says.
//! Method: round trips of whole values, a table of lines with what they get, and random bytes.

use super::*;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a server that does nothing but read would answer: the request itself where the line is good.
fn answer(line: &[u8]) -> String {
    let mut out = Vec::new();
    match Request::parse(line) {
        Ok(request) => request.encode(&mut out),
        Err(refusal) => Reply::from(refusal).encode(&mut out),
    }
    text(
        out.strip_suffix(b"\n")
            .expect("every message ends its line"),
    )
}

const LONG_KEY: &[u8] = &[b'k'; limits::KEY_BYTES];

#[test]
fn every_good_request_line_comes_back_as_it_was() {
    for line in [
        "A order:42 30 5",
        "A order:42 0.25 0 #7",
        "A k 0.001 - #18446744073709551615.4294967295",
        "A café%20bar 86400 31536000",
        "A #7 30 5 #7",
        "A - 1.5 0.1",
        "A %25%00%7F%0A 1 1",
        "A k 31536000 31536000",
        "A k 30 0.001 #0",
        "R k 1",
        "R k 9223372036854775807 #0",
        "K k 5 30 #7.1",
        "K k 5 0.5",
        "C k #7",
        "C k #7.2",
        "C #1 #1",
        "I k",
        "I #7",
        "I k #7",
        "W k 1",
        "W k 100000 #1",
        "L - 10",
        "L %2D 1 after=- #2",
        "L order: 5 after=order:9",
        "L after=a 5",
        "L k 1 #3",
        "H 1",
        "H 1 id=0123456789abcdef0123456789abcdef",
        "H 1 name=%2D seen=5 auth=a%20b",
        "H 1 name=worker-1",
        "P",
        "P #5",
        "S",
    ] {
        assert_eq!(answer(line.as_bytes()), line);
    }
    let longest = [b"I ", LONG_KEY].concat();
    assert_eq!(answer(&longest), text(&longest));
    let escaped = [b"I ".to_vec(), b"%00".repeat(limits::KEY_BYTES)].concat();
    assert_eq!(answer(&escaped), text(&escaped));
    let not_text = b"I \xFF\xFE\x80";
    assert_eq!(answer(not_text), text(not_text));
}

#[test]
fn a_spelling_that_is_allowed_but_not_ours_means_the_same() {
    for (line, ours) in [
        ("A k 30.0 5.10", "A k 30 5.1"),
        ("A k 0.250 31536000.000", "A k 0.25 31536000"),
        (
            "H 1 auth=s seen=5 name=n id=0123456789ABCDEF0123456789abcdef",
            "H 1 id=0123456789abcdef0123456789abcdef name=n seen=5 auth=s",
        ),
    ] {
        assert_eq!(answer(line.as_bytes()), ours, "{line}");
    }
}

#[test]
fn every_bad_request_line_is_refused_with_its_code_key_and_tag() {
    for (line, expected) in [
        // No operation that could be read.
        ("", "E ? - syntax"),
        (" ", "E ? - syntax"),
        ("X", "E ? - syntax"),
        ("X k 1 #7", "E ? - syntax #7"),
        ("a k 30 5", "E ? - syntax"),
        ("AA k 30 5", "E ? - syntax"),
        (" A k 30 5", "E ? - syntax"),
        ("T k", "E ? - syntax"),
        ("A\tk 30 5", "E ? - syntax"),
        // Missing and extra fields, spaces.
        ("A", "E A - syntax"),
        ("A k", "E A k syntax"),
        ("A k 30", "E A k syntax"),
        ("A k 30 5 #7 #8", "E A k syntax #8"),
        ("A k 30 5 x", "E A k syntax"),
        ("A k 30 5 ", "E A k syntax"),
        ("A  k 30 5", "E A - key"),
        ("A k  30 5", "E A k lease"),
        ("R", "E R - syntax"),
        ("R k", "E R k syntax"),
        ("R k 1 2", "E R k syntax"),
        ("K k 5", "E K k syntax"),
        ("C k", "E C k syntax"),
        ("C k 7", "E C k syntax"),
        ("I", "E I - syntax"),
        ("I ", "E I - key"),
        ("I k x", "E I k syntax"),
        ("W k", "E W k syntax"),
        ("L k", "E L k syntax"),
        ("P x", "E P - syntax"),
        ("P #7 #7", "E P - syntax #7"),
        ("S x", "E S - syntax"),
        ("S #7", "E S - syntax #7"),
        // Keys.
        ("A a%41 30 5", "E A - key"),
        ("A a%2 30 5 #7", "E A - key #7"),
        ("A a% 30 5", "E A - key"),
        ("A a%0a 30 5", "E A - key"),
        ("A a%ZZ 30 5", "E A - key"),
        ("A a%FF 30 5", "E A - key"),
        ("A %2D 30 5", "E A - key"),
        ("A a\x7F 30 5", "E A - key"),
        ("A a\tb 30 5", "E A - key"),
        ("A a\0b 30 5", "E A - key"),
        ("A a\rb 30 5", "E A - key"),
        ("L %2Da 5", "E L - key"),
        ("L k 5 after=%41", "E L k key"),
        ("L k 5 after=", "E L k key"),
        // Leases.
        ("A k 0 5", "E A k lease"),
        ("A k 0.000 5", "E A k lease"),
        ("A k 0.0001 5", "E A k lease"),
        ("A k 1.0000 5", "E A k lease"),
        ("A k -1 5", "E A k lease"),
        ("A k +1 5", "E A k lease"),
        ("A k 1e3 5", "E A k lease"),
        ("A k 01 5", "E A k lease"),
        ("A k 00.5 5", "E A k lease"),
        ("A k .5 5", "E A k lease"),
        ("A k 5. 5", "E A k lease"),
        ("A k 1.-5 5", "E A k lease"),
        ("A k 1.2.3 5", "E A k lease"),
        ("A k 1,5 5", "E A k lease"),
        ("A k NaN 5", "E A k lease"),
        ("A k inf 5", "E A k lease"),
        ("A k - 5", "E A k lease"),
        ("A k 0x10 5", "E A k lease"),
        ("A k ٣ 5", "E A k lease"),
        ("A k 31536000.001 5 #7.3", "E A k lease #7.3"),
        ("A k 18446744073709551616 5", "E A k lease"),
        ("A k 99999999999999999999999 5", "E A k lease"),
        ("K k 5 0 #7", "E K k lease #7"),
        // Waits.
        ("A k 30 0.0", "E A k wait"),
        ("A k 30 00", "E A k wait"),
        ("A k 30 -0", "E A k wait"),
        ("A k 30 -1", "E A k wait"),
        ("A k 30 --", "E A k wait"),
        ("A k 30 31536000.001", "E A k wait"),
        ("A k 30 31536001", "E A k wait"),
        ("A k 30 1e1 #7", "E A k wait #7"),
        ("A k 30 #7", "E A k wait #7"),
        ("A k 30 18446744073709551616", "E A k wait"),
        // Tokens and limits.
        ("R k 0", "E R k syntax"),
        ("R k -1", "E R k syntax"),
        ("R k 01", "E R k syntax"),
        ("R k 9223372036854775808", "E R k syntax"),
        ("R k 18446744073709551617", "E R k syntax"),
        ("R k 1.0", "E R k syntax"),
        ("W k 0", "E W k syntax"),
        ("W k 100001", "E W k syntax"),
        ("L - 4294967297", "E L - syntax"),
        ("L %2D 0 #7", "E L %2D syntax #7"),
        // Tags.
        ("I k #", "E I k syntax"),
        ("I k #-1", "E I k syntax"),
        ("I k #07", "E I k syntax"),
        ("I k #7.", "E I k syntax"),
        ("I k #7.0", "E I k syntax"),
        ("I k #7.01", "E I k syntax"),
        ("I k #7.4294967296", "E I k syntax"),
        ("I k #18446744073709551616", "E I k syntax"),
        ("I k #7.1.1", "E I k syntax"),
        // Hellos.
        ("H", "E H - syntax"),
        ("H x", "E H - syntax"),
        ("H 2", "E H - version"),
        ("H 2 what=ever", "E H - version"),
        ("H 0", "E H - version"),
        ("H 01", "E H - syntax"),
        ("H 1 id=123", "E H - syntax"),
        ("H 1 id=0123456789abcdef0123456789abcdeg", "E H - syntax"),
        ("H 1 name=", "E H - syntax"),
        ("H 1 name=a%41", "E H - syntax"),
        ("H 1 seen=0", "E H - syntax"),
        ("H 1 auth=", "E H - syntax"),
        ("H 1 seen=1 seen=2", "E H - syntax"),
        ("H 1 more=1", "E H - syntax"),
        ("H 1 #7", "E H - syntax #7"),
    ] {
        let got = answer(line.as_bytes());
        let (head, tail) = got.split_at(expected.len().min(got.len()));
        assert_eq!(head, expected, "{line:?} got {got:?}");
        assert!(
            tail.starts_with(' ') && !tail.starts_with(" #") && tail.len() > 2,
            "{line:?} got {got:?}: a text for people stands last and does not begin with #"
        );
    }
    for (count, op) in [(limits::KEY_BYTES + 1, "I"), (limits::KEY_BYTES + 1, "R")] {
        let line = format!("{op} {} 1", "k".repeat(count));
        assert!(answer(line.as_bytes()).starts_with(&format!("E {op} - key ")));
        let line = format!("{op} {} 1", "%00".repeat(count));
        assert!(answer(line.as_bytes()).starts_with(&format!("E {op} - key ")));
    }
}

#[test]
fn every_reply_line_comes_back_as_it_was() {
    for line in [
        "A order:42 123695058124800001",
        "A order:42 123695058124800001 #7.1",
        "T café%20bar",
        "T k #7",
        "R k ok",
        "R k stale #7",
        "K k ok #7",
        "K k stale",
        "C k ok #7.1",
        "C k none #7",
        "I k free 0 #7",
        "I k free 12",
        "I k held 5 29.998 3 worker%20one 127.0.0.1:4711 #7",
        "I k held 5 0 0 - [::1]:4711",
        "w k 1 0.5 %2D 127.0.0.1:4711 #7",
        "W k 100000 #7",
        "l k 5 1 0 - 127.0.0.1:4711 #7",
        "L - 17 #7",
        "L %2D 0",
        "H 1 role=active node=127.0.0.1:7420 active=127.0.0.1:7420 peers=127.0.0.1:7420 server=0.1.0",
        "H 1 role=standby node=b:1 active=- peers=a:1,-,b:1 server=0.1.0",
        "P",
        "P #7",
        "S role=leaving node=a:1 active=b:1 term=28771200 held=1 waiting=2 connections=3 standbys=b:1,c:1",
        "S role=starting node=a:1 active=- term=0 held=0 waiting=0 connections=0 standbys=-",
        "M A order:42 10.0.0.1:7420 #7",
        "M L - 10.0.0.1:7420",
        "N 10.0.0.1:7420",
        "E A - key escape of a byte that needs none",
        "E ? - syntax #7 unknown operation",
        "E L %2D busy #7.1 more than 5 lists",
        "E A k laterword #7 of another version",
    ] {
        let reply = Reply::parse(line.as_bytes()).unwrap_or_else(|| panic!("{line} is a reply"));
        let mut out = Vec::new();
        reply.encode(&mut out);
        assert_eq!(text(&out), format!("{line}\n"));
    }
}

#[test]
fn what_no_server_says_is_no_reply() {
    for line in [
        "",
        " ",
        "A",
        "A k",
        "A k 0",
        "A k 1 2",
        "A k 1 #7 x",
        "A k -1",
        "T",
        "T k 7",
        "R k",
        "R k no",
        "R k ok ok",
        "K k ok #",
        "C k ok",
        "C k ok #7 #8",
        "I k",
        "I k free",
        "I k free x",
        "I k held 5",
        "I k held 5 1 0 -",
        "w k 1 1 -",
        "W k",
        "l k 5 1 0 - a:1 #x",
        "L - x",
        "H",
        "H 1",
        "H 2 role=active",
        "H 1 role=king node=a:1 active=- peers=- server=1",
        "P 7",
        "S",
        "S role=active",
        "M A k",
        "M X k a:1",
        "M ? k a:1",
        "N",
        "N a:1 b:1",
        "E",
        "E A",
        "E A k",
        "E AA k syntax x",
        "E A k syntax #x y",
        "Q k",
        "a k 1",
        "\u{0}",
    ] {
        assert_eq!(Reply::parse(line.as_bytes()), None, "{line:?}");
    }
}

#[test]
fn later_fields_of_hello_and_status_are_passed_over() {
    for line in [
        "H 1 role=active node=a:1 active=a:1 peers=a:1 server=9.0 load=3",
        "S role=active node=a:1 active=a:1 term=1 held=0 waiting=0 connections=0 standbys=- uptime=3",
    ] {
        assert!(Reply::parse(line.as_bytes()).is_some(), "{line}");
    }
}

#[test]
fn every_key_has_exactly_one_spelling() {
    for byte in 0..=255u8 {
        let key = Key::encode(&[byte]).expect("one byte is a key");
        assert_eq!(key.decode(), [byte]);
        assert_eq!(
            KeyRef::parse(key.spelling()).map(KeyRef::to_key),
            Ok(key.clone())
        );
        let escaped = format!("%{byte:02X}");
        let bare = [byte];
        let other: &[u8] = if key.spelling() == bare {
            escaped.as_bytes()
        } else {
            &bare
        };
        assert!(
            KeyRef::parse(other).is_err(),
            "{byte:#04x} is also spelled {other:?}"
        );
    }
    assert_eq!(Key::encode(b""), Err(SpellingError::Empty));
    assert_eq!(Key::encode(&[0; 513]), Err(SpellingError::TooLong));
}

#[test]
fn short_and_long_keys_are_the_same_to_their_users() {
    for length in [1, 22, 23, 24, 25, 512] {
        let bytes = vec![b'k'; length];
        let key = Key::encode(&bytes).expect("a key");
        assert_eq!((key.spelling(), key.decode()), (&bytes[..], bytes.clone()));
        assert_eq!(key, key.clone());
        assert_eq!(
            key.cmp(&Key::encode(b"j").expect("a key")),
            std::cmp::Ordering::Greater
        );
    }
}

#[test]
fn names_and_prefixes_keep_the_lone_dash_for_none() {
    for (name, spelling) in [("", "-"), ("-", "%2D"), ("--", "--"), ("a b", "a%20b")] {
        let mut out = Vec::new();
        NameRef::encode(name.as_bytes(), &mut out);
        assert_eq!(text(&out), spelling);
        let back = NameRef::parse(&out).expect("a name").decode();
        assert_eq!(back.unwrap_or_default(), name.as_bytes());
    }
    let mut long = Vec::new();
    NameRef::encode(&[b' '; 200], &mut long);
    assert!(
        NameRef::parse(&long).is_ok(),
        "a name is cut to what is allowed"
    );
    for (start, field) in [("", "-"), ("-", "%2D"), ("order:", "order:")] {
        let prefix = Prefix::of_spelling(start.as_bytes());
        assert_eq!(text(prefix.field()), field);
        assert_eq!(
            Prefix::parse(field.as_bytes()).map(Prefix::spelling),
            Ok(start.as_bytes())
        );
    }
}

#[test]
fn lines_end_with_lf_and_one_cr_before_it_is_ignored() {
    let line = |line, used| Split::Line { line, used };
    assert_eq!(split(b""), Split::Partial);
    assert_eq!(split(b"P"), Split::Partial);
    assert_eq!(split(b"P\r"), Split::Partial);
    assert_eq!(split(b"P\nS\n"), line(b"P", 2));
    assert_eq!(split(b"P\r\nS"), line(b"P", 3));
    assert_eq!(split(b"P\r\r\n"), line(b"P\r", 4));
    assert_eq!(split(b"\n"), line(b"", 1));
    let mut longest = vec![b'x'; limits::LINE_BYTES - 1];
    assert_eq!(split(&longest), Split::Partial);
    longest.push(b'\n');
    assert_eq!(
        split(&longest),
        line(&longest[..limits::LINE_BYTES - 1], limits::LINE_BYTES)
    );
    longest.insert(0, b'x');
    assert_eq!(split(&longest), Split::TooLong);
}

#[test]
fn times_are_exact_to_the_millisecond() {
    for (field, millis) in [
        ("0", 0),
        ("0.001", 1),
        ("0.01", 10),
        ("0.1", 100),
        ("1", 1000),
        ("1.05", 1050),
        ("31536000", limits::TIME_MAX_MS),
    ] {
        assert_eq!(
            Millis::parse(field.as_bytes()),
            Some(Millis(millis)),
            "{field}"
        );
        let mut out = Vec::new();
        Millis(millis).encode(&mut out);
        assert_eq!(text(&out), field);
    }
    assert_eq!(
        Millis::parse(b"18446744073709551.616"),
        None,
        "does not wrap"
    );
    assert_eq!(
        Millis::at_least(std::time::Duration::from_micros(1)),
        Millis(1)
    );
    assert_eq!(Millis::at_least(std::time::Duration::MAX), Millis(u64::MAX));
}

#[test]
fn codes_and_operations_have_one_spelling_each() {
    for code in Code::ALL {
        assert_eq!(Code::parse(code.as_str()), Some(code));
    }
    for letter in 0..=255u8 {
        match Operation::of_letter(letter) {
            Some(operation) => assert_eq!(operation.letter(), letter),
            None => assert!(!b"ARKCIWLHPS".contains(&letter)),
        }
    }
}

/// A small generator, so that a failure repeats from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

#[test]
fn any_bytes_are_read_without_a_panic_and_mean_what_their_spelling_means() {
    const WORDS: &[&[u8]] = &[
        b"A",
        b"R",
        b"K",
        b"C",
        b"I",
        b"W",
        b"L",
        b"H",
        b"P",
        b"S",
        b"T",
        b"M",
        b"N",
        b"E",
        b"l",
        b"w",
        b"1",
        b"0",
        b"-",
        b"k",
        b"%20",
        b"%2D",
        b"#7",
        b"#7.1",
        b"30",
        b"0.5",
        b"ok",
        b"stale",
        b"held",
        b"free",
        b"a:1",
        b"id=",
        b"after=k",
        b"syntax",
        b"",
        b"\xFF",
        b"role=active",
        b"node=a:1",
        b"active=-",
        b"peers=-",
        b"server=1",
    ];
    let mut random = Random(0x5EED);
    for step in 0..200_000 {
        let count = 1 + random.below(7);
        let mut line = Vec::new();
        for place in 0..count {
            if place > 0 {
                line.push(b' ');
            }
            line.extend_from_slice(WORDS[random.below(WORDS.len())]);
        }
        if random.below(4) == 0 && !line.is_empty() {
            let at = random.below(line.len());
            line[at] = random.below(256) as u8;
        }
        let mut out = Vec::new();
        match Request::parse(&line) {
            Ok(request) => {
                request.encode(&mut out);
                out.pop();
                assert_eq!(
                    Request::parse(&out),
                    Ok(request),
                    "step {step}: {:?}",
                    text(&line)
                );
            }
            Err(refusal) => {
                Reply::from(refusal).encode(&mut out);
                out.pop();
                assert_eq!(
                    Reply::parse(&out),
                    Some(refusal.into()),
                    "step {step}: {:?}",
                    text(&line)
                );
            }
        }
        if let Some(reply) = Reply::parse(&line) {
            let mut out = Vec::new();
            reply.encode(&mut out);
            out.pop();
            assert_eq!(
                Reply::parse(&out),
                Some(reply),
                "step {step}: {:?}",
                text(&line)
            );
        }
    }
}
