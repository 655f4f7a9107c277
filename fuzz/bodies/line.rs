//! What holds for the line parsers whatever bytes arrive. Run by the fuzzer over bytes of its own making
//! and by the ordinary tests over the kept ones.

use fairlock::protocol::{Key, Reply, Request, Split, limits, split};

/// Reads `data` as a client's and as a server's side of a connection would.
pub(crate) fn check(data: &[u8]) {
    let mut rest = data;
    loop {
        match split(rest) {
            Split::Line { line, used } => {
                assert!(used <= limits::LINE_BYTES && line.len() < used);
                check_line(line);
                rest = &rest[used..];
            }
            Split::Partial => {
                assert!(rest.len() < limits::LINE_BYTES);
                break;
            }
            Split::TooLong => {
                assert!(rest.len() >= limits::LINE_BYTES);
                break;
            }
        }
    }
    check_line(rest);
    if let Ok(key) = Key::encode(data) {
        assert_eq!(key.decode(), data);
    }
}

/// A message that was understood means the same when it is written and read again, and each refusal
/// is itself a line that a client understands.
fn check_line(line: &[u8]) {
    let mut out = Vec::new();
    match Request::parse(line) {
        Ok(request) => {
            request.encode(&mut out);
            assert_eq!(Request::parse(whole_line(&out)), Ok(request));
        }
        Err(refusal) => {
            Reply::from(refusal).encode(&mut out);
            assert_eq!(Reply::parse(whole_line(&out)), Some(refusal.into()));
        }
    }
    if let Some(reply) = Reply::parse(line) {
        out.clear();
        reply.encode(&mut out);
        assert_eq!(Reply::parse(whole_line(&out)), Some(reply));
    }
}

fn whole_line(out: &[u8]) -> &[u8] {
    let line = out.strip_suffix(b"\n").expect("a message ends its line");
    assert!(!line.contains(&b'\n'), "a message is one line");
    line
}
