//! Reads the two requests that make up nearly all traffic, and the replies to them, without looking for the end of their line
//! first: each byte is passed once. What is not spelled in the plainest way is left to
//! [`split`](super::split), [`Request::parse`] and [`Reply::parse`], and so is every flaw.

use super::key::KeyRef;
use super::limits;
use super::number::{Millis, Tag, Token, Wait};
use super::reply::Reply;
use super::request::Request;
use super::word;

impl<'a> Request<'a> {
    /// The acquire or release that `bytes` begin with, and the length of its line with the end, if it
    /// can be read in one go. `None` says nothing about the line: then read it the careful way.
    #[must_use]
    pub fn parse_ahead(bytes: &'a [u8]) -> Option<(Request<'a>, usize)> {
        let [letter @ (b'A' | b'R'), b' ', ..] = bytes else {
            return None;
        };
        let end = word::text_end(bytes, 2);
        let key = KeyRef::of_plain_text(bytes.get(2..end)?)?;
        let mut ahead = Ahead { bytes, at: end };
        ahead.space()?;
        let request = if *letter == b'A' {
            let lease = Millis::of_seconds(ahead.seconds()?)?;
            ahead.space()?;
            let wait = ahead.wait()?;
            let tag = ahead.tag()?;
            Request::Acquire {
                key,
                lease,
                wait,
                tag,
            }
        } else {
            let token = Token::new(ahead.number()?)?;
            let tag = ahead.tag()?;
            Request::Release { key, token, tag }
        };
        (bytes.get(ahead.at) == Some(&b'\n')).then_some((request, ahead.at + 1))
    }
}

impl<'a> Reply<'a> {
    /// The same for a client, of the grant or the release that went well.
    #[must_use]
    #[inline]
    pub fn parse_ahead(bytes: &'a [u8]) -> Option<(Reply<'a>, usize)> {
        let [letter @ (b'A' | b'R'), b' ', ..] = bytes else {
            return None;
        };
        let end = word::text_end(bytes, 2);
        let key = KeyRef::of_plain_text(bytes.get(2..end)?)?;
        let mut ahead = Ahead { bytes, at: end };
        ahead.space()?;
        let reply = if *letter == b'A' {
            let token = Token::new(ahead.number()?)?;
            let tag = ahead.tag()?;
            Reply::Granted { key, token, tag }
        } else {
            let [b'o', b'k', ..] = bytes.get(ahead.at..)? else {
                return None;
            };
            ahead.at += 2;
            let tag = ahead.tag()?;
            Reply::Released { key, ok: true, tag }
        };
        (bytes.get(ahead.at) == Some(&b'\n')).then_some((reply, ahead.at + 1))
    }
}

struct Ahead<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Ahead<'_> {
    #[inline(always)]
    fn space(&mut self) -> Option<()> {
        let found = self.bytes.get(self.at) == Some(&b' ');
        self.at += 1;
        found.then_some(())
    }

    /// A number without a leading zero.
    #[inline(always)]
    fn number(&mut self) -> Option<u64> {
        let start = self.at;
        let (number, end) = word::number(self.bytes, start);
        self.at = end;
        let zero_first = self.bytes.get(start) == Some(&b'0');
        let is_number = end == start + 1 || (end > start && !zero_first);
        is_number.then_some(number)
    }

    /// A number of one to nine digits without a leading zero: so few digits are read faster one by one.
    #[inline(always)]
    fn seconds(&mut self) -> Option<u64> {
        let start = self.at;
        let mut seconds: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.bytes.get(self.at) {
            seconds = seconds * 10 + u64::from(digit - b'0');
            self.at += 1;
            if self.at > start + 9 {
                return None;
            }
        }
        let zero_first = self.bytes.get(start) == Some(&b'0');
        let is_number = self.at == start + 1 || (self.at > start && !zero_first);
        is_number.then_some(seconds)
    }

    #[inline(always)]
    fn wait(&mut self) -> Option<Wait> {
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
            return Some(Wait::No);
        }
        match self.seconds()? {
            0 => Some(Wait::Forever),
            seconds => Millis::of_seconds(seconds).map(Wait::For),
        }
    }

    /// The tag in the last place; the inner `None` where the line ends instead.
    #[inline(always)]
    #[allow(clippy::option_option)]
    fn tag(&mut self) -> Option<Option<Tag>> {
        let [b' ', b'#', ..] = self.bytes.get(self.at..)? else {
            return Some(None);
        };
        self.at += 2;
        Some(Some(Tag::first(self.number()?)))
    }
}

