//! Fencing tokens: 32 bits term, 4 bits slot, 28 bits counter. As plain numbers they only ever rise.

use super::TermError;
use crate::protocol::Token;

const COUNTER_BITS: u32 = 28;
const COUNTER_END: u32 = 1 << COUNTER_BITS;
const TERM_SHIFT: u32 = 32;
/// Tokens stay below 2⁶³.
const TERM_END: u32 = 1 << 31;

/// Where tokens come from.
#[derive(Default)]
pub(super) struct Tokens {
    term: u32,
    slot: u8,
    counter: u32,
    next_term: Option<u32>,
    half_told: bool,
    /// Terms are opened that must not be.
    broken: bool,
    /// The highest token given out here or known from elsewhere.
    highest: u64,
}

/// What happened when a token was taken.
#[derive(Default)]
pub(super) struct Milestones {
    pub(super) opened: Option<u32>,
    pub(super) half_used: Option<u32>,
}

impl Tokens {
    pub(super) fn term(&self) -> u32 {
        self.term
    }

    pub(super) fn highest(&self) -> Option<Token> {
        Token::new(self.highest)
    }

    /// A token that was given out elsewhere.
    pub(super) fn saw(&mut self, token: Token) {
        self.highest = self.highest.max(token.get());
    }

    pub(super) fn open(&mut self, term: u32, slot: u8, start: u32) -> Result<(), TermError> {
        self.check(term)?;
        self.begin(term, slot, start);
        Ok(())
    }

    /// Opens a term whatever was opened before: wrong on purpose.
    pub(super) fn open_any(&mut self, term: u32, slot: u8, start: u32) {
        self.broken = true;
        self.begin(term, slot, start);
    }

    fn begin(&mut self, term: u32, slot: u8, start: u32) {
        assert!(slot < 16, "a slot has four bits");
        assert!(start < COUNTER_END, "a counter has 28 bits");
        self.term = term;
        self.slot = slot;
        self.counter = start;
        self.next_term = self.next_term.filter(|next| *next > term);
        self.half_told = false;
    }

    pub(super) fn provide(&mut self, term: u32) -> Result<(), TermError> {
        self.check(term)?;
        self.next_term = Some(term);
        Ok(())
    }

    /// The next token, if the term has one left or another term was provided.
    pub(super) fn take(&mut self, milestones: &mut Milestones) -> Option<Token> {
        if self.term == 0 || self.counter + 1 >= COUNTER_END {
            if self.term == 0 {
                return None;
            }
            // A term that was overtaken by copied tokens is of no use any more.
            let term = self.next_term.take()?;
            self.open(term, self.slot, 0).ok()?;
            milestones.opened = Some(term);
        }
        self.counter += 1;
        if self.counter >= COUNTER_END / 2 && !self.half_told {
            self.half_told = true;
            milestones.half_used = Some(self.term);
        }
        let slot = u64::from(self.slot) << COUNTER_BITS;
        let number = u64::from(self.term) << TERM_SHIFT | slot | u64::from(self.counter);
        let token = Token::new(number).expect("a term is neither 0 nor 2³¹");
        debug_assert!(number > self.highest || self.broken, "tokens only rise");
        self.highest = number;
        Some(token)
    }

    fn check(&self, term: u32) -> Result<(), TermError> {
        let current = self.term.max((self.highest >> TERM_SHIFT) as u32);
        if term <= current || term >= TERM_END {
            return Err(TermError { term, current });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNTER_END, Milestones, Tokens};
    use crate::engine::TermError;
    use crate::protocol::Token;

    fn take(tokens: &mut Tokens) -> (Option<u64>, Option<u32>, Option<u32>) {
        let mut milestones = Milestones::default();
        let token = tokens.take(&mut milestones).map(Token::get);
        (token, milestones.opened, milestones.half_used)
    }

    #[test]
    fn a_token_is_term_slot_and_counter() {
        let mut tokens = Tokens::default();
        assert_eq!(take(&mut tokens).0, None);
        tokens.open(7, 3, 0).expect("the first term");
        assert_eq!(take(&mut tokens).0, Some(7 << 32 | 3 << 28 | 1));
        assert_eq!(take(&mut tokens).0, Some(7 << 32 | 3 << 28 | 2));
        tokens.open(8, 0, 99).expect("a higher term");
        assert_eq!(take(&mut tokens).0, Some(8 << 32 | 100));
    }

    #[test]
    fn terms_only_rise_and_end() {
        let mut tokens = Tokens::default();
        tokens.open(7, 0, 0).expect("the first term");
        let refused = |term, current| Err(TermError { term, current });
        assert_eq!(tokens.open(7, 0, 0), refused(7, 7));
        assert_eq!(tokens.provide(6), refused(6, 7));
        assert_eq!(tokens.open(1 << 31, 0, 0), refused(1 << 31, 7));
        tokens.saw(Token::new(9 << 32).expect("a token"));
        assert_eq!(tokens.open(9, 0, 0), refused(9, 9));
        tokens
            .open((1 << 31) - 1, 15, COUNTER_END - 2)
            .expect("the last term");
        assert_eq!(take(&mut tokens).0, Some((1 << 63) - 1));
        assert_eq!(take(&mut tokens).0, None);
    }

    #[test]
    fn half_of_a_counter_is_told_once_and_the_next_term_follows_without_a_gap() {
        let mut tokens = Tokens::default();
        tokens
            .open(7, 1, COUNTER_END / 2 - 2)
            .expect("the first term");
        assert_eq!(take(&mut tokens).2, None);
        assert_eq!(take(&mut tokens).2, Some(7));
        assert_eq!(take(&mut tokens).2, None);

        tokens.open(8, 1, COUNTER_END - 2).expect("a higher term");
        tokens.provide(9).expect("a higher term");
        assert_eq!(
            take(&mut tokens),
            (Some(9 * (1 << 32) - (14 << 28) - 1), None, Some(8))
        );
        assert_eq!(
            take(&mut tokens),
            (Some(9 << 32 | 1 << 28 | 1), Some(9), None)
        );
    }

    #[test]
    fn a_counter_never_wraps() {
        let mut tokens = Tokens::default();
        tokens.open(7, 0, COUNTER_END - 3).expect("the first term");
        assert!(take(&mut tokens).0.is_some() && take(&mut tokens).0.is_some());
        assert_eq!((take(&mut tokens).0, take(&mut tokens).0), (None, None));
        tokens.provide(12).expect("a higher term");
        assert_eq!(take(&mut tokens).0, Some(12 << 32 | 1));
    }
}
