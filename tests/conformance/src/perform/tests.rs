//! The runner itself, with a puppet in the place of a client: raw sockets that say what a test tells them to.
//! What is right has to pass, and each kind of fault has to be seen.

use super::*;
use crate::scenario;
use crate::stage::What;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::Sender;

/// Connects to the first server once, says hello, and obeys `say OP line` (its line to the server, spaces as
/// `_`), `later OP ms line`, `answer OP text`, `reset OP`, `wait OP ms` and `hear OP` (tells the first line that comes).
#[derive(Default)]
struct Puppet {
    events: Mutex<Option<Sender<Event>>>,
    stream: Mutex<Option<TcpStream>>,
}

impl Puppet {
    fn answer(&self, op: &str, text: &str) {
        let events = self.events.lock().expect("no holder panics");
        let what = What::Answer {
            op: op.to_owned(),
            text: text.to_owned(),
        };
        let at = Instant::now();
        events
            .as_ref()
            .expect("a play is on")
            .send(Event { at, what })
            .expect("somebody listens");
    }

    fn write(&self, line: &str) {
        let stream = self.stream.lock().expect("no holder panics");
        let mut stream = stream.as_ref().expect("it is connected");
        // A stage that has reset the connection does not read; the play says whether that is right.
        let _ = stream.write_all(format!("{line}\n").as_bytes());
    }

    fn hear(&self) -> String {
        let stream = self.stream.lock().expect("no holder panics");
        let mut stream = stream.as_ref().expect("it is connected");
        let mut line = Vec::new();
        let mut byte = [0];
        while stream.read(&mut byte).expect("the stage speaks") == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).into_owned()
    }
}

impl Actor for Puppet {
    fn attach(&self, _: u64, events: Sender<Event>) -> bool {
        *self.events.lock().expect("no holder panics") = Some(events);
        true
    }

    fn tell(&self, _: u64, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        match words.as_slice() {
            ["open", op, servers, ..] => {
                let address = servers.trim_start_matches("servers=");
                match TcpStream::connect(address) {
                    Ok(stream) => {
                        *self.stream.lock().expect("no holder panics") = Some(stream);
                        self.write("H 1 id=0123456789abcdef0123456789abcdef name=conformance");
                    }
                    Err(error) => self.answer("1", &format!("{:?}", error.kind())),
                }
                self.answer(op, "open");
            }
            ["say", _, line] => self.write(&line.replace('_', " ")),
            ["answer", op, text] => self.answer(op, text),
            ["hear", op] => self.answer(op, &self.hear()),
            ["later", _, ms, line] => {
                let stream = self.stream.lock().expect("no holder panics");
                let stream = stream.as_ref().expect("it is connected").try_clone();
                let mut stream = stream.expect("a socket can be shared");
                let time = Duration::from_millis(ms.parse().expect("a number"));
                let line = format!("{line}\n");
                thread::spawn(move || {
                    thread::sleep(time);
                    stream.write_all(line.as_bytes())
                });
            }
            ["wait", _, ms] => thread::sleep(Duration::from_millis(ms.parse().expect("a number"))),
            ["reset", _] => {
                let stream = self.stream.lock().expect("no holder panics").take();
                let stream = stream.expect("it is connected");
                let socket = socket2::SockRef::from(&stream);
                socket
                    .set_linger(Some(Duration::ZERO))
                    .expect("any socket can");
            }
            _ => {}
        }
    }

    fn detach(&self, _: u64) {}
}

/// The step that failed and why; none if all came true.
fn play(steps: &str) -> Option<(usize, String, bool)> {
    let text = format!("== it\nrule 0\n{steps}");
    let scenarios = scenario::parse("test", &text).expect("the play is right");
    let outcome = perform(
        &scenarios[0],
        &Puppet::default(),
        1,
        Duration::from_millis(150),
    );
    outcome
        .failure
        .map(|failure| (failure.step, failure.why, failure.late))
}

fn fault(steps: &str) -> (usize, String, bool) {
    play(steps).expect("this must not pass")
}

