//! What becomes of calls whose servers restart, freeze or die under them: 4.5.

use super::*;

impl World {
    /// Nobody listens where the client asks for a connection.
    fn refuse_all(&mut self) {
        for index in self.pipes.keys().copied().collect::<Vec<_>>() {
            if !self.pipes[&index].connected {
                self.refuse(index);
            }
        }
    }

    /// The server ends, and all its connections with it.
    fn cut_all(&mut self) {
        // The first request goes over the second of them, and again over the first before that is known to be gone.
        for index in [1, 0] {
            self.cut(index);
        }
    }

    /// The line that is sent once a server is there again.
    fn line_after_return(&mut self) -> (u32, String) {
        let from = self.now;
        while self.pipes.is_empty() {
            assert!(self.now < from + 4 * S, "it is not tried again");
            self.pass(10 * MS);
        }
        let index = *self.pipes.keys().next().expect("just seen");
        self.accept(index);
        (index, self.line(index))
    }
}

#[test]
fn rule_4_5_a_call_outlives_the_restart_of_the_only_server() {
    for (leaves, refuses) in [(false, false), (true, false), (false, true)] {
        let mut world = World::up(&["a:1"]);
        let (face, _) = world.acquire("k", wait_ms(20_000));
        world.pass(S);
        if refuses {
            // An orderly stop answers what waits before it ends the connections.
            while let Some((index, line)) = world.all_lines().pop() {
                let refusal = format!("E A k unavailable {} this node is stopping", tag(&line));
                world.say(index, &refusal);
            }
        }
        // Both connections break together, and the call had been sent again over the second before that was known.
        world.cut(1);
        world.cut(0);
        if leaves {
            world.accept_as(0, "leaving", "-", "a:1");
            world.pass(MS);
            world.cut(0);
        }
        let broken = world.now;
        for index in [0, 1] {
            if world.pipes.contains_key(&index) {
                world.refuse(index);
            }
        }
        while world.pipes.is_empty() {
            assert!(world.now < broken + 4 * S, "it is not tried again");
            assert_eq!(world.result(face), None, "{leaves} {refuses}");
            world.pass(10 * MS);
        }
        let index = *world.pipes.keys().next().expect("just seen");
        world.accept(index);
        let line = world.line(index);
        assert!(
            line.starts_with("A k 30 ") && line.contains(" #1"),
            "the same request, for the wait that is left: {line}"
        );
        world.say(index, &format!("A k 7 {}", tag(&line)));
        assert_eq!(world.grant(face).token, token(7));
    }
}

#[test]
fn rule_4_5_a_server_that_does_not_come_back_ends_a_call_after_the_connect_timeout() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    world.cut(1);
    world.cut(0);
    let broken = world.now;
    let error = loop {
        for index in [0, 1] {
            if world.pipes.contains_key(&index) {
                world.refuse(index);
            }
        }
        if let Some(result) = world.result(face) {
            break result.expect_err("nobody has granted it anything");
        }
        assert!(world.now < broken + 7 * S, "for ever");
        world.pass(10 * MS);
    };
    assert_eq!(*error.kind(), ErrorKind::ConnectionFailed);
    assert!(world.now >= broken + 3 * S, "the connect timeout");
}

#[test]
fn rule_4_5_a_server_that_restarts_again_and_again_ends_a_call_after_the_connect_timeout() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    let began = world.now;
    let error = loop {
        if let Some(result) = world.result(face) {
            break result.expect_err("nobody has granted it anything");
        }
        assert!(world.now < began + 20 * S, "for ever");
        for index in [0, 1] {
            match world.pipes.get(&index) {
                Some(pipe) if pipe.connected => world.cut(index),
                Some(_) if world.now % (2 * S) < S => world.refuse(index),
                Some(_) => {
                    world.accept(index);
                }
                None => {}
            }
        }
        world.pass(100 * MS);
    };
    assert_eq!(*error.kind(), ErrorKind::ConnectionFailed);
    assert!(world.now >= began + 3 * S, "the connect timeout");
}

#[test]
fn rule_4_5_a_server_that_is_silent_before_it_comes_back_has_restarted() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    world.cut_all();
    // What asked for a connection was lost, and was repeated by the network after a second.
    world.pass(S);
    assert_eq!(world.result(face), None);
    world.accept(0);
    assert_eq!(world.line(0), "A k 30 0 #1.2");
    world.accept(1);
    world.cut(0);
    assert_eq!(
        world.line(1),
        "A k 30 0 #1.3",
        "the tries before do not count"
    );
}

#[test]
fn rule_4_5_a_wait_that_ends_while_no_server_is_there_was_not_ended_by_others() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", wait_ms(2000));
    world.pass(S);
    world.cut_all();
    world.refuse_all();
    world.pass(S - 1);
    assert_eq!(world.result(face), None);
    world.pass(1);
    assert_eq!(world.error(face), ErrorKind::ConnectionFailed);

    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", wait_ms(100));
    while let Some((index, line)) = world.all_lines().pop() {
        world.say(index, &format!("E A k unavailable {} none", tag(&line)));
    }
    world.pass(100 * MS);
    assert_eq!(world.error(face), ErrorKind::ConnectionFailed);
    assert!(world.session.tags.is_empty());
}

