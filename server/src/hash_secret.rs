//! `fairlock hash-secret`: reads a secret and prints the line that stands for it in a users file. The secret comes from
//! standard input, never from an argument, and is not shown where it is typed.

use crate::exit::{self, Failure, tell};
use fairlock::node::hash_secret;
use fairlock::protocol::limits;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Read, Stdin, Write};

/// The longest secret beside a name of one letter.
const LONGEST: usize = limits::SECRET_BYTES - 2;
/// What Ctrl+C exits with elsewhere.
const INTERRUPTED: i32 = 2;

/// Reads, hashes, prints.
pub(crate) fn run() -> Result<u8, Failure> {
    let input = io::stdin();
    let secret = if input.is_terminal() {
        type_twice(&input)?
    } else {
        read(&input)?
    };
    if !(1..=LONGEST).contains(&secret.len()) {
        let length = secret.len();
        return Err(Failure::usage(format_args!(
            "a secret has 1 to {LONGEST} bytes, this one has {length}"
        )));
    }
    let hash = hash_secret(&secret).map_err(cannot)?;
    writeln!(io::stdout(), "secret_hash = \"{hash}\"")?;
    Ok(exit::OK)
}

fn cannot(error: io::Error) -> Failure {
    Failure::new(
        exit::FAILED,
        format_args!("cannot hash the secret: {error}"),
    )
}

fn cannot_read(error: io::Error) -> Failure {
    Failure::new(
        exit::FAILED,
        format_args!("cannot read the secret: {error}"),
    )
}

/// All of a pipe or file; a line end after it does not count, as in a secret file.
fn read(input: &Stdin) -> Result<Vec<u8>, Failure> {
    let mut secret = Vec::new();
    // Two bytes for the line end, and one that is too much.
    let most = LONGEST as u64 + 3;
    input
        .lock()
        .take(most)
        .read_to_end(&mut secret)
        .map_err(cannot_read)?;
    if secret.ends_with(b"\n") {
        secret.pop();
        if secret.ends_with(b"\r") {
            secret.pop();
        }
    }
    Ok(secret)
}

fn type_twice(input: &Stdin) -> Result<Vec<u8>, Failure> {
    let quiet = Quiet::new(input).map_err(cannot_read)?;
    let secret = type_once(input, "secret: ")?;
    let again = type_once(input, "the same again: ")?;
    drop(quiet);
    if secret != again {
        return Err(Failure::usage("the two are not the same"));
    }
    Ok(secret)
}

/// One line, as it is typed: with the keys that take letters back, and Ctrl+C.
fn type_once(input: &Stdin, prompt: &str) -> Result<Vec<u8>, Failure> {
    let mut out = io::stderr();
    let show = |out: &mut io::Stderr, text: &str| {
        let _ = out.write_all(text.as_bytes());
        let _ = out.flush();
    };
    show(&mut out, prompt);
    let mut line = Vec::new();
    for byte in input.lock().bytes() {
        match byte.map_err(cannot_read)? {
            b'\r' | b'\n' | 4 => break,
            3 => {
                show(&mut out, "\n");
                return Err(Failure::signal(INTERRUPTED));
            }
            8 | 0x7f => {
                // A letter may be several bytes.
                while line.pop().is_some_and(|byte| byte & 0xC0 == 0x80) {}
            }
            0x15 => line.clear(),
            byte => line.push(byte),
        }
    }
    show(&mut out, "\n");
    Ok(line)
}

/// A terminal that shows nothing of what is typed and passes each key on, until this is dropped.
struct Quiet<'a> {
    terminal: &'a Stdin,
    before: Termios,
}

impl Quiet<'_> {
    fn new(terminal: &Stdin) -> io::Result<Quiet<'_>> {
        let before = tcgetattr(terminal)?;
        let mut modes = before.clone();
        // Without signals, so that none ends this process while the terminal is so.
        modes.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal, OptionalActions::Flush, &modes)?;
        Ok(Quiet { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(self.terminal, OptionalActions::Now, &self.before) {
            tell(format_args!(
                "the terminal stays quiet ({error}); `stty sane` helps"
            ));
        }
    }
}
