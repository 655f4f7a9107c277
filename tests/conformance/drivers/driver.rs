//! The driver in Rust: does what each line of its standard input says and prints what the caller got.
//! It decides nothing about locks; the drivers in the other languages read the same lines and print the same.
//!
//! Every call is a future on a thread of its own, and cancelling drops the future: callbacks and blocking
//! calls are what the other languages use.

use fairlock::{Client, Error, ErrorKind, Fence, FollowMoves, Lock, LostReason, Token};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// One play: its client and what the client holds.
#[derive(Default)]
struct Play {
    number: String,
    client: Option<Client>,
    locks: Arc<Mutex<HashMap<String, Arc<Lock>>>>,
    calls: HashMap<String, Arc<Call>>,
    fence: Fence,
}

/// A command: its words without the play's number.
struct Command<'a> {
    verb: &'a str,
    op: &'a str,
    arguments: Vec<&'a str>,
}

fn main() {
    let mut plays: HashMap<String, Play> = HashMap::new();
    say("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut words = line.split(' ');
        let number = words.next().unwrap_or_default().to_owned();
        let command = Command {
            verb: words.next().unwrap_or_default(),
            op: words.next().unwrap_or_default(),
            arguments: words.collect(),
        };
        if command.verb == "end" {
            // Closed, so that it does not go on connecting to a server that is gone.
            if let Some(client) = plays.remove(&number).and_then(|play| play.client) {
                client.close().submit(|_| ());
            }
            continue;
        }
        let play = plays.entry(number.clone()).or_insert_with(|| Play {
            number,
            ..Play::default()
        });
        play.obey(&command);
    }
}

impl Play {
    fn obey(&mut self, command: &Command<'_>) {
        let say = self.voice(command.op);
        match command.verb {
            "open" => self.open(command),
            "acquire" => self.acquire(command),
            "try" => self.try_acquire(command),
            "cancel" => {
                if let Some(call) = self.calls.get(command.op) {
                    call.cancel();
                }
            }
            "release" => {
                let release = self.lock(command).release();
                self.run(command.op, release, |held| format!("released {held}"));
            }
            "keep" => {
                let lock = self.lock(command);
                let call = match command.time("lease") {
                    Some(lease) => lock.keep_for(lease),
                    None => lock.keep(),
                };
                self.run(command.op, call, |()| "kept".to_owned());
            }
            "remaining" => say(&format!(
                "remaining {}",
                self.lock(command).remaining().as_millis()
            )),
            "held" => say(&format!("held {}", self.lock(command).is_held())),
            "leave" => {
                self.take(command);
                say("left");
            }
            "fail" => {
                let scope = |_lock: Arc<Lock>| -> Result<(), &'static str> { Err("body") };
                if let Err(error) = scope(self.take(command)) {
                    say(&format!("failed {error}"));
                }
            }
            "fence" => {
                let token = command.arguments[1].parse().ok().and_then(Token::new);
                let token = token.expect("the play names a token");
                match self.fence.check(command.key(), token) {
                    Ok(()) => say("passed"),
                    Err(error) => say(&spell(&error)),
                }
            }
            "close" => {
                let close = self.client().close();
                self.run(command.op, close, |()| "closed".to_owned());
            }
            other => say(&format!("unknown verb {other}")),
        }
    }

    fn open(&mut self, command: &Command<'_>) {
        let mut builder = Client::builder().servers(command.option("servers").unwrap_or_default());
        if let Some(name) = command.option("name") {
            builder = builder.name(decode(name));
        }
        if let Some(secret) = command.option("secret") {
            builder = builder.secret(decode(secret));
        }
        if let Some(time) = command.time("connect_timeout") {
            builder = builder.connect_timeout(time);
        }
        if let Some(time) = command.time("retry_for") {
            builder = builder.retry_for(time);
        }
        if command.option("follow_moves") == Some("listed") {
            builder = builder.follow_moves(FollowMoves::Listed);
        }
        let say = self.voice(command.op);
        match builder.build() {
            Ok(client) => {
                self.client = Some(client);
                say("open");
            }
            Err(error) => say(&spell(&error)),
        }
    }

    fn acquire(&mut self, command: &Command<'_>) {
        let lost = self.lost_voice(command.op);
        let mut acquire = self.client().acquire(command.key()).on_lost(lost);
        if let Some(lease) = command.time("lease") {
            acquire = acquire.lease(lease);
        }
        if let Some(wait) = command.time("wait") {
            acquire = acquire.wait(wait);
        }
        if command.says("keep_alive") {
            acquire = acquire.keep_alive();
        }
        if let Some(time) = command.time("max_hold") {
            acquire = acquire.max_hold(time);
        }
        let granted = self.granted(command.op);
        self.run(command.op, acquire, |lock| granted(Some(lock)));
    }

