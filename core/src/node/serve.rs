//! One task for each connection: waits until there is something to read, handles it, writes what came
//! of it. In this order: what others are told, then the own replies, in one write each.
//!
//! A connection is read only while all its replies have been taken. The task itself holds nothing but
//! the name of the connection; everything else stands in the [`Node`].

use super::cluster::{self, LinkId};
use super::connection::{Connection, Greeting};
use super::farewell;
use super::lines::{ENOUGH_REPLIES, Stop};
use super::state::{Node, Shared, now};
use super::unread::Load;
use crate::engine::{ConnectionId, Time};
use crate::protocol::{Role, limits};
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// The task of a connection.
pub(crate) struct Serving {
    node: Shared,
    id: ConnectionId,
    /// Set when nothing is read any more.
    farewell: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Serving {
    pub(crate) fn new(node: Shared, id: ConnectionId) -> Serving {
        Serving {
            node,
            id,
            farewell: None,
        }
    }
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // What a bug has left behind cannot be trusted with anybody's lock, so the node ends with it.
        catch_unwind(AssertUnwindSafe(|| this.step(cx))).unwrap_or_else(|panic| {
            let text = panic_text(&*panic);
            this.node
                .lock()
                .fail(format!("a request led to a panic: {text}"));
            Poll::Ready(())
        })
    }
}

impl Serving {
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(farewell) = &mut self.farewell {
            return farewell.as_mut().poll(cx);
        }
        let step = self.node.lock().serve(self.id, cx);
        match step {
            Step::Wait => Poll::Pending,
            Step::Over => Poll::Ready(()),
            Step::Link {
                connection,
                link,
                held,
            } => {
                cluster::receive(self.node.clone(), link, connection.stream, held);
                Poll::Ready(())
            }
            Step::Farewell {
                connection,
                more_may_come,
            } => {
                let farewell = farewell::farewell(self.node.clone(), connection, more_may_come);
                self.farewell.insert(Box::pin(farewell)).as_mut().poll(cx)
            }
        }
    }
}

/// What the task does next.
enum Step {
    /// It will be woken.
    Wait,
    /// The connection is closed.
    Over,
    /// The connection is no part of the node any more, and its last bytes are to be sent.
    Farewell {
        connection: Box<Connection>,
        more_may_come: bool,
    },
    /// The connection is a link of a peer from now on.
    Link {
        connection: Box<Connection>,
        link: LinkId,
        /// What was read behind its first line.
        held: Vec<u8>,
    },
}

/// How much is read at once, and in one turn.
pub(super) const READ_AT_ONCE: usize = 64 << 10;

/// By how much all of these are smaller where many connections wait for their turn with more to do: whoever asks for one
/// thing and waits for the answer has to wait for a turn of each of them.
pub(super) fn crowd(yielding: u32) -> usize {
    (1 + yielding as usize / 4).min(64)
}

impl Node {
    /// Does what can be done for a connection now, and sees to it that the task is woken for the rest.
    fn serve(&mut self, id: ConnectionId, cx: &mut Context<'_>) -> Step {
        // With TLS what there is comes in many reads.
        let mut may_read = READ_AT_ONCE / crowd(self.yielding);
        loop {
            let Some(connection) = self.connections.get_mut(id) else {
                return Step::Over;
            };
            if connection.yields {
                connection.yields = false;
                self.yielding -= 1;
            }
            if connection.waker.is_none() {
                connection.waker = Some(cx.waker().clone());
            }
            if !connection.outbox.is_empty() {
                match connection.stream.poll_writable(cx) {
                    Poll::Pending => {
                        if let Some(listing) = &mut connection.listing {
                            listing.pause();
                        }
                        return Step::Wait;
                    }
                    Poll::Ready(Err(_)) => return self.abandon_served(now(), id),
                    Poll::Ready(Ok(())) => {}
                }
                if connection
                    .outbox
                    .flush(&mut connection.stream, &mut self.spare)
                    .is_err()
                {
                    return self.abandon_served(now(), id);
                }
                if connection.weight > 0 {
                    // It has become less, which is never too much.
                    self.unread.weigh(connection, self.open);
                }
                continue;
            }
            if connection.greeting == Greeting::Checking {
                // Whoever has the verdict wakes it.
                return Step::Wait;
            }
            if connection.listing.is_some() {
                let now = now();
                self.append_rows(now, id);
                if !self.write_replies(now, id) {
                    return Step::Over;
                }
                return self.yield_to_others(id, cx);
            }
            if let Some(line) = connection.take_handed_back() {
                let now = now();
                let answer = |node: &mut Node| node.answer_handed_back(now, id, &line);
                let ((), goes_on) = self.take_turn(now, id, answer);
                return match goes_on {
                    true => self.yield_to_others(id, cx),
                    false => Step::Over,
                };
            }
            let unhandled = &connection.unhandled;
            if unhandled.len() >= limits::LINE_BYTES || memchr::memchr(b'\n', unhandled).is_some() {
                let unhandled = std::mem::take(&mut connection.unhandled);
                match self.batch(now(), id, &unhandled) {
                    Some(step) => return step,
                    None => return self.yield_to_others(id, cx),
                }
            }
            match self.read(id, cx, &mut may_read) {
                Read::Handled => {}
                Read::Full => return self.yield_to_others(id, cx),
                Read::Step(step) => return step,
            }
        }
    }