#[test]
fn rule_4_5_a_call_goes_to_a_named_node_that_is_up_when_those_of_the_list_are_gone() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    let (index, line) = world.all_lines().pop().expect("sent");
    world.say(index, &format!("M A k b:1 {}", tag(&line)));
    world.accept(2);
    assert_eq!(world.line(2), "A k 30 0 #1");
    // The first node is active again, so the request is with it when it ends.
    world.say(0, "N a:1");
    assert!(world.lines(2).is_empty());
    let (index, _) = world.all_lines().pop().expect("asked again there");
    world.cut(index);
    world.cut(1 - index);
    world.refuse_all();
    world.pass(20 * MS);
    let line = world.line(2);
    assert!(line.starts_with("A k 30 0 #1."), "{line}");
    world.say(2, &format!("A k 7 {}", tag(&line)));
    assert_eq!(world.grant(face).token, token(7));
}

#[test]
fn rule_4_5_retry_for_ends_when_it_is_over_and_not_with_the_next_try_of_a_connection() {
    let mut world = World::with(&["a:1"], |settings| settings.retry_for = S);
    world.accept_all();
    let (face, _) = world.acquire("k", Wait::Forever);
    world.cut_all();
    // Nothing is refused, all is silent: the tries end after three seconds, and again.
    world.pass(7 * S);
    assert_eq!(world.result(face), None);
    world.pass(400 * MS);
    assert_eq!(world.error(face), ErrorKind::ConnectionFailed);
}

#[test]
fn rule_4_5_a_try_and_a_question_outlive_a_restart_too() {
    let key = || Key::encode(b"k").expect("a key");
    for ask in [acquire("k", 30_000, Wait::No), Ask::Inspect { key: key() }] {
        let mut world = World::up(&["a:1"]);
        let (face, _) = world.ask(ask);
        world.cut_all();
        world.refuse_all();
        let (index, line) = world.line_after_return();
        if line.starts_with('A') {
            assert!(line.starts_with("A k 30 - #1."), "{line}");
            world.say(index, &format!("T k {}", tag(&line)));
        } else {
            world.say(index, &format!("I k free 0 {}", tag(&line)));
        }
        assert!(world.result(face).is_some_and(|result| result.is_ok()));
    }
}

#[test]
fn rule_4_5_a_node_that_takes_a_connection_to_say_that_it_is_leaving_is_waited_for() {
    let mut world = World::up(&["a:1"]);
    world.acquire("k", Wait::Forever);
    world.cut_all();
    world.accept_as(0, "leaving", "-", "a:1");
    assert_eq!(world.line(0), "A k 30 0 #1.2");
    world.cut(0);
    world.refuse(1);
    let (_, line) = world.line_after_return();
    assert!(line.starts_with("A k 30 0 #1."), "{line}");
}

#[test]
fn rules_4_7_and_4_11_whoever_gives_up_while_the_server_is_away_hears_it_at_once_and_cancels_later()
{
    for close in [false, true] {
        let mut world = World::up(&["a:1"]);
        let (face, operation) = world.acquire("k", Wait::Forever);
        world.cut_all();
        world.refuse(0);
        if close {
            world.ask(Ask::Close);
            assert_eq!(world.error(face), ErrorKind::Closed);
        } else {
            let operation = operation.expect("under way");
            world.session.cancel(operation, world.now);
            world.settle();
            assert_eq!(world.error(face), ErrorKind::Cancelled);
        }
        world.accept(1);
        assert_eq!(world.line(1), "C k #1.2");
        world.say(1, "C k ok #1.2");
        world.pass(4 * S);
        assert!(world.session.tags.is_empty() && world.session.operations.len() == 0);
    }
}

#[test]
fn rule_4_5_a_call_outlives_the_restart_of_the_only_server_of_three_that_is_there() {
    for seed in 0..10 {
        let mut world = World::with(&["a:1", "b:1", "c:1"], |settings| settings.seed = seed);
        world.accept(0);
        world.refuse_all();
        let (face, _) = world.acquire("k", Wait::Forever);
        assert_eq!(world.line(0), "A k 30 0 #1");
        world.pass(S);
        world.cut(0);
        // It is not there yet when it is tried at once.
        world.refuse(0);
        while !world.pipes.contains_key(&0) {
            world.pass(10 * MS);
            for index in [1, 2] {
                if world.pipes.contains_key(&index) {
                    world.refuse(index);
                }
            }
            assert_eq!(world.result(face), None, "{seed}: before its second try");
        }
        world.accept(0);
        assert_eq!(world.line(0), "A k 30 0 #1.1");
    }
}