#[test]
fn what_comes_true_passes() {
    let steps = "node a\nclient a nowait\ndo 1 say A_k_30_4.9_#7\na.x < A k 30 4.5..5 #one\na.x > A k 9 #one\n\
                 do 2 hear\ngot 2 H ...\ndo 3 hear\ngot 3 A k 9 #one\ndo 4 reset\na.x reset by client\n\
                 do 5 answer done\ngot 5 done\na accepted 1\nquiet 50ms";
    assert_eq!(play(steps), None);
}

#[test]
fn the_hello_can_be_answered_by_hand() {
    let steps = "node a hello=hand\nclient a nowait\na.x < H 1 id=<id> name=conformance\na.x > E H - auth no\n\
                 do 1 hear\ngot 1 E H - auth no";
    assert_eq!(play(steps), None);
}

#[test]
fn another_line_than_expected_is_a_fault_that_names_it() {
    let begin = "node a\nclient a nowait\ndo 1 say R_k_5_#1\na.x < R k 5 #r\ndo 2 say R_k_5_#2\n";
    let (step, why, late) = fault(&format!("{begin}a.x < R k 5 #r"));
    assert_eq!((step, late), (5, false));
    assert_eq!(why, "instead came < R k 5 #2");
}

#[test]
fn another_answer_than_expected_is_a_fault_that_names_it() {
    let (step, why, _) = fault("node a\nclient a nowait\ndo 1 answer none\ngot 1 granted *");
    assert_eq!(step, 3);
    assert_eq!(why, "instead the caller got none");
}

#[test]
fn what_comes_too_early_is_a_fault() {
    let begin = "node a\nclient a nowait\ndo 1 say A_1\na.x < A 1\ndo 2 wait 20\ndo 3 say A_2\n";
    let (step, why, late) = fault(&format!("{begin}+200ms a.x < A 2"));
    assert_eq!((step, late), (6, false));
    assert!(why.starts_with("came too early"), "{why}");
}

#[test]
fn what_comes_too_late_is_told_from_what_never_comes() {
    let (step, why, late) = fault("node a\nclient a nowait\ndo 1 later 400 A\n+10ms a.x < A");
    assert_eq!((step, late), (3, true));
    assert!(why.starts_with("came too late"), "{why}");
    let (step, why, late) = fault("node a\nclient a nowait\ndo 1 answer x\n+10ms a.x < A");
    assert_eq!((step, late), (3, false));
    assert!(why.starts_with("nothing like this came"), "{why}");
}

#[test]
fn what_nobody_asked_for_is_a_fault_at_the_end() {
    let (step, why, _) = fault("node a\nclient a nowait\ndo 1 say A_k");
    assert_eq!(step, 3);
    assert!(why.contains("a.? < A k"), "{why}");
}

#[test]
fn a_closed_door_refuses_and_keeps_its_port() {
    assert_eq!(
        play("node a door=closed\nclient a nowait\ngot 1 ConnectionRefused"),
        None
    );
    let again =
        "node a\nnode a door=closed\nnode a door=open\nclient a nowait\ndo 2 say A\na.x < A";
    assert_eq!(play(again), None);
}

#[test]
fn a_dropped_connection_is_seen() {
    assert_eq!(
        play("node a door=drop\nclient a nowait\na connects\na no connect for 50ms\na accepted 1"),
        None
    );
}

#[test]
fn the_stage_answers_what_it_is_told_to_answer() {
    let steps = "node a auto=R:stale,A:moved:{a},K:silent\nclient a nowait\ndo 1 hear\ngot 1 H ...\n\
                 do 2 say R_k_5_#7\ndo 3 hear\ngot 3 R k stale #7\ndo 4 say A_k_30_0_#8\ndo 5 hear\n\
                 got 5 M A k * #8\ndo 6 say K_k_5_30_#9\ndo 7 say P\ndo 8 hear\ngot 8 P";
    assert_eq!(play(steps), None);
}