    /// Lets every other task have its turn first, and those whose sockets have something to read.
    fn yield_to_others(&mut self, id: ConnectionId, cx: &mut Context<'_>) -> Step {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.yields
        {
            connection.yields = true;
            self.yielding += 1;
        }
        // The runtime looks at the sockets before it wakes who yields so; a mere wake-up goes before them.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
        Step::Wait
    }

    /// Reads and handles no more than `may_read` bytes, and takes them off that.
    fn read(&mut self, id: ConnectionId, cx: &mut Context<'_>, may_read: &mut usize) -> Read {
        let Some(connection) = self.connections.get_mut(id) else {
            return Read::Step(Step::Over);
        };
        let held = connection.unhandled.len();
        self.input[..held].copy_from_slice(&connection.unhandled);
        // While a secret is checked what came behind it is kept, so that is not to be much.
        let end = match connection.greeting == Greeting::Awaited && self.users.is_some() {
            true => limits::LINE_BYTES,
            false => self.input.len().min(held + *may_read),
        };
        let count = match connection.stream.poll_read(cx, &mut self.input[held..end]) {
            Poll::Ready(Ok(0)) => return Read::Step(self.dismiss(now(), id, false)),
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(_)) => return Read::Step(self.abandon_served(now(), id)),
            Poll::Pending => {
                let nothing_comes = self.role == Role::Leaving
                    && connection.may_end
                    && connection.stream.peek() == super::stream::Peek::Empty;
                let step = if nothing_comes {
                    self.dismiss(now(), id, true)
                } else {
                    Step::Wait
                };
                return Read::Step(step);
            }
        };
        // Taken after the bytes, so that no lease ends before one that is counted from their sending.
        let now = now();
        connection.heard = now;
        connection.unhandled = Vec::new();
        self.counters.reads += 1;
        if let Some(spinner) = &mut self.spinner {
            spinner.note(now);
        }
        *may_read = may_read.saturating_sub(count);
        let full = held + count == end || *may_read == 0;
        let input = std::mem::take(&mut self.input);
        let step = self.batch(now, id, &input[..held + count]);
        self.input = input;
        match step {
            Some(step) => Read::Step(step),
            None if full => Read::Full,
            None => Read::Handled,
        }
    }

    /// Handles lines, tells others and then the connection what came of it. Returns the next step
    /// where the connection does not go on as before.
    fn batch(&mut self, now: Time, id: ConnectionId, bytes: &[u8]) -> Option<Step> {
        let handle = |node: &mut Node| node.handle_lines(now, id, bytes);
        let ((stop, used), goes_on) = self.take_turn(now, id, handle);
        if !goes_on {
            return Some(Step::Over);
        }
        match stop {
            Stop::Close => return Some(self.dismiss(now, id, true)),
            Stop::Link(link) => return Some(self.become_link(now, id, link, &bytes[used..])),
            Stop::Partial | Stop::Pause | Stop::Later => {}
        }
        if used < bytes.len()
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.unhandled = bytes[used..].to_vec();
            if connection.weight > 0 && !self.may_leave_unread(now, id) {
                return Some(Step::Over);
            }
        }
        None
    }

    /// Does something for a connection, tells others and then itself what came of it. Returns that, and false if the connection
    /// is gone.
    #[inline(always)]
    fn take_turn<T>(
        &mut self,
        now: Time,
        id: ConnectionId,
        handle: impl FnOnce(&mut Node) -> T,
    ) -> (T, bool) {
        self.look_at_clock(now);
        // What ends now and concerns this connection goes before its replies, in the same write.
        self.serving = Some(id);
        self.expire_due(now);
        let handled = handle(self);
        self.flush_others(now);
        self.rearm();
        self.serving = None;
        let goes_on = self.write_replies(now, id);
        if self.hands_over() {
            self.count_hand_overs(now);
        }
        (handled, goes_on)
    }

    /// Counts what is kept for a client that does not read its replies; false if that cuts it off.
    #[cold]
    fn may_leave_unread(&mut self, now: Time, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(id) else {
            return false;
        };
        match self.unread.weigh(connection, self.open) {
            // Nothing more is read until it has taken its replies, so it cannot ask for more of them.
            Load::Fine | Load::TooMuch => true,
            Load::MoreThanItsShare => {
                self.cut_off(now, id, Load::MoreThanItsShare);
                self.flush_others(now);
                self.rearm();
                false
            }
        }
    }

    /// Writes the replies to the connection that has been served; false if it is gone.
    fn write_replies(&mut self, now: Time, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(id) else {
            self.replies.clear();
            return false;
        };
        if self.replies.is_empty() {
            return true;
        }
        let written = connection.stream.write(&self.replies);
        let sent = *written.as_ref().unwrap_or(&0);
        let unread = sent < self.replies.len();
        if unread {
            connection.outbox.keep(&self.replies, sent);
        }
        self.replies.clear();
        if self.replies.capacity() > 4 * ENOUGH_REPLIES {
            self.replies.shrink_to(ENOUGH_REPLIES);
        }
        if written.is_err() {
            self.abandon(now, id);
            self.flush_others(now);
            self.rearm();
            return false;
        }
        !unread || self.may_leave_unread(now, id)
    }

    fn abandon_served(&mut self, now: Time, id: ConnectionId) -> Step {
        self.abandon(now, id);
        self.flush_others(now);
        self.rearm();
        Step::Over
    }

    /// Takes the connection out of the node, which goes on with it as a link.
    #[cold]
    fn become_link(&mut self, now: Time, id: ConnectionId, link: LinkId, held: &[u8]) -> Step {
        let connection = self.disconnect(now, id, &[]);
        self.closed();
        if let Some(connection) = &connection {
            self.unread.forget(connection);
        }
        match connection {
            Some(connection) => Step::Link {
                connection,
                link,
                held: held.to_vec(),
            },
            None => Step::Over,
        }
    }

    /// Takes the connection out of the node, so that its last bytes can leave without holding a place.
    fn dismiss(&mut self, now: Time, id: ConnectionId, more_may_come: bool) -> Step {
        let connection = self.disconnect(now, id, &[]);
        self.flush_others(now);
        self.rearm();
        match connection {
            Some(connection) => Step::Farewell {
                connection,
                more_may_come,
            },
            None => Step::Over,
        }
    }
}

