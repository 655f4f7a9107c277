//! Performs a play: does what its lines do, waits for what its lines expect, and stops at the first
//! line that does not come true.
//!
//! What happens is kept in queues, one a connection, one an operation of the caller and one a node
//! (its new connections), so that only the order within each of them matters, and what a play says in time.

use crate::driver::Actor;
use crate::pattern::{Names, Pattern};
use crate::scenario::{self, Action, Connection, Cut, Scenario, Step, Window};
use crate::stage::{Automatic, Behaviour, Door, Event, Stage, What};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long an expected line may take where the play says nothing of time.
const PATIENCE: Duration = Duration::from_secs(6);

/// How much earlier than told a time may seem, because the two moments are noted by different threads.
const EARLY: Duration = Duration::from_millis(40);

/// What the client needs to hear the last answer to a hello before it is told to do something.
const SETTLE: Duration = Duration::from_millis(60);

/// How long nothing may happen behind the last line of a play.
const AFTERMATH: Duration = Duration::from_millis(60);

/// What became of a play.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What was seen, a line for each step, ids and tags by name.
    pub(crate) trace: Vec<String>,
    /// The step that did not come true.
    pub(crate) failure: Option<Failure>,
    /// Everything, with times.
    pub(crate) log: Vec<String>,
}

/// The step that did not come true, and why.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The step's index; the number of steps for what came after the last one.
    pub(crate) step: usize,
    /// What was seen instead.
    pub(crate) why: String,
    /// All was right but later than it may be.
    pub(crate) late: bool,
}

enum Trouble {
    Wrong(String),
    Late(String),
}

use Trouble::{Late, Wrong};

struct Performance<'a> {
    driver: &'a dyn Actor,
    play: u64,
    slack: Duration,
    events: Receiver<Event>,
    stage: Stage,
    nodes: Vec<Node>,
    connections: Vec<Seen>,
    answers: HashMap<String, VecDeque<(Instant, String)>>,
    names: Names,
    /// Which node a name in upper case means.
    variables: HashMap<String, usize>,
    last_connection: Option<usize>,
    last: Instant,
    marks: HashMap<String, Instant>,
    gone: Option<String>,
    trace: Vec<String>,
}

struct Node {
    name: String,
    address: SocketAddr,
    settings: BTreeMap<String, String>,
    accepted: usize,
    greeted: usize,
    connects: VecDeque<Instant>,
}

