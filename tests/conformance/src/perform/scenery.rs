//! What a play sets up and what its server does: nodes, the client, lines and ends of connections.

use super::Trouble::Wrong;
use super::{Node, PATIENCE, Performance, SETTLE, Trouble};
use crate::pattern::Pattern;
use crate::scenario;
use crate::scenario::{Connection, Cut};
use crate::stage::{Automatic, Behaviour, Door};
use std::collections::{BTreeMap, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

impl Performance<'_> {
    pub(super) fn set_node(
        &mut self,
        name: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), Trouble> {
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

    pub(super) fn behaviour(&self, node: usize) -> Result<Behaviour, Trouble> {
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
    pub(super) fn automatic(&self, text: &str) -> Result<Vec<(char, Automatic)>, Trouble> {
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
    pub(super) fn addresses(&self, text: &str) -> String {
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

    pub(super) fn open(
        &mut self,
        nodes: &[String],
        options: &[String],
        wait: bool,
    ) -> Result<(), Trouble> {
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
    pub(super) fn server(&self, name: &str) -> Result<String, Trouble> {
        match name.split_once(':') {
            None => Ok(self.nodes[self.node(name)?].address.to_string()),
            Some((host, name)) => {
                let port = self.nodes[self.node(name)?].address.port();
                Ok(format!("{host}:{port}"))
            }
        }
    }

    /// Whether the stage lets in and greets whoever comes to this node.
    pub(super) fn is_up(&self, node: &Node) -> bool {
        let is = |key: &str, value: &str| node.settings.get(key).is_some_and(|have| have == value);
        !is("door", "closed") && !is("door", "drop") && !node.settings.contains_key("hello")
    }

    pub(super) fn say(
        &mut self,
        to: &Connection,
        text: &str,
        pace: Option<Duration>,
    ) -> Result<(), Trouble> {
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

    pub(super) fn cut(&mut self, to: &Connection, how: Cut) -> Result<(), Trouble> {
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
}