enum Read {
    /// All that was there has been handled.
    Handled,
    /// There is probably more.
    Full,
    /// The connection does not go on as before.
    Step(Step),
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::answer::Flow;
    use super::super::settings::Settings;
    use super::super::state::{engine_settings, millis};
    use super::super::stream::{Peek, Stream};
    use super::super::terms::Terms;
    use super::*;
    use crate::engine::Engine;
    use crate::protocol::{Key, Millis, Request, Wait};
    use std::future::poll_fn;
    use std::net::TcpStream;

    /// A node with one connection, and the client's end of it.
    async fn connected() -> (Node, ConnectionId, TcpStream) {
        connected_with(Settings::default()).await
    }

    pub(in crate::node) async fn connected_with(
        settings: Settings,
    ) -> (Node, ConnectionId, TcpStream) {
        let mut engine = Engine::new(engine_settings(&settings), 1);
        engine.open_term(1, 0, 0).expect("the first term");
        let mut node = Node::new(settings, None, engine, Terms::new(None, 1));
        node.role = Role::Active;
        (node.serves, node.timers_run) = (true, true);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound"));
        let (socket, address) = listener.accept().await.expect("a client");
        let stream = Stream::new(socket, address).expect("it lives");
        let writable = poll_fn(|cx| stream.poll_writable(cx)).await;
        writable.expect("it lives");
        node.open += 1;
        let id = node.connect(Connection::new(stream, now()), &address.to_string());
        (node, id, client.expect("it listens"))
    }

    pub(in crate::node) fn stream(node: &mut Node, id: ConnectionId) -> &mut Stream {
        &mut node.connections.get_mut(id).expect("it lives").stream
    }