struct Seen {
    node: usize,
    label: Option<String>,
    queue: VecDeque<(Instant, Item)>,
    cut_by_server: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Item {
    Line(String),
    Ended { reset: bool },
}

/// Plays `scenario` with the client of `driver`. `slack` is what is added to the end of each time.
pub(crate) fn perform(
    scenario: &Scenario,
    driver: &dyn Actor,
    play: u64,
    slack: Duration,
) -> Outcome {
    let (sender, events) = channel();
    let mut performance = Performance {
        driver,
        play,
        slack,
        events,
        stage: Stage::new(sender.clone()),
        nodes: Vec::new(),
        connections: Vec::new(),
        answers: HashMap::new(),
        names: Names::default(),
        variables: HashMap::new(),
        last_connection: None,
        last: Instant::now(),
        marks: HashMap::new(),
        gone: None,
        trace: Vec::new(),
    };
    if !driver.attach(play, sender) {
        performance.gone = Some("the driver has ended".to_owned());
    }
    let mut failure = None;
    for (index, step) in scenario.steps.iter().enumerate() {
        performance.stage.remark(&format!("-- {}", step.text));
        if let Err(trouble) = performance.step(step) {
            failure = Some(fail(index, trouble));
            break;
        }
    }
    if failure.is_none()
        && let Err(trouble) = performance.quiet(AFTERMATH)
    {
        failure = Some(fail(scenario.steps.len(), trouble));
    }
    driver.detach(play);
    Outcome {
        log: performance.stage.log(),
        trace: performance.trace,
        failure,
    }
}

fn fail(step: usize, trouble: Trouble) -> Failure {
    let (why, late) = match trouble {
        Wrong(why) => (why, false),
        Late(why) => (why, true),
    };
    Failure { step, why, late }
}

impl Performance<'_> {
    fn step(&mut self, step: &Step) -> Result<(), Trouble> {
        let begin = match &step.since {
            None => self.last,
            Some(mark) => *self
                .marks
                .get(mark)
                .ok_or_else(|| Wrong(format!("the play has no mark {mark}")))?,
        };
        let limit = self.limit(begin, step.when);
        let seen = match &step.action {
            Action::Mark { name } => {
                self.marks.insert(name.clone(), self.last);
                return Ok(());
            }
            Action::Node { name, settings } => return self.set_node(name, settings),
            Action::Open {
                nodes,
                options,
                wait,
            } => return self.open(nodes, options, *wait),
            Action::Do {
                op,
                verb,
                arguments,
                interrupted_later,
            } => {
                let flag = if *interrupted_later {
                    " cancellable"
                } else {
                    ""
                };
                self.act(&format!("{verb} {op} {}{flag}", arguments.join(" ")));
                return Ok(());
            }
            Action::Says {
                connection,
                bytes,
                pace,
            } => return self.say(connection, bytes, *pace),
            Action::Cut { connection, how } => return self.cut(connection, *how),
            Action::Quiet { time } => return self.quiet(*time),
            Action::Pause { time } => {
                thread::sleep(*time);
                self.last = Instant::now();
                return Ok(());
            }
            Action::NoConnect { node, time } => return self.no_connect(node, *time),
            Action::Accepted { node, count } => return self.accepted(node, *count),
            Action::Got { op, pattern } => {
                let at = self.got(op, pattern, limit)?;
                (at, format!("got {op} {}", pattern.text()))
            }
            Action::Sees {
                connection,
                anywhere,
                pattern,
            } => {
                let at = self.sees(connection, *anywhere, pattern, limit)?;
                (at, format!("{connection} < {}", pattern.text()))
            }
            Action::Ended { connection, reset } => {
                let at = self.ended(connection, *reset, limit)?;
                (at, step.text.clone())
            }
            Action::Connects { node } => {
                let at = self.connects(node, limit)?;
                (at, format!("{node} connects"))
            }
        };
        let (at, text) = seen;
        self.check_time(begin, step.when, at)?;
        self.last = at;
        self.trace.push(text);
        Ok(())
    }

    /// Until when an expected thing may come.
    fn limit(&self, begin: Instant, when: Option<Window>) -> Instant {
        match when {
            // Longer than allowed, so that "late" can be told from "never".
            Some(window) => begin + window.to + self.slack + PATIENCE / 2,
            None => Instant::now() + PATIENCE + self.slack,
        }
    }

    fn check_time(&self, begin: Instant, when: Option<Window>, at: Instant) -> Result<(), Trouble> {
        let Some(window) = when else { return Ok(()) };
        let passed = at.saturating_duration_since(begin);
        if passed + EARLY < window.from {
            return Err(Wrong(format!(
                "came too early, after {} ms",
                passed.as_millis()
            )));
        }
        if passed > window.to + self.slack {
            return Err(Late(format!(
                "came too late, after {} ms",
                passed.as_millis()
            )));
        }
        Ok(())
    }

    fn act(&mut self, command: &str) {
        self.stage.remark(&format!("do {command}"));
        self.last = Instant::now();
        self.driver.tell(self.play, command.trim_end());
    }

    // What the play sets up.

    fn set_node(&mut self, name: &str, settings: &BTreeMap<String, String>) -> Result<(), Trouble> {
        let node = match self.could_be(name).as_slice() {
            [node] => *node,
            [_, ..] => return Err(Wrong(format!("{name} could be more than one node"))),
            [] => {
                let address = self
                    .stage
                    .add_node()
                    .map_err(|error| Wrong(error.to_string()))?;
                self.nodes.push(Node {
                    name: name.to_owned(),
                    address,
                    settings: BTreeMap::new(),
                    accepted: 0,
                    greeted: 0,
                    connects: VecDeque::new(),
                });
                self.nodes.len() - 1
            }
        };
        self.nodes[node].settings.extend(settings.clone());
        let behaviour = self.behaviour(node)?;
        self.stage
            .behave(node, behaviour)
            .map_err(|error| Wrong(format!("node {name}: {error}")))?;
        self.last = Instant::now();
        Ok(())
    }

