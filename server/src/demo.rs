//! `fairlock demo`: a tour of half a minute in one process. A server is started on a free port, and
//! clients queue up, wait in vain, fall silent and come back too late; then three servers, of which one is
//! killed under them. Every line that is told has just happened; nothing is made up.

use crate::exit::{self, Failure};
use crate::values::show_seconds;
use fairlock::{
    Client, Error, Fence, IntoServers, KeyState, Lock, Role, Server, ServerError, Token,
};
use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const KEY: &str = "printer";

/// Whatever the demo waits for happens within moments, or something is wrong.
const LIMIT: Duration = Duration::from_secs(10);

/// Tells the tour.
pub(crate) fn demo(fast: bool) -> Result<u8, Failure> {
    let server = Server::builder()
        .listen("127.0.0.1:0")
        .ephemeral()
        .start_blocking()
        .map_err(|error| Failure::new(exit::FAILED, error))?;
    let tour = Tour {
        address: server.address(),
        start: Instant::now(),
        fast,
    };
    tour.say(format_args!(
        "a server runs in this process, on {}",
        tour.address
    ))?;
    tour.pause(1.5);
    tour.queue()?;
    tour.patience()?;
    tour.lease_and_fence()?;
    tour.cluster()?;
    tour.say("that was all; the servers stop")?;
    tour.say("try it yourself: run `fairlock` in one terminal, and in two others")?;
    tour.say("    fairlock run my-key -- sh -c 'echo token $FAIRLOCK_TOKEN; sleep 5'")?;
    server
        .stop_blocking()
        .map_err(|error| Failure::new(exit::FAILED, error))?;
    Ok(exit::OK)
}

struct Tour {
    address: SocketAddr,
    start: Instant,
    fast: bool,
}

/// A grant, and who got it when.
struct Granted {
    name: &'static str,
    lock: Result<Lock, Error>,
    at: Instant,
}

impl Tour {
    /// Those who ask for a lock get it in the order in which they asked, each with a higher token.
    fn queue(&self) -> Result<(), Failure> {
        self.title("1. A queue")?;
        let anna = self.client("anna")?;
        let mut lock = anna.acquire(KEY).call()?;
        self.say(format_args!(
            "anna asks for the lock `{KEY}`, which is free, and gets it with the fencing token {}",
            lock.token()
        ))?;
        self.pause(1.5);

        let names = ["ben", "chloe", "dan"];
        let (sender, grants) = mpsc::channel();
        let mut clients = Vec::new();
        for (place, name) in (1..).zip(names) {
            let client = self.client(name)?;
            self.ask(&client, name, &sender);
            self.until_waiting(&anna, place)?;
            clients.push(client);
        }
        self.say(
            "ben, chloe and dan ask for it too, one after the other; the server lists who waits:",
        )?;
        for waiter in anna.waiters(KEY, 10).call()?.first {
            let name = waiter.name.unwrap_or_default();
            self.say(format_args!(
                "    {}. {}",
                waiter.position,
                String::from_utf8_lossy(&name)
            ))?;
        }
        self.pause(2.0);

        let mut holder = "anna";
        for expected in names {
            let released = Instant::now();
            lock.release().call()?;
            let next = received(&grants)?;
            let token = lock.token();
            lock = next.lock?;
            if next.name != expected || lock.token() <= token {
                return Err(broken("the lock was not handed over in order"));
            }
            self.say(format_args!(
                "{holder} releases it, and {} has it {} µs later, with the token {}",
                next.name,
                next.at.saturating_duration_since(released).as_micros(),
                lock.token()
            ))?;
            holder = next.name;
            self.pause(1.5);
        }
        lock.release().call()?;
        self.say(format_args!(
            "{holder} releases it, and it is free; nobody polled, nobody raced"
        ))?;
        self.pause(2.0);
        Ok(())
    }

    /// A wait has an end if one is wished.
    fn patience(&self) -> Result<(), Failure> {
        self.title("2. Patience")?;
        let [anna, ben] = [self.client("anna")?, self.client("ben")?];
        let lock = anna.acquire(KEY).call()?;
        let wait = Duration::from_millis(if self.fast { 100 } else { 1500 });
        self.say(format_args!(
            "anna has the lock; ben wants to wait for {} s at most",
            show_seconds(wait)
        ))?;
        let asked = Instant::now();
        match ben.acquire(KEY).wait(wait).call() {
            Err(error) => self.say(format_args!(
                "after {:.3} s ben is told: {error}",
                asked.elapsed().as_secs_f64()
            ))?,
            Ok(_) => return Err(broken("two clients have the lock")),
        }
        lock.release().call()?;
        self.pause(2.0);
        Ok(())
    }

