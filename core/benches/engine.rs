//! What the lock rules cost by themselves: nanoseconds a step, bytes a key and a waiter.
//! `cargo bench -p fairlock --features server --bench engine`

// Counting what is allocated takes an allocator, and that cannot be written without `unsafe`.
#![allow(unsafe_code)]

use fairlock::engine::{Answer, ConnectionId, Effect, Engine, EngineSettings, Grant, Time};
use fairlock::protocol::{ClientId, KeyRef, Millis, NameRef, Tag, Wait};
use rustix::time::{ClockId, clock_gettime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LEASE: Millis = Millis(30_000);
const MILLION: usize = 1_000_000;

fn main() {
    if std::env::args().any(|argument| argument == "pairs") {
        return batches();
    }
    uncontended();
    one_key();
    among_a_million();
    hand_over();
    keep();
    memory();
    expire_a_million();
    lose_a_connection();
}

/// Time of this thread alone, so that a busy machine shows as little as possible.
#[derive(Clone, Copy)]
struct Stopwatch(Duration);

impl Stopwatch {
    fn start() -> Stopwatch {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Stopwatch(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    fn elapsed(self) -> Duration {
        Stopwatch::start().0 - self.0
    }
}

/// An engine with a connection that has an id.
fn engine() -> (Engine, ConnectionId) {
    let mut engine = Engine::new(EngineSettings::default(), 0x5EED);
    engine.open_term(1, 0, 0).expect("the first term");
    let connection = engine.connect("127.0.0.1:50000");
    engine.hello(connection, Some(ClientId([7; 16])), NameRef::NONE);
    (engine, connection)
}

/// Keys of twenty bytes, `count` of them in one text.
fn keys(count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|number| format!("order:{number:014}").into_bytes())
        .collect()
}

fn key(keys: &[u8], number: usize) -> KeyRef<'_> {
    KeyRef::parse(&keys[number * 20..][..20]).expect("a key")
}

fn granted(answer: Answer) -> Grant {
    match answer {
        Answer::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

/// Runs `step` so often and prints nanoseconds a step: the median and the best of nine rounds.
fn time(what: &str, steps: usize, mut step: impl FnMut(usize)) {
    let mut rounds: Vec<f64> = (0..9)
        .map(|round| {
            let begin = Stopwatch::start();
            for number in 0..steps {
                step(round * steps + number);
            }
            begin.elapsed().as_nanos() as f64 / steps as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!(
        "{what:<58}{:>9.1} ns      (at best {:.1})",
        rounds[4], rounds[0]
    );
}

fn acquire(
    engine: &mut Engine,
    now: Time,
    connection: ConnectionId,
    key: KeyRef<'_>,
    number: usize,
) -> Answer {
    let tag = Some(Tag::first(number as u64));
    engine.acquire(now, connection, key, LEASE, Wait::Forever, tag)
}

fn uncontended() {
    let (mut engine, connection) = engine();
    let text = keys(1000);
    time(
        "acquire and release, 1000 keys in turn, none held",
        MILLION / 4,
        |step| {
            let now = Time(step as u64);
            engine.expire(now, 100);
            let key = key(&text, step % 1000);
            let grant = granted(acquire(&mut engine, now, connection, key, step));
            assert!(engine.release(now, key, grant.token));
            black_box(engine.next_deadline());
        },
    );
}

fn one_key() {
    let (mut engine, connection) = engine();
    let text = keys(1);
    time("acquire and release, one key", MILLION / 4, |step| {
        let now = Time(step as u64);
        let key = key(&text, 0);
        let grant = granted(acquire(&mut engine, now, connection, key, step));
        assert!(engine.release(now, key, grant.token));
    });
}

fn among_a_million() {
    let (mut engine, connection) = engine();
    let text = keys(MILLION + 100_000);
    for number in 0..MILLION {
        granted(acquire(
            &mut engine,
            Time(number as u64),
            connection,
            key(&text, number),
            number,
        ));
    }
    time(
        "the same while a million other keys are held",
        100_000,
        |step| {
            let now = Time((MILLION + step) as u64);
            let key = key(&text, MILLION + step % 100_000);
            let grant = granted(acquire(&mut engine, now, connection, key, MILLION + step));
            assert!(engine.release(now, key, grant.token));
        },
    );
}

fn hand_over() {
    let (mut engine, connection) = engine();
    let text = keys(1);
    let key = key(&text, 0);
    let mut grant = granted(acquire(&mut engine, Time(0), connection, key, 0));
    for number in 1..16 {
        acquire(&mut engine, Time(0), connection, key, number);
    }
    time(
        "hand-over: release, grant to the next, acquire behind",
        MILLION / 4,
        |step| {
            let now = Time(step as u64);
            assert!(engine.release(now, key, grant.token));
            let Some(Effect::Granted { grant: next, .. }) = engine.poll_effect() else {
                panic!("the lock is handed over");
            };
            grant = next;
            acquire(&mut engine, now, connection, key, 16 + step);
        },
    );
}

fn keep() {
    let (mut engine, connection) = engine();
    let text = keys(1000);
    let grants: Vec<Grant> = (0..1000)
        .map(|number| {
            granted(acquire(
                &mut engine,
                Time(0),
                connection,
                key(&text, number),
                number,
            ))
        })
        .collect();
    time("keep", MILLION / 4, |step| {
        let now = Time(step as u64);
        let grant = grants[step % 1000];
        assert!(engine.keep(now, key(&text, step % 1000), grant.token, LEASE));
    });
}

fn memory() {
    let text = keys(MILLION);
    for count in [100_000, MILLION] {
        let (mut engine, connection) = engine();
        let before = ALLOCATED.load(Ordering::Relaxed);
        let begin = Stopwatch::start();
        let mut grants = Vec::new();
        for number in 0..count {
            let answer = acquire(
                &mut engine,
                Time(number as u64),
                connection,
                key(&text, number),
                number,
            );
            granted(answer);
        }
        let filled = begin.elapsed();
        println!(
            "{:<58}{:>9.1} bytes   ({:.2} million a second)",
            format!("a held key of 20 bytes, {count} of them"),
            (ALLOCATED.load(Ordering::Relaxed) - before) as f64 / count as f64,
            count as f64 / filled.as_secs_f64() / 1e6,
        );
        let held = ALLOCATED.load(Ordering::Relaxed);
        for number in 0..count {
            acquire(
                &mut engine,
                Time(0),
                connection,
                key(&text, 0),
                count + number,
            );
            if number + 1 == 100_000 {
                break;
            }
        }
        println!(
            "{:<58}{:>9.1} bytes",
            "a waiter, 100000 of them on one key",
            (ALLOCATED.load(Ordering::Relaxed) - held) as f64 / 100_000.0,
        );
        for number in 0..count {
            let key = key(&text, number);
            while let fairlock::engine::Inspection::Held(row) = engine.inspect(Time(0), key) {
                let token = row.token;
                engine.release(Time(0), key, token);
                while engine.poll_effect().is_some() {}
            }
        }
        grants.clear();
        grants.shrink_to_fit();
        black_box::<Vec<Grant>>(grants);
        println!(
            "{:<58}{:>9} bytes",
            "left behind when all of them are free again",
            ALLOCATED.load(Ordering::Relaxed) as isize - before as isize,
        );
    }
}

fn expire_a_million() {
    let text = keys(MILLION);
    for (spread_us, what) in [(0, "in one millisecond"), (10, "over ten seconds")] {
        let (mut engine, connection) = engine();
        for number in 0..MILLION {
            let now = Time(number as u64 * spread_us);
            engine.expire(now, 100);
            granted(acquire(
                &mut engine,
                now,
                connection,
                key(&text, number),
                number,
            ));
        }
        let mut longest = 0.0_f64;
        let mut steps = 0;
        let begin = Stopwatch::start();
        let mut now = engine.next_deadline();
        while let Some(deadline) = now {
            let call = Stopwatch::start();
            engine.expire(deadline.max(Time(1)), 500);
            longest = longest.max(call.elapsed().as_secs_f64() * 1e6);
            while engine.poll_effect().is_some() {}
            steps += 1;
            now = engine.next_deadline().map(|next| next.max(deadline));
        }
        println!(
            "{:<58}{:>9.1} ns   ({steps} calls, the longest {longest:.0} µs)",
            format!("end of a lease, a million {what}"),
            begin.elapsed().as_nanos() as f64 / MILLION as f64,
        );
    }
}

fn lose_a_connection() {
    let (mut engine, holder) = engine();
    let text = keys(100_000);
    let connection = engine.connect("127.0.0.1:50001");
    engine.hello(connection, Some(ClientId([8; 16])), NameRef::NONE);
    for number in 0..100_000 {
        granted(acquire(
            &mut engine,
            Time(0),
            holder,
            key(&text, number),
            number,
        ));
        acquire(&mut engine, Time(0), connection, key(&text, number), number);
    }
    let begin = Stopwatch::start();
    engine.disconnect(Time(0), connection, &[]);
    println!(
        "{:<58}{:>9.1} ms",
        "a connection breaks on which 100000 requests wait",
        begin.elapsed().as_secs_f64() * 1e3,
    );
}

/// As four pipelining clients ask: 64 requests at once, 256 keys held at any time.
fn batches() {
    let (mut engine, connection) = engine();
    let text = keys(16_384);
    let mut held = std::collections::VecDeque::new();
    let mut number = 0;
    time(
        "acquire and release, 64 at once, 256 held",
        20_000,
        |step| {
            let now = Time(step as u64 * 50);
            for _ in 0..64 {
                let key = key(&text, number % 16_384);
                held.push_back((
                    key,
                    granted(acquire(&mut engine, now, connection, key, number)).token,
                ));
                number += 1;
            }
            if held.len() > 256 {
                for (key, token) in held.drain(..64) {
                    assert!(engine.release(now, key, token));
                }
            }
        },
    );
}
