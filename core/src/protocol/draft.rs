//! Spells the two requests that make up nearly all traffic, in their plainest form: at once in
//! the place where they go, numbers eight digits at a time. What does not fit there is left to [`Request::encode`](super::Request::encode).

use super::key::KeyRef;
use super::number::{Millis, Tag, Token, Wait};
use super::word::{eight_digits, three};

/// Longer than every line that is spelled here.
const LONGEST: usize = 96;
/// A key of so many bytes is moved in whole words.
const KEY_LONGEST: usize = 24;

const EIGHT: u64 = 100_000_000;

/// The acquire as a line with its end, if it is a plain one.
#[inline]
pub(super) fn acquire(
    key: KeyRef<'_>,
    lease: Millis,
    wait: Wait,
    tag: Option<Tag>,
    out: &mut Vec<u8>,
) -> bool {
    let seconds = lease.0 / 1000;
    let wait = match wait {
        Wait::Forever => b'0',
        Wait::No => b'-',
        Wait::For(_) => return false,
    };
    let plain =
        lease.0.is_multiple_of(1000) && seconds < EIGHT && key.spelling().len() <= KEY_LONGEST;
    let Some(tag) = tag.filter(|tag| plain && tag.attempt == 0) else {
        return false;
    };
    let mut draft = Draft::new(b'A', key, out);
    draft.short_number(seconds);
    draft.put([b' ', wait]);
    draft.end(tag.number);
    true
}

/// The release as a line with its end, if it is a plain one.
#[inline]
pub(super) fn release(key: KeyRef<'_>, token: Token, tag: Option<Tag>, out: &mut Vec<u8>) -> bool {
    let plain = key.spelling().len() <= KEY_LONGEST;
    let Some(tag) = tag.filter(|tag| plain && tag.attempt == 0) else {
        return false;
    };
    let mut draft = Draft::new(b'R', key, out);
    draft.number(token.get());
    draft.end(tag.number);
    true
}

/// Room behind what `out` holds already. Nothing is put together elsewhere and moved: to read whole words right behind the bytes that
/// they consist of would take longer than all the rest.
struct Draft<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    at: usize,
}

impl Draft<'_> {
    #[inline(always)]
    fn new<'a>(letter: u8, key: KeyRef<'_>, out: &'a mut Vec<u8>) -> Draft<'a> {
        let key = key.spelling();
        let start = out.len();
        out.extend_from_slice(&[0; LONGEST]);
        let mut draft = Draft { out, start, at: 0 };
        draft.put([letter, b' ']);
        for word in three(key) {
            draft.put(word);
        }
        draft.at = 2 + key.len();
        draft.put([b' ']);
        draft
    }

    #[inline(always)]
    fn put<const COUNT: usize>(&mut self, bytes: [u8; COUNT]) {
        let begin = self.start + self.at;
        self.out[begin..begin + COUNT].copy_from_slice(&bytes);
        self.at += COUNT;
    }

    /// A number of at most eight digits.
    #[inline(always)]
    fn short_number(&mut self, number: u64) {
        let (digits, zeros) = eight_digits(number);
        self.put((digits >> (8 * zeros)).to_le_bytes());
        self.at -= zeros;
    }

    #[inline(always)]
    fn all_eight(&mut self, number: u64) {
        self.put(eight_digits(number).0.to_le_bytes());
    }

    #[inline(always)]
    fn number(&mut self, number: u64) {
        if number < EIGHT {
            return self.short_number(number);
        }
        let (above, last) = (number / EIGHT, number % EIGHT);
        if above < EIGHT {
            self.short_number(above);
        } else {
            self.short_number(above / EIGHT);
            self.all_eight(above % EIGHT);
        }
        self.all_eight(last);
    }

    #[inline(always)]
    fn end(mut self, tag: u64) {
        self.put([b' ', b'#']);
        self.number(tag);
        self.put([b'\n']);
        self.out.truncate(self.start + self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Key, Request};
    use super::*;

    /// Method: every length of a key and of each number, with all digits and with one; what is spelled in one go is what the line
    /// says field by field.
    #[test]
    fn a_line_that_is_spelled_in_one_go_says_the_same() {
        let mut numbers = vec![1, 9, EIGHT - 1, EIGHT, u64::MAX / 2, u64::MAX / 2 - 1];
        for digits in 1..19 {
            let power = 10_u64.pow(digits);
            numbers.extend([power - 1, power, power + 1, power * 9 / 8]);
        }
        for length in 1..=40 {
            let key = Key::encode("k".repeat(length).as_bytes()).expect("a key");
            let key = key.as_ref();
            let text = "k".repeat(length);
            for number in &numbers {
                for other in &numbers {
                    let tag = Some(Tag::first(*other));
                    let token = Token::new(*number).expect("below the end");
                    let mut line = Vec::new();
                    assert_eq!(release(key, token, tag, &mut line), length <= KEY_LONGEST);
                    Request::Release { key, token, tag }.encode(&mut line);
                    let said = format!("R {text} {number} #{other}\n");
                    let twice = said.repeat(1 + usize::from(length <= KEY_LONGEST));
                    assert_eq!(String::from_utf8_lossy(&line), twice);
                }
                for (wait, spelled) in [(Wait::Forever, '0'), (Wait::No, '-')] {
                    for lease in [1, 30, 31_536_000] {
                        let tag = Some(Tag::first(*number));
                        let mut line = Vec::new();
                        let lease_ms = Millis(lease * 1000);
                        let spelt = acquire(key, lease_ms, wait, tag, &mut line);
                        assert_eq!(spelt, length <= KEY_LONGEST);
                        let said = format!("A {text} {lease} {spelled} #{number}\n");
                        if spelt {
                            assert_eq!(String::from_utf8_lossy(&line), said);
                        }
                    }
                }
            }
        }
        let key = Key::encode(b"k").expect("a key");
        let tag = Tag {
            number: 1,
            attempt: 1,
        };
        let mut line = Vec::new();
        let key = key.as_ref();
        assert!(!acquire(
            key,
            Millis(1500),
            Wait::No,
            Some(Tag::first(1)),
            &mut line
        ));
        assert!(!acquire(key, Millis(1000), Wait::No, Some(tag), &mut line));
        assert!(!acquire(key, Millis(1000), Wait::No, None, &mut line));
        assert!(!acquire(
            key,
            Millis(1000),
            Wait::For(Millis(1)),
            Some(Tag::first(1)),
            &mut line
        ));
        assert!(line.is_empty());
    }
}
