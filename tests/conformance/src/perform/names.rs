//! What the names in a play mean: nodes, and connections that get their name where they are first met.

use super::Trouble::Wrong;
use super::{Performance, Trouble};
use crate::scenario::Connection;
use std::time::Instant;

impl Performance<'_> {
    /// The one node that a name means.
    pub(super) fn node(&self, name: &str) -> Result<usize, Trouble> {
        match self.could_be(name).as_slice() {
            [node] => Ok(*node),
            [] => Err(Wrong(format!("the play has no node {name}"))),
            _ => Err(Wrong(format!("{name} could still be more than one node"))),
        }
    }

    /// The nodes that a name may mean: more than one only for a name in upper case not bound yet.
    pub(super) fn could_be(&self, name: &str) -> Vec<usize> {
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
    pub(super) fn bind(&mut self, wanted: &Connection, connection: usize) {
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

    /// The connections that a name may mean: the one that has it, or else those that have none.
    pub(super) fn candidates(&self, wanted: &Connection) -> Result<Vec<usize>, Trouble> {
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

    /// The connection of this name. A name not met yet is given to the only unnamed one of its node.
    pub(super) fn bound(&mut self, wanted: &Connection) -> Result<usize, Trouble> {
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
}