    pub(in crate::node) fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(test);
    }

    /// Lets the socket take nothing more.
    fn fill(node: &mut Node, id: ConnectionId) {
        let newlines = [b'\n'; 1 << 16];
        while stream(node, id).write(&newlines).expect("it lives") > 0 {}
    }

    /// Method: a full socket, and a wait that has ended when the next request is read.
    #[test]
    fn what_ends_as_a_request_is_read_goes_before_its_reply_in_whole_lines() {
        run(async {
            let (mut node, id, _client) = connected().await;
            let begin = now();
            assert!(node.batch(begin, id, b"A k 30 -\nA k 30 0.001\n").is_none());
            fill(&mut node, id);
            let later = begin.after(Millis(10));
            assert!(node.batch(later, id, b"P\n").is_none());
            let outbox = &node.connections.get_mut(id).expect("it lives").outbox;
            assert_eq!(outbox.unsent(), b"T k\nP\n".len());
        });
    }

    /// Method: a connection that breaks while a request is handled, on a node with nothing else to do.
    #[test]
    fn a_grant_that_cannot_be_written_wakes_the_timer_after_the_grace() {
        run(async {
            let (mut node, id, client) = connected().await;
            stream(&mut node, id).write(b"P\n").expect("it lives");
            // Closed with something unread, so that the system resets the connection.
            drop(client);
            while stream(&mut node, id).peek() == Peek::Empty {
                tokio::task::yield_now().await;
            }
            let now = now();
            let step = node.batch(now, id, b"A k 30 5\n");
            assert!(matches!(step, Some(Step::Over)));
            assert_eq!(node.engine.stats().held, 1);
            let grace = now.after(millis(node.settings.reattach_grace));
            assert!(node.timer.armed_for <= grace.after(Millis(1)));
        });
    }

    #[test]
    fn who_is_gone_may_do_nothing() {
        run(async {
            let (mut node, id, _client) = connected().await;
            node.abandon(now(), id);
            let step = node.batch(now(), id, b"A k 30 -\n");
            assert!(matches!(step, Some(Step::Over)));
            let request = Request::parse(b"A k 30 -").expect("a request");
            let flow = node.handle_if_allowed(now(), id, &request);
            assert_eq!(flow, Flow::Close);
            assert_eq!(node.engine.stats().held, 0);
        });
    }

    /// Method: a full socket, and more keys than are listed at once.
    #[test]
    fn a_list_that_is_not_read_keeps_its_place_alone() {
        run(async {
            let (mut node, id, _client) = connected().await;
            let now = now();
            for number in 0..20_000 {
                let key = Key::encode(format!("k{number}").as_bytes()).expect("a key");
                let lease = Millis(30_000);
                node.engine
                    .acquire(now, id, key.as_ref(), lease, Wait::No, None);
            }
            fill(&mut node, id);
            assert!(node.batch(now, id, b"L - 100000\n").is_none());
            let step = poll_fn(|cx| Poll::Ready(node.serve(id, cx))).await;
            assert!(matches!(step, Step::Wait));
            let connection = node.connections.get_mut(id).expect("it lives");
            let listing = connection.listing.as_ref().expect("there are more rows");
            assert_eq!(listing.found(), 0);
        });
    }

    /// Method: somebody else waits too, so that a turn is 32 KiB; more than that lies in the socket, in several records.
    #[cfg(feature = "tls")]
    #[test]
    fn a_turn_is_no_larger_with_tls() {
        use std::io::Write;
        run(async {
            let (mut node, id, mut client) = connected().await;
            let (mut sealed, channel) = crate::tls::pair(1 << 20);
            let connection = node.connections.remove(id).expect("it lives");
            let stream = connection.stream.secured(Box::new(channel));
            let connection = Connection::new(stream, now());
            node.connections.insert(id, connection);
            let line = [&[b'x'; 1000][..], b"\n"].concat();
            let lines = line.repeat(200);
            let client = std::thread::spawn(move || {
                let mut left = &lines[..];
                while !left.is_empty() {
                    let count = sealed.write(left, |records| client.write(records));
                    left = &left[count.expect("it is read")..];
                }
                client
            });
            let mut there = [0; 40_000];
            let socket = super::tests::stream(&mut node, id).socket_mut();
            while socket.peek(&mut there).await.expect("it lives") < there.len() {
                tokio::task::yield_now().await;
            }
            node.yielding = 4;
            let most = (READ_AT_ONCE / crowd(node.yielding) / line.len() + 1) as u64;
            poll_fn(|cx| {
                let before = node.counters.lines;
                assert!(matches!(node.serve(id, cx), Step::Wait));
                assert!(node.counters.lines - before <= most);
                match node.counters.lines {
                    200 => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            })
            .await;
            drop(client.join().expect("all was read"));
        });
    }
}
