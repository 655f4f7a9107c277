//! Shows what clients have named — keys, names, addresses — to people: whatever bytes they have, they
//! stay on their line and do nothing to a terminal. And tables whose columns stand in line.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Bytes as text that is safe to show: what is no text, does something or cannot be seen is written
/// `%XX`, as on the wire.
pub(crate) fn safe(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if is_harmless(letter) {
                shown.push(letter);
            } else {
                let mut buffer = [0; 4];
                escape(letter.encode_utf8(&mut buffer).as_bytes(), &mut shown);
            }
        }
        escape(chunk.invalid(), &mut shown);
    }
    shown
}

/// A key as it can be typed: as it is, or in quotes where a shell wants them. One that cannot be shown is written as on the
/// wire, `%XX` for what cannot be seen.
pub(crate) fn key(bytes: &[u8]) -> String {
    let shown = |letter| letter == ' ' || letter == '%' || is_harmless(letter);
    let Some(text) = str::from_utf8(bytes)
        .ok()
        .filter(|text| text.chars().all(shown))
    else {
        return safe(bytes);
    };
    let plain = |letter: char| letter.is_alphanumeric() || "%+,-./:=@_".contains(letter);
    if text.chars().all(plain) && !text.starts_with('=') {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A key in the quotes in which bash, zsh and ksh take any bytes. None for NUL, which no argument can hold.
pub(crate) fn key_in_bash(bytes: &[u8]) -> Option<String> {
    let mut shown = String::from("$'");
    for byte in bytes {
        match byte {
            0 => return None,
            b'\'' | b'\\' => shown.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => shown.push(char::from(*byte)),
            // Three digits always: what follows may be a digit too.
            // Writing to a string does not fail.
            _ => drop(write!(shown, "\\{byte:03o}")),
        }
    }
    shown.push('\'');
    Some(shown)
}

/// The bytes that are spelled so on the wire, if any `%XX` is in it.
pub(crate) fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let spelled = match first {
            b'%' => digit(behind.first()).zip(digit(behind.get(1))),
            _ => None,
        };
        match spelled {
            Some((high, low)) => {
                bytes.push(u8::try_from(high << 4 | low).ok()?);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    (bytes != text).then_some(bytes)
}

fn escape(bytes: &[u8], shown: &mut String) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(shown, "%{byte:02X}");
    }
}

/// Whether a letter can be shown as it is: no control character, no blank, nothing that changes the
/// direction of the text or takes no room.
fn is_harmless(letter: char) -> bool {
    let invisible = matches!(letter,
        '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E0FFF}');
    letter != '%' && !invisible && !letter.is_control() && !letter.is_whitespace()
}

/// A sentence with words in it that others chose, such as what a server says: blanks stay, and what would do something to a
/// terminal or turn the letters around it is spelled out.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            ' ' | '%' | '\n' => shown.push(letter),
            letter if is_harmless(letter) => shown.push(letter),
            letter => shown.extend(letter.escape_unicode()),
        }
    }
    shown
}

/// A client's name as people see it.
pub(crate) fn name(name: Option<&[u8]>) -> String {
    name.map_or_else(|| "-".to_owned(), safe)
}

/// Rows whose columns stand in line. The last column is not padded, so it is the place for what can
/// be long.
pub(crate) struct Table<const N: usize> {
    widths: [usize; N],
    numbers: [bool; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table with these headings; a column that stands to the right begins with `>`.
    pub(crate) fn new(headings: [&str; N]) -> Table<N> {
        let mut table = Table {
            widths: [0; N],
            numbers: headings.map(|heading| heading.starts_with('>')),
            rows: Vec::new(),
        };
        table.push(headings.map(|heading| heading.trim_start_matches('>').to_owned()));
        table
    }

    pub(crate) fn push(&mut self, row: [String; N]) {
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(row);
    }

    /// Writes the rows that have been collected; further ones keep at least the width of these.
    pub(crate) fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        for row in self.rows.drain(..) {
            for (column, cell) in row.iter().enumerate() {
                let padding = " ".repeat(self.widths[column].saturating_sub(cell.chars().count()));
                match (self.numbers[column], column + 1 == N) {
                    (true, true) => write!(out, "{padding}{cell}")?,
                    (true, false) => write!(out, "{padding}{cell}  ")?,
                    (false, true) => write!(out, "{cell}")?,
                    (false, false) => write!(out, "{cell}{padding}  ")?,
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_bytes_a_key_has_it_stays_on_its_line() {
        for (bytes, shown) in [
            (&b"order:42"[..], "order:42"),
            ("café/日本".as_bytes(), "café/日本"),
            (b"a b", "a%20b"),
            (b"100%", "100%25"),
            (b"line\nend\0", "line%0Aend%00"),
            (b"\x1b[31mred", "%1B[31mred"),
            (b"\xff\xfe", "%FF%FE"),
            (b"\xe2\x82", "%E2%82"),
            ("\u{202e}evil".as_bytes(), "%E2%80%AEevil"),
            ("\u{85}".as_bytes(), "%C2%85"),
            ("\u{a0}".as_bytes(), "%C2%A0"),
        ] {
            assert_eq!(safe(bytes), shown);
        }
        for byte in 0..=u8::MAX {
            assert!(
                safe(&[byte])
                    .chars()
                    .all(|letter| letter.is_ascii_graphic()),
                "{byte}"
            );
        }
    }

    #[test]
    fn a_key_is_shown_as_it_can_be_typed_and_spelled_out_only_where_it_cannot_be_seen() {
        for (bytes, shown) in [
            (&b"order:42"[..], "order:42"),
            ("café/日本".as_bytes(), "café/日本"),
            (b"key with spaces", "'key with spaces'"),
            (b"100%", "100%"),
            (b"it's $HOME", "'it'\\''s $HOME'"),
            (b"~/*", "'~/*'"),
            (b"=ls", "'=ls'"),
            (b"a b\nc", "a%20b%0Ac"),
            (b"\xff", "%FF"),
            ("\u{202e}evil".as_bytes(), "%E2%80%AEevil"),
        ] {
            assert_eq!(key(bytes), shown);
            let has_spelling = matches!(bytes, b"a b\nc" | b"\xff") || bytes.starts_with(b"\xe2");
            let spelled = has_spelling.then(|| bytes.to_vec());
            assert_eq!(unescape(shown.as_bytes()), spelled, "{shown}");
        }
        assert_eq!(unescape(b"100%2"), None);
        assert_eq!(
            key_in_bash(b"it's\n\xff1\\").as_deref(),
            Some("$'it\\'s\\012\\3771\\\\'")
        );
        assert_eq!(key_in_bash(b"a\0"), None);
    }

    #[test]
    fn a_sentence_with_words_of_others_moves_no_cursor_and_turns_no_letters() {
        assert_eq!(
            plain("100 % of \u{1b}[2K\r\u{9b}31m \u{202e}café\t\u{7}."),
            "100 % of \\u{1b}[2K\\u{d}\\u{9b}31m \\u{202e}café\\u{9}\\u{7}."
        );
    }

    #[test]
    fn columns_stand_in_line() {
        let mut table = Table::new([">N", "NAME", "KEY"]);
        table.push(["1".into(), "é".into(), "k".into()]);
        table.push(["10".into(), "longer".into(), "k2".into()]);
        let mut out = Vec::new();
        table.write(&mut out).expect("memory takes all");
        assert_eq!(
            String::from_utf8_lossy(&out),
            " N  NAME    KEY\n 1  é       k\n10  longer  k2\n"
        );
    }
}
