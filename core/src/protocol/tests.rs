//! Goal: the lines of the protocol page, good and bad, mean what the page says.
//! Method: round trips of whole values, and a table of lines with what they get.

use super::*;

fn answer(line: &[u8]) -> String {
    let mut out = Vec::new();
    match Request::parse(line) {
        Ok(request) => request.encode(&mut out),
        Err(refusal) => Reply::from(refusal).encode(&mut out),
    }
    String::from_utf8_lossy(&out)
        .trim_end_matches('\n')
        .to_owned()
}

#[test]
fn every_good_request_line_comes_back_as_it_was() {
    for line in [
        "A order:42 30 5",
        "A order:42 0.25 0 #7",
        "A k 0.001 - #18446744073709551615.4294967295",
        "A café%20bar 86400 31536000",
        "A #7 30 5 #7",
        "A - 1.5 0.1",
        "A %25%00%7F 1 1",
        "R k 1",
        "R k 9223372036854775807 #0",
        "K k 5 30 #7.1",
        "C k #7",
        "C k #7.2",
        "I k",
        "I #7",
        "W k 1",
        "W k 100000 #1",
        "L - 10",
        "L %2D 1 after=- #2",
        "L order: 5 after=order:9",
        "H 1",
        "H 1 id=0123456789abcdef0123456789abcdef",
        "H 1 name=%2D seen=5 auth=a%20b",
        "P",
        "P #5",
        "S",
    ] {
        assert_eq!(answer(line.as_bytes()), line);
    }
}