const _: () = assert!(
    limits::KEY_BYTES + 100 < limits::LINE_BYTES,
    "what is read ahead is never longer than a line may be"
);

#[cfg(test)]
mod tests {
    use super::super::{Split, split};
    use super::*;

    /// Method: lines put together from good and bad pieces, each also cut off at every place; what is
    /// read ahead has to be what is read with care.
    #[test]
    fn what_is_read_ahead_is_what_the_line_says() {
        let keys = ["k", "", "order:42", "a%20b", "a\x7F", "café", "#1", "-"];
        let numbers = [
            "0",
            "1",
            "30",
            "007",
            "-",
            "0.5",
            "31536000",
            "31536001",
            "12345678",
            "",
            "9223372036854775807",
            "9223372036854775808",
            "99999999999999999999",
            "+1",
            "5x",
        ];
        let tags = [
            "",
            " #7",
            " #0",
            " #07",
            " #7.1",
            " #",
            " #99999999999999999999",
            " ",
            "\r",
            " x",
        ];
        let long = "k".repeat(limits::KEY_BYTES);
        let too_long = "k".repeat(limits::KEY_BYTES + 1);
        let keys = keys.into_iter().chain([&*long, &*too_long]);
        let mut ahead = 0;
        let mut check = |line: &str| {
            let bytes = line.as_bytes();
            let careful = match split(bytes) {
                Split::Line { line, used } => {
                    Request::parse(line).ok().map(|request| (request, used))
                }
                Split::Partial | Split::TooLong => None,
            };
            if let Some(read) = Request::parse_ahead(bytes) {
                assert_eq!(Some(read), careful, "{line:?}");
                ahead += 1;
            }
        };
        for key in keys {
            for number in numbers {
                for tag in tags {
                    for behind in ["", "A", "R k 5\nA k 30 0\n"] {
                        check(&format!("R {key} {number}{tag}\n{behind}"));
                        for wait in numbers {
                            check(&format!("A {key} {number} {wait}{tag}\n{behind}"));
                        }
                    }
                }
            }
        }
        let line = "A order:42 30 5 #17\n";
        for end in 0..line.len() {
            assert_eq!(Request::parse_ahead(&line.as_bytes()[..end]), None);
        }
        assert!(ahead > 1000, "{ahead}");
    }

    #[test]
    fn what_is_read_ahead_is_what_the_reply_says() {
        let long = "k".repeat(limits::KEY_BYTES);
        let too_long = "k".repeat(limits::KEY_BYTES + 1);
        let keys = ["k", "", "order:42", "a%20b", "a\x7F", "café", "#1", "-"];
        let keys = keys.into_iter().chain([&*long, &*too_long]);
        let words = [
            "1",
            "0",
            "007",
            "",
            "-",
            "5x",
            "123695058124800001",
            "9223372036854775807",
            "9223372036854775808",
            "99999999999999999999",
            "ok",
            "okay",
            "o",
            "stale",
            "none",
        ];
        let tags = [
            "",
            " #7",
            " #0",
            " #07",
            " #7.1",
            " #",
            " #99999999999999999999",
            " ",
            "\r",
            " #7\r",
            " x",
        ];
        let mut ahead = 0;
        for key in keys {
            for word in words {
                for tag in tags {
                    for behind in ["", "A", "R k ok #5\n"] {
                        for letter in ["A", "R", "K", "AA", ""] {
                            let line = format!("{letter} {key} {word}{tag}\n{behind}");
                            let careful = match split(line.as_bytes()) {
                                Split::Line { line, used } => {
                                    Reply::parse(line).map(|reply| (reply, used))
                                }
                                Split::Partial | Split::TooLong => None,
                            };
                            if let Some(read) = Reply::parse_ahead(line.as_bytes()) {
                                assert_eq!(Some(read), careful, "{line:?}");
                                ahead += 1;
                            }
                        }
                    }
                }
            }
        }
        assert!(ahead > 100, "{ahead}");
        for line in ["A order:42 123695058124800001 #17\n", "R order:42 ok #17\n"] {
            assert!(Reply::parse_ahead(line.as_bytes()).is_some());
            for end in 0..line.len() {
                assert_eq!(Reply::parse_ahead(&line.as_bytes()[..end]), None);
            }
        }
    }
}