    /// A lease ends, the next one gets the lock, and the one who comes back too late is found out.
    fn lease_and_fence(&self) -> Result<(), Failure> {
        self.title("3. A lease that ends")?;
        let [eve, frank] = [self.client("eve")?, self.client("frank")?];
        let lease = Duration::from_millis(if self.fast { 300 } else { 4000 });
        let stale = eve.acquire(KEY).lease(lease).call()?;
        self.say(format_args!(
            "eve takes the lock for {} s, with the token {}, and then hears and says nothing any more",
            show_seconds(lease),
            stale.token()
        ))?;
        let (sender, grants) = mpsc::channel();
        self.ask(&frank, "frank", &sender);
        self.until_waiting(&frank, 1)?;
        self.say("frank waits in line")?;
        let granted = loop {
            if let Ok(granted) = grants.recv_timeout(Duration::from_secs(1)) {
                break granted;
            }
            if let KeyState::Held(held) = frank.inspect(KEY).call()? {
                self.say(format_args!(
                    "    {:.1} s of the lease are left",
                    held.remaining.as_secs_f64()
                ))?;
            }
        };
        let lock = granted.lock?;
        self.say(format_args!(
            "the lease is over: frank has the lock, with the token {}",
            lock.token()
        ))?;
        self.pause(2.5);

        self.title("4. A fence")?;
        self.say("no lock service can stop a program that slept through its lease and writes when it wakes;")?;
        self.say("the printer can: it remembers the highest token that it has seen")?;
        self.pause(2.5);
        let fence = Fence::new();
        self.write(&fence, "frank", lock.token())?;
        self.pause(1.0);
        self.say(format_args!(
            "eve wakes up; her client says is_held() = {}, but she does not look",
            stale.is_held()
        ))?;
        if self.write(&fence, "eve", stale.token())? {
            return Err(broken("the fence let an old token pass"));
        }
        self.pause(1.0);
        self.write(&fence, "frank", lock.token())?;
        lock.release().call()?;
        self.pause(2.5);
        Ok(())
    }

    /// The active one of three nodes is killed and nothing is lost; the next one is stopped and nobody
    /// even has to wait.
    fn cluster(&self) -> Result<(), Failure> {
        self.title("5. A cluster")?;
        let cannot_start = |error: &dyn Display| Failure::new(exit::FAILED, error);
        let peers = [(); 3].map(|()| Server::free_address().map(|address| address.to_string()));
        let peers = peers.into_iter().collect::<Result<Vec<_>, _>>();
        let peers = peers.map_err(|error| cannot_start(&error))?;
        let start = |node: &String| Server::builder().cluster(&peers, node).start_blocking();
        let nodes = peers.iter().map(start).collect::<Result<Vec<_>, _>>();
        let mut nodes = nodes.map_err(|error| cannot_start(&error))?.into_iter();
        let [anna, ben, chloe] = ["anna", "ben", "chloe"].map(|name| client_of(&peers, name));
        let (anna, ben, chloe) = (anna?, ben?, chloe?);
        self.until_copied(&peers[0], 2)?;
        self.say(format_args!(
            "three more servers run in this process; {} is active, the others have a copy of its state",
            peers[0]
        ))?;
        self.pause(2.5);
        let lock = anna.acquire(KEY).call()?;
        let (sender, grants) = mpsc::channel();
        for (place, (name, client)) in (1..).zip([("ben", &ben), ("chloe", &chloe)]) {
            self.ask(client, name, &sender);
            self.until_waiting(&anna, place)?;
        }
        self.say(format_args!(
            "anna has the lock, with the token {}; ben and chloe wait for it",
            lock.token()
        ))?;
        self.pause(2.5);
        // A standby has it within moments, but it is not asked for each change.
        self.until_copied(&peers[0], 2)?;
        end(nodes.next(), Server::kill)?;
        let killed = Instant::now();
        self.say(format_args!("{} is killed", peers[0]))?;
        self.hand_on("anna", &lock, killed)?;
        let ben = self.next(&grants, "ben", &lock)?;
        self.pause(2.5);
        self.until_copied(&peers[1], 1)?;
        self.say(format_args!(
            "now {} is told to stop, as for an upgrade: it hands over first",
            peers[1]
        ))?;
        let stopped = Instant::now();
        end(nodes.next(), Server::stop_blocking)?;
        self.hand_on("ben", &ben, stopped)?;
        let chloe = self.next(&grants, "chloe", &ben)?;
        chloe.release().call()?;
        self.pause(2.5);
        Ok(())
    }