    fn try_acquire(&mut self, command: &Command<'_>) {
        let lost = self.lost_voice(command.op);
        let mut acquire = self.client().try_acquire(command.key()).on_lost(lost);
        if let Some(lease) = command.time("lease") {
            acquire = acquire.lease(lease);
        }
        if command.says("keep_alive") {
            acquire = acquire.keep_alive();
        }
        let granted = self.granted(command.op);
        self.run(command.op, acquire, granted);
    }

    /// Awaits a call on a thread of its own and says how it ended.
    fn run<T>(
        &mut self,
        op: &str,
        call: impl IntoFuture<Output = Result<T, Error>> + Send + 'static,
        spell_out: impl FnOnce(T) -> String + Send + 'static,
    ) {
        let say = self.voice(op);
        let (told, tell) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let own = Arc::new(Call {
                thread: thread::current(),
                cancelled: AtomicBool::new(false),
            });
            let _ = told.send(own.clone());
            match own.wait_for(call.into_future()) {
                Some(Ok(value)) => say(&spell_out(value)),
                Some(Err(error)) => say(&spell(&error)),
                None => say("error cancelled"),
            }
        });
        if let Ok(call) = tell.recv() {
            self.calls.insert(op.to_owned(), call);
        }
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("a play opens its client first")
    }

    fn lock(&self, command: &Command<'_>) -> Arc<Lock> {
        let locks = self.locks.lock().expect("no holder panics");
        locks[command.arguments[0]].clone()
    }

    fn take(&self, command: &Command<'_>) -> Arc<Lock> {
        let mut locks = self.locks.lock().expect("no holder panics");
        locks
            .remove(command.arguments[0])
            .expect("a play takes what was granted")
    }

    /// Says something about an operation.
    fn voice(&self, op: &str) -> impl Fn(&str) + Send + use<> {
        let begin = format!("{} {op}", self.number);
        move |text| say(&format!("{begin} {text}"))
    }

    fn lost_voice(&self, op: &str) -> impl FnOnce(LostReason) + Send + use<> {
        let say = self.voice(op);
        move |reason| say(&format!("lost {reason}"))
    }

    fn granted(&self, op: &str) -> impl FnOnce(Option<Lock>) -> String + Send + use<> {
        let (locks, op) = (self.locks.clone(), op.to_owned());
        move |lock| match lock {
            Some(lock) => {
                let text = format!("granted {} {}", encode(lock.key()), lock.token());
                let mut locks = locks.lock().expect("no holder panics");
                locks.insert(op, Arc::new(lock));
                text
            }
            None => "none".to_owned(),
        }
    }
}

/// A call under way on a thread of its own.
struct Call {
    thread: Thread,
    cancelled: AtomicBool,
}

impl Call {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// The future's value; none if it was cancelled, which drops the future.
    fn wait_for<F: Future>(self: &Arc<Self>, future: F) -> Option<F::Output> {
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        while !self.cancelled.load(Ordering::Acquire) {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return Some(value);
            }
            thread::park();
        }
        None
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.thread.unpark();
    }
}

impl Command<'_> {
    fn key(&self) -> Vec<u8> {
        decode(self.arguments[0])
    }

    fn says(&self, word: &str) -> bool {
        self.arguments.contains(&word)
    }

    fn option(&self, name: &str) -> Option<&str> {
        let mut all = std::iter::once(self.op).chain(self.arguments.iter().copied());
        all.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// A time in milliseconds.
    fn time(&self, name: &str) -> Option<Duration> {
        let ms = self.option(name)?.parse().expect("the play names a number");
        Some(Duration::from_millis(ms))
    }
}

fn say(line: &str) {
    // Without anybody who listens the runner has ended, and so does this program.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn spell(error: &Error) -> String {
    let kind = match error.kind() {
        ErrorKind::WaitTimeout => "wait_timeout",
        ErrorKind::ConnectionFailed => "connection_failed",
        ErrorKind::InvalidArgument => "invalid_argument",
        ErrorKind::Refused { code } => return format!("error refused {code}"),
        ErrorKind::LockLost { reason } => return format!("error lock_lost {reason}"),
        ErrorKind::ReleaseUnconfirmed => "release_unconfirmed",
        ErrorKind::StaleToken => "stale_token",
        ErrorKind::Closed => "closed",
        ErrorKind::Forked => "forked",
        ErrorKind::Cancelled => "cancelled",
        other => return format!("error {other:?}"),
    };
    format!("error {kind}")
}

fn decode(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut digit = || {
            let digit = bytes
                .next()
                .map(char::from)
                .and_then(|digit| digit.to_digit(16));
            digit.expect("the play escapes with two hex digits")
        };
        out.push(match byte {
            b'%' => (digit() << 4 | digit()) as u8,
            byte => byte,
        });
    }
    out
}

fn encode(key: &[u8]) -> String {
    let mut out = Vec::new();
    for byte in key {
        match byte {
            0..=0x20 | 0x7F | b'%' => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            byte => out.push(*byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