    fn behaviour(&self, node: usize) -> Result<Behaviour, Trouble> {
        let own = &self.nodes[node];
        let set = |key: &str, default: &str| {
            let value = own.settings.get(key).map_or(default, String::as_str);
            self.addresses(value)
        };
        let me = format!("{{{}}}", own.name);
        let role = set("role", "active");
        let hello = format!(
            "H 1 role={role} node={} active={} peers={} server=test",
            self.addresses(&me),
            set("active", if role == "active" { &me } else { "-" }),
            set("peers", &me),
        );
        let hello = match own.settings.get("hello").map(String::as_str) {
            Some("hand") => None,
            Some(code) => Some(format!("E H - {code} refused by the play")),
            None => Some(hello),
        };
        let by_hand = |key| own.settings.get(key).is_some_and(|value| value == "hand");
        let door = match own.settings.get("door").map(String::as_str) {
            None | Some("open") => Door::Open,
            Some("drop") => Door::Drop,
            Some("closed") => Door::Closed,
            Some(other) => return Err(Wrong(format!("unknown door {other}"))),
        };
        Ok(Behaviour {
            door,
            hello,
            pings: !by_hand("pings"),
            automatic: self.automatic(&set("auto", ""))?,
        })
    }

    /// Reads `R:ok,K:silent,A:moved:ADDRESS`.
    fn automatic(&self, text: &str) -> Result<Vec<(char, Automatic)>, Trouble> {
        let rules = text.split(',').filter(|rule| !rule.is_empty());
        rules
            .map(|rule| {
                let (letter, answer) = rule.split_once(':').unwrap_or((rule, ""));
                let letter = letter
                    .chars()
                    .next()
                    .ok_or_else(|| Wrong(format!("auto={text}")))?;
                let answer = match answer.split_once(':') {
                    Some(("moved", address)) => Automatic::Moved(address.to_owned()),
                    Some(("refused", code)) => Automatic::Refused(code.to_owned()),
                    _ if answer == "silent" => Automatic::Silence,
                    _ => Automatic::Words(answer.to_owned()),
                };
                Ok((letter, answer))
            })
            .collect()
    }