    /// A holder releases a lock that has to be held still.
    fn hand_on(&self, name: &str, lock: &Lock, since: Instant) -> Result<(), Failure> {
        if !lock.release().call()? {
            return Err(broken("a lock was lost"));
        }
        self.say(format_args!(
            "{name}'s lock is still held: the next server has released it {} ms later",
            since.elapsed().as_millis()
        ))?;
        Ok(())
    }

    /// The next in line has to be `name`, with a token greater than that of the holder before.
    fn next(
        &self,
        grants: &mpsc::Receiver<Granted>,
        name: &str,
        before: &Lock,
    ) -> Result<Lock, Failure> {
        let next = received(grants)?;
        let lock = next.lock?;
        if next.name != name || lock.token() <= before.token() {
            return Err(broken("the lock was not handed over in order"));
        }
        self.say(format_args!(
            "{name}, next in line, has the lock with a higher token: {}",
            lock.token()
        ))?;
        Ok(lock)
    }

    /// Waits until `node` is active and so many others have a copy of everything.
    fn until_copied(&self, node: &String, count: usize) -> Result<(), Failure> {
        let client = client_of(node, "demo")?;
        let asked = Instant::now();
        while asked.elapsed() < LIMIT {
            let status = client.status().call()?;
            if status.role == Role::Active && status.standbys.len() == count {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(broken("the standbys have no copy"))
    }

    /// Somebody writes to the protected resource; gives whether it was let in.
    fn write(&self, fence: &Fence, name: &str, token: Token) -> Result<bool, Failure> {
        match fence.check(KEY, token) {
            Ok(()) => {
                self.say(format_args!(
                    "{name} prints with the token {token}: accepted"
                ))?;
                Ok(true)
            }
            Err(error) => {
                self.say(format_args!(
                    "{name} prints with the token {token}: refused, {error}"
                ))?;
                Ok(false)
            }
        }
    }

    fn client(&self, name: &str) -> Result<Client, Failure> {
        client_of(self.address, name)
    }

    fn ask(&self, client: &Client, name: &'static str, grants: &mpsc::Sender<Granted>) {
        let grants = grants.clone();
        client.acquire(KEY).submit(move |lock| {
            let at = Instant::now();
            // Whoever told the tour may have given up by now.
            let _ = grants.send(Granted { name, lock, at });
        });
    }

    fn until_waiting(&self, client: &Client, count: u64) -> Result<(), Failure> {
        let asked = Instant::now();
        while asked.elapsed() < LIMIT {
            if client.waiters(KEY, 1).call()?.count >= count {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(broken("a request did not reach the queue"))
    }

    fn title(&self, title: &str) -> io::Result<()> {
        writeln!(io::stdout(), "\n{title}")
    }

    fn say(&self, line: impl Display) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{:5.1} s  {line}", self.start.elapsed().as_secs_f64())?;
        out.flush()
    }

    fn pause(&self, seconds: f64) {
        if !self.fast {
            std::thread::sleep(Duration::from_secs_f64(seconds));
        }
    }
}

fn client_of(servers: impl IntoServers, name: &str) -> Result<Client, Failure> {
    // What the environment says about other servers and their secret is not for these.
    let client = Client::builder().servers(servers).name(name).secret("demo");
    Ok(client.build()?)
}

fn received(grants: &mpsc::Receiver<Granted>) -> Result<Granted, Failure> {
    grants
        .recv_timeout(LIMIT)
        .map_err(|_| broken("a released lock was not handed over"))
}

fn end(
    node: Option<Server>,
    how: impl FnOnce(Server) -> Result<(), ServerError>,
) -> Result<(), Failure> {
    node.map_or(Ok(()), how)
        .map_err(|error| Failure::new(exit::FAILED, error))
}

/// Something happened that must not: a bug that the tour shows instead of a feature.
fn broken(what: &str) -> Failure {
    Failure::new(
        exit::FAILED,
        format_args!("this should not have happened: {what}"),
    )
}
