//! Spells tokens in decimal for one reply after the other. Most are the one before and one more, so most of the time
//! a single digit changes.

use super::number::Token;

/// The token that was spelled last.
#[derive(Debug)]
pub struct SpelledToken {
    number: u64,
    /// Its digits end where this ends.
    digits: [u8; DIGITS],
    begin: usize,
}

const DIGITS: usize = 19;

const _: () = assert!(super::limits::TOKEN_END.ilog10() < DIGITS as u32);

impl SpelledToken {
    /// Nothing has been spelled yet.
    #[must_use]
    pub fn new() -> SpelledToken {
        SpelledToken {
            number: 0,
            digits: [b'0'; DIGITS],
            begin: DIGITS - 1,
        }
    }

    /// The digits of a token, whichever came before.
    #[inline]
    pub fn spell(&mut self, token: Token) -> &[u8] {
        let number = token.get();
        let last = &mut self.digits[DIGITS - 1];
        if number == self.number + 1 && *last < b'9' {
            *last += 1;
        } else {
            self.spell_all(number);
        }
        self.number = number;
        &self.digits[self.begin..]
    }

    #[inline(never)]
    fn spell_all(&mut self, number: u64) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number).as_bytes();
        self.begin = DIGITS - digits.len();
        self.digits[self.begin..].copy_from_slice(digits);
    }
}

impl Default for SpelledToken {
    fn default() -> SpelledToken {
        SpelledToken::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::TOKEN_END;
    use super::*;

    #[test]
    fn spells_every_token_whichever_came_before() {
        let mut spelled = SpelledToken::new();
        let ends = [9, 10, 99, 100, 1 << 28, 10_u64.pow(18), TOKEN_END];
        let runs = ends.map(|end| end.saturating_sub(25).max(1)..(end + 25).min(TOKEN_END));
        for run in runs.clone().into_iter().chain(runs.into_iter().rev()) {
            // One after the other, and with each other one left out, back and twice.
            for number in run.clone().chain(run.clone().step_by(2)).chain(run.rev()) {
                let token = Token::new(number).expect("a token");
                for _ in 0..2 {
                    assert_eq!(spelled.spell(token), number.to_string().as_bytes());
                }
            }
        }
    }
}
