//! Questions: 4.4 for what is asked and not acquired.

use super::*;

/// The first of two nodes is active.
fn pair() -> World {
    let mut world = World::new(&["a:1", "b:1"]);
    world.accept_as(0, "active", "a:1", "a:1,b:1");
    world.accept_as(1, "standby", "a:1", "a:1,b:1");
    world
}

fn key() -> Key {
    Key::encode(b"k").expect("a key")
}

/// Each question, a row of its answer and its end, without their tags, and another end. A question for the status has no tag.
fn questions() -> [(Ask, &'static str, &'static str, &'static str); 4] {
    let locks = Ask::Locks {
        prefix: None,
        after: None,
        limit: 10,
    };
    let waiters = Ask::Waiters {
        key: key(),
        limit: 10,
    };
    [
        (Ask::Inspect { key: key() }, "", "I k free 1", "I k free 2"),
        (waiters, "w k 1 0.5 me c:9", "W k 1", "W k 2"),
        (locks, "l k 100 20 0 me c:9", "L - 1", "L - 2"),
        (Ask::Status, "", STATUS_OF_A, STATUS_OF_B),
    ]
}

const STATUS_OF_A: &str =
    "S role=active node=a:1 active=a:1 term=1 held=0 waiting=0 connections=1 standbys=b:1";
const STATUS_OF_B: &str =
    "S role=active node=b:1 active=b:1 term=2 held=0 waiting=0 connections=1 standbys=-";

/// With its tag, if lines of its kind have one.
fn tagged(line: &str, request: &str) -> String {
    match line.starts_with('S') {
        true => line.to_owned(),
        false => format!("{line} {}", tag(request)),
    }
}

fn answer(world: &mut World, index: u32, request: &str, row: &str, end: &str) {
    if !row.is_empty() {
        world.say(index, &tagged(row, request));
    }
    world.say(index, &tagged(end, request));
}

/// Goal: an operator never reads what a node says that is active no more. Method: each question is asked again at the next
/// node; then the one before answers, whole or only the end of a list, and after it the next one.
#[test]
fn rule_4_4_only_whom_a_question_was_asked_last_answers_it() {
    for whole in [false, true] {
        for (ask, row, first_end, end) in questions() {
            let mut alone = pair();
            let (face, _) = alone.ask(ask.clone());
            let request = alone.line(0);
            answer(&mut alone, 0, &request, row, end);
            let expected = alone.result(face).expect("an answer");

            let mut world = pair();
            let (face, _) = world.ask(ask);
            let first = world.line(0);
            if !row.is_empty() {
                world.say(0, &tagged(row, &first));
            }
            world.say(1, "N b:1");
            let second = world.line(1);
            let row_of_first = if whole { row } else { "" };
            answer(&mut world, 0, &first, row_of_first, first_end);
            assert_eq!(world.result(face), None, "{first}");
            answer(&mut world, 1, &second, row, end);
            assert_eq!(world.result(face), Some(expected), "{second}");
            assert!(world.session.tags.is_empty() && world.session.operations.len() == 0);
        }
    }
}

/// The same where the answer of the deposed node is a refusal.
#[test]
fn rule_4_4_a_refusal_of_whom_a_question_was_asked_before_is_none() {
    for (ask, row, _, end) in questions() {
        let mut world = pair();
        let (face, _) = world.ask(ask);
        let first = world.line(0);
        world.say(1, "N b:1");
        let second = world.line(1);
        let letter = &first[..1];
        let refusal = match letter {
            "S" => "E S - denied no".to_owned(),
            _ => format!("E {letter} - denied {} no", tag(&first)),
        };
        world.say(0, &refusal);
        assert_eq!(world.result(face), None, "{first}");
        answer(&mut world, 1, &second, row, end);
        assert!(world.result(face).expect("an answer").is_ok());
    }
}

/// Goal: nothing is left of a question whose first copy was lost with its connection. Method: ask again elsewhere, end the
/// first connection, answer.
#[test]
fn a_copy_that_is_lost_with_its_connection_leaves_no_tag() {
    for (ask, row, _, end) in questions() {
        let mut world = pair();
        let (face, _) = world.ask(ask);
        world.line(0);
        world.say(1, "N b:1");
        let second = world.line(1);
        world.cut(0);
        answer(&mut world, 1, &second, row, end);
        assert!(world.result(face).expect("an answer").is_ok());
        assert!(world.session.tags.is_empty());
    }
}
