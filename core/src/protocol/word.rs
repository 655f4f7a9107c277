//! Reads a line eight bytes at a time. What is looked for (the end of a text, the digits of a number)
//! is marked in all eight at once, and the first mark tells its place.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The first byte at or behind `at` that has to be escaped, a space included; or the end of the line.
#[inline(always)]
pub(super) fn text_end(line: &[u8], mut at: usize) -> usize {
    loop {
        let word = word(line, at);
        // Zeros stand behind the end of the line, and they count as control bytes.
        let marks = below_0x21(word) | equal(word, b'%') | equal(word, 0x7F);
        if marks != 0 {
            return at + first_mark(marks);
        }
        at += 8;
    }
}

/// The number whose digits begin at `at`, and where it ends. At most nineteen digits are read, which
/// always fit.
#[inline(always)]
pub(super) fn number(line: &[u8], at: usize) -> (u64, usize) {
    let (first, count) = digits(word(line, at));
    if count < 8 {
        return (first, at + count);
    }
    long_number(first, line, at + 8)
}

#[inline(never)]
fn long_number(first: u64, line: &[u8], at: usize) -> (u64, usize) {
    let (second, count) = digits(word(line, at));
    let number = first * POWERS[count] + second;
    if count < 8 {
        return (number, at + count);
    }
    let (third, count) = digits(word(line, at + 8) & 0xFF_FFFF);
    (number * POWERS[count] + third, at + 8 + count)
}

/// The first byte `wanted` at or behind `at`.
#[inline]
pub(super) fn find(bytes: &[u8], mut at: usize, wanted: u8) -> Option<usize> {
    while at < bytes.len() {
        let marks = equal(word(bytes, at), wanted);
        if marks != 0 {
            return Some(at + first_mark(marks));
        }
        at += 8;
    }
    None
}

/// The first three words of a text, with zeros behind its end.
#[inline(always)]
pub(super) fn three(text: &[u8]) -> [[u8; 8]; 3] {
    let [first, second, third] = [word(text, 0), word(text, 8), word(text, 16)];
    [
        first.to_le_bytes(),
        second.to_le_bytes(),
        third.to_le_bytes(),
    ]
}

/// The eight digits of a number below 10⁸, zeros in front of it included, the first one lowest; and how many of them are zeros in
/// front, at most seven.
#[inline(always)]
pub(super) fn eight_digits(number: u64) -> (u64, usize) {
    // Two fours of digits, then pairs, then single ones, each in a lane of its own.
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007F_0000_007F;
    let pairs = hundreds | ((fours - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000F_000F_000F_000F;
    let digits = tens | ((pairs - 10 * tens) << 8);
    let zeros = first_mark(digits | (1 << 56));
    (digits | (ONES * b'0' as u64), zeros)
}

const POWERS: [u64; 9] = [
    1,
    10,
    100,
    1000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// Eight bytes from `at` on, the first one lowest, with zeros behind the end.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    if let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        return u64::from_le_bytes(*eight);
    }
    match bytes.last_chunk() {
        Some(last) if at < bytes.len() => u64::from_le_bytes(*last) >> (8 * (at + 8 - bytes.len())),
        Some(_) => 0,
        None => short_word(bytes.get(at..).unwrap_or_default()),
    }
}

#[cold]
fn short_word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Marks bytes below 0x21. Above the first mark there may be false ones, here and in [`equal`].
#[inline(always)]
fn below_0x21(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x21) & !word & HIGH_BITS
}

#[inline(always)]
fn equal(word: u64, byte: u8) -> u64 {
    let zero_where_equal = word ^ (ONES * byte as u64);
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & HIGH_BITS
}

#[inline(always)]
fn first_mark(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

/// The number that the digits at the beginning of `word` spell, and how many they are.
#[inline(always)]
fn digits(word: u64) -> (u64, usize) {
    let values = word ^ (ONES * b'0' as u64);
    let no_digits = (values.wrapping_add(ONES * 0x76) | values) & HIGH_BITS;
    let count = first_mark(no_digits);
    if count == 0 {
        return (0, 0);
    }
    // Zeros in front of the digits, then pairs, fours and eights of them are put together.
    let values = values << (64 - 8 * count);
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
    let high = (pairs & 0x0000_00FF_0000_00FF).wrapping_mul(100 + (1_000_000 << 32));
    let low = (pairs >> 16 & 0x0000_00FF_0000_00FF).wrapping_mul(1 + (10_000 << 32));
    (high.wrapping_add(low) >> 32, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: compared with the plain way, at every place of lines of every short length.
    #[test]
    fn finds_what_a_loop_over_bytes_finds() {
        let mut random = 7_u64;
        for length in 0..40 {
            for _ in 0..2000 {
                let line: Vec<u8> = (0..length)
                    .map(|_| {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        match random >> 60 {
                            0 => b" %\x7F\n\0\x1F\x21\x80\x7E\xFF"[(random >> 40) as usize % 10],
                            1 => (random >> 40) as u8,
                            2 => b'a',
                            _ => b'0' + ((random >> 40) % 10) as u8,
                        }
                    })
                    .collect();
                for at in 0..=length {
                    let ends = |byte: &u8| *byte <= 0x20 || *byte == 0x7F || *byte == b'%';
                    let text = line[at..].iter().position(ends).map_or(length, |n| at + n);
                    assert_eq!(text_end(&line, at), text);
                    let lf = line[at..].iter().position(|byte| *byte == b'\n');
                    assert_eq!(find(&line, at, b'\n'), lf.map(|n| at + n));
                    let digits = line[at..].iter().take(19);
                    let digits: Vec<u8> = digits.copied().take_while(u8::is_ascii_digit).collect();
                    let value = digits
                        .iter()
                        .fold(0, |n, digit| n * 10 + u64::from(digit - b'0'));
                    assert_eq!(number(&line, at), (value, at + digits.len()));
                }
            }
        }
    }
}
