//! Lines of the log that a client, a peer or a broken disk can bring about: a few at once, then one now and then with the
//! number of those that were left out, so that nobody fills a disk with them. What happens once a start, once a change
//! of role, or because an operator did something is said with `tracing` itself, and never left out.

use crate::engine::Time;
use crate::protocol::Millis;
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};

/// How many lines of one kind are written at once.
const AT_ONCE: u64 = 3;
/// How often one more may follow.
const EVERY: Millis = Millis(10_000);

/// Lets few lines of one kind pass.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Passed>);

#[derive(Debug)]
struct Passed {
    /// When it will be as if none had passed.
    forgotten: Time,
    left_out: u64,
}

impl Gate {
    pub(crate) const fn new() -> Gate {
        Gate(Mutex::new(Passed {
            forgotten: Time(0),
            left_out: 0,
        }))
    }

    /// Whether a line may be written, and how many were left out before it.
    pub(crate) fn pass(&self, now: Time) -> Option<u64> {
        let mut passed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if passed.forgotten > now.after(Millis(EVERY.0 * (AT_ONCE - 1))) {
            passed.left_out += 1;
            return None;
        }
        passed.forgotten = passed.forgotten.max(now).after(EVERY);
        Some(std::mem::take(&mut passed.left_out))
    }
}

/// Text that may have come from outside, without anything that moves the cursor of who reads it.
pub(crate) struct Plain<'a>(pub(crate) fmt::Arguments<'a>);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Escape<'a, 'f>(&'a mut fmt::Formatter<'f>);
        impl fmt::Write for Escape<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                text.chars().try_for_each(|letter| match letter {
                    letter if letter.is_control() => write!(self.0, "{}", letter.escape_default()),
                    letter => self.0.write_char(letter),
                })
            }
        }
        Escape(f).write_fmt(self.0)
    }
}

/// Writes a line of the level that comes first, unless there were too many from this very place.
macro_rules! now_and_then {
    ($level:ident, $($message:tt)+) => {{
        static GATE: $crate::node::log::Gate = $crate::node::log::Gate::new();
        match GATE.pass($crate::node::clock::now()) {
            None => {}
            Some(left_out) => {
                let message = $crate::node::log::Plain(format_args!($($message)+));
                match left_out {
                    0 => tracing::$level!("{message}"),
                    _ => tracing::$level!(left_out, "{message}"),
                }
            }
        }
    }};
}
pub(crate) use now_and_then;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_moves_no_cursor() {
        let text = format!("{}", Plain(format_args!("a{}é", "\r\n\x1b[2K\u{85}b")));
        assert_eq!(text, "a\\r\\n\\u{1b}[2K\\u{85}bé");
    }

    #[test]
    fn a_few_lines_pass_at_once_and_then_one_now_and_then_with_the_number_of_those_left_out() {
        let gate = Gate::new();
        let begin = Time(86_400_000_000);
        let at = |millis| gate.pass(begin.after(Millis(millis)));
        assert_eq!([at(0), at(0), at(0)], [Some(0); 3]);
        assert_eq!([at(0), at(1), at(9_999)], [None; 3]);
        assert_eq!(at(10_000), Some(3));
        assert_eq!([at(10_000), at(19_999)], [None; 2]);
        assert_eq!(at(20_000), Some(2));
        // After a while of silence a few pass again.
        assert_eq!([at(60_000), at(60_000), at(60_000)], [Some(0); 3]);
        assert_eq!(at(60_000), None);
    }
}