    /// Puts addresses in the place of `{a}`.
    fn addresses(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, name)) = rest.split_once('{') {
            out.push_str(before);
            let (name, after) = name.split_once('}').unwrap_or((name, ""));
            match self.node(name) {
                Ok(node) => out.push_str(&self.nodes[node].address.to_string()),
                Err(_) => out.push_str(name),
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }

    fn open(&mut self, nodes: &[String], options: &[String], wait: bool) -> Result<(), Trouble> {
        let servers: Vec<String> = nodes
            .iter()
            .map(|name| self.server(name))
            .collect::<Result<_, _>>()?;
        // `localhost:a` is the node a by another name.
        let nodes: Vec<&str> = nodes
            .iter()
            .map(|name| name.rsplit(':').next().unwrap_or(name))
            .collect();
        let mut options = options.join(" ");
        if !options.contains("name=") {
            options.push_str(" name=conformance");
        }
        self.act(&format!(
            "open c servers={} {}",
            servers.join(","),
            options.trim()
        ));
        let opened = Pattern::parse("open").expect("a word is a pattern");
        self.got("c", &opened, Instant::now() + PATIENCE)?;
        if !wait {
            return Ok(());
        }
        let each = if nodes.len() == 1 { 2 } else { 1 };
        let limit = Instant::now() + PATIENCE + self.slack;
        let missing = |own: &Self| {
            nodes.iter().any(|name| {
                let node = own.nodes.iter().find(|node| node.name == *name);
                node.is_some_and(|node| own.is_up(node) && node.greeted < each)
            })
        };
        while missing(self) {
            if !self.pump(limit)? {
                return Err(Wrong("the client has not greeted each node".to_owned()));
            }
        }
        for node in &mut self.nodes {
            node.connects.clear();
        }
        thread::sleep(SETTLE);
        self.last = Instant::now();
        Ok(())
    }

    /// The address of a node as the client is told it: `a`, or `localhost:a`.
    fn server(&self, name: &str) -> Result<String, Trouble> {
        match name.split_once(':') {
            None => Ok(self.nodes[self.node(name)?].address.to_string()),
            Some((host, name)) => {
                let port = self.nodes[self.node(name)?].address.port();
                Ok(format!("{host}:{port}"))
            }
        }
    }

    /// Whether the stage lets in and greets whoever comes to this node.
    fn is_up(&self, node: &Node) -> bool {
        let is = |key: &str, value: &str| node.settings.get(key).is_some_and(|have| have == value);
        !is("door", "closed") && !is("door", "drop") && !node.settings.contains_key("hello")
    }

    /// The one node that a name means.
    fn node(&self, name: &str) -> Result<usize, Trouble> {
        match self.could_be(name).as_slice() {
            [node] => Ok(*node),
            [] => Err(Wrong(format!("the play has no node {name}"))),
            _ => Err(Wrong(format!("{name} could still be more than one node"))),
        }
    }

    /// The nodes that a name may mean: more than one only for a name in upper case not bound yet.
    fn could_be(&self, name: &str) -> Vec<usize> {
        if let Some(node) = self.variables.get(name) {
            return vec![*node];
        }
        let variable = name.starts_with(|first: char| first.is_ascii_uppercase());
        let bound = |node: &usize| self.variables.values().any(|other| other == node);
        (0..self.nodes.len())
            .filter(|node| match variable {
                true => !bound(node),
                false => self.nodes[*node].name == name,
            })
            .collect()
    }

    /// From here on the names in `wanted` mean this connection and its node.
    fn bind(&mut self, wanted: &Connection, connection: usize) {
        self.last_connection = Some(connection);
        let seen = &mut self.connections[connection];
        // `last` is no name of its own.
        if wanted.node.is_some() && seen.label.is_none() {
            seen.label.clone_from(&wanted.label);
        }
        if let Some(name) = &wanted.node
            && name.starts_with(|first: char| first.is_ascii_uppercase())
        {
            self.variables.insert(name.clone(), seen.node);
        }
    }

    // What the server does.

    fn say(&mut self, to: &Connection, text: &str, pace: Option<Duration>) -> Result<(), Trouble> {
        let connection = self.bound(to)?;
        let text = self.names.fill(&self.addresses(text)).map_err(Wrong)?;
        let bytes = scenario::bytes(&text);
        match pace {
            None => self.stage.say(connection, &bytes),
            Some(pace) => {
                for byte in bytes {
                    self.stage.say(connection, &[byte]);
                    thread::sleep(pace);
                }
            }
        }
        self.last = Instant::now();
        Ok(())
    }

    fn cut(&mut self, to: &Connection, how: Cut) -> Result<(), Trouble> {
        let connections = match to.label {
            Some(_) => vec![self.bound(to)?],
            None => {
                while self.pump(Instant::now())? {}
                let mut all = self.candidates(to)?;
                all.retain(|index| !self.connections[*index].cut_by_server);
                all
            }
        };
        for connection in connections {
            match how {
                Cut::Close => self.stage.close(connection),
                Cut::Reset => self.stage.reset(connection),
                Cut::HalfClose => self.stage.half_close(connection),
            }
            self.connections[connection].cut_by_server |= how != Cut::HalfClose;
        }
        self.last = Instant::now();
        Ok(())
    }

    /// The connection of this name. A name not met yet is given to the only unnamed one of its node.
    fn bound(&mut self, wanted: &Connection) -> Result<usize, Trouble> {
        while self.pump(Instant::now())? {}
        if let Some(name) = &wanted.node {
            self.node(name)?;
        }
        let open = |index: &usize| !self.connections[*index].cut_by_server;
        let candidates = self.candidates(wanted)?;
        let named = |index: &&usize| self.connections[**index].label.is_some();
        if let Some(found) = candidates.iter().find(named) {
            return Ok(*found);
        }
        match candidates
            .into_iter()
            .filter(open)
            .collect::<Vec<_>>()
            .as_slice()
        {
            [found] => {
                let found = *found;
                self.bind(wanted, found);
                Ok(found)
            }
            [] => Err(Wrong(format!("there is no connection {wanted}"))),
            _ => Err(Wrong(format!("{wanted} could be more than one connection"))),
        }
    }

    // What the play expects.

    fn sees(
        &mut self,
        wanted: &Connection,
        anywhere: bool,
        pattern: &Pattern,
        limit: Instant,
    ) -> Result<Instant, Trouble> {
        let depth = if anywhere { usize::MAX } else { 1 };
        loop {
            for index in self.candidates(wanted)? {
                let mut queue = self.connections[index].queue.iter().take(depth);
                let found = queue.position(|(_, item)| {
                    matches!(item, Item::Line(line) if pattern.matches(line, &mut self.names))
                });
                if let Some(place) = found {
                    return Ok(self.take(wanted, index, place));
                }
                if !anywhere {
                    self.nothing_else(wanted, index)?;
                }
            }
            if !self.pump(limit)? {
                return Err(Wrong(format!("nothing like this came; {}", self.pending())));
            }
        }
    }

    fn ended(
        &mut self,
        wanted: &Connection,
        reset: bool,
        limit: Instant,
    ) -> Result<Instant, Trouble> {
        loop {
            for index in self.candidates(wanted)? {
                match self.connections[index].queue.front() {
                    Some((_, Item::Ended { reset: false })) if reset => {
                        return Err(Wrong(
                            "the client closed it instead of resetting it".to_owned(),
                        ));
                    }
                    Some((_, Item::Ended { .. })) => return Ok(self.take(wanted, index, 0)),
                    _ => self.nothing_else(wanted, index)?,
                }
            }
            if !self.pump(limit)? {
                return Err(Wrong(format!(
                    "the connection stayed up; {}",
                    self.pending()
                )));
            }
        }
    }

    fn take(&mut self, wanted: &Connection, connection: usize, place: usize) -> Instant {
        self.bind(wanted, connection);
        let queue = &mut self.connections[connection].queue;
        let (at, _) = queue.remove(place).expect("it was just found");
        at
    }

    /// The connections that a name may mean: the one that has it, or else those that have none.
    fn candidates(&self, wanted: &Connection) -> Result<Vec<usize>, Trouble> {
        let nodes = match (&wanted.node, &wanted.label) {
            (Some(name), _) => self.could_be(name),
            (None, None) => (0..self.nodes.len()).collect(),
            (None, Some(_)) => {
                let last = self.last_connection;
                return last.map_or_else(
                    || Err(Wrong("no line has come yet".to_owned())),
                    |last| Ok(vec![last]),
                );
            }
        };
        let all = (0..self.connections.len())
            .filter(|index| nodes.contains(&self.connections[*index].node));
        let Some(label) = &wanted.label else {
            return Ok(all.collect());
        };
        let named = |index: &usize| self.connections[*index].label.as_ref() == Some(label);
        if let Some(index) = all.clone().find(named) {
            return Ok(vec![index]);
        }
        Ok(all
            .filter(|index| self.connections[*index].label.is_none())
            .collect())
    }

    /// On a connection that is known by name the next thing is the expected one or a fault.
    fn nothing_else(&self, wanted: &Connection, connection: usize) -> Result<(), Trouble> {
        let seen = &self.connections[connection];
        match seen.queue.front() {
            Some((_, item)) if seen.label.is_some() && wanted.label.is_some() => {
                Err(Wrong(format!("instead came {}", self.spell(item))))
            }
            _ => Ok(()),
        }
    }

    fn got(&mut self, op: &str, pattern: &Pattern, limit: Instant) -> Result<Instant, Trouble> {
        loop {
            if let Some((at, text)) = self.answers.get_mut(op).and_then(VecDeque::pop_front) {
                return match pattern.matches(&text, &mut self.names) {
                    true => Ok(at),
                    false => Err(Wrong(format!("instead the caller got {text}"))),
                };
            }
            if !self.pump(limit)? {
                return Err(Wrong(format!("the caller got nothing; {}", self.pending())));
            }
        }
    }

    fn connects(&mut self, node: &str, limit: Instant) -> Result<Instant, Trouble> {
        let node = self.node(node)?;
        loop {
            if let Some(at) = self.nodes[node].connects.pop_front() {
                return Ok(at);
            }
            if !self.pump(limit)? {
                return Err(Wrong("no connection came".to_owned()));
            }
        }
    }

    fn no_connect(&mut self, node: &str, time: Duration) -> Result<(), Trouble> {
        let node = self.node(node)?;
        let begin = self.last;
        let limit = begin + time;
        loop {
            let more = self.pump(limit)?;
            if let Some(at) = self.nodes[node].connects.pop_front()
                && at < limit
            {
                let after = at.saturating_duration_since(begin).as_millis();
                return Err(Wrong(format!("a connection came after {after} ms")));
            }
            if !more {
                self.last = Instant::now();
                return Ok(());
            }
        }
    }

    fn accepted(&mut self, node: &str, count: usize) -> Result<(), Trouble> {
        while self.pump(Instant::now())? {}
        let node = self.node(node)?;
        match self.nodes[node].accepted {
            have if have == count => {
                self.trace
                    .push(format!("{} accepted {count}", self.nodes[node].name));
                Ok(())
            }
            have => Err(Wrong(format!("{have} connections have come"))),
        }
    }

    fn quiet(&mut self, time: Duration) -> Result<(), Trouble> {
        let limit = Instant::now() + time;
        loop {
            let more = self.pump(limit)?;
            if self.has_pending() {
                return Err(Wrong(format!("it is not quiet; {}", self.pending())));
            }
            if !more {
                self.last = Instant::now();
                return Ok(());
            }
        }
    }

    // What happens meanwhile.

    /// Takes one event into its queue. False if none came until `limit`.
    fn pump(&mut self, limit: Instant) -> Result<bool, Trouble> {
        if let Some(why) = &self.gone {
            return Err(Wrong(format!("the driver has ended: {why}")));
        }
        let event = match self
            .events
            .recv_timeout(limit.saturating_duration_since(Instant::now()))
        {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Wrong("the stage has ended".to_owned()));
            }
        };
        match event.what {
            What::Connected { node, connection } => {
                self.nodes[node].accepted += 1;
                self.nodes[node].connects.push_back(event.at);
                if let Some(connection) = connection {
                    self.seen(connection).node = node;
                }
            }
            What::Hello { connection, line } => {
                let form = Pattern::parse("H 1 id=<id> ...").expect("the pattern is right");
                if !form.matches(&line, &mut self.names) {
                    return Err(Wrong(format!("a hello of another form: {line}")));
                }
                let node = self.seen(connection).node;
                self.nodes[node].greeted += 1;
            }
            What::Line { connection, line } => {
                self.seen(connection)
                    .queue
                    .push_back((event.at, Item::Line(line)));
            }
            What::Ended { connection, reset } => {
                let seen = self.seen(connection);
                if !seen.cut_by_server {
                    seen.queue.push_back((event.at, Item::Ended { reset }));
                }
            }
            What::Answer { op, text } => {
                self.stage.remark(&format!("got {op} {text}"));
                self.answers
                    .entry(op)
                    .or_default()
                    .push_back((event.at, text));
            }
            What::DriverGone { why } => self.gone = Some(why),
        }
        Ok(true)
    }

    fn seen(&mut self, connection: usize) -> &mut Seen {
        while self.connections.len() <= connection {
            self.connections.push(Seen {
                node: 0,
                label: None,
                queue: VecDeque::new(),
                cut_by_server: false,
            });
        }
        &mut self.connections[connection]
    }

    fn has_pending(&self) -> bool {
        self.connections.iter().any(|seen| !seen.queue.is_empty())
            || self.answers.values().any(|queue| !queue.is_empty())
    }

    /// All that came and was not asked for.
    fn pending(&self) -> String {
        let mut left = Vec::new();
        for seen in &self.connections {
            let node = self
                .nodes
                .get(seen.node)
                .map_or("?", |node| node.name.as_str());
            let label = seen.label.as_deref().unwrap_or("?");
            for (_, item) in &seen.queue {
                left.push(format!("{node}.{label} {}", self.spell(item)));
            }
        }
        for (op, queue) in &self.answers {
            for (_, text) in queue {
                left.push(format!("got {op} {text}"));
            }
        }
        if left.is_empty() {
            "nothing else came".to_owned()
        } else {
            format!("what came and was not asked for: {}", left.join(" · "))
        }
    }

    fn spell(&self, item: &Item) -> String {
        match item {
            Item::Line(line) => format!("< {}", self.names.normal(line)),
            Item::Ended { reset: true } => "a reset by the client".to_owned(),
            Item::Ended { reset: false } => "the client's end of the connection".to_owned(),
        }
    }
}

#[cfg(test)]
#[path = "perform_tests.rs"]
mod tests;
